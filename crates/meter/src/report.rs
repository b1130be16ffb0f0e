//! How a flow ended, and how far it is while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

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
