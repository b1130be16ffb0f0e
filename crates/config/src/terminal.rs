//! Configuration of a terminal.

use core::fmt::Display;
use core::time::Duration;
use std::net::SocketAddr;

use pep::egress::EgressRules;
use pep::hubs::{HubId, HubOrder, ranking};
use pep::traffic::{TrafficClasses, TrafficPolicy};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{KeyPair, PublicKey};
use units::{BitRate, ByteCount, Probability};

use crate::bounded::{Memory, Number};
use crate::bundles::{BundlesConfig, BundlesSection};
use crate::classes::ClassSection;
use crate::dlep::DlepSection;
use crate::dns::{DnsConfig, DnsSection};
use crate::egress::AcceptSection;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::hop::ConnectTimeout;
use crate::http::{HttpConfig, HttpSection};
use crate::hub_address::{HubAddress, TcpAddress};
use crate::identity::public_key;
use crate::intercept::{
    InterceptConfig, InterceptSection, ProxyConfig, ProxySection, TunnelConfig,
};
use crate::links::{LinkConfig, LinkSection, LinkSide};
use crate::operation::{Keepalive, MetricsSection, OperationConfig};
use crate::policies::{PolicyActions, PolicySection};
use crate::shared::shared_keys;
use crate::source::{ConfigFile, KeySource};
use crate::tunnel::TunnelSection;
use crate::values::{AddressWithPort, HubOrderChoice, InitialRate, PublicKeyText, RateChoice};
use crate::{LogFilter, bundles, dns, egress, http, intercept, policies};

/// A further hub of a terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OtherHub")]
pub(crate) struct OtherHubSection {
    /// A unique name for logs and status; that of the first hub is `hub`. Default: `hub-2` and so on.
    pub(crate) name: Option<String>,
    /// Host and UDP port of this hub.
    #[schemars(required, extend("examples" = ["hub-2.example.net:5900"]))]
    pub(crate) address: Option<Text<HubAddress>>,
    /// As `hub_tcp`, for this hub.
    #[schemars(extend("examples" = ["hub-2.example.net:443"]))]
    pub(crate) tcp: Option<Text<TcpAddress>>,
    /// This hub's public key, which no other hub of the terminal has.
    #[schemars(required)]
    pub(crate) key: Option<Text<PublicKeyText>>,
}

/// The configuration of a terminal (docs/configuration.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop terminal")]
pub(crate) struct TerminalKeys {
    /// This gateway's private key, in base64. Give either this or `private_key_file`.
    pub(crate) private_key: Option<String>,
    /// A file with this gateway's private key, as `skyhop keygen` writes it. Only its owner may be able to read
    /// it. Give either this or `private_key`.
    #[schemars(extend("x-restart" = true))]
    pub(crate) private_key_file: Option<String>,
    /// Host and UDP port of the hub. If the name has several addresses, the terminal tries them in turn.
    #[schemars(required, extend("examples" = ["hub.example.net:5900"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub: Option<Text<HubAddress>>,
    /// Host and TCP port of the hub's `listen_tcp`, used while the hub does not answer over UDP, such as
    /// `"hub.example.net:443"`, or `"tls://hub.example.net:443"` for TLS. See [Where UDP is
    /// blocked](behaviour.md#where-udp-is-blocked).
    #[schemars(extend("examples" = ["hub.example.net:443", "tls://hub.example.net:443"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub_tcp: Option<Text<TcpAddress>>,
    /// The hub's public key.
    #[schemars(required)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub_key: Option<Text<PublicKeyText>>,
    /// The hub of first choice, if there are several: `"spread"` derives it from the keys and divides terminals
    /// evenly among hubs; `"listed"` takes the order of the file.
    #[schemars(extend("default" = "spread"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub_order: Option<HubOrderChoice>,
    /// Further hubs, at most 7, for when the first does not answer or stops. Connections do not move from one hub
    /// to another. See [Several hubs](hubs.md).
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) other_hub: Vec<OtherHubSection>,
    /// The rate at which this side sends, in IP packets: that of its link. A fixed rate, `"auto"` (measured and
    /// followed), or `"modem"` (reported at run time by the [modem](modem.md) or `skyhop rate`). Too high floods
    /// the modem's queue, and what does not fit is sent again; more than four times too high for half a minute
    /// lowers it to what arrives ([circuit breaker](slacp.md#circuit-breaker)). Too low leaves the link unused.
    #[schemars(required, extend("examples" = ["10 Mbit/s", "auto", "modem"]))]
    pub(crate) rate: Option<Text<RateChoice>>,
    /// With `rate = "modem"`: the rate before the first report and after a report has expired. Without it, the
    /// path is measured then, as with `"auto"`; see [what stands in for a
    /// report](modem.md#while-no-rate-is-reported). Set it where the modem must never get more than a known rate,
    /// or where the link cannot be measured.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(crate) initial_rate: Option<Text<InitialRate>>,
    /// With `rate = "auto"` or `"modem"`: the upper limit of a session's rate on this side, at least
    /// `initial_rate`.
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
    pub(crate) maximum_rate: Option<Text<BitRate>>,
    /// While rates are measured (`"auto"`, or `"modem"` without `initial_rate`): measure the path with padding
    /// when a session starts, the terminal's address changes or the modem stops reporting. It takes 50 ms of most
    /// links, at most 400 kB; a few times that with much jitter. Without it the first user's data measures the
    /// path, two round trips slower. Disable it where every byte is paid for and sessions are short.
    #[schemars(extend("default" = true))]
    pub(crate) probe: Option<bool>,
    /// With `probe`: the share of the bytes sent to a peer that padding may take, 0 % to 100 %, besides two
    /// measurements in advance (800 kB; with much jitter, twice the first one if that is more). Counted in IP
    /// packets over all sessions with the peer since the gateway started; `skyhop status` shows what is left.
    /// Once it is used up, data measures the path. `"0.5 %"` allows at most 51 MB of padding for 10 GB sent.
    #[schemars(extend("default" = "2 %", "examples" = ["0.5 %"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) probe_share: Option<Text<Probability>>,
    /// The path of the control socket, or `"none"`. Default: the first available of several directories; see
    /// [Control sockets](operate.md#control-sockets).
    #[schemars(extend("x-restart" = true))]
    pub(crate) control: Option<String>,
    /// A directory, such as `/var/lib/skyhop`, for what must survive a restart: measured paths, so that sessions
    /// resume at the remembered rate. A hub also keeps its [accounts](operate.md#accounts-and-quotas) (else a
    /// restart renews quotas), permits from etcd, and where its terminals were last heard, so that they are back
    /// within seconds after a crash. A terminal keeps the [next keys of its hubs](hubs.md#replace-a-hubs-key).
    #[schemars(extend("examples" = ["/var/lib/skyhop"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) state: Option<String>,
    /// An HTTP server for the [dashboard](dashboard.md), [metrics](operate.md#metrics) and status. Without it,
    /// nothing is served.
    #[schemars(extend("x-restart" = true))]
    pub(crate) metrics: Option<MetricsSection>,
    /// The modem's rate by DLEP (RFC 8175), with `rate = "modem"`. Without it, only `skyhop rate` reports rates.
    /// See [DLEP](modem.md).
    #[schemars(extend("x-restart" = true))]
    pub(crate) dlep: Option<DlepSection>,
    /// The memory of all sessions together (streams, FEC, channels, packets in flight) above which new
    /// connections pass unaccelerated and a hub refuses them. Default: half of the machine's memory, or of its
    /// control group's limit.
    #[schemars(extend("examples" = ["1 GB"]))]
    pub(crate) total_memory: Option<Memory>,
    /// The most connections carried. Further ones pass unaccelerated; a hub refuses them. One client (an IPv4
    /// address or an IPv6 /64) has at most seven times as many as are free, and when a sixteenth is left,
    /// connections idle for more than a minute give way to new ones. Default: the process's descriptors − 64,
    /// which it cannot exceed.
    pub(crate) max_connections: Option<Number<1, { u32::MAX }>>,
    /// The local UDP address. Default: port 5900 of every address on a hub, a free port on a terminal.
    #[schemars(extend("examples" = ["[::]:5900"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) listen: Option<Text<AddressWithPort>>,
    /// The longest IP packet to send over the hop, in bytes. Shorter limits of the path are discovered, down to 576.
    #[schemars(extend("x-restart" = true))]
    #[serde(default)]
    pub(crate) mtu: Number<576, 9216, 1500>,
    /// The most that all streams of a session hold, in each direction.
    #[schemars(extend("x-restart" = true))]
    #[serde(default)]
    pub(crate) memory: Memory<256_000_000>,
    /// The largest burst that may leave at once, at least `mtu`, for a policer that drops longer ones: `"3 kB"`
    /// for one that takes two packets. Packets that measure the path are exempt. Without it, packets within 0.5
    /// ms are handled together, and up to 4 ms of the rate may leave at once after a delay. With it, the gateway
    /// wakes up for each packet, which takes [more of the processor](performance.md#what-it-costs).
    #[schemars(extend("examples" = ["3 kB"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) burst: Option<Text<ByteCount>>,
    /// The most that one stream holds, at most `memory`. One connection cannot fill the hop if this is below rate
    /// × RTT, or below four times that when packets are lost. Default: 64 MB, or `memory` if that is less.
    #[schemars(extend("default" = "64 MB"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) stream_window: Option<Memory>,
    /// How long opening a connection to a destination may take.
    #[schemars(extend("x-restart" = true))]
    #[serde(default)]
    pub(crate) connect_timeout: ConnectTimeout,
    /// Silence after which a client or server is probed. Up to six probes follow over the same time again, at
    /// most one a second; without an answer the connection is reset. The default keeps connections of clients
    /// that are suspended or out of reach for two hours, but one whose peer is gone holds its slot of
    /// `max_connections` and [its memory](performance.md) for four. Shorter costs a few packets on the LAN.
    #[schemars(extend("default" = "2 h"))]
    pub(crate) keepalive: Option<Keepalive>,
    /// What the log (standard error) shows: `"off"`, `"error"`, `"warn"`, `"info"`, `"debug"` or `"trace"`, or
    /// several parts such as `"info,gateway::tunnel=debug"`. Of libraries, `warn` and `info` show only errors. Up
    /// to `info`, one place in the code writes at most 200 lines at once and then one every 10 s; the rest is
    /// counted once a minute. The environment variable `SKYHOP_LOG` overrides it.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(crate) log: Option<Text<LogFilter>>,
    /// Connect with the client's address and port instead of this machine's; on a terminal, for connections from
    /// the hub's side. On a hub the client must be in its terminal's `networks`, and replies must come back
    /// through the hub. Needs CAP_NET_ADMIN. See [Show servers the client's
    /// address](traffic.md#show-servers-the-clients-address).
    #[schemars(extend("x-restart" = true))]
    #[serde(default)]
    pub(crate) transparent: bool,
    /// Interception of the TCP connections that come in by the interfaces to the clients; on a hub, of those to
    /// its terminals' `networks`. Without it, nothing is intercepted. See [Steer traffic](traffic.md).
    #[schemars(extend("x-restart" = "presence"))]
    pub(crate) intercept: Option<InterceptSection>,
    /// A SOCKS5 and HTTP CONNECT proxy, which works without privileges and beside or instead of `[intercept]`;
    /// see [the proxy](proxy.md).
    #[schemars(extend("x-restart" = true))]
    pub(crate) proxy: Option<ProxySection>,
    /// Destinations behind this terminal that the hub's side and other terminals may reach; nothing without this
    /// section. See [Limit what can be reached](access.md).
    pub(crate) accept: Option<AcceptSection>,
    /// Answers to clients' DNS queries, from a cache or through the hub, which needs a section `[dns]` too;
    /// otherwise queries are left alone. See [Resolve names](names.md).
    #[schemars(extend("x-restart" = true))]
    pub(crate) dns: Option<DnsSection>,
    /// Answers to clients' cleartext HTTP from a cache; without it, connections to port 80 are like others. Needs
    /// `[intercept]` with `answer = "early"`. See [Cache HTTP](http.md).
    #[schemars(extend("x-restart" = true))]
    pub(crate) http: Option<HttpSection>,
    /// A node of a delay-tolerant network (BPv7), which keeps bundles on disk until the other side can be
    /// reached. Without it, the gateway is no node. See [Bundles](bundles.md).
    #[schemars(extend("x-restart" = true))]
    pub(crate) bundles: Option<BundlesSection>,
    /// A tunnel for traffic that is not split, such as UDP and QUIC, if both sides have this section; otherwise
    /// it passes as without skyhop. Needs `[intercept]` on a terminal, and the `networks` of every terminal on a
    /// hub. See [the tunnel](traffic.md#carry-udp-quic-and-everything-else).
    #[schemars(extend("x-restart" = true))]
    pub(crate) tunnel: Option<TunnelSection>,
    /// The links that a session uses at once, 2 to 4, in the same order on both sides. Without them, or if only
    /// one side has them, a session uses one link. See [Several links](links.md).
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) link: Vec<LinkSection>,
    /// Classes that share the rate, at most 31 besides `default`; the first that matches takes a connection or
    /// packet. Default: bulk, interactive and default, with `[bundles]` also bundles. See
    /// [Classes](traffic.md#classes).
    #[serde(default)]
    pub(crate) class: Vec<ClassSection>,
    /// Rules that split, tunnel or bypass traffic; the first match decides. By default TCP is split, and
    /// everything else takes the tunnel if there is one. See [Policies](traffic.md#policies).
    #[serde(default)]
    pub(crate) policy: Vec<PolicySection>,
}

/// Configuration of a terminal.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// The terminal's key. Key `private_key` or `private_key_file`.
    pub identity: KeyPair,
    /// The hubs, at least one. Keys `hub`, `hub_key`, `hub_tcp` and sections `[[other_hub]]`.
    pub hubs: Vec<KnownHub>,
    /// Order in which the hubs are tried. Key `hub_order`.
    pub hub_order: HubOrder,
    /// The local UDP address; `None` lets the system choose. Key `listen`.
    pub listen: Option<SocketAddr>,
    /// Hop settings. Keys `rate`, `initial_rate`, `maximum_rate`, `probe`, `mtu`, `memory`, `stream_window`.
    pub link: slacp::Config,
    /// The links to the hubs; empty for one. Their rates are also in [`Self::link`]. Sections
    /// `[[link]]`.
    pub links: Vec<LinkConfig>,
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
    pub accept: EgressRules,
    /// Operational settings. Keys `control`, `metrics`, `state`, `total_memory`, `max_connections`,
    /// `keepalive`, `log`.
    pub operation: OperationConfig,
    /// Carries packets that are not split over the hop; `None` leaves them alone. Section `tunnel`,
    /// which requires `intercept`.
    pub tunnel: Option<TunnelConfig>,
    /// Resolves names for clients; `None` leaves their questions alone. Section `dns`.
    pub dns: Option<DnsConfig>,
    /// Answers clients' requests from a cache; `None` leaves their connections as they are. Section
    /// `http`, which requires `intercept`.
    pub http: Option<HttpConfig>,
    /// The bundle node; `None` for none. Section `bundles`.
    pub bundles: Option<BundlesConfig>,
    /// Traffic classes that share the rate. Sections `[[class]]`.
    pub classes: TrafficClasses,
    /// Policies of splitting, tunnelling and bypassing; the first match decides. Key `intercept.bypass`,
    /// then sections `[[policy]]`.
    pub policies: Vec<TrafficPolicy>,
}

/// A hub that a terminal may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHub {
    /// Name in log and status. Key `name`, by default `hub`, `hub-2` and so on.
    pub name: String,
    /// Address or name, with the UDP port. Key `hub`, or `address` of `[[other_hub]]`.
    pub address: HubAddress,
    /// Address for the same packets over TCP, used when the hub does not answer over UDP: address or name,
    /// with the port. Key `hub_tcp`, or `tcp` of `[[other_hub]]`, default none.
    pub tcp: Option<TcpAddress>,
    /// Its public key. Key `hub_key`, or `key` of `[[other_hub]]`.
    pub key: PublicKey,
}

impl TerminalConfig {
    /// Indices of the hubs in [`Self::hubs`], the best first.
    pub fn ranking(&self) -> Vec<HubId> {
        let keys: Vec<PublicKey> = self.hubs.iter().map(|hub| hub.key).collect();
        ranking(self.hub_order, &self.identity.public(), &keys)
    }
}

/// Maximum number of hubs of a terminal. While no hub answers, all are asked, over a link that may be
/// slow.
const MOST_HUBS: usize = 8;

pub(crate) fn terminal<E: Display>(
    place: &KeyContext<'_>,
    raw: TerminalKeys,
    file: &ConfigFile<'_>,
    key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
) -> Result<TerminalConfig, FileError> {
    let mut shared = shared_keys!(raw, LinkSide::Terminal).read(place, file, key)?;
    // A terminal resolves no names, but its hub announces its next key on a stream to a name.
    shared.link.names = true;
    let first = hub_of_terminal(place, raw.hub, raw.hub_key, raw.hub_tcp)?;
    let hubs = known_hubs(place, &shared.identity.public(), first, raw.other_hub)?;
    let bypass = intercept::bypass(raw.intercept.as_ref());
    // With neither a proxy nor bundles, only interception can bring clients' traffic.
    let nothing_else = raw.proxy.is_none() && raw.bundles.is_none();
    let needs_interception = shared.tunnel.is_some() || nothing_else;
    let (intercept, proxy) = intercept::read(place, raw.intercept, raw.proxy, needs_interception)?;
    let choice = PolicyActions { split: intercept.is_some(), tunnel: shared.tunnel.is_some() };
    let dns = raw.dns.map(|raw| dns::terminal(place, raw, intercept.is_some())).transpose()?;
    let http = raw.http.map(|raw| http::terminal(place, raw, intercept.as_ref())).transpose()?;
    let bundles = raw.bundles.map(|raw| bundles::terminal(place, raw)).transpose()?;
    shared.link.bundles = bundles.is_some();
    Ok(TerminalConfig {
        identity: shared.identity,
        hubs,
        hub_order: raw.hub_order.unwrap_or_default().into(),
        listen: shared.listen,
        link: shared.link,
        links: shared.links,
        connect_timeout: shared.connect_timeout,
        transparent: raw.transparent,
        intercept,
        proxy,
        accept: egress::accept(place, raw.accept)?,
        dns,
        http,
        bundles,
        operation: shared.operation,
        tunnel: shared.tunnel,
        classes: shared.classes,
        policies: policies::read(place, bypass, raw.policy, choice)?,
    })
}

/// Reads the hub of the keys `hub`, `hub_key` and `hub_tcp`.
fn hub_of_terminal(
    place: &KeyContext<'_>,
    address: Option<Text<HubAddress>>,
    key: Option<Text<PublicKeyText>>,
    tcp: Option<Text<TcpAddress>>,
) -> Result<KnownHub, FileError> {
    let address = address.ok_or_else(|| place.missing_key("hub", HubAddress::FORM))?.0;
    let key = public_key(place, "hub_key", key)?;
    Ok(KnownHub { name: "hub".to_owned(), address, tcp: tcp.map(|tcp| tcp.0), key })
}

/// Reads all hubs of a terminal: the first, and the sections `[[other_hub]]`.
fn known_hubs(
    place: &KeyContext<'_>,
    own: &PublicKey,
    first: KnownHub,
    raw: Vec<OtherHubSection>,
) -> Result<Vec<KnownHub>, FileError> {
    expect_other_key(place, "hub_key", own, &first.key)?;
    let mut hubs = vec![first];
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("other_hub").within(index);
        let missing = || place.missing_key("address", HubAddress::FORM);
        let address = raw.address.ok_or_else(missing)?.0;
        let name = raw.name.unwrap_or_else(|| format!("hub-{}", index + 2));
        let is_new = hubs.iter().all(|other| other.name != name);
        place.check(is_new, "name", quoted(&name), "a name that no earlier hub has")?;
        let key = public_key(&place, "key", raw.key)?;
        expect_other_key(&place, "key", own, &key)?;
        if let Some(other) = hubs.iter().find(|other| other.key == key) {
            let problem = format!("{} has the same key: expected that of another hub", other.name);
            return Err(place.unreadable("key", problem));
        }
        hubs.push(KnownHub { name, address, tcp: raw.tcp.map(|tcp| tcp.0), key });
    }
    let count = hubs.len();
    let expected = format!("at most {MOST_HUBS} hubs");
    place.check(count <= MOST_HUBS, "other_hub", format!("{count} hubs"), &expected)?;
    Ok(hubs)
}

/// Checks that a hub's key is not the terminal's own, to which no hub would answer.
fn expect_other_key(
    place: &KeyContext<'_>,
    name: &str,
    own: &PublicKey,
    key: &PublicKey,
) -> Result<(), FileError> {
    if own == key {
        let problem = "this is the terminal's own public key: expected the hub's, which \
                       `skyhop keygen` printed there";
        return Err(place.unreadable(name, problem));
    }
    Ok(())
}
