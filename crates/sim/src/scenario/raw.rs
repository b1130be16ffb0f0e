//! Scenarios as written in the file. Quantities are kept as text and parsed later, so that errors
//! can include the key.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Scenario {
    pub(super) description: String,
    pub(super) time: String,
    pub(super) sample: Option<String>,
    #[serde(default)]
    pub(super) network: Network,
    pub(super) hop: Hop,
    pub(super) server_side: Option<Direction>,
    pub(super) client_side: Option<Direction>,
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, Tcp>,
    pub(super) gateways: Option<Gateways>,
    #[serde(default)]
    pub(super) flow: Vec<Flow>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Network {
    pub(super) terminals: Option<u32>,
    pub(super) servers: Option<u32>,
    pub(super) clients: Option<u32>,
    pub(super) return_channels: Option<u32>,
    pub(super) mesh: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Hop {
    pub(super) forward: Direction,
    #[serde(rename = "return")]
    pub(super) ret: Option<Direction>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Direction {
    pub(super) rate: Option<String>,
    pub(super) rate_trace: Option<Vec<String>>,
    pub(super) encapsulation: Option<String>,
    pub(super) delay: Option<String>,
    pub(super) delay_trace: Option<Vec<String>>,
    pub(super) jitter: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) discipline: Option<String>,
    pub(super) ecn: Option<bool>,
    pub(super) per: Option<String>,
    pub(super) ber: Option<String>,
    pub(super) burst: Option<String>,
    pub(super) gilbert_elliott: Option<String>,
    pub(super) loss_period: Option<NonZeroU64>,
    pub(super) loss_trace: Option<Vec<String>>,
    pub(super) outages: Option<Vec<String>>,
}

/// TCP options, by their names in `tcp::Config::set`.
pub(super) type Tcp = BTreeMap<String, toml::Value>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Gateways {
    pub(super) split: String,
    pub(super) hop: Option<String>,
    pub(super) tcp: Option<String>,
    pub(super) lan_tcp: Option<String>,
    pub(super) forward_rate: Option<String>,
    pub(super) return_rate: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Flow {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) count: Option<u32>,
    pub(super) start: Option<String>,
    pub(super) spacing: Option<String>,
    pub(super) tcp: Option<String>,
    pub(super) server_tcp: Option<String>,
    pub(super) direction: Option<String>,
    pub(super) bytes: Option<String>,
    pub(super) time: Option<String>,
    pub(super) request: Option<String>,
    pub(super) reply: Option<String>,
    pub(super) think: Option<String>,
    pub(super) repeat: Option<u64>,
    pub(super) method: Option<String>,
    pub(super) connections: Option<u32>,
    pub(super) objects: Option<Vec<String>>,
    pub(super) every: Option<String>,
    pub(super) sizes: Option<String>,
    pub(super) rate: Option<String>,
    pub(super) size: Option<toml::Value>,
    pub(super) watch: Option<bool>,
}
