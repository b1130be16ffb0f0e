//! The report on one flow of a bulk transfer.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};

use super::outcome::FlowOutcome;
use crate::protocol::direction::Direction;
use crate::sockets::sender::SenderReport;

/// One flow of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Index of the flow in the transfer, from 0.
    pub flow: u32,
    /// The direction of its payload.
    pub direction: Direction,
    /// The client's address and port, once connected.
    pub client: Option<SocketAddr>,
    /// The outcome of the flow.
    pub outcome: FlowOutcome,
    /// Bytes requested; `None` for a flow limited by time.
    pub asked_bytes: Option<u64>,
    /// Bytes received, as reported by the receiver. In an upload that did not complete this is the
    /// last progress report, which is half a round trip old.
    pub moved_bytes: u64,
    /// From the start of the transfer to the start of this flow.
    #[serde(rename = "start_seconds", with = "crate::json::seconds")]
    pub start: Duration,
    /// From the start, before connecting, until connected.
    #[serde(rename = "connect_seconds", with = "crate::json::maybe_seconds")]
    pub connect: Option<Duration>,
    /// From the start until the client had the first payload byte (download), or the server's
    /// report of it (upload).
    #[serde(rename = "first_byte_seconds", with = "crate::json::maybe_seconds")]
    pub first_byte: Option<Duration>,
    /// From the start until the client had the last byte (download) or the server's receipt
    /// (upload), or until the flow ended otherwise.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// From the first to the last payload byte at the receiver.
    #[serde(rename = "receive_seconds", with = "crate::json::maybe_seconds")]
    pub receive: Option<Duration>,
    /// Bytes moved over the total time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Figures of the sender's kernel: the server's in a download, once it is complete, the
    /// client's in an upload.
    pub sender: Option<SenderReport>,
}

impl FlowReport {
    /// Creates the report of a flow that has not started.
    pub(crate) fn new(flow: u32, direction: Direction, asked_bytes: Option<u64>) -> Self {
        Self {
            flow,
            direction,
            client: None,
            outcome: FlowOutcome::Unfinished,
            asked_bytes,
            moved_bytes: 0,
            start: Duration::ZERO,
            connect: None,
            first_byte: None,
            total: Duration::ZERO,
            receive: None,
            goodput: None,
            sender: None,
        }
    }

    /// Records the outcome and the total time, and computes the goodput.
    pub(crate) fn close(&mut self, outcome: FlowOutcome, total: Duration) {
        self.outcome = outcome;
        self.total = total;
        self.goodput = BitRate::average(ByteCount::new(self.moved_bytes), total);
    }
}
