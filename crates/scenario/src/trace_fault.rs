//! Errors of traces and their files.

use std::io;

use link::{OpportunitiesError, TraceError};
use thiserror::Error;

/// The reason why a trace cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The file could not be read.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// It is not a valid trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It is in another format.
    #[error(
        "{cause}; expected lines of a time and a value, each with its unit, like \"0s {example}\"{or}"
    )]
    Format {
        /// The error in the first line.
        cause: Box<TraceError>,
        /// A value that would be accepted.
        example: &'static str,
        /// A further accepted format, as the end of a sentence; may be empty.
        or: &'static str,
    },
    /// It is not a valid packet-delivery trace.
    #[error(transparent)]
    Opportunities(#[from] OpportunitiesError),
}
