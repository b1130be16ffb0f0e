//! The configuration files as they are written.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ConfigError, Source};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terminal {
    pub(super) private_key: Option<String>,
    pub(super) private_key_file: Option<String>,
    pub(super) hub: Option<String>,
    pub(super) hub_key: Option<String>,
    pub(super) rate: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) mtu: Option<i64>,
    pub(super) memory: Option<String>,
    pub(super) stream_window: Option<String>,
    pub(super) connect_timeout: Option<String>,
    pub(super) intercept: Option<Intercept>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Intercept {
    pub(super) interfaces: Option<Vec<String>>,
    #[serde(default)]
    pub(super) bypass: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hub {
    pub(super) private_key: Option<String>,
    pub(super) private_key_file: Option<String>,
    pub(super) rate: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) mtu: Option<i64>,
    pub(super) memory: Option<String>,
    pub(super) stream_window: Option<String>,
    pub(super) connect_timeout: Option<String>,
    pub(super) allow_loopback: Option<bool>,
    #[serde(default)]
    pub(super) terminal: Vec<PermittedTerminal>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PermittedTerminal {
    pub(super) name: Option<String>,
    pub(super) key: Option<String>,
}

/// Reads TOML; an error tells the line and what stands on it.
pub(super) fn read<T: DeserializeOwned>(source: &Source, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let before = &text.as_bytes()[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::Syntax {
            file: source.file.clone(),
            line: line + 1,
            text: text.lines().nth(line).unwrap_or_default().trim().to_owned(),
            problem: error.message().replace('\n', ", "),
        }
    })
}
