//! TCP settings of a scenario.

use std::sync::Arc;

use tcp::{Config, ConfigError, Profile};

use super::error::{Place, ScenarioError};
use super::raw;

/// Parses the settings of a `[tcp.NAME]`: a profile, then single options.
pub(super) fn read(place: &Place, raw: &raw::Tcp) -> Result<Arc<Config>, ScenarioError> {
    let mut config = Profile::Linux.config();
    let profile = raw.get_key_value("profile");
    let others = raw.iter().filter(|(key, _)| *key != "profile");
    for (key, value) in profile.into_iter().chain(others) {
        config.set(key, &text_of(value)).map_err(|error| match error {
            ConfigError::Value { expected, .. } => place.wrong(key, value, expected),
            ConfigError::Unreadable { message, .. } => place.unreadable(key, message),
            _ => {
                let names: Vec<_> = Config::names().collect();
                place.wrong(key, value, format!("one of {}", names.join(", ")))
            }
        })?;
    }
    Ok(Arc::new(config))
}

/// The value in the syntax of an option string.
fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::Boolean(true) => "on".to_owned(),
        toml::Value::Boolean(false) => "off".to_owned(),
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
