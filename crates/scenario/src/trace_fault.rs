//! Why a trace cannot be used.

use std::io;

use link::{OpportunitiesError, TraceError};
use thiserror::Error;

/// Why a trace cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The file could not be read.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// Not a valid trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// In another format.
    #[error(
        "{cause}; expected lines of a time and a value, each with its unit, like \"0s {example}\"{or}"
    )]
    Format {
        /// What is wrong with the first line.
        cause: Box<TraceError>,
        /// A value that would be accepted.
        example: &'static str,
        /// What else would be accepted.
        or: &'static str,
    },
    /// Not a valid packet-delivery trace.
    #[error(transparent)]
    Opportunities(#[from] OpportunitiesError),
}
