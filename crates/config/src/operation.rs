//! Operational settings, common to all roles.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pep::traffic::Prefix;
use units::{BitRate, ByteCount};

use super::log::LogFilter;

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

/// DLEP settings. Section `[dlep]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DlepConfig {
    /// Location of the modem. Key `interface` or `modem`.
    pub modem: ModemLocation,
    /// Interval of our heartbeats, 1 s to 1 h. Key `heartbeat`, default 5 s.
    pub heartbeat: Duration,
    /// Ignores packets forwarded by a router: the TTL must be 255 (RFC 5082). Key `gtsm`, default
    /// true.
    pub gtsm: bool,
    /// The link gives capacity on demand: the gateway requests it for its backlog, and a rate of 0 means
    /// that nothing is granted at present. Key `on_demand`, default false.
    pub on_demand: bool,
}

/// Location of the modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModemLocation {
    /// By discovery on this interface.
    Discover(String),
    /// At this address and port.
    At(SocketAddr),
}
