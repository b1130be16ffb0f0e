//! Traces referred to by a preset: their location and contents.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use link::{Opportunities, OpportunitiesError, Rate, Trace, TraceError, TraceValue};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::built_in::TRACES;

/// Maximum file size: a day of opportunities at 100 Mbit/s is a few gigabytes, which nobody wants
/// in memory.
const GREATEST_FILE: u64 = 64 << 20;

/// The location of a trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the path of a trace, or its lines in an array")]
pub(super) enum Source {
    /// In a file, with a path relative to the preset's file.
    File(PathBuf),
    /// Inline in the preset, line by line.
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

/// What paths are relative to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Folder<'a> {
    /// Nothing: the traces are compiled in.
    BuiltIn,
    /// A directory.
    Disk(&'a Path),
}

/// Why a trace cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The file could not be read.
    #[error("cannot read it: {0}")]
    Read(io::Error),
    /// The file is too large.
    #[error("it exceeds {} MiB", GREATEST_FILE >> 20)]
    Long,
    /// Not a valid trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Not a valid packet-delivery trace.
    #[error(transparent)]
    Opportunities(#[from] OpportunitiesError),
}

impl Folder<'_> {
    /// The text of a trace.
    pub(super) fn read(self, source: &Source) -> Result<String, TraceFault> {
        match (source, self) {
            (Source::Lines(lines), _) => Ok(lines.join("\n")),
            (Source::File(path), Self::Disk(folder)) => read_file(&folder.join(path)),
            (Source::File(path), Self::BuiltIn) => {
                let known = TRACES.iter().find(|(name, _)| Path::new(name) == path);
                let missing = || TraceFault::Read(io::ErrorKind::NotFound.into());
                known.map(|(_, text)| (*text).to_owned()).ok_or_else(missing)
            }
        }
    }
}

fn read_file(path: &Path) -> Result<String, TraceFault> {
    let mut text = String::new();
    let file = File::open(path).map_err(TraceFault::Read)?;
    file.take(GREATEST_FILE + 1).read_to_string(&mut text).map_err(TraceFault::Read)?;
    if text.len() as u64 > GREATEST_FILE { Err(TraceFault::Long) } else { Ok(text) }
}

/// Parses rates in one of two formats: mahimahi's if the first line is an integer, otherwise that
/// of [`link::Trace`].
pub(super) fn parse_rates(text: &str) -> Result<Rate, TraceFault> {
    let is_number = |line: &str| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    if text.lines().next().is_some_and(|line| is_number(line.trim())) {
        return Ok(Opportunities::parse(text)?.into());
    }
    Ok(Rate::Trace(Trace::parse(text)?))
}

/// The lines of a trace, to store it inline in a preset.
pub(super) fn lines_of<T: TraceValue>(trace: &Trace<T>) -> Source {
    Source::Lines(trace.to_string().lines().map(str::to_owned).collect())
}
