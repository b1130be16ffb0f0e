//! Why a scenario was rejected.

use thiserror::Error;

/// Why a scenario was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file is not valid TOML, or has unknown keys.
    #[error("{origin}:{line}: {text:?}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line, from 1; in a case, of the scenario after its changes.
        line: usize,
        /// The text of that line.
        text: String,
        /// What is wrong, and what would be accepted.
        message: String,
    },
    /// A value is out of range.
    #[error("{origin}: {key} = {value}: expected {expected}")]
    Value {
        /// The file, and the case if there are several.
        origin: String,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// The given value.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A value could not be parsed.
    #[error("{origin}: {key}: {message}")]
    Unreadable {
        /// The file, and the case if there are several.
        origin: String,
        /// The key, such as `hop.forward.rate`.
        key: String,
        /// The value, what is wrong with it, and what would be accepted.
        message: String,
    },
    /// A required key is missing.
    #[error("{origin}: {key} is missing: expected {expected}")]
    Missing {
        /// The file, and the case if there are several.
        origin: String,
        /// The key.
        key: String,
        /// What would be accepted.
        expected: String,
    },
}

/// The position of a value in a file.
#[derive(Debug, Clone)]
pub(super) struct Place {
    origin: String,
    prefix: String,
}

impl Place {
    pub(super) fn new(origin: &str) -> Self {
        Self { origin: origin.to_owned(), prefix: String::new() }
    }

    /// The position of `key` within this one.
    pub(super) fn within(&self, key: &str) -> Self {
        Self { origin: self.origin.clone(), prefix: format!("{}{key}.", self.prefix) }
    }

    pub(super) fn wrong(
        &self,
        key: &str,
        value: impl core::fmt::Display,
        expected: impl core::fmt::Display,
    ) -> ScenarioError {
        ScenarioError::Value {
            origin: self.origin.clone(),
            key: format!("{}{key}", self.prefix),
            value: value.to_string(),
            expected: expected.to_string(),
        }
    }

    /// For an `error` whose text includes the value and what would be accepted.
    pub(super) fn unreadable(&self, key: &str, error: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::Unreadable {
            origin: self.origin.clone(),
            key: format!("{}{key}", self.prefix),
            message: error.to_string(),
        }
    }

    pub(super) fn missing(&self, key: &str, expected: &str) -> ScenarioError {
        ScenarioError::Missing {
            origin: self.origin.clone(),
            key: format!("{}{key}", self.prefix),
            expected: expected.to_owned(),
        }
    }

    /// Parses an optional value written as text.
    pub(super) fn read<T: core::str::FromStr<Err: core::fmt::Display>>(
        &self,
        key: &str,
        text: Option<&str>,
    ) -> Result<Option<T>, ScenarioError> {
        text.map(|text| text.parse().map_err(|error| self.unreadable(key, error))).transpose()
    }

    /// Parses an optional duration.
    pub(super) fn time(
        &self,
        key: &str,
        text: Option<&str>,
    ) -> Result<Option<core::time::Duration>, ScenarioError> {
        let read = |text| {
            let error = |error| self.unreadable(key, error);
            let time = units::parse_duration(text).map_err(error)?;
            let most = core::time::Duration::from_secs(10_000_000);
            self.check(time <= most, key, quoted(text), "at most 10,000,000 s").map(|()| time)
        };
        text.map(read).transpose()
    }

    /// Checks that `good` holds.
    pub(super) fn check(
        &self,
        good: bool,
        key: &str,
        value: impl core::fmt::Display,
        expected: impl core::fmt::Display,
    ) -> Result<(), ScenarioError> {
        if good { Ok(()) } else { Err(self.wrong(key, value, expected)) }
    }

    /// Parses one of several words.
    pub(super) fn word<T: Copy>(
        &self,
        key: &str,
        text: &str,
        words: &[(&str, T)],
    ) -> Result<T, ScenarioError> {
        let known = words.iter().find(|(word, _)| *word == text);
        known.map(|(_, value)| *value).ok_or_else(|| {
            let all: Vec<_> = words.iter().map(|(word, _)| quoted(word)).collect();
            self.wrong(key, quoted(text), format!("one of {}", all.join(", ")))
        })
    }
}

/// As written in the file.
pub(super) fn quoted(text: &str) -> String {
    format!("{text:?}")
}
