//! A discrete-event simulator of TCP, SLACP and satellite links (`docs/sim.md`).
//!
//! A [`World`] consists of nodes, links between them and applications on them, in virtual time. It
//! drives the same state machines as the real programs: [`link::Link`], [`tcp::Connection`],
//! [`slacp::Endpoint`]. It uses no clock, threads or files; the same world with the same seed runs
//! identically, bit for bit.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod ack_spacer;
mod agenda;
mod app;
mod apps;
mod cache;
mod chance;
mod contents;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod ip;
mod metric;
mod network;
mod packet;
mod path;
mod probe;
mod run;
mod script;
mod slab;
mod socket;
mod split;
mod talk;
#[cfg(test)]
mod testkit;
mod turn;
mod window_limiter;
mod world;

pub use app::{Deed, Notice, Tally};
pub use apps::{Amount, Bulk, Bundles, Cbr, Ftp, Mail, Page, RequestReply, Resolution, Users};
pub use ids::{AppId, LaneId, NodeId};
pub use metric::{
    Capacities, LinkUse, Metric, capacities, figure, flow_metrics, link_metrics, sender_metrics,
};
pub use network::Hop;
pub use packet::{Body, Datagram, Packet, Sealed};
pub use path::{Leg, Path};
pub use probe::{FirstLoss, Line, Load, Mark, MarkKind, Probe, Sender, State};
pub use run::Run;
pub use scenario::{CacheSpec, Direction, IpVersion, Method, Overhead, Sizes};
pub use script::{Act, Answer, Ending, Script};
pub use slab::Key;
pub use talk::{Closer, ENDLESS};
pub use turn::Turn;
pub use world::{App, Charged, MacBuffer, Tap, World};
