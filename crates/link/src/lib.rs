//! One direction of a satellite link, in three separate stages: **queue →
//! serialise → propagate**.
//!
//! ```text
//!  handle_packet ─▶ queue ─▶ serialiser ─▶ propagation ─▶ poll_delivery
//!                     │       one packet     every packet on its way
//!                     ▼       at the rate            │
//!                  dropped                           ▼ lost on arrival
//! ```
//!
//! The stages are independent. A packet waits in the queue only while another is being serialised;
//! the one in the serialiser is not in the queue, and packets in propagation count against nothing.
//! A full queue therefore holds exactly its limit, and a long delay never costs throughput. A
//! [`Policer`], if there is one, drops packets before they reach the queue.
//!
//! [`Link`] is a state machine (`docs/state-machines.md`): it is handed the
//! time, and the same seed and inputs give the same outputs. The packets are
//! generic ([`CarriedPacket`]): a simulator moves structs, the lab moves bytes. Every
//! setting can be changed while the link runs.
//!
//! A [`Link`] does not model anything that needs two directions or several senders: shared
//! capacity, contention, MAC delays. [`dama`] does: a return link that many terminals share, with
//! capacity on demand.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod counters;
pub mod dama;
mod dice;
mod encapsulation;
mod link;
mod modcod;
mod payload;
mod policer;
mod propagation;
mod queue;
mod rate;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod text;
mod trace;

pub use counters::{PacketCounters, Tally};
pub use dice::Dice;
pub use encapsulation::{Encapsulation, GseLabel, Packing, UnknownEncapsulation};
pub use link::Link;
pub use link::config::LinkConfig;
pub use link::wake::WakeCause;
pub use modcod::{
    Acm, AcmController, Adaptation, CodeRate, Constellation, Modcod, Modcods, Standard, es_n0_of,
};
pub use payload::ecn::mark_ce;
pub use payload::{CarriedPacket, TrafficClass};
pub use policer::{Policer, PolicerError};
pub use propagation::delay::{Delay, Jitter};
pub use propagation::loss::{BurstError, BurstModel, ErrorModel, GilbertElliott, LossModel};
pub use propagation::outage::Outage;
pub use queue::discipline_choice::{DisciplineChoice, DisciplineError};
pub use queue::queue_size::{QueueError, QueueSize};
pub use queue::{CoDel, Discipline, QueueLimit, Red};
pub use rate::Rate;
pub use rate::opportunities::{Opportunities, OpportunitiesError};
pub use text::SettingError;
pub use trace::{Trace, TraceError, TraceValue};
