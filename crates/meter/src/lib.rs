//! Traffic that is verified byte by byte, and its statistics.
//!
//! A TCP traffic tool with its own small protocol. Each flow is a connection that starts with a
//! [`request::Request`] of 80 bytes; the server does what it requests and reports in
//! [`answer::Answer`]s of 64 bytes. The data in between is a keyed stream ([`payload::Payload`]),
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

pub mod amount;
pub mod answer;
mod any_report;
pub mod bulk;
mod bulk_arrange;
mod bulk_flow;
pub mod compare;
pub mod congestion;
mod flow;
pub mod flow_report;
pub mod frame;
pub mod http;
pub mod http_server;
mod json;
pub mod metric;
pub mod outcome;
mod pacer;
pub mod page;
mod page_connection;
pub mod payload;
mod print;
pub mod request;
pub mod rr;
pub mod sender;
mod server;
pub mod sockets;
mod stream;
pub mod trace;
pub mod udp;
mod udp_exchange;
pub mod udp_receiver;
mod udp_server;
pub mod window;
mod window_server;

pub use amount::Amount;
pub use any_report::Report;
pub use bulk::{BulkOptions, BulkReport, Direction, DirectionSum, Directions, bulk};
pub use compare::{Comparison, Runs, compare};
pub use congestion::{CongestionControl, CongestionError};
pub use flow_report::FlowReport;
pub use outcome::{Outcome, Progress};
pub use page::{HttpMode, PageOptions, PageReport, page};
pub use payload::fresh_key;
pub use rr::{RrOptions, RrReport, request_reply};
pub use sender::SenderReport;
pub use server::{ServeError, serve};
pub use udp::{UdpOptions, UdpReport, udp};
pub use udp_exchange::{DATAGRAMS_MAX, UdpPlan};
pub use udp_receiver::UdpCounts;
pub use window::{Window, WindowError};

/// Default TCP port of a meter server. Different from iperf3's, so that both can run together.
pub const DEFAULT_PORT: u16 = 5259;
