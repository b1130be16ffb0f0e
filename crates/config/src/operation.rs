//! Operational settings: `control`, `metrics`, `state`, `total_memory`, `max_connections`,
//! `keepalive`, `log`.

pub(crate) mod log;

use core::time::Duration;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;
use units::{BitRate, ByteCount};

use self::log::LogFilter;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, TextList};
use crate::services::dlep::DlepConfig;
use crate::values::AddressWithPort;
use crate::values::bounded::{HOUR, Interval, Memory, Number, SECOND, Size};
use crate::values::source::ConfigFile;

/// The metrics server.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Metrics")]
pub(crate) struct MetricsSection {
    /// The TCP address of the server. Any but a loopback address needs `token_file` or `allow`.
    #[schemars(required, extend("examples" = ["127.0.0.1:9590"]))]
    pub(crate) listen: Option<Text<AddressWithPort>>,
    /// A file with a token of 16 to 128 letters, digits, `-` or `_` that [every request must
    /// carry](dashboard.md#who-may-look). Only the gateway's user may be able to read it.
    pub(crate) token_file: Option<String>,
    /// Clients (prefixes) that are served, besides this machine. Default: all.
    pub(crate) allow: Option<TextList<Prefix>>,
    /// Names by which browsers may ask for this machine, besides `localhost` and addresses. With a token, any
    /// name is accepted.
    #[serde(default)]
    #[schemars(extend("examples" = [["hub.example.net"]]))]
    pub(crate) hosts: Vec<String>,
    /// Leave the destinations of connections out of the dashboard and `/status.json`.
    #[serde(default)]
    pub(crate) hide_destinations: bool,
}

/// Operational settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationConfig {
    /// Location of the control socket. Key `control`: a path, or `"none"`.
    pub control: ControlPath,
    /// While the streams of all sessions (on a solo gateway: the pipes) hold more than this, new
    /// connections pass unaccelerated. Key `total_memory`, default half of the machine's memory.
    pub total_memory: Option<ByteCount>,
    /// Maximum number of connections. Key `max_connections`, default limited by the process's
    /// descriptors.
    pub max_connections: Option<u64>,
    /// A peer silent for this long is probed with TCP keep-alives. Shorter detects dead peers
    /// sooner, at the cost of packets on the LAN. Key `keepalive`, default 2 h.
    pub keepalive: Option<Duration>,
    /// The metrics server and its page. Section `metrics`, default none.
    pub metrics: Option<MetricsConfig>,
    /// Directory for learnt properties of paths, so that sessions resume at their remembered rate. Key
    /// `state`, default none.
    pub state: Option<PathBuf>,
    /// Log filter. Key `log`, default `"info"`.
    pub log: Option<LogFilter>,
    /// Upper limit on the rate that a modem reports, or that is measured. Key `maximum_rate`, default
    /// none.
    pub maximum_rate: Option<BitRate>,
    /// DLEP, by which the modem reports its rate. Section `dlep`, default none.
    pub dlep: Option<DlepConfig>,
    /// The configuration file, if it can be read again.
    pub file: Option<PathBuf>,
    /// A warning for each key of the file that no longer has an effect.
    pub warnings: Vec<String>,
}

/// Settings of the metrics server. Section `[metrics]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Address to serve on. Unless it is a loopback address, `token_file` or `allow` is set. Key
    /// `listen`.
    pub listen: SocketAddr,
    /// File with the token that every request needs. Key `token_file`, default none.
    pub token_file: Option<PathBuf>,
    /// Clients besides this machine's own, by address; empty: all. Key `allow`.
    pub allow: Vec<Prefix>,
    /// Names of this machine in requests of clients, in lower case, besides `localhost` and addresses. A
    /// browser that was lured to another name is refused (DNS rebinding). Key `hosts`.
    pub hosts: Vec<String>,
    /// Leaves out the destinations of connections. Key `hide_destinations`.
    pub hide_destinations: bool,
}

/// Location of the control socket. Key `control`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlPath {
    /// The default path, if it is free.
    #[default]
    Usual,
    /// This path; the gateway does not start without it.
    At(PathBuf),
    /// No control socket: the gateway cannot be asked.
    None,
}

/// Permitted values of `keepalive`: from 1 s, because the kernel counts in seconds, to the least
/// default that RFC 9293 §3.8.4 permits.
pub(crate) type Keepalive = Interval<{ SECOND }, { 2 * HOUR }>;

/// The operational keys as written.
pub(crate) struct OperationKeys {
    pub(crate) control: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) metrics: Option<MetricsSection>,
    pub(crate) total_memory: Option<Memory>,
    pub(crate) max_connections: Option<Number<1, { u32::MAX }>>,
    pub(crate) keepalive: Option<Keepalive>,
    pub(crate) log: Option<Text<LogFilter>>,
}

impl OperationKeys {
    /// Reads the settings except `maximum_rate` and `dlep`, which are read with the rate.
    pub(crate) fn read(
        self,
        place: &KeyContext<'_>,
        file: &ConfigFile<'_>,
    ) -> Result<OperationConfig, FileError> {
        let path = |path: String| place.folder().locate(Path::new(&path));
        place.check(
            self.control.as_deref() != Some(""),
            "control",
            "\"\"",
            "a path, or \"none\"",
        )?;
        let metrics = self.metrics.map(|raw| metrics(&place.within("metrics"), raw));
        Ok(OperationConfig {
            control: match self.control {
                None => ControlPath::Usual,
                Some(word) if word == "none" => ControlPath::None,
                Some(named) => ControlPath::At(path(named)),
            },
            total_memory: self.total_memory.map(Size::get),
            max_connections: self.max_connections.map(|most| u64::from(most.get())),
            keepalive: self.keepalive.map(Interval::get),
            log: self.log.map(|filter| filter.0),
            metrics: metrics.transpose()?,
            state: self.state.map(path),
            // Only a regular file can be read again by a reload.
            file: file.regular.then(|| file.path.to_owned()),
            warnings: place.warnings(),
            ..OperationConfig::default()
        })
    }
}

fn metrics(place: &KeyContext<'_>, raw: MetricsSection) -> Result<MetricsConfig, FileError> {
    const LISTEN: &str = "a local address and a TCP port, like \"127.0.0.1:9590\"";
    let listen = raw.listen.ok_or_else(|| place.missing_key("listen", LISTEN))?.0.0;
    let file = raw.token_file.as_deref();
    place.check(file != Some(""), "token_file", "\"\"", "a path")?;
    let nobody = raw.allow.as_ref().is_some_and(|allow| allow.is_empty());
    place.check(!nobody, "allow", "[]", "at least one prefix, or no such key")?;
    let is_open = raw.token_file.is_none() && raw.allow.is_none();
    let beyond = "a loopback address such as \"127.0.0.1:9590\", or, to be reached from other \
                  machines, also `token_file = \"FILE\"` or `allow = [\"10.0.0.0/8\"]`";
    place.check(listen.ip().is_loopback() || !is_open, "listen", quoted(listen), beyond)?;
    for host in &raw.hosts {
        let good = !host.is_empty() && !host.contains([':', '/', '@', ' ', '*']);
        place.check(good, "hosts", quoted(host), "names without a port, such as \"hub.lan\"")?;
    }
    Ok(MetricsConfig {
        listen,
        token_file: raw.token_file.map(|path| place.folder().locate(Path::new(&path))),
        allow: raw.allow.unwrap_or_default().to_vec(),
        hosts: raw.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        hide_destinations: raw.hide_destinations,
    })
}
