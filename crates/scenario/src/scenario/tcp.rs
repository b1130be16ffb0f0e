//! TCP settings of scenarios, and of solo gateways with skyhop's own TCP.

use core::fmt;
use std::sync::Arc;

use tcp::{Config, ConfigError, Profile};

use super::raw::{RawTcp, Setting};
use crate::FileError;
use crate::place::KeyContext;

/// Parses the settings of a `[tcp.NAME]` (in a gateway's file, `[wan.tcp]`): a profile, then single options.
pub(crate) fn read(place: &KeyContext<'_>, raw: &RawTcp) -> Result<Arc<Config>, FileError> {
    let mut config = Profile::Linux.config();
    // The profile first, because it sets all options, which the others then change.
    let profile = raw.get_key_value("profile");
    let others = raw.iter().filter(|(key, _)| *key != "profile");
    for (key, value) in profile.into_iter().chain(others) {
        config.set(key, &value.to_string()).map_err(|error| match error {
            ConfigError::Value { expected, .. } => place.wrong_value(key, value.shown(), expected),
            ConfigError::Unreadable { message, .. } => place.unreadable(key, message),
            _ => place.unknown_key(key, Config::names().chain(["controller"]).collect()),
        })?;
    }
    Ok(Arc::new(config))
}

impl Setting {
    /// Writes the value as in the file.
    fn shown(&self) -> String {
        match self {
            Self::Switch(on) => on.to_string(),
            Self::Text(text) => format!("{text:?}"),
            number => number.to_string(),
        }
    }
}

/// Writes the value in the syntax of an option string.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
