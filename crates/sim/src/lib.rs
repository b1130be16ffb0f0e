//! A discrete-event simulator of TCP, SLACP and satellite links (`docs/sim.md`).
//!
//! A [`World`] is nodes, links between them and applications on them, in
//! virtual time. It drives the same state machines as everything else here:
//! [`link::Link`], [`tcp::Connection`], [`slacp::Endpoint`]. It has no clock,
//! no thread and no file; the same world with the same seed runs the same, bit
//! for bit.

mod agenda;
mod app;
mod chance;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ip;
mod metric;
mod network;
mod packet;
mod path;
mod probe;
pub mod published;
mod relay;
pub mod scenario;
mod slab;
mod socket;
mod talk;
mod world;

pub use app::{
    Amount, App, AppId, Bulk, Cbr, Deed, Direction, Method, Notice, Page, RequestReply, Sizes,
    Tally, Users,
};
pub use metric::Metric;
pub use network::{Hop, LaneId};
pub use packet::{Body, Datagram, NodeId, Packet};
pub use path::{Leg, Path};
pub use probe::{Line, Load, Mark, MarkKind, Probe, Sender, State};
pub use slab::Key;
pub use talk::{Closer, ENDLESS, Turn};
pub use world::{Tap, World};
