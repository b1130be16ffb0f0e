//! Errors of a compressed stream.

use thiserror::Error;

/// Why a direction cannot be decoded any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedStream {
    /// Unknown segment type.
    #[error("there is no segment of type {kind}")]
    Kind {
        /// Its first byte.
        kind: u8,
    },
    /// A frame that is not valid zstd, or needs a larger window.
    #[error("a compressed segment is malformed")]
    Frame,
    /// More compressed segments at a time than agreed.
    #[error("{open} directions are already being decompressed")]
    TooMany {
        /// Directions that are being decompressed.
        open: usize,
    },
    /// The direction ends within a segment.
    #[error("the data ends within a segment")]
    Truncated,
}
