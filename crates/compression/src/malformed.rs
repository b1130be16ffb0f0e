//! What is wrong with a compressed stream.

use thiserror::Error;

/// Why a direction cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There is no such segment.
    #[error("there is no segment of type {kind}")]
    Kind {
        /// Its first byte.
        kind: u8,
    },
    /// A frame that is not zstd's, or wants a larger window.
    #[error("a compressed segment is malformed")]
    Frame,
    /// More compressed segments at a time than were agreed on.
    #[error("{open} directions are decompressed already")]
    TooMany {
        /// How many.
        open: usize,
    },
    /// The direction ends within a segment.
    #[error("the data ends within a segment")]
    Truncated,
}
