//! Which connections and requests are let in, how many, and for how long others pass unaccelerated.

mod backoff;
mod bucket;
mod bypass;
mod drain;
mod limits;
mod quota;
mod refused;
mod turns;

pub use backoff::Backoff;
pub use bucket::Bucket;
pub use bypass::{Bypass, BypassClock, BypassHistory};
pub use drain::Drain;
pub use limits::{Limits, Resources};
pub use quota::{Exceeded, Quota, Quotas, Seat};
pub use refused::RefusedDestinations;
pub use turns::{Turn, Turns};
