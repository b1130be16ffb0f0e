//! What becomes of a client's connection on machines that are set up as real ones are, without the pair
//! and through it, in one table:
//!
//! ```text
//! cargo bench -p skyhop --bench networks [-- NAME]
//! ```
//!
//! `NAME` is a part of the rows' names. The same table is a test (`cargo test -p skyhop --test networks`).

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/inside.rs"]
mod inside;
#[path = "../../tests/networks/matrix.rs"]
mod matrix;
#[path = "../../tests/networks/probe.rs"]
mod probe;
#[path = "../../tests/networks/rows.rs"]
mod rows;
#[path = "../../tests/networks/world.rs"]
mod world;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let only = std::env::args().skip(1).find(|argument| argument != "--bench");
    if let Some(missing) = world::missing() {
        return Err(missing.into());
    }
    lab::enter()?;
    match matrix::run(&only.unwrap_or_default())? {
        true => Ok(()),
        false => Err("not as expected".into()),
    }
}
