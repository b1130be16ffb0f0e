//! Bundles: a gateway as a node of a delay-tolerant network (BPv7, RFC 9171).
//!
//! [`Agent`] decides which bundles are taken, where each goes next, and when it may be forgotten: only after
//! the next node has stored it. [`transfer`] carries bundles over streams of the hop, and [`tcpcl`] over TCP.
//!
//! Bundles are parsed and written by `hardy-bpv7`.
//!
//! Not modelled: BPSec (RFC 9172; such blocks of others are passed on), and routing protocols: routes are
//! configured.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod agent;
mod endpoint;
mod file_name;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod parts;
mod report;
mod report_request;
pub mod tcpcl;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use agent::{
    Agent, AgentConfig, AgentLimits, AgentStats, AgentWake, BundleFate, BundleOrigin, BundleRecord,
    BundleRefusal, BundleRoute, BundleState, FragmentJoin, FragmentRecord, IncomingTicket,
    NeighbourConfig, NoSuchBundle, OfferDecision, PeerId, ReturnReason,
};
pub use endpoint::{BundleEndpoint, BundleNodeId, EndpointError, NodeError};
pub use file_name::FileName;
pub use format::{
    BundleId, BundlePurpose, BundleSummary, FragmentPosition, NewBundle, UnreadableBundle,
    forwarded, read,
};
pub use parts::{FragmentJoiner, MOST_PARTS, PartsError, parts};
pub use report::{StatusReport, read_report, report};
pub use report_request::{ReportRequest, ReportedEvent};
