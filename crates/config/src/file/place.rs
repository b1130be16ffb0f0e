//! Validation errors with the position of the value.

use core::fmt::Display;
use core::time::Duration;

use units::format_duration;

use crate::file::document::TomlDocument;
use crate::file::error::{FileError, FilePosition};
use crate::file::folder::BaseFolder;
use crate::file::text::{Text, Time};

/// The table of a file, or group of options, whose values are being checked.
#[derive(Clone)]
pub struct KeyContext<'a> {
    source: ContextSource<'a>,
    /// Prefix of the keys: `hop.forward.`, `--`.
    prefix: String,
}

#[derive(Clone, Copy)]
enum ContextSource<'a> {
    File(&'a TomlDocument<'a>),
    CommandLine(BaseFolder<'a>),
}

/// Longest time in a scenario. Longer ones are taken for typing errors.
const MOST_TIME: Duration = Duration::from_secs(10_000_000);

impl<'a> KeyContext<'a> {
    /// Creates the place of a file's top level.
    pub fn file(document: &'a TomlDocument<'a>) -> Self {
        Self { source: ContextSource::File(document), prefix: String::new() }
    }

    /// Creates the place of command-line options that begin with `prefix`; their paths are relative to
    /// `folder`.
    pub fn options(prefix: &str, folder: BaseFolder<'a>) -> Self {
        Self { source: ContextSource::CommandLine(folder), prefix: prefix.to_owned() }
    }

    /// Returns the place of the table or list element `key` within this one.
    pub fn within(&self, key: impl Display) -> Self {
        Self { source: self.source, prefix: format!("{}{key}.", self.prefix) }
    }

    /// Returns the folder to which paths in values are relative.
    pub fn folder(&self) -> BaseFolder<'a> {
        match self.source {
            ContextSource::File(document) => document.folder,
            ContextSource::CommandLine(folder) => folder,
        }
    }

    /// Returns a warning for each removed key of the file.
    pub fn warnings(&self) -> Vec<String> {
        match self.source {
            ContextSource::File(document) => document.warnings.clone(),
            ContextSource::CommandLine(_) => Vec::new(),
        }
    }

    /// Returns the error of a value that is not one of those `expected`.
    pub fn wrong_value(&self, key: &str, value: impl Display, expected: impl Display) -> FileError {
        let value = value.to_string();
        let expected = expected.to_string();
        FileError::Value { at: self.at(key), key: self.key(key), value, expected }
    }

    /// Returns an error from a text that includes the value and what would be accepted.
    pub fn unreadable(&self, key: &str, error: impl Display) -> FileError {
        FileError::Unreadable { at: self.at(key), key: self.key(key), message: error.to_string() }
    }

    /// Returns the error of a key that is not one of `known`.
    pub fn unknown_key(&self, key: &str, known: Vec<&'static str>) -> FileError {
        let table = self.prefix.trim_end_matches('.').to_owned();
        FileError::UnknownKey {
            at: self.at(key),
            key: key.to_owned(),
            table,
            known,
            is_of_file: false,
        }
    }

    /// Returns the error of a required key without a value.
    pub fn missing_key(&self, key: &str, expected: &str) -> FileError {
        FileError::Missing { at: self.at(key), key: self.key(key), expected: expected.to_owned() }
    }

    /// Returns the error of a wrong value unless `good` is true.
    pub fn check(
        &self,
        good: bool,
        key: &str,
        value: impl Display,
        expected: impl Display,
    ) -> Result<(), FileError> {
        if good { Ok(()) } else { Err(self.wrong_value(key, value, expected)) }
    }

    /// Checks that at most one of these keys has a value.
    pub fn one_of<'k>(
        &self,
        all: impl IntoIterator<Item = (&'k str, Option<String>)>,
    ) -> Result<(), FileError> {
        let given = all.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let (keys, values): (Vec<_>, Vec<_>) = given.unzip();
        self.check(keys.len() < 2, &keys.join(", "), values.join(", "), "only one of them")
    }

    /// Checks that an optional duration is at most 10,000,000 s.
    pub fn time(&self, key: &str, time: Option<Text<Time>>) -> Result<Option<Duration>, FileError> {
        let time = time.map(|time| time.0.0);
        let good = time.is_none_or(|time| time <= MOST_TIME);
        let value = format_duration(time.unwrap_or_default());
        self.check(good, key, value, "at most 10,000,000 s").map(|()| time)
    }

    /// Returns the position of `key`; of several keys, that of the last.
    pub fn at(&self, key: &str) -> FilePosition {
        match self.source {
            ContextSource::File(document) => {
                // Of several keys that exclude each other, the last is the one too many.
                let last = key.rsplit(", ").next().unwrap_or(key);
                document.at(&format!("{}{last}", self.prefix))
            }
            ContextSource::CommandLine(_) => {
                FilePosition { file: "command line".into(), line: None, case: None }
            }
        }
    }

    /// Returns the full name of one key or several: `--per, --ber`, but `forward.per, ber`.
    pub fn key(&self, key: &str) -> String {
        let separator = if self.prefix.starts_with("--") { &self.prefix } else { "" };
        format!("{}{}", self.prefix, key.replace(", ", &format!(", {separator}")))
    }
}

/// Quotes a text as in the file.
pub fn quoted(text: impl Display) -> String {
    format!("{:?}", text.to_string())
}
