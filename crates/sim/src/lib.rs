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

pub use app::{AppNotice, AppStats, WorkUnit};
pub use apps::{
    BulkAmount, BulkTransfer, BundleTransfer, CbrSource, FtpTransfer, MailTransfer, PageLoads,
    RequestReply, ResolutionSetup, WebUsers,
};
pub use ids::{AppId, LinkId, NodeId};
pub use metric::{
    LinkCapacities, LinkUse, MetricValue, capacities, flow_metrics, link_metrics, median_of_runs,
    sender_metrics,
};
pub use network::RouteHop;
pub use packet::{AppDatagram, PacketBody, SimulatedPacket, SlacpDatagram};
pub use path::{ConnectionPath, PathLeg};
pub use probe::{
    FirstLoss, LinkRecording, LinkSample, MarkKind, RunRecordings, SegmentMark, SenderRecording,
    SenderSample,
};
pub use run::SimulationRun;
pub use scenario::{CacheSpec, Direction, FetchMethod, IpVersion, Overhead, ReplySizes};
pub use script::{EndpointState, HostScript, ScriptStep, ServerBehaviour};
pub use slab::SlabKey;
pub use talk::{ENDLESS, FirstCloser};
pub use turn::ExchangeSizes;
pub use world::{App, ChargedBytes, MacBuffer, PacketTap, World};
