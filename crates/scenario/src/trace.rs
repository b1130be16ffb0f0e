//! Traces in a file: lines of their own, or the path of another file.

use core::fmt;
use std::io;
use std::path::PathBuf;

use link::{Opportunities, OpportunitiesError, Rate, Trace, TraceError, TraceValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::folder::Folder;

/// The location of a trace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the path of a trace, or its lines in an array")]
#[schemars(inline)]
pub(crate) enum Source {
    /// In a file, with a path relative to that of the file that names it.
    File(PathBuf),
    /// Line by line.
    Lines(Vec<String>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{:?}", path.display().to_string()),
            Self::Lines(lines) => write!(f, "[{} lines]", lines.len()),
        }
    }
}

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
    /// Not a valid packet-delivery trace.
    #[error(transparent)]
    Opportunities(#[from] OpportunitiesError),
}

impl Source {
    /// The text of the trace.
    pub(crate) fn read(&self, folder: Folder<'_>) -> Result<String, TraceFault> {
        match self {
            Self::Lines(lines) => Ok(lines.join("\n")),
            Self::File(path) => Ok(folder.read(path)?),
        }
    }

    /// The lines of `trace`.
    pub(crate) fn lines_of<T: TraceValue>(trace: &Trace<T>) -> Self {
        Self::Lines(trace.to_string().lines().map(str::to_owned).collect())
    }
}

/// Parses rates in one of two formats: mahimahi's if the first line is an integer, otherwise that
/// of [`link::Trace`].
pub(crate) fn parse_rates(text: &str) -> Result<Rate, TraceFault> {
    let is_number = |line: &str| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    if text.lines().next().is_some_and(|line| is_number(line.trim())) {
        return Ok(Opportunities::parse(text)?.into());
    }
    Ok(Rate::Trace(Trace::parse(text)?))
}
