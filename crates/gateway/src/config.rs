//! Configuration files of all roles: TOML in, validated types out.
//!
//! A terminal:
//!
//! ```toml
//! private_key_file = "terminal.key"
//! hub = "hub.example.net:5900"
//! hub_key = "6Vv2ZmPFGh0mLPqGSmGBkXzGUvlzEKOmwP8yTFhxRmA="
//! rate = "10 Mbit/s"           # the return link, on which this side sends
//!
//! [intercept]
//! interfaces = ["lan0"]        # interfaces towards the clients
//! bypass = ["10.0.0.0/8"]      # destinations that pass unaccelerated
//!
//! [accept]                     # connections from the hub's side; none without this section
//! to = ["10.1.0.0/16:22"]
//!
//! [proxy]                      # instead of [intercept], or in addition
//! listen = "127.0.0.1:1080"    # SOCKS5 and HTTP CONNECT
//! ```
//!
//! A hub:
//!
//! ```toml
//! private_key_file = "hub.key"
//! rate = "50 Mbit/s"           # the forward link, on which this side sends
//!
//! [[terminal]]
//! name = "ship-1"
//! key = "0YJ7D8fzVCLh8TbVzDyv7B8cnX3sCXMlyUd2KVeuJgE="
//! networks = ["10.1.0.0/16", "fd00:1::/64"]   # addresses of its clients
//! deny = ["10.0.0.0/8"]        # destinations that its clients may not reach
//! ```

mod classes;
mod dlep;
mod egress;
mod limits;
mod operation;
mod parse;
mod policy;
mod proxy;
mod rate;
mod raw;
mod solo;
#[cfg(test)]
mod tests;
mod tunnel;

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pep::config::PermittedTerminal;
use pep::egress::Egress;
use pep::traffic::{Classes, Policy, Prefix};
use slacp::PublicKey;
use thiserror::Error;
use units::{BitRate, ByteCount};

pub use crate::dlep::{DlepConfig, Way};
use crate::keys::{KeyError, PrivateKey, check_permissions};
pub use crate::ops::OperationConfig;

/// Configuration of a terminal.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// The terminal's key. Key `private_key` or `private_key_file`.
    pub identity: PrivateKey,
    /// The hub's address or name, with the UDP port. Key `hub`.
    pub hub: HubAddress,
    /// The hub's public key. Key `hub_key`.
    pub hub_key: PublicKey,
    /// The local UDP address; `None` lets the system choose. Key `listen`.
    pub listen: Option<SocketAddr>,
    /// Hop settings. Keys `rate`, `initial_rate`, `maximum_rate`, `mtu`, `memory`, `stream_window`.
    pub link: slacp::Config,
    /// Time limit for connecting to a destination. Key `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Connects with the original client's address, instead of this machine's, for connections from
    /// the hub's side. Key `transparent`, default false; needs CAP_NET_ADMIN.
    pub transparent: bool,
    /// Connections to intercept; `None` intercepts nothing. Section `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// SOCKS5 and HTTP proxy; `None` runs none. Section `proxy`.
    pub proxy: Option<ProxyConfig>,
    /// Destinations that connections and packets from the hub's side may reach; none by default.
    /// Section `accept`.
    pub accept: Egress,
    /// Operational settings. Keys `control`, `metrics`, `state`, `total_memory`, `max_connections`,
    /// `keepalive`, `log`.
    pub operation: OperationConfig,
    /// Carries packets that are not split over the hop; `None` leaves them alone. Section `tunnel`,
    /// which requires `intercept`.
    pub tunnel: Option<TunnelConfig>,
    /// Traffic classes that share the rate. Sections `[[class]]`.
    pub classes: Classes,
    /// What to split, tunnel or bypass; the first match decides. Key `intercept.bypass`, then
    /// sections `[[policy]]`.
    pub policies: Vec<Policy>,
}

/// How packets that are not split pass between the kernel and a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Name of the network device, which lives as long as the gateway. Key `name`, default
    /// `skyhop0`.
    pub name: String,
    /// Device type. Key `device`, default [`TunnelDevice::Auto`].
    pub device: TunnelDevice,
    /// Maximum packet size in bytes; path MTU discovery tells senders of larger packets. Key `mtu`,
    /// default 1500, or the hop's MTU if larger. It may exceed the hop's MTU: packets are
    /// split on the hop.
    pub mtu: u16,
}

/// Type of a tunnel's network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelDevice {
    /// The first type that is available.
    Auto,
    /// A TUN device.
    Tun,
    /// A veth pair, for machines where `/dev/net/tun` is not accessible.
    Veth,
}

/// Which connections a gateway intercepts.
#[derive(Debug, Clone)]
pub struct InterceptConfig {
    /// Interfaces towards the clients; at least one.
    pub interfaces: Vec<String>,
    /// When to answer clients. Key `answer`, default `"early"`.
    pub answer: Answer,
    /// Intercepts connections of this machine too. Key `own_traffic`, default false.
    pub own_traffic: bool,
}

/// When a client's connection is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// At once, so that the request travels without an extra round trip. If the far end refuses,
    /// the client sees a reset.
    #[default]
    Early,
    /// After the far end is connected: the client sees a refusal as a refusal, and no answer as
    /// silence. Costs one round trip. Interception needs CAP_NET_RAW for it.
    Deferred,
}

impl InterceptConfig {
    /// Permits no destination.
    pub(crate) fn nowhere() -> Self {
        Self { interfaces: Vec::new(), answer: Answer::Early, own_traffic: false }
    }
}

/// The SOCKS5 and HTTP CONNECT proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Local TCP address. Key `listen`.
    pub listen: SocketAddr,
    /// Prefixes of permitted clients. Only this machine by default, in which case `listen` must not
    /// be reachable by others. Key `clients`.
    pub clients: Vec<Prefix>,
    /// When to answer clients. Key `answer`.
    pub answer: Answer,
    /// Where to resolve the names in requests. Key `names`.
    pub names: Names,
}

/// Where a name is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// At the hub, if it supports that: no lookup crosses the hop.
    #[default]
    Hub,
    /// On this machine.
    Here,
}

impl ProxyConfig {
    /// Whether the client may use the proxy.
    pub(crate) fn serves(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self.clients.as_slice() {
            [] => client.is_loopback(),
            clients => clients.iter().any(|prefix| prefix.contains(client)),
        }
    }
}

/// Configuration of a solo gateway. At least one of `intercept` and `proxy` is set.
#[derive(Debug, Clone)]
pub struct SoloConfig {
    /// Connections to intercept; `None` intercepts nothing. Section `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// What to split or bypass; the first match decides. Key `intercept.bypass`, then sections
    /// `[[policy]]`.
    pub policies: Vec<Policy>,
    /// SOCKS5 and HTTP proxy; `None` runs none. Section `proxy`.
    pub proxy: Option<ProxyConfig>,
    /// TCP settings towards clients. Section `lan`.
    pub lan: SideConfig,
    /// TCP settings towards servers. Section `wan`.
    pub wan: SideConfig,
    /// Shows servers the client's address on intercepted connections. Key `transparent`, default
    /// false.
    pub transparent: bool,
    /// Lets clients reach services on this machine's loopback addresses. Key `allow_loopback`,
    /// default false.
    pub allow_loopback: bool,
    /// Time limit for connecting to a destination. Key `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Operational settings. Keys `control`, `metrics`, `total_memory`, `max_connections`,
    /// `keepalive`, `log`.
    pub operation: OperationConfig,
}

/// Kernel TCP settings on one side of a solo gateway. `None` keeps the system's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideConfig {
    /// Name in the kernel. Key `congestion_control`, default the system's; on the LAN side CUBIC or
    /// Reno, which cost little.
    pub congestion_control: Option<String>,
    /// Bytes waiting to be sent or acknowledged; must hold one BDP to fill the path. Autotuned by
    /// default. Key `send_buffer`.
    pub send_buffer: Option<ByteCount>,
    /// Bytes waiting to be read, and so the maximum window. Autotuned by default. Key
    /// `receive_buffer`.
    pub receive_buffer: Option<ByteCount>,
    /// Maximum sending rate of one connection. Key `pacing_rate`.
    pub pacing_rate: Option<BitRate>,
    /// Initial congestion window in segments; default 10, the kernel's (RFC 6928). Needs
    /// CAP_NET_ADMIN. Key `initial_window`.
    pub initial_window: Option<u32>,
    /// Initial receive window in segments, limited by the receive buffer. Needs CAP_NET_ADMIN. Key
    /// `initial_receive_window`.
    pub initial_receive_window: Option<u32>,
    /// Disables delayed ACKs. The kernel waits up to 40 ms to send an ACK with a reply, which
    /// stalls a sender that holds back the rest of a message (Nagle's algorithm). Costs extra ACKs.
    /// Key `quick_ack`, default false.
    pub quick_ack: bool,
}

/// Configuration of a hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The hub's key. Key `private_key` or `private_key_file`.
    pub identity: PrivateKey,
    /// Local UDP address; `None` is port 5900 on all addresses. Key `listen`.
    pub listen: Option<SocketAddr>,
    /// Hop settings. Keys `rate`, `initial_rate`, `maximum_rate`, `mtu`, `memory`, `stream_window`.
    pub link: slacp::Config,
    /// Time limit for connecting to a destination. Key `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Shows servers the client's address instead of this machine's. The client must then be in the
    /// networks of its terminal. Key `transparent`, default false; needs CAP_NET_ADMIN.
    pub transparent: bool,
    /// Lets clients of one terminal reach those of another through the hub. Key `mesh`, default
    /// false.
    pub mesh: bool,
    /// Connections to intercept towards the terminals' networks; `None` intercepts nothing. Section
    /// `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// Permitted terminals; at least one. Sections `[[terminal]]`.
    pub terminals: Vec<PermittedTerminal>,
    /// Operational settings. Keys `control`, `metrics`, `state`, `total_memory`, `max_connections`,
    /// `keepalive`, `log`.
    pub operation: OperationConfig,
    /// Carries packets that are not split over the hop; `None` leaves them alone. Section `tunnel`,
    /// which requires `networks` for every terminal.
    pub tunnel: Option<TunnelConfig>,
    /// Traffic classes that share the rate. Sections `[[class]]`.
    pub classes: Classes,
    /// What to split, tunnel or bypass; the first match decides. Key `intercept.bypass`, then
    /// sections `[[policy]]`.
    pub policies: Vec<Policy>,
}

/// Address of the hub as `host:port`, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress(String);

impl HubAddress {
    /// `host:port`, in the form that a resolver accepts.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a configuration cannot be used. Each error prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// Name of the configuration file.
        file: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file is not valid TOML, or has an unknown key or a wrong type.
    #[error("{file}, line {line} ({text}): {problem}")]
    Syntax {
        /// Name of the configuration file.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// Text of the line.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// A required key is missing.
    #[error("{file}: `{key}` is missing: expected {accepted}")]
    Missing {
        /// Name of the configuration file.
        file: String,
        /// The missing key.
        key: &'static str,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A key has an invalid value.
    #[error("{file}: {key} = {value}: {problem}")]
    Value {
        /// Name of the configuration file.
        file: String,
        /// The key.
        key: String,
        /// The value as given.
        value: String,
        /// What is wrong, and what would be accepted.
        problem: String,
    },
    /// The private key is unusable, or its file is not safe.
    #[error("{file}: {cause}")]
    Key {
        /// Name of the configuration file.
        file: String,
        /// Reason.
        cause: KeyError,
    },
}

impl TerminalConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a terminal's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        parse::terminal(&source, &text)
    }
}

impl HubConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a hub's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        parse::hub(&source, &text)
    }
}

impl SoloConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a solo gateway's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        source.solo(&text)
    }
}

/// Origin of a configuration.
struct Source {
    /// File name for error messages.
    file: String,
    path: PathBuf,
    metadata: fs::Metadata,
}

impl Source {
    fn read(path: &Path) -> Result<(Self, String), ConfigError> {
        let file = path.display().to_string();
        let failed = |cause| ConfigError::Read { file: file.clone(), cause };
        let metadata = fs::metadata(path).map_err(failed)?;
        let text = fs::read_to_string(path).map_err(failed)?;
        Ok((Self { file, path: path.to_owned(), metadata }, text))
    }

    /// Resolves a path relative to the file's directory; for a pipe, relative to the working
    /// directory.
    fn relative(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(parent) if self.metadata.is_file() => parent.join(path),
            _ => PathBuf::from(path),
        }
    }

    /// Reads an inline key. It needs the same file permissions as a key file.
    fn inline_key(&self, text: &str) -> Result<PrivateKey, KeyError> {
        check_permissions(&self.path, &self.metadata)?;
        PrivateKey::parse(text)
    }
}
