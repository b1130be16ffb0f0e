//! The command line of skyhop; nothing else.
fn main() {}
