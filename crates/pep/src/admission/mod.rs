//! Which connections and requests are let in, how many, and for how long others pass unaccelerated.

mod backoff;
mod bucket;
mod turns;

pub use backoff::Backoff;
pub use bucket::Bucket;
pub use turns::{Turn, Turns};
