//! Capacity on demand: a return link that many terminals share.
//!
//! ```text
//!  terminal                        hub: network control centre
//!  packets ─▶ IP queue ─▶ MAC buffer ═══ slots of a superframe ═══▶ packets
//!                           │ backlog                                 ▲
//!                         agent ──── request (delay) ───▶ Ncc ────────┘
//!                           ◀─────── plan (delay) ───────┘  once per superframe
//! ```
//!
//! [`Dama`] is the whole: a state machine like [`crate::Link`], but with many senders. Its parts
//! are machines of their own, without time: the [`RequestAgent`] of a terminal decides which capacity to
//! request, the [`Ncc`] which requests to grant.
//!
//! The plan of superframe n is decided a [`DamaConfig::processing`] and a
//! [`DamaConfig::forward_delay`] before it begins, from the requests that have arrived by then. A
//! volume is therefore served after: the wait for an opportunity to request, the delay to the hub,
//! the wait for the next decision, processing, the delay back, and the wait for the slots.
//!
//! Rates count cells with their headers, so that 128 kbit/s are 16 cells of 53 bytes in 53 ms.
//!
//! Requests travel in slots of their own outside of those that are granted, in the headers of cells,
//! or by contention ([`RequestTransport`]). Short bursts of packets may go by contention as well
//! ([`RandomAccess`]), on carriers on which nothing is granted. [`random_access`] holds the schemes.
//!
//! Not modelled: log-on and synchronisation; differences of distance between terminals; a plan that a
//! terminal cannot receive; adaptive coding for each terminal by itself; contention bursts that are
//! shorter than a cell.

mod agent;
mod ahead;
mod category;
mod config;
mod frames;
mod layout;
mod mac;
mod ncc;
mod network;
pub mod random_access;
mod request;
mod terminal;
#[cfg(test)]
mod testkit;
mod text;

pub use agent::{CellBacklog, RequestAgent};
pub use ahead::BACKLOG_LASTS;
pub use category::{CapacityKind, ClassCapacities};
pub use config::{
    Allocation, CapacityPolicy, ContentionChannel, ContentionError, DamaConfig, DamaError,
    FreeCapacity, MacLimit, RandomAccess, RequestPlace, RequestSettings, RequestSlots,
    RequestTransport, SharingRule, TerminalConfig,
};
pub use frames::{Cell, Frames, FramesError};
pub use layout::SlotRun;
pub use ncc::{Ncc, SlotGrant};
pub use network::{ChannelKind, Dama, DamaEvent, ReceivedBursts, Wake};
pub use request::{MOST_VOLUME, TerminalRequest, VolumeRequest, coded_rate, coded_volume};
pub use terminal::SlotCounters;
