//! Traffic that is verified byte by byte, and its statistics.
//!
//! A TCP traffic tool with a small protocol of its own: one connection per
//! flow, which begins with a [`request::Request`] of 64 bytes; the server does
//! what it asks and says what it saw in [`answer::Answer`]s of 32. The bytes in
//! between are a keyed stream ([`payload::Payload`]) that the receiver checks,
//! every one of them, so that a figure of this tool is never the figure of a
//! path that lost or changed something.
//!
//! [`bulk()`] moves a number of bytes in one or many flows, [`request_reply`]
//! measures response times, [`serve`] is the other end. All of them run on the
//! caller's tokio runtime and open their sockets on the calling thread, which
//! may have entered another network namespace.
//!
//! Times are taken by the application on the sockets: they hold everything that
//! a user would wait for (connect, slow start, repair of losses, the last byte).

pub mod answer;
pub mod bulk;
pub mod congestion;
mod flow;
mod json;
pub mod payload;
pub mod report;
pub mod request;
pub mod rr;
mod server;
pub mod stats;
mod stream;

pub use bulk::{BulkOptions, BulkReport, Direction, bulk};
pub use congestion::{CongestionControl, CongestionError};
pub use report::{FlowReport, Outcome, Progress};
pub use rr::{RrOptions, RrReport, request_reply};
pub use server::{ServeError, serve};

/// The TCP port of a meter server unless told otherwise.
pub const DEFAULT_PORT: u16 = 5201;
