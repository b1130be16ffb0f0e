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

mod config;
mod counters;
pub mod dama;
mod delay;
mod dice;
mod discipline_choice;
mod ecn;
mod encapsulation;
mod link;
mod loss;
mod modcod;
mod opportunities;
mod outage;
mod payload;
mod policer;
mod propagate;
mod queue;
mod queue_size;
mod rate;
mod reception;
mod schedule;
mod serialise;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod text;
mod trace;
mod wake;

pub use config::LinkConfig;
pub use counters::{PacketCounters, Tally};
pub use delay::{Delay, Jitter};
pub use dice::Dice;
pub use discipline_choice::{DisciplineChoice, DisciplineError};
pub use ecn::mark_ce;
pub use encapsulation::{Encapsulation, GseLabel, Packing, UnknownEncapsulation};
pub use link::Link;
pub use loss::{BurstError, BurstModel, ErrorModel, GilbertElliott, LossModel};
pub use modcod::{
    Acm, AcmController, Adaptation, CodeRate, Constellation, Modcod, Modcods, Standard, es_n0_of,
};
pub use opportunities::{Opportunities, OpportunitiesError};
pub use outage::Outage;
pub use payload::{CarriedPacket, TrafficClass};
pub use policer::{Policer, PolicerError};
pub use queue::{CoDel, Discipline, QueueLimit, Red};
pub use queue_size::{QueueError, QueueSize};
pub use rate::Rate;
pub use text::SettingError;
pub use trace::{Trace, TraceError, TraceValue};
pub use wake::WakeCause;
