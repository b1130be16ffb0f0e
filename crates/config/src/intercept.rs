//! Sources of connections: sections `[intercept]` and `[proxy]`.

use std::net::{IpAddr, SocketAddr};

use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::KeyContext;
use crate::file::text::{Text, TextList};
use crate::values::AddressWithPort;
use crate::values::interface_name::interface;

/// Connections to intercept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Intercept")]
pub(crate) struct InterceptSection {
    /// The interfaces to the clients. On a hub: those by which connections to the terminals' `networks` come in.
    #[schemars(required, length(min = 1), extend("examples" = [["lan0"]]))]
    pub(crate) interfaces: Option<Vec<String>>,
    /// Destinations (prefixes) whose connections and packets pass unaccelerated: short for a first `[[policy]]`.
    #[serde(default)]
    pub(crate) bypass: TextList<Prefix>,
    /// When to answer clients: `"early"`, at once, or `"deferred"`, when the far end has answered. Early saves a
    /// round trip; deferred shows refusals as such, and needs CAP_NET_RAW. See [Early and deferred
    /// answers](traffic.md#early-and-deferred-answers).
    #[schemars(extend("default" = "early"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) answer: Option<AnswerTiming>,
    /// Also intercept connections of the gateway's own machine, except those that leave by `interfaces`; see
    /// [Connections of the machine itself](traffic.md#connections-of-the-machine-itself).
    #[schemars(extend("x-restart" = true))]
    #[serde(default)]
    pub(crate) own_traffic: bool,
}

/// The SOCKS5 and HTTP CONNECT proxy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Proxy")]
pub(crate) struct ProxySection {
    /// The TCP address of the proxy, for both protocols.
    #[schemars(required, extend("examples" = ["127.0.0.1:1080"]))]
    pub(crate) listen: Option<Text<AddressWithPort>>,
    /// Addresses (prefixes) that may use the proxy. Required if `listen` is not a loopback address. Default: this
    /// machine.
    #[serde(default)]
    pub(crate) clients: TextList<Prefix>,
    /// When to report success to a client: `"early"`, at once, or `"deferred"`, when the far end has connected.
    /// Deferred costs a round trip before the first byte and reports refusals as what they are.
    #[schemars(extend("default" = "early"))]
    pub(crate) answer: Option<AnswerTiming>,
    /// Where names are resolved: `"hub"`, by the hub, or `"here"`, by the terminal's resolver, which may know
    /// other names; see [Names](proxy.md#names). Not on a solo gateway, which resolves them itself.
    #[schemars(extend("default" = "hub"))]
    pub(crate) names: Option<NameResolution>,
}

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
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
pub(crate) fn serves(clients: &[Prefix], client: IpAddr) -> bool {
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
    /// On a hub: the prefix of the addresses for terminals without `networks`. Key `pool`; `None` on others.
    pub pool: Option<Prefix>,
    /// Lowers the MSS of TCP connections to what fits into one packet of the hop, so that full segments are
    /// not split there. Key `clamp_mss`, default on. Unused by a solo gateway's stack, which writes its own
    /// SYNs.
    pub clamp_mss: bool,
}

/// Type of a tunnel's network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum TunnelDevice {
    /// The first type that is available.
    #[default]
    Auto,
    /// A TUN device.
    Tun,
    /// A veth pair, for machines where `/dev/net/tun` is not accessible.
    Veth,
}

const INTERFACES: &str = "the interfaces to the clients, like [\"lan0\"]";

/// Reads both sections. It is an error if `[intercept]` is `needed` and missing.
pub(crate) fn read(
    place: &KeyContext<'_>,
    intercept: Option<InterceptSection>,
    proxy: Option<ProxySection>,
    needed: bool,
) -> Result<(Option<InterceptConfig>, Option<ProxyConfig>), FileError> {
    let proxy = proxy.map(|raw| self::proxy(place, &raw)).transpose()?;
    if intercept.is_none() && needed {
        return Err(place.missing_key("intercept.interfaces", INTERFACES));
    }
    let intercept = intercept.map(|raw| self::intercept(place, raw)).transpose()?;
    Ok((intercept, proxy))
}

pub(crate) fn intercept(
    place: &KeyContext<'_>,
    raw: InterceptSection,
) -> Result<InterceptConfig, FileError> {
    let place = place.within("intercept");
    let interfaces = raw.interfaces.ok_or_else(|| place.missing_key("interfaces", INTERFACES))?;
    place.check(!interfaces.is_empty(), "interfaces", "[]", INTERFACES)?;
    for (index, name) in interfaces.iter().enumerate() {
        interface(&place, &format!("interfaces.{index}"), name)?;
    }
    let answer = raw.answer.unwrap_or_default();
    Ok(InterceptConfig { interfaces, answer, own_traffic: raw.own_traffic })
}

/// Returns the destinations that pass unaccelerated.
pub(crate) fn bypass(raw: Option<&InterceptSection>) -> Vec<Prefix> {
    raw.map_or_else(Vec::new, |raw| raw.bypass.to_vec())
}

fn proxy(place: &KeyContext<'_>, raw: &ProxySection) -> Result<ProxyConfig, FileError> {
    const LISTEN: &str = "an address and a TCP port, like \"127.0.0.1:1080\"";
    const CLIENTS: &str = "the addresses that may use the proxy, like [\"10.1.0.0/16\"]";
    let place = place.within("proxy");
    let Text(listen) = raw.listen.as_ref().ok_or_else(|| place.missing_key("listen", LISTEN))?;
    // Without a list of clients, only this machine may use the proxy.
    if raw.clients.is_empty() && !listen.0.ip().to_canonical().is_loopback() {
        return Err(place.missing_key("clients", CLIENTS));
    }
    Ok(ProxyConfig {
        listen: listen.0,
        clients: raw.clients.to_vec(),
        answer: raw.answer.unwrap_or_default(),
        names: raw.names.unwrap_or_default(),
    })
}
