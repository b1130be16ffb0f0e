//! Traffic that is verified byte by byte, and its statistics.
//!
//! A TCP traffic tool with its own small protocol. Each flow is a connection that starts with a
//! [`MeterRequest`](protocol::request::MeterRequest) of 80 bytes; the server does what it requests and
//! reports in [`ServerAnswer`](protocol::answer::ServerAnswer)s of 72 bytes. The data in between is a
//! keyed stream ([`Payload`](protocol::payload::Payload)), every byte of which the receiver checks, so no
//! result comes from a path that lost or changed data.
//!
//! [`bulk()`] moves a number of bytes in one or more flows, [`request_reply`] measures response
//! times, [`serve`] is the other end. All of them run on the caller's tokio runtime and open their
//! sockets on the calling thread, which may have entered another network namespace.
//!
//! [`compare()`] compares the reports of many runs, with confidence intervals.
//!
//! Times are measured by the application at its sockets, so they include everything a user would
//! wait for (connect, slow start, loss recovery, the last byte).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod bulk;
mod flow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod http;
mod json;
pub mod page;
pub mod protocol;
pub mod reports;
pub mod rr;
mod server;
pub mod sockets;
pub mod swarm;
pub mod trace;
pub mod udp;

pub use bulk::{BulkOptions, BulkReport, DirectionSum, bulk};
pub use flow::outcome::{FlowOutcome, ProgressCounter};
pub use flow::report::FlowReport;
pub use flow::stop::Stop;
pub use page::{HttpMode, PageOptions, PageReport, page};
pub use protocol::amount::FlowAmount;
pub use protocol::direction::{Direction, Directions};
pub use protocol::payload::fresh_key;
pub use protocol::udp_plan::{DATAGRAMS_MAX, UdpCounts, UdpPlan};
pub use reports::compare::{RunComparison, RunFile, compare};
pub use reports::run_report::MeterReport;
pub use rr::{RrOptions, RrReport, request_reply};
pub use server::{HttpServeError, ServeError, serve};
pub use sockets::congestion::{CongestionControl, CongestionError};
pub use sockets::sender::SenderReport;
pub use sockets::window::{ReceiveWindow, WindowError};
pub use swarm::{SwarmOptions, SwarmReport, swarm};
pub use udp::{UdpOptions, UdpReport, udp};

/// Default TCP port of a meter server. Different from iperf3's, so that both can run together.
pub const DEFAULT_PORT: u16 = 5259;
