//! The options of a controller as text: `name=value,name=value`.

use core::time::Duration;
use std::collections::BTreeMap;

use thiserror::Error;

/// An option that a controller does not understand.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Not of the form name=value.
    #[error("\"{text}\" is not an option: expected name=value")]
    Form {
        /// The part of the text that was rejected.
        text: String,
    },
    /// The controller has no such option.
    #[error("there is no option \"{name}\": expected {expected}")]
    Unknown {
        /// The unknown name, as given.
        name: String,
        /// The names of the controller's options.
        expected: String,
    },
    /// The value is invalid for the option.
    #[error("{name}={value}: expected {expected}")]
    Value {
        /// The name of the option.
        name: String,
        /// The rejected value, as given.
        value: String,
        /// Description of the values that are accepted.
        expected: String,
    },
}

/// Options as given; a controller takes its own from them.
#[derive(Debug)]
pub(crate) struct OptionReader<'a> {
    given: BTreeMap<&'a str, &'a str>,
    /// The names of the options that the controller has, in the order in which it read them.
    known: Vec<&'static str>,
}

impl<'a> OptionReader<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, OptionError> {
        let mut given = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let error = || OptionError::Form { text: part.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(error)?;
            given.insert(name.trim(), value.trim());
        }
        Ok(Self { given, known: Vec::new() })
    }

    fn take<T>(
        &mut self,
        name: &'static str,
        default: T,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, OptionError> {
        self.known.push(name);
        let Some(value) = self.given.remove(name) else { return Ok(default) };
        read(value).ok_or_else(|| OptionError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        })
    }

    /// Reads a switch: `on` or `off`.
    pub(crate) fn switch(
        &mut self,
        name: &'static str,
        default: bool,
    ) -> Result<bool, OptionError> {
        self.one_of(name, default, &[("on", true), ("off", false)])
    }

    /// Reads one of several named choices.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        name: &'static str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, OptionError> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        self.take(name, default, &names.join(" or "), |text| {
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
        })
    }

    /// Reads a duration above zero.
    pub(crate) fn duration(
        &mut self,
        name: &'static str,
        default: Duration,
    ) -> Result<Duration, OptionError> {
        self.take(name, default, "a duration such as 25ms", |text| {
            units::parse_duration(text).ok().filter(|value| !value.is_zero())
        })
    }

    /// Reads a number within `low..=high`.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        default: f64,
        low: f64,
        high: f64,
    ) -> Result<f64, OptionError> {
        self.take(name, default, &format!("a number from {low} to {high}"), |text| {
            text.parse().ok().filter(|value| (low..=high).contains(value))
        })
    }

    /// Rejects options that the controller does not have.
    pub(crate) fn finish(self) -> Result<(), OptionError> {
        let Some((name, _)) = self.given.first_key_value() else { return Ok(()) };
        let expected =
            if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(OptionError::Unknown { name: (*name).to_owned(), expected })
    }
}
