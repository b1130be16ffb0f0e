//! Settings as written by users, on a command line or in a file: words, some with a value
//! (`good=10s`). What [`core::fmt::Display`] writes, [`core::str::FromStr`] can parse.

use core::time::Duration;

use thiserror::Error;
use units::{format_duration, parse_duration};

/// A text that is not a valid setting.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a valid {what}: expected {expected}")]
#[non_exhaustive]
pub struct SettingError {
    /// The rejected text, as given.
    pub text: String,
    /// The kind of setting, such as `jitter`.
    pub what: &'static str,
    /// Description of the texts that are accepted.
    pub expected: &'static str,
}

/// A kind of setting, as its errors name it.
pub(crate) struct SettingKind {
    pub(crate) what: &'static str,
    pub(crate) expected: &'static str,
}

impl SettingKind {
    /// Applies `read` to `text`; the error names the texts that are accepted.
    pub(crate) fn read<T>(
        &self,
        text: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let Self { what, expected } = *self;
        read(text.trim()).ok_or_else(|| SettingError { text: text.to_owned(), what, expected })
    }
}

/// Returns the values of `name=value …` for these names. `None` if there are other names, or one
/// appears twice.
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

/// Formats a duration without a space.
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
