//! Traffic that is verified byte by byte, and its statistics.
//!
//! A TCP traffic tool with its own small protocol. Each flow is a connection that starts with a
//! [`request::MeterRequest`] of 80 bytes; the server does what it requests and reports in
//! [`answer::ServerAnswer`]s of 72 bytes. The data in between is a keyed stream ([`payload::Payload`]),
//! every byte of which the receiver checks, so no result comes from a path that lost or changed
//! data.
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

pub mod amount;
pub mod answer;
pub mod bulk;
pub mod compare;
pub mod congestion;
mod direction;
mod download;
mod flow;
mod flow_report;
pub mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod http;
mod json;
pub mod metric;
pub mod outcome;
mod pacer;
pub mod page;
mod patience;
pub mod payload;
mod print;
pub mod request;
pub mod rr;
mod run_report;
pub mod sender;
mod server;
pub mod sockets;
pub mod stop;
mod stream;
pub mod swarm;
pub mod trace;
pub mod udp;
mod udp_plan;
pub mod window;

pub use amount::FlowAmount;
pub use bulk::{BulkOptions, BulkReport, DirectionSum, bulk};
pub use compare::{RunComparison, RunFile, compare};
pub use congestion::{CongestionControl, CongestionError};
pub use direction::{Direction, Directions};
pub use flow_report::FlowReport;
pub use outcome::{FlowOutcome, ProgressCounter};
pub use page::{HttpMode, PageOptions, PageReport, page};
pub use payload::fresh_key;
pub use rr::{RrOptions, RrReport, request_reply};
pub use run_report::MeterReport;
pub use sender::SenderReport;
pub use server::{HttpServeError, ServeError, serve};
pub use stop::Stop;
pub use swarm::{SwarmOptions, SwarmReport, swarm};
pub use udp::{UdpOptions, UdpReport, udp};
pub use udp_plan::{DATAGRAMS_MAX, UdpCounts, UdpPlan};
pub use window::{ReceiveWindow, WindowError};

/// Default TCP port of a meter server. Different from iperf3's, so that both can run together.
pub const DEFAULT_PORT: u16 = 5259;
