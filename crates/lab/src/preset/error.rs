//! Why a preset cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::TraceFault;

/// Why a preset cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No built-in preset has this name.
    #[error(
        "no preset {name:?}: expected {known}, or the path of a file, which contains / or ends in \
         .toml"
    )]
    Unknown {
        /// The given name.
        name: String,
        /// The names of the built-in presets.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read preset {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The file is not valid TOML, or not a preset.
    #[error("{origin}:{line}: {text:?}: {message}")]
    Syntax {
        /// The file, or the name of the built-in preset.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// The text of that line.
        text: String,
        /// What is wrong, and what would be accepted.
        message: String,
    },
    /// A value is out of range.
    #[error("{origin}: {key} = {value}: expected {expected}")]
    Value {
        /// The file, the name of the built-in preset, or the command line.
        origin: String,
        /// The key, such as `forward.rate`.
        key: String,
        /// The given value.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A required key is missing.
    #[error("{origin}: {key} is missing: expected {expected}")]
    Missing {
        /// The file, or the name of the built-in preset.
        origin: String,
        /// The key, such as `forward.rate`.
        key: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// A trace cannot be used.
    #[error("{origin}: {key} = {value}: {cause}")]
    Trace {
        /// The file, the name of the built-in preset, or the command line.
        origin: String,
        /// The key, such as `forward.rate-trace`.
        key: String,
        /// The given path, or the number of inline lines.
        value: String,
        /// What is wrong with the trace, and in which line.
        cause: Box<TraceFault>,
    },
}
