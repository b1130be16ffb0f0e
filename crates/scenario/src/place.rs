//! Reports what is wrong with values, and where.

use core::fmt::Display;
use core::time::Duration;

use units::format_duration;

use crate::document::Document;
use crate::error::{At, FileError};
use crate::folder::Folder;
use crate::text::{Text, Time};

/// Where the values come from that are being checked.
#[derive(Clone)]
pub(crate) struct Place<'a> {
    source: Source<'a>,
    /// Prefix of the keys: `hop.forward.`, `--`.
    prefix: String,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    File(&'a Document<'a>),
    CommandLine(Folder<'a>),
}

/// Longer times in a scenario are typing errors.
const MOST_TIME: Duration = Duration::from_secs(10_000_000);

impl<'a> Place<'a> {
    /// The top of a file.
    pub(crate) fn file(document: &'a Document<'a>) -> Self {
        Self { source: Source::File(document), prefix: String::new() }
    }

    /// Options of the command line that begin with `prefix`; their paths are relative to `folder`.
    pub(crate) fn options(prefix: &str, folder: Folder<'a>) -> Self {
        Self { source: Source::CommandLine(folder), prefix: prefix.to_owned() }
    }

    /// The position of `key` within this one.
    pub(crate) fn within(&self, key: impl Display) -> Self {
        Self { source: self.source, prefix: format!("{}{key}.", self.prefix) }
    }

    /// Where the files are that values name.
    pub(crate) fn folder(&self) -> Folder<'a> {
        match self.source {
            Source::File(document) => document.folder,
            Source::CommandLine(folder) => folder,
        }
    }

    /// A warning for each key of the file that no longer has an effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        match self.source {
            Source::File(document) => document.warnings.clone(),
            Source::CommandLine(_) => Vec::new(),
        }
    }

    pub(crate) fn wrong(
        &self,
        key: &str,
        value: impl Display,
        expected: impl Display,
    ) -> FileError {
        let (value, expected) = (value.to_string(), expected.to_string());
        FileError::Value { at: self.at(key), key: self.key(key), value, expected }
    }

    /// For an `error` whose text includes the value and what would be accepted.
    pub(crate) fn unreadable(&self, key: &str, error: impl Display) -> FileError {
        FileError::Unreadable { at: self.at(key), key: self.key(key), message: error.to_string() }
    }

    /// For a key that is none of `known`.
    pub(crate) fn unknown(&self, key: &str, known: Vec<&'static str>) -> FileError {
        let table = self.prefix.trim_end_matches('.').to_owned();
        FileError::UnknownKey {
            at: self.at(key),
            key: key.to_owned(),
            table,
            known,
            is_of_file: false,
        }
    }

    pub(crate) fn missing(&self, key: &str, expected: &str) -> FileError {
        FileError::Missing { at: self.at(key), key: self.key(key), expected: expected.to_owned() }
    }

    /// Checks that `good` holds.
    pub(crate) fn check(
        &self,
        good: bool,
        key: &str,
        value: impl Display,
        expected: impl Display,
    ) -> Result<(), FileError> {
        if good { Ok(()) } else { Err(self.wrong(key, value, expected)) }
    }

    /// Checks that at most one of these keys has a value.
    pub(crate) fn one_of<'k>(
        &self,
        all: impl IntoIterator<Item = (&'k str, Option<String>)>,
    ) -> Result<(), FileError> {
        let given = all.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let (keys, values): (Vec<_>, Vec<_>) = given.unzip();
        self.check(keys.len() < 2, &keys.join(", "), values.join(", "), "only one of them")
    }

    /// An optional duration of at most [`MOST_TIME`].
    pub(crate) fn time(
        &self,
        key: &str,
        time: Option<Text<Time>>,
    ) -> Result<Option<Duration>, FileError> {
        let time = time.map(|time| time.0.0);
        let good = time.is_none_or(|time| time <= MOST_TIME);
        let value = format_duration(time.unwrap_or_default());
        self.check(good, key, value, "at most 10,000,000 s").map(|()| time)
    }

    /// The position of `key`; of several, the last.
    pub(crate) fn at(&self, key: &str) -> At {
        match self.source {
            Source::File(document) => {
                let last = key.rsplit(", ").next().unwrap_or(key);
                document.at(&format!("{}{last}", self.prefix))
            }
            Source::CommandLine(_) => At { file: "command line".into(), line: None, case: None },
        }
    }

    /// `--per, --ber`, but `forward.per, ber`.
    pub(crate) fn key(&self, key: &str) -> String {
        let separator = if self.prefix.starts_with("--") { &self.prefix } else { "" };
        format!("{}{}", self.prefix, key.replace(", ", &format!(", {separator}")))
    }
}

/// As written in the file.
pub(crate) fn quoted(text: impl Display) -> String {
    format!("{:?}", text.to_string())
}
