//! The configuration files as written, before validation.

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
    pub(super) initial_rate: Option<String>,
    pub(super) maximum_rate: Option<String>,
    pub(super) control: Option<String>,
    pub(super) state: Option<String>,
    pub(super) metrics: Option<Metrics>,
    pub(super) dlep: Option<Dlep>,
    pub(super) total_memory: Option<String>,
    pub(super) max_connections: Option<i64>,
    pub(super) listen: Option<String>,
    pub(super) mtu: Option<i64>,
    pub(super) memory: Option<String>,
    pub(super) stream_window: Option<String>,
    pub(super) connect_timeout: Option<String>,
    pub(super) keepalive: Option<String>,
    pub(super) log: Option<String>,
    pub(super) transparent: Option<bool>,
    pub(super) intercept: Option<Intercept>,
    pub(super) proxy: Option<Proxy>,
    pub(super) accept: Option<Accept>,
    pub(super) tunnel: Option<Tunnel>,
    #[serde(default)]
    pub(super) class: Vec<Class>,
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    pub(super) name: Option<String>,
    pub(super) device: Option<String>,
    pub(super) mtu: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) dscp: Vec<toml::Value>,
    #[serde(default)]
    pub(super) ports: Vec<toml::Value>,
    #[serde(default)]
    pub(super) protocols: Vec<toml::Value>,
    pub(super) weight: Option<i64>,
    pub(super) guaranteed: Option<String>,
    pub(super) maximum: Option<String>,
    pub(super) channel: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) to: Vec<String>,
    #[serde(default)]
    pub(super) from: Vec<String>,
    #[serde(default)]
    pub(super) ports: Vec<toml::Value>,
    #[serde(default)]
    pub(super) dscp: Vec<toml::Value>,
    pub(super) action: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    pub(super) listen: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dlep {
    pub(super) interface: Option<String>,
    pub(super) modem: Option<String>,
    pub(super) heartbeat: Option<String>,
    pub(super) gtsm: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Intercept {
    pub(super) interfaces: Option<Vec<String>>,
    #[serde(default)]
    pub(super) bypass: Vec<String>,
    pub(super) answer: Option<String>,
    pub(super) own_traffic: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    pub(super) listen: Option<String>,
    #[serde(default)]
    pub(super) clients: Vec<String>,
    pub(super) answer: Option<String>,
    pub(super) names: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hub {
    pub(super) private_key: Option<String>,
    pub(super) private_key_file: Option<String>,
    pub(super) rate: Option<String>,
    pub(super) initial_rate: Option<String>,
    pub(super) maximum_rate: Option<String>,
    pub(super) control: Option<String>,
    pub(super) state: Option<String>,
    pub(super) metrics: Option<Metrics>,
    pub(super) dlep: Option<Dlep>,
    pub(super) total_memory: Option<String>,
    pub(super) max_connections: Option<i64>,
    pub(super) listen: Option<String>,
    pub(super) mtu: Option<i64>,
    pub(super) memory: Option<String>,
    pub(super) stream_window: Option<String>,
    pub(super) connect_timeout: Option<String>,
    pub(super) keepalive: Option<String>,
    pub(super) log: Option<String>,
    pub(super) allow_loopback: Option<bool>,
    pub(super) egress: Option<Egress>,
    pub(super) limits: Option<Limits>,
    pub(super) mesh: Option<bool>,
    pub(super) transparent: Option<bool>,
    pub(super) intercept: Option<Intercept>,
    pub(super) tunnel: Option<Tunnel>,
    #[serde(default)]
    pub(super) class: Vec<Class>,
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
    #[serde(default)]
    pub(super) terminal: Vec<PermittedTerminal>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PermittedTerminal {
    pub(super) name: Option<String>,
    pub(super) key: Option<String>,
    #[serde(default)]
    pub(super) networks: Vec<String>,
    pub(super) reach: Option<Vec<String>>,
    #[serde(default)]
    pub(super) deny: Vec<String>,
    pub(super) weight: Option<i64>,
    pub(super) memory: Option<String>,
    pub(super) max_connections: Option<i64>,
    pub(super) connections_per_second: Option<i64>,
    pub(super) lookups: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    /// Only valid for a single terminal; the default is equal weights.
    #[serde(skip)]
    pub(super) weight: Option<i64>,
    /// Only valid for a single terminal; the default for all is the top-level key.
    #[serde(skip)]
    pub(super) memory: Option<String>,
    pub(super) max_connections: Option<i64>,
    pub(super) connections_per_second: Option<i64>,
    pub(super) lookups: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Egress {
    pub(super) reach: Option<Vec<String>>,
    #[serde(default)]
    pub(super) deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accept {
    pub(super) to: Vec<String>,
    #[serde(default)]
    pub(super) deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Solo {
    pub(super) control: Option<String>,
    pub(super) metrics: Option<Metrics>,
    pub(super) total_memory: Option<String>,
    pub(super) max_connections: Option<i64>,
    pub(super) connect_timeout: Option<String>,
    pub(super) keepalive: Option<String>,
    pub(super) log: Option<String>,
    pub(super) transparent: Option<bool>,
    pub(super) allow_loopback: Option<bool>,
    pub(super) intercept: Option<Intercept>,
    pub(super) proxy: Option<Proxy>,
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
    #[serde(default)]
    pub(super) lan: Side,
    #[serde(default)]
    pub(super) wan: Side,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Side {
    pub(super) congestion_control: Option<String>,
    pub(super) send_buffer: Option<String>,
    pub(super) receive_buffer: Option<String>,
    pub(super) pacing_rate: Option<String>,
    pub(super) initial_window: Option<i64>,
    pub(super) initial_receive_window: Option<i64>,
    pub(super) quick_ack: Option<bool>,
}

/// Parses TOML; a syntax error quotes the line and its number.
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
