//! Errors of files that users write.

use core::error::Error as StdError;
use core::fmt;
use std::io;

use thiserror::Error;

use super::FileKind;

/// The reason why a file was rejected. The text is one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// No built-in preset has this name.
    #[error(
        "no preset {name:?}: expected {known}, or the path of a file, which contains / or ends in \
         .toml"
    )]
    UnknownPreset {
        /// Name of a preset as given.
        name: String,
        /// The names of the built-in presets.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// Path of the file that could not be read.
        file: String,
        /// Error of the operating system, or that the file is too long.
        cause: io::Error,
    },
    /// The file is not valid TOML.
    #[error("{at}: {text:?}: {message}")]
    Syntax {
        /// Position of the error.
        at: FilePosition,
        /// Text of the line at that position.
        text: String,
        /// Message of the TOML parser.
        message: String,
    },
    /// The file is of another kind.
    #[error("{file}: this is {found}, not {expected}")]
    Kind {
        /// Name of the file in messages.
        file: String,
        /// The kind that the file appears to be.
        found: FileKind,
        /// The kind that was expected.
        expected: FileKind,
    },
    /// The kind of the file cannot be recognised.
    #[error(
        "{file}: nothing shows what kind of file this is: expected a first line such as \
         `#:schema hub.schema.json`"
    )]
    Unrecognised {
        /// Name of the file in messages.
        file: String,
    },
    /// A key is unknown.
    #[error("{at}: unknown key `{key}`{}, {}", within(.table), suggestion(.key, .known, *.is_of_file))]
    UnknownKey {
        /// Position of the key.
        at: FilePosition,
        /// Name of the key.
        key: String,
        /// Table that contains it, such as `hop.forward`; empty at the top level.
        table: String,
        /// Known keys of that table.
        known: Vec<&'static str>,
        /// True if it is a key of the top level that was written inside a table.
        is_of_file: bool,
    },
    /// A required key is missing.
    #[error("{at}: {key} is missing{}", what_is_expected(.expected))]
    Missing {
        /// Position of the table that lacks it.
        at: FilePosition,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// Description of accepted values; may be empty.
        expected: String,
    },
    /// A value is of the wrong type or out of range.
    #[error("{at}: {key} = {value}: expected {expected}")]
    Value {
        /// Position of the value.
        at: FilePosition,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// Value as it is written.
        value: String,
        /// Description of the values that would be accepted.
        expected: String,
    },
    /// A value could not be parsed.
    #[error("{at}: {key}: {message}")]
    Unreadable {
        /// Position of the value.
        at: FilePosition,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// The value, the error in it, and a description of accepted values.
        message: String,
    },
    /// A trace cannot be used.
    #[error("{at}: {key} = {value}: {cause}")]
    Trace {
        /// Position of the key.
        at: FilePosition,
        /// The key, such as `forward.rate-trace`.
        key: String,
        /// The given path, or the number of inline lines.
        value: String,
        /// The error, with its line in the trace.
        cause: Box<dyn StdError + Send + Sync>,
    },
}

impl FileError {
    /// Returns the line of the error, from 1, if it concerns a line of the file.
    pub fn line(&self) -> Option<u32> {
        match self {
            Self::UnknownPreset { .. }
            | Self::Read { .. }
            | Self::Kind { .. }
            | Self::Unrecognised { .. } => None,
            Self::Syntax { at, .. }
            | Self::UnknownKey { at, .. }
            | Self::Missing { at, .. }
            | Self::Value { at, .. }
            | Self::Unreadable { at, .. }
            | Self::Trace { at, .. } => at.line,
        }
    }

    /// Returns the key that the error concerns, with its tables: `hop.forward.rate`.
    pub fn key(&self) -> Option<String> {
        match self {
            Self::UnknownKey { key, table, .. } if table.is_empty() => Some(key.clone()),
            Self::UnknownKey { key, table, .. } => Some(format!("{table}.{key}")),
            Self::Missing { key, .. }
            | Self::Value { key, .. }
            | Self::Unreadable { key, .. }
            | Self::Trace { key, .. } => Some(key.clone()),
            _ => None,
        }
    }
}

/// A position in a file: `geo.toml:7`, `star.toml:31 (case "large")`, `command line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePosition {
    /// The file, the name of the built-in preset, or `command line`.
    pub file: Box<str>,
    /// The line, from 1; `None` if the error concerns no line, such as a missing section.
    pub line: Option<u32>,
    /// The case of the scenario, if it has cases.
    pub case: Option<Box<str>>,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        self.case.as_ref().map_or(Ok(()), |case| write!(f, " (case {case:?})"))
    }
}

fn within(table: &str) -> String {
    if table.is_empty() { String::new() } else { format!(" in {table}") }
}

/// Suggests the key that was probably meant, or lists all known ones.
fn suggestion(key: &str, known: &[&'static str], is_of_file: bool) -> String {
    if is_of_file {
        return "which is a key of the file itself: move it up, above the first [section]"
            .to_owned();
    }
    match nearest(key, known) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if known.is_empty() => "expected none".to_owned(),
        None => format!("expected one of {}", known.join(", ")),
    }
}

fn what_is_expected(expected: &str) -> String {
    if expected.is_empty() { String::new() } else { format!(": expected {expected}") }
}

/// Returns the known key that `key` is probably a misspelling of: at most a third of its letters, or
/// one in a short key, are missing, added, replaced or exchanged with a neighbour.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let distance = |known: &&str| strsim::osa_distance(key, known);
    let nearest = known.iter().copied().min_by_key(|known| distance(known))?;
    (distance(&nearest) <= (key.chars().count() / 3).max(1)).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_if_it_is_near() {
        const KEYS: [&str; 5] = ["rate", "rate-trace", "delay", "delay-trace", "queue"];
        for (typed, meant) in [
            ("dealy", Some("delay")),
            ("delays", Some("delay")),
            ("delay_trace", Some("delay-trace")),
            ("ratetrace", Some("rate-trace")),
            ("rtae", Some("rate")),
            ("speed", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &KEYS), meant, "{typed}");
        }
        assert_eq!(nearest("rate", &[]), None);
    }

    #[test]
    fn a_position_names_what_is_known_of_it() {
        let mut at = FilePosition { file: "star.toml".into(), line: None, case: None };
        assert_eq!(at.to_string(), "star.toml");
        (at.line, at.case) = (Some(31), Some("large".into()));
        assert_eq!(at.to_string(), "star.toml:31 (case \"large\")");
    }
}
