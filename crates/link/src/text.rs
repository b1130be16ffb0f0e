//! Settings as people write them, on a command line or in a file: words, some
//! of them with a value (`good=10s`). What [`core::fmt::Display`] writes,
//! [`core::str::FromStr`] reads back.

use core::time::Duration;

use thiserror::Error;
use units::{format_duration, parse_duration};

/// A text that is not the setting it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no {what}: expected {expected}")]
#[non_exhaustive]
pub struct SettingError {
    /// The text as given.
    pub text: String,
    /// What was to be read.
    pub what: &'static str,
    /// What would be accepted.
    pub expected: &'static str,
}

/// A kind of setting.
pub(crate) struct Kind {
    pub(crate) what: &'static str,
    pub(crate) expected: &'static str,
}

impl Kind {
    /// `read` of `text`, or the error that says what is expected.
    pub(crate) fn read<T>(
        &self,
        text: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let Self { what, expected } = *self;
        read(text.trim()).ok_or_else(|| SettingError { text: text.to_owned(), what, expected })
    }
}

/// The values of `name=value …`, for these names. `None` if there are others,
/// or one twice.
pub(crate) fn values<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Option<[Option<&'a str>; N]> {
    let mut values = [None; N];
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=')?;
        let place = names.iter().position(|known| *known == name)?;
        if values[place].replace(value).is_some() {
            return None;
        }
    }
    Some(values)
}

/// A duration without a blank.
pub(crate) fn word(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".to_owned();
    }
    format_duration(duration).replace(' ', "")
}

pub(crate) fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        assert_eq!(values("b=2  a=1", ["a", "b", "c"]), Some([Some("1"), Some("2"), None]));
        assert_eq!(values("", ["a"]), Some([None]));
        for wrong in ["d=1", "a", "a=1 a=2"] {
            assert_eq!(values(wrong, ["a", "b"]), None, "{wrong}");
        }
    }
}
