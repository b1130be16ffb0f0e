//! The configuration files of both sides: TOML in, validated types out.
//!
//! A terminal:
//!
//! ```toml
//! private_key_file = "terminal.key"
//! hub = "hub.example.net:5900"
//! hub_key = "6Vv2ZmPFGh0mLPqGSmGBkXzGUvlzEKOmwP8yTFhxRmA="
//! rate = "10 Mbit/s"           # of the return link: what this side sends
//!
//! [intercept]
//! interfaces = ["lan0"]        # where the clients are
//! bypass = ["10.0.0.0/8"]      # destinations that are left alone
//!
//! [accept]                     # connections from the hub's side; without it none
//! to = ["10.1.0.0/16:22"]
//!
//! [proxy]                      # instead of [intercept], or beside it
//! listen = "127.0.0.1:1080"    # SOCKS5 and HTTP CONNECT
//! ```
//!
//! A hub:
//!
//! ```toml
//! private_key_file = "hub.key"
//! rate = "50 Mbit/s"           # of the forward link: what this side sends
//!
//! [[terminal]]
//! name = "ship-1"
//! key = "0YJ7D8fzVCLh8TbVzDyv7B8cnX3sCXMlyUd2KVeuJgE="
//! networks = ["10.1.0.0/16", "fd00:1::/64"]   # the addresses behind it
//! deny = ["10.0.0.0/8"]        # what its clients may not reach through the hub
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

use slacp::PublicKey;
use thiserror::Error;
use units::{BitRate, ByteCount};

use crate::class::Classes;
pub use crate::dlep::{DlepConfig, Way};
use crate::egress::Egress;
use crate::keys::{KeyError, PrivateKey, check_permissions};
pub use crate::ops::OperationConfig;
use crate::policy::Policy;
use crate::prefix::Prefix;
use crate::quota::Quota;

/// What a terminal is told.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// Who this terminal is. Key `private_key` or `private_key_file`.
    pub identity: PrivateKey,
    /// Where the hub is: an address or a name, with the UDP port. Key `hub`.
    pub hub: HubAddress,
    /// Who the hub is. Key `hub_key`.
    pub hub_key: PublicKey,
    /// The local UDP address; `None` lets the system choose. Key `listen`.
    pub listen: Option<SocketAddr>,
    /// The hop. Keys `rate`, `initial_rate`, `maximum_rate`, `mtu`, `memory`,
    /// `stream_window`.
    pub link: slacp::Config,
    /// How long a connection to a destination may take to open. Key
    /// `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Whether the connections that the hub's side opens are made with the
    /// address of whoever opened them, not this machine's. Key `transparent`,
    /// default false; needs CAP_NET_ADMIN.
    pub transparent: bool,
    /// Which connections are taken over; none without it. Section `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// Where clients ask to be connected; nowhere without it. Section `proxy`.
    pub proxy: Option<ProxyConfig>,
    /// Where connections and packets from the hub's side may go; nowhere without it.
    /// Section `accept`.
    pub accept: Egress,
    /// How it is run. Keys `control`, `total_memory`, `max_connections`.
    pub operation: OperationConfig,
    /// Whether and how packets that are not split are carried over the hop.
    /// Section `tunnel`; with it there is `intercept`.
    pub tunnel: Option<TunnelConfig>,
    /// How the rate is divided. Sections `[[class]]`.
    pub classes: Classes,
    /// What is split, what crosses the hop whole and what is left alone; the first
    /// that fits decides. Key `intercept.bypass`, then sections `[[policy]]`.
    pub policies: Vec<Policy>,
}

/// How packets that are not split get from the kernel to a gateway and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The network device; it lives as long as the gateway. Key `name`, default
    /// `skyhop0`.
    pub name: String,
    /// What it is. Key `device`, default [`TunnelDevice::Auto`].
    pub device: TunnelDevice,
    /// The longest packet that it takes, in bytes; senders of longer ones are
    /// told. Key `mtu`, default 1500 or that of the hop, if larger: packets need
    /// not fit in one of the hop's.
    pub mtu: u16,
}

/// What kind of network device a tunnel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelDevice {
    /// The first that can be had.
    Auto,
    /// A TUN device.
    Tun,
    /// A pair of virtual Ethernet devices, where `/dev/net/tun` is closed to us.
    Veth,
}

/// Which connections a gateway takes over.
#[derive(Debug, Clone)]
pub struct InterceptConfig {
    /// The interfaces that the clients are behind; at least one.
    pub interfaces: Vec<String>,
    /// When clients are answered. Key `answer`, default `"early"`.
    pub answer: Answer,
    /// Whether the connections of this machine itself are taken over too. Key
    /// `own_traffic`, default false.
    pub own_traffic: bool,
}

/// When a client is told that it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// At once: what it then says needs no round trip more. If the far end
    /// refuses, it is reset.
    #[default]
    Early,
    /// When the far end is connected; if it refuses, the client is told so, and if
    /// it is silent, nothing. Interception needs CAP_NET_RAW for that.
    Deferred,
}

impl InterceptConfig {
    /// None at all.
    pub(crate) fn nowhere() -> Self {
        Self { interfaces: Vec::new(), answer: Answer::Early, own_traffic: false }
    }
}

/// Where clients ask to be connected.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// The local TCP address. Key `listen`.
    pub listen: SocketAddr,
    /// Who may ask; nobody but this machine without it, which an address that
    /// others can reach does not allow. Key `clients`.
    pub clients: Vec<Prefix>,
    /// When a client is told that it is connected. Key `answer`.
    pub answer: Answer,
    /// Who resolves the names that clients give. Key `names`.
    pub names: Names,
}

/// Who resolves a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// The hub, if it does such things: no lookup crosses the hop.
    #[default]
    Hub,
    /// This machine.
    Here,
}

impl ProxyConfig {
    /// Whether this client may use the proxy.
    pub(crate) fn serves(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self.clients.as_slice() {
            [] => client.is_loopback(),
            clients => clients.iter().any(|prefix| prefix.contains(client)),
        }
    }
}

/// What a solo gateway is told. At least one of `intercept` and `proxy` is there.
#[derive(Debug, Clone)]
pub struct SoloConfig {
    /// Which connections are taken over; none without it. Section `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// Which connections are split and which are left alone; the first that fits
    /// decides. Key `intercept.bypass`, then sections `[[policy]]`.
    pub policies: Vec<Policy>,
    /// Where clients ask to be connected; nowhere without it. Section `proxy`.
    pub proxy: Option<ProxyConfig>,
    /// Connections with clients. Section `lan`.
    pub lan: SideConfig,
    /// Connections to servers. Section `wan`.
    pub wan: SideConfig,
    /// Whether servers see the clients' addresses, for connections that are
    /// taken over. Key `transparent`, default false.
    pub transparent: bool,
    /// Whether clients may reach what listens on this machine's own loopback
    /// addresses. Key `allow_loopback`, default false.
    pub allow_loopback: bool,
    /// How long a connection to a destination may take to open. Key
    /// `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// How it is run. Keys `control`, `metrics`, `total_memory`, `max_connections`.
    pub operation: OperationConfig,
}

/// How the kernel's TCP is set up on one side of a solo gateway. What is not said
/// is as the system has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideConfig {
    /// By its name in the kernel. Key `congestion_control`; the system's choice
    /// without it, on the LAN side one that costs little.
    pub congestion_control: Option<String>,
    /// How much may wait to be sent or acknowledged, without which the kernel
    /// finds out: a BDP is needed. Key `send_buffer`.
    pub send_buffer: Option<ByteCount>,
    /// How much may wait to be read; also the largest window. Key
    /// `receive_buffer`.
    pub receive_buffer: Option<ByteCount>,
    /// The most that one connection sends. Key `pacing_rate`.
    pub pacing_rate: Option<BitRate>,
    /// How many segments are sent before the first acknowledgement; the kernel's
    /// ten without it (RFC 6928). Needs CAP_NET_ADMIN. Key `initial_window`.
    pub initial_window: Option<u32>,
    /// How many segments the peer may send at first, as far as the receive buffer
    /// allows. Needs CAP_NET_ADMIN. Key `initial_receive_window`.
    pub initial_receive_window: Option<u32>,
    /// Whether what comes is acknowledged at once, though the kernel would wait up to
    /// 40 ms for an answer that may go with it: it costs packets, and spares that time
    /// a sender that holds back the rest of a message (Nagle's algorithm). Key
    /// `quick_ack`, default false.
    pub quick_ack: bool,
}

/// What a hub is told.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Who this hub is. Key `private_key` or `private_key_file`.
    pub identity: PrivateKey,
    /// The local UDP address; `None` is port 5900 of every address. Key
    /// `listen`.
    pub listen: Option<SocketAddr>,
    /// The hop. Keys `rate`, `initial_rate`, `maximum_rate`, `mtu`, `memory`,
    /// `stream_window`.
    pub link: slacp::Config,
    /// How long a connection to a destination may take to open. Key
    /// `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Whether servers see the clients' addresses, not this machine's. Clients
    /// must be in the networks of their terminals then. Key `transparent`,
    /// default false; needs CAP_NET_ADMIN.
    pub transparent: bool,
    /// Whether the clients of one terminal may reach those of another, by way of
    /// the hub. Key `mesh`, default false.
    pub mesh: bool,
    /// Which connections to the networks of its terminals are taken over; none
    /// without it. Section `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// Who may connect; at least one. Sections `[[terminal]]`.
    pub terminals: Vec<PermittedTerminal>,
    /// How it is run. Keys `control`, `total_memory`, `max_connections`.
    pub operation: OperationConfig,
    /// Whether and how packets that are not split are carried over the hop.
    /// Section `tunnel`; each terminal then has its networks.
    pub tunnel: Option<TunnelConfig>,
    /// How the rate is divided. Sections `[[class]]`.
    pub classes: Classes,
    /// What is split, what crosses the hop whole and what is left alone; the first
    /// that fits decides. Key `intercept.bypass`, then sections `[[policy]]`.
    pub policies: Vec<Policy>,
}

/// A terminal that a hub serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermittedTerminal {
    /// What the hub's log calls it.
    pub name: String,
    /// Who it is.
    pub key: PublicKey,
    /// The addresses behind it: those of its clients, as the hub's side sees them.
    /// No two terminals share any. Key `networks`, default none.
    pub networks: Vec<Prefix>,
    /// What its clients may reach through the hub. Keys `reach` and `deny`, else those of
    /// the section `egress`, else everything but special addresses and the hub's own.
    pub egress: Egress,
    /// What it may take of the hub. Keys `max_connections`, `connections_per_second`,
    /// `lookups`, else those of the section `limits`; and `memory`.
    pub quota: Quota,
}

/// Where the hub is: `host:port`, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress(String);

impl HubAddress {
    /// `host:port`, as a resolver takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why there is no usable configuration. Each prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// The file.
        file: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file is not TOML, or has a key or a type that it should not have.
    #[error("{file}, line {line} ({text}): {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What stands on that line.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A key that has no default is not there.
    #[error("{file}: `{key}` is missing: expected {accepted}")]
    Missing {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A key has a value that it cannot have.
    #[error("{file}: {key} = {value}: {problem}")]
    Value {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Its value, as given.
        value: String,
        /// What is wrong and what would be accepted.
        problem: String,
    },
    /// The private key cannot be used, or not safely.
    #[error("{file}: {cause}")]
    Key {
        /// The file.
        file: String,
        /// Why.
        cause: KeyError,
    },
}

impl TerminalConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// When the file cannot be read or is not a terminal's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        parse::terminal(&source, &text)
    }
}

impl HubConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// When the file cannot be read or is not a hub's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        parse::hub(&source, &text)
    }
}

impl SoloConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// When the file cannot be read or is not a solo gateway's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        source.solo(&text)
    }
}

/// Where a configuration came from.
struct Source {
    /// The file, for error messages.
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

    /// A path in the configuration begins where the file is; in a pipe, where
    /// we are.
    fn relative(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(parent) if self.metadata.is_file() => parent.join(path),
            _ => PathBuf::from(path),
        }
    }

    /// A key in the file itself is as secret as one in a key file.
    fn inline_key(&self, text: &str) -> Result<PrivateKey, KeyError> {
        check_permissions(&self.path, &self.metadata)?;
        PrivateKey::parse(text)
    }
}
