//! Traffic that is verified byte by byte, and its statistics.
//!
//! A TCP traffic tool with a small protocol of its own: one connection per
//! flow, which begins with a [`request::Request`] of 80 bytes; the server does
//! what it asks and says what it saw in [`answer::Answer`]s of 64. The bytes in
//! between are a keyed stream ([`payload::Payload`]) that the receiver checks,
//! every one of them, so that a figure of this tool is never the figure of a
//! path that lost or changed something.
//!
//! [`bulk()`] moves a number of bytes in one or many flows, [`request_reply`]
//! measures response times, [`serve`] is the other end. All of them run on the
//! caller's tokio runtime and open their sockets on the calling thread, which
//! may have entered another network namespace.
//!
//! [`compare()`] sets the reports of many runs side by side, with confidence
//! intervals.
//!
//! Times are taken by the application on the sockets: they hold everything that
//! a user would wait for (connect, slow start, repair of losses, the last byte).

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
mod pacer;
pub mod page;
mod page_connection;
pub mod payload;
pub mod report;
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
pub use page::{HttpMode, PageOptions, PageReport, page};
pub use report::{Outcome, Progress};
pub use rr::{RrOptions, RrReport, request_reply};
pub use sender::SenderReport;
pub use server::{ServeError, serve};
pub use udp::{UdpOptions, UdpReport, udp};
pub use udp_exchange::{DATAGRAMS_MAX, UdpPlan};
pub use udp_receiver::UdpCounts;
pub use window::{Window, WindowError};

/// The TCP port of a meter server unless told otherwise; not that of iperf3, which
/// is to run beside it.
pub const DEFAULT_PORT: u16 = 5259;
