//! Which connections and requests are let in, how many, and for how long others pass unaccelerated.

mod answers;
mod backoff;
mod bucket;
mod bypass;
mod drain;
mod fair_slots;
mod limits;
mod quota;
mod refused;

pub use answers::AnswerWatch;
pub use backoff::Backoff;
pub use bucket::Bucket;
pub use bypass::{Bypass, BypassClock, BypassHistory};
pub use drain::Drain;
pub use fair_slots::{FairSlots, SlotOutcome};
pub use limits::{Limits, Resources};
pub use quota::{Exceeded, Quota, QuotaPermit, Quotas};
pub use refused::RefusedDestinations;
