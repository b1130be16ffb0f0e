//! Configuration of the ways in which traffic arrives: interception, proxy, tunnel.

use std::net::{IpAddr, SocketAddr};

use pep::traffic::Prefix;

/// Interception of connections by a gateway.
#[derive(Debug, Clone)]
pub struct InterceptConfig {
    /// Interfaces towards the clients; at least one.
    pub interfaces: Vec<String>,
    /// When to answer clients. Key `answer`, default `"early"`.
    pub answer: AnswerTiming,
    /// Intercepts connections of this machine too. Key `own_traffic`, default false.
    pub own_traffic: bool,
}

/// When a client's connection is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerTiming {
    /// At once, so that the request travels without an extra round trip. If the far end refuses,
    /// the client sees a reset.
    #[default]
    Early,
    /// After the far end is connected: the client sees a refusal as a refusal, and no answer as
    /// silence. Costs one round trip. Interception needs CAP_NET_RAW for it.
    Deferred,
}

impl InterceptConfig {
    /// A configuration without interfaces, which intercepts nothing.
    pub fn nowhere() -> Self {
        Self { interfaces: Vec::new(), answer: AnswerTiming::Early, own_traffic: false }
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
    pub answer: AnswerTiming,
    /// Where to resolve the names in requests. Key `names`.
    pub names: NameResolution,
}

/// Resolver of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameResolution {
    /// At the hub, if it supports that: no lookup crosses the hop.
    #[default]
    Hub,
    /// This machine's own resolver.
    Here,
}

impl ProxyConfig {
    /// Returns `true` if the client may use the proxy.
    pub fn serves(&self, client: IpAddr) -> bool {
        serves(&self.clients, client)
    }
}

/// Returns `true` if one of the prefixes contains the client; without prefixes, if it is this machine.
pub(super) fn serves(clients: &[Prefix], client: IpAddr) -> bool {
    // A dual-stack listener reports IPv4 clients as mapped IPv6 addresses.
    let client = client.to_canonical();
    match clients {
        [] => client.is_loopback(),
        clients => clients.iter().any(|prefix| prefix.contains(client)),
    }
}

/// The device by which packets that are not split pass between the kernel and a gateway.
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
    /// Lowers the MSS of TCP connections to what fits into one packet of the hop, so that full segments are
    /// not split there. Key `clamp_mss`, default on. Unused by a solo gateway's stack, which writes its own
    /// SYNs.
    pub clamp_mss: bool,
}

/// Type of a tunnel's network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelDevice {
    /// The first type that is available.
    Auto,
    /// A TUN device.
    Tun,
    /// A veth pair, for machines where `/dev/net/tun` is not accessible.
    Veth,
}
