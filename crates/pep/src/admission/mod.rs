//! Admission of connections and requests: limits, fair shares, and periods in which connections pass
//! unaccelerated.

mod answers;
mod backoff;
mod bypass;
mod client_slots;
mod connection_shares;
mod drain;
mod fair_slots;
mod limits;
mod passing_clients;
mod quota;
mod refused;

pub use answers::AnswerWatch;
pub use backoff::Backoff;
pub use bypass::{Bypass, BypassClock, BypassHistory};
pub use client_slots::{ClientSlots, SlotId, Taken};
pub use connection_shares::{ConnectionShares, IdleConnection, give_way};
pub use drain::Drain;
pub use fair_slots::{FairSlots, SlotOutcome, SlotShare};
pub use limits::{Limits, Resources};
pub use passing_clients::PassingClients;
pub use quota::{Exceeded, Quota, QuotaPermit, Quotas};
pub use refused::RefusedDestinations;
