//! Why a file was rejected.

use core::fmt;
use std::io;

use thiserror::Error;

use crate::{FileKind, TraceFault};

/// Why a file was rejected. The text is one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// No built-in preset has this name.
    #[error(
        "no preset {name:?}: expected {known}, or the path of a file, which contains / or ends in \
         .toml"
    )]
    UnknownPreset {
        /// The given name.
        name: String,
        /// The names of the built-in presets.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// The file.
        file: String,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The file is not valid TOML.
    #[error("{at}: {text:?}: {message}")]
    Syntax {
        /// Where.
        at: At,
        /// The text of that line.
        text: String,
        /// What is wrong.
        message: String,
    },
    /// The file is of another kind.
    #[error("{file}: this is {found}, not {expected}")]
    Kind {
        /// The file.
        file: String,
        /// What it appears to be.
        found: FileKind,
        /// What was wanted.
        expected: FileKind,
    },
    /// Nothing in the file shows what kind it is.
    #[error(
        "{file}: nothing shows what kind of file this is: expected a first line such as \
         `#:schema hub.schema.json`"
    )]
    Unrecognised {
        /// The file.
        file: String,
    },
    /// There is no such key.
    #[error("{at}: unknown key `{key}`{}, {}", within(.table), suggestion(.key, .known, *.is_of_file))]
    UnknownKey {
        /// Where.
        at: At,
        /// The key.
        key: String,
        /// The table that it is in, such as `hop.forward`; empty for the file's own keys.
        table: String,
        /// All known keys of that table.
        known: Vec<&'static str>,
        /// Whether it is a key of the file itself, which stands in a table.
        is_of_file: bool,
    },
    /// A required key is missing.
    #[error("{at}: {key} is missing{}", what_is_expected(.expected))]
    Missing {
        /// Where: the line of the table that lacks it.
        at: At,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// What would be accepted; may be empty.
        expected: String,
    },
    /// A value is of the wrong type or out of range.
    #[error("{at}: {key} = {value}: expected {expected}")]
    Value {
        /// Where.
        at: At,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// The given value.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A value could not be parsed.
    #[error("{at}: {key}: {message}")]
    Unreadable {
        /// Where.
        at: At,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// The value, what is wrong with it, and what would be accepted.
        message: String,
    },
    /// A trace cannot be used.
    #[error("{at}: {key} = {value}: {cause}")]
    Trace {
        /// Where.
        at: At,
        /// The key, such as `forward.rate-trace`.
        key: String,
        /// The given path, or the number of inline lines.
        value: String,
        /// What is wrong with the trace, and in which line.
        cause: Box<TraceFault>,
    },
}

impl FileError {
    /// The line with the fault, from 1, if it is in a line of the file.
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

    /// The key at fault, with the tables that it is in: `hop.forward.rate`.
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

/// A position: `geo.toml:7`, `star.toml:31 (case "large")`, `command line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The file, the name of the built-in preset, or `command line`.
    pub file: Box<str>,
    /// The line, from 1; `None` if what is wrong is in no line, such as a missing section.
    pub line: Option<u32>,
    /// The case of the scenario, if it has cases.
    pub case: Option<Box<str>>,
}

impl fmt::Display for At {
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

/// The key that was probably meant, or else all that there are.
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

/// The known key that `key` is probably a misspelling of: at most a third of its letters, but at
/// least one, is missing, added, replaced or exchanged with its neighbour.
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
        let mut at = At { file: "star.toml".into(), line: None, case: None };
        assert_eq!(at.to_string(), "star.toml");
        (at.line, at.case) = (Some(31), Some("large".into()));
        assert_eq!(at.to_string(), "star.toml:31 (case \"large\")");
    }
}
