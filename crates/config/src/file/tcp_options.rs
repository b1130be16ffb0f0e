//! TCP settings of scenarios, and of solo gateways with skyhop's own TCP.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tcp::{Config, ConfigError, Profile};

use crate::file::FileError;
use crate::file::place::KeyContext;

/// TCP options, by their names in `tcp::Config::set`.
pub type TcpOptions = BTreeMap<String, OptionValue>;

/// A single value.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, a number, true or false")]
#[schemars(inline)]
pub enum OptionValue {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Whole(i64),
    /// A number with a fraction.
    Number(f64),
    /// A text.
    Text(String),
}

/// Parses the settings of a `[tcp.NAME]` (in a gateway's file, `[wan.tcp]`): a profile, then single options.
pub fn read(place: &KeyContext<'_>, raw: &TcpOptions) -> Result<Arc<Config>, FileError> {
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

impl OptionValue {
    /// Writes the value as in the file.
    pub fn shown(&self) -> String {
        match self {
            Self::Switch(on) => on.to_string(),
            Self::Text(text) => format!("{text:?}"),
            number => number.to_string(),
        }
    }
}

/// Writes the value in the syntax of an option string.
impl fmt::Display for OptionValue {
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
