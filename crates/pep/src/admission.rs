//! Admission of connections and requests: limits, fair shares, and periods in which connections pass
//! unaccelerated.

mod admit;
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
mod refusal_limiter;
mod refused;

pub use admit::{Passage, StreamRequest, StreamTreatment, choose_passage};
pub use answers::AnswerWatch;
pub use backoff::RefusalBackoff;
pub use bypass::{BypassClock, BypassHistory, BypassReason};
pub use client_slots::{ClientSlots, SlotId, TakenSlot};
pub use connection_shares::{ConnectionShares, IdleConnection, choose_evicted};
pub use drain::DrainDeadline;
pub use fair_slots::{FairSlots, SlotOutcome, SlotShare};
pub use limits::{ConnectionLimits, MachineResources};
pub use passing_clients::PassingClients;
pub use quota::{QuotaExceeded, QuotaPermit, TerminalQuotas};
pub use refusal_limiter::RefusalLimiter;
pub use refused::RefusedDestinations;
