//! A discrete-event simulator of TCP, SLACP and satellite links (`docs/sim.md`).
//!
//! A [`World`] consists of nodes, links between them and applications on them, in virtual time. It
//! drives the same state machines as the real programs: [`link::Link`], [`tcp::Connection`],
//! [`slacp::Endpoint`]. It uses no clock, threads or files; the same world with the same seed runs
//! identically, bit for bit.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod agenda;
mod app;
mod apps;
mod connection;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod metric;
mod network;
mod probe;
mod run;
mod slab;
#[cfg(test)]
mod testkit;
mod world;

pub use app::{AppNotice, AppStats, WorkUnit};
pub use apps::{
    BulkAmount, BulkTransfer, BundleTransfer, CbrSource, FtpTransfer, MailTransfer, PageLoads,
    RequestReply, ResolutionSetup, WebUsers,
};
pub use connection::path::{ConnectionPath, PathLeg};
pub use connection::script::{EndpointState, HostScript, ScriptStep, ServerBehaviour};
pub use connection::talk::{ENDLESS, FirstCloser};
pub use connection::turn::ExchangeSizes;
pub use ids::{AppId, LinkId, NodeId};
pub use metric::{
    LinkCapacities, LinkUse, MetricValue, capacities, flow_metrics, link_metrics, median_of_runs,
    sender_metrics,
};
pub use network::RouteHop;
pub use network::packet::{AppDatagram, PacketBody, SimulatedPacket, SlacpDatagram};
pub use probe::{
    FirstLoss, LinkRecording, LinkSample, MarkKind, RunRecordings, SegmentMark, SenderRecording,
    SenderSample,
};
pub use run::SimulationRun;
pub use scenario::{CacheSpec, Direction, FetchMethod, IpVersion, Overhead, ReplySizes};
pub use slab::SlabKey;
pub use world::{App, ChargedBytes, MacBuffer, PacketTap, World};
