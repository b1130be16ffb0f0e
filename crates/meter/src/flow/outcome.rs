//! Outcome of a flow, and its progress while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::stop::EarlyEnd;
use crate::flow::FlowError;

/// The outcome of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FlowOutcome {
    /// Every byte arrived and was correct, and both ends closed in order.
    Complete,
    /// The time limit was reached first.
    Unfinished,
    /// The user interrupted the measurement first.
    Interrupted,
    /// The connection ended in order before everything had arrived.
    Truncated,
    /// A byte differed from the one sent.
    Corrupt {
        /// Offset of that byte; for request/reply within all requests or all replies.
        offset: u64,
    },
    /// Any other failure: refused, reset, unreachable, …
    Failed {
        /// The reason in one line.
        error: String,
    },
}

impl FlowOutcome {
    /// Returns true if everything arrived and was verified.
    pub fn is_complete(&self) -> bool {
        *self == Self::Complete
    }

    /// Derives the outcome from the result of a flow, or from the reason why it has none.
    pub(crate) fn of(ended: Result<Result<(), FlowError>, EarlyEnd>) -> Self {
        match ended {
            Ok(Ok(())) => Self::Complete,
            Ok(Err(FlowError::Truncated { .. })) => Self::Truncated,
            Ok(Err(FlowError::Corrupt { offset })) => Self::Corrupt { offset },
            Ok(Err(error)) => Self::Failed { error: error.to_string() },
            Err(EarlyEnd::Limit) => Self::Unfinished,
            Err(EarlyEnd::Stopped) => Self::Interrupted,
        }
    }
}

/// A counter updated by a running measurement and readable from anywhere: bytes received for a bulk
/// transfer, replies for request/reply.
#[derive(Debug, Clone, Default)]
pub struct ProgressCounter(Arc<AtomicU64>);

impl ProgressCounter {
    /// Returns the number counted so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
