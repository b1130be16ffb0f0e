//! Why there is no such preset, or it is no link.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::TraceFault;

/// Why there is no such preset, or it is no link.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No built-in preset has this name.
    #[error(
        "no preset {name:?}: there is {known}; a file of your own is given by a path that \
         contains / or ends in .toml"
    )]
    Unknown {
        /// The name as given.
        name: String,
        /// The names of the built-in ones.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read preset {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The file is not TOML, or not a preset.
    #[error("{origin}:{line}: {text:?}: {message}")]
    Syntax {
        /// The file, or the built-in preset's name.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// That line.
        text: String,
        /// What is wrong with it, and what would be accepted.
        message: String,
    },
    /// A value is possible nowhere.
    #[error("{origin}: {key} = {value}: expected {expected}")]
    Value {
        /// The file, the built-in preset's name, or the command line.
        origin: String,
        /// The key, such as `forward.rate`.
        key: String,
        /// The value as given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A key that must be there is not.
    #[error("{origin}: {key} is missing: expected {expected}")]
    Missing {
        /// The file, or the built-in preset's name.
        origin: String,
        /// The key, such as `forward.rate`.
        key: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// A trace cannot be used.
    #[error("{origin}: {key} = {value}: {cause}")]
    Trace {
        /// The file, the built-in preset's name, or the command line.
        origin: String,
        /// The key, such as `forward.rate-trace`.
        key: String,
        /// The path as given, or how many lines there are.
        value: String,
        /// What is wrong with the trace, and in which line.
        cause: Box<TraceFault>,
    },
}
