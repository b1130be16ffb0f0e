//! What is known about a flow when it has ended, and while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};

use crate::flow::FlowError;

/// How a flow ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Every byte arrived, was right, and both ends closed in order.
    Complete,
    /// The time limit came first.
    Unfinished,
    /// The connection ended in order before everything had arrived.
    Truncated,
    /// A byte arrived that had not been sent.
    Corrupt {
        /// Its offset; for request/reply within all requests or all replies.
        offset: u64,
    },
    /// Anything else: refused, reset, unreachable, …
    Failed {
        /// One line that says what.
        error: String,
    },
}

impl Outcome {
    /// Whether everything arrived, verified.
    pub fn is_complete(&self) -> bool {
        *self == Self::Complete
    }

    /// From the result of a flow, or from the lack of one at the time limit.
    pub(crate) fn of<E>(ended: Result<Result<(), FlowError>, E>) -> Self {
        match ended {
            Ok(Ok(())) => Self::Complete,
            Ok(Err(FlowError::Truncated { .. })) => Self::Truncated,
            Ok(Err(FlowError::Corrupt { offset })) => Self::Corrupt { offset },
            Ok(Err(error)) => Self::Failed { error: error.to_string() },
            Err(_) => Self::Unfinished,
        }
    }
}

/// One flow of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Which flow of the transfer, from 0.
    pub flow: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes that were to be moved.
    pub asked_bytes: u64,
    /// Bytes that the receiver had, as it said itself. In an upload that did not
    /// end this is its last word, which is half an RTT old.
    pub moved_bytes: u64,
    /// From before connect until connected.
    #[serde(rename = "connect_seconds", with = "crate::json::maybe_seconds")]
    pub connect: Option<Duration>,
    /// From before connect until the client had the first payload byte
    /// (download), or the server's word of having it (upload).
    #[serde(rename = "first_byte_seconds", with = "crate::json::maybe_seconds")]
    pub first_byte: Option<Duration>,
    /// From before connect until the client had the last byte (download), or
    /// the server's receipt (upload), or until the flow ended otherwise.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// From the first to the last payload byte at the receiver.
    #[serde(rename = "receive_seconds", with = "crate::json::maybe_seconds")]
    pub receive: Option<Duration>,
    /// Bytes moved over the total time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
}

impl FlowReport {
    /// A flow that has not begun.
    pub(crate) fn new(flow: u32, asked_bytes: u64) -> Self {
        Self {
            flow,
            outcome: Outcome::Unfinished,
            asked_bytes,
            moved_bytes: 0,
            connect: None,
            first_byte: None,
            total: Duration::ZERO,
            receive: None,
            goodput: None,
        }
    }

    /// Enters how and when it ended.
    pub(crate) fn close(&mut self, outcome: Outcome, total: Duration) {
        self.outcome = outcome;
        self.total = total;
        self.goodput = BitRate::average(ByteCount::new(self.moved_bytes), total);
    }
}

/// A counter that a running measurement moves and that anybody may read: bytes
/// at the receivers for a bulk transfer, replies for request/reply.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
