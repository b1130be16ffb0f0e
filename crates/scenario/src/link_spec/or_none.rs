//! Settings that a preset may have and an option or a case may remove.

use core::fmt::{self, Display};
use core::str::FromStr;

use thiserror::Error;

/// A setting, or `none` to remove that of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

/// A text that is neither a valid setting nor `none`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}, or none")]
pub struct OrNoneError<E>(E);

impl<T: FromStr> FromStr for OrNone<T> {
    type Err = OrNoneError<T::Err>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|setting| Self(Some(setting))).map_err(OrNoneError)
    }
}

impl<T: Display> Display for OrNone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(setting) => setting.fmt(f),
            None => f.write_str("none"),
        }
    }
}
