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

use crate::bundles::{BundlesConfig, BundlesSection};
use crate::classes::ClassSection;
use crate::dlep::DlepSection;
use crate::dns::{DnsConfig, DnsSection};
use crate::egress::AcceptSection;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, Time};
use crate::gateway_file::{ConfigFile, KeySource};
use crate::http::{HttpConfig, HttpSection};
use crate::hub_address::{HubAddress, TcpAddress};
use crate::identity::public_key;
use crate::intercept::{
    InterceptConfig, InterceptSection, ProxyConfig, ProxySection, TunnelConfig,
};
use crate::links::{LinkConfig, LinkSection, LinkSide};
use crate::operation::{MetricsSection, OperationConfig};
use crate::policies::{PolicyActions, PolicySection};
use crate::shared::shared_keys;
use crate::tunnel::TunnelSection;
use crate::values::{AddressWithPort, HubOrderChoice, InitialRate, PublicKeyText, RateChoice};
use crate::{LogFilter, bundles, dns, egress, http, intercept, policies};

/// A further hub of a terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OtherHub")]
pub(crate) struct OtherHubSection {
    /// A name for logs and status; by default `hub-2` and so on.
    pub(crate) name: Option<String>,
    /// Host and UDP port of the hub.
    #[schemars(required, extend("examples" = ["hub-2.example.net:5900"]))]
    pub(crate) address: Option<Text<HubAddress>>,
    /// Host and TCP port of the hub, for when it does not answer over UDP: its `listen_tcp`.
    #[schemars(extend("examples" = ["hub-2.example.net:443"]))]
    pub(crate) tcp: Option<Text<TcpAddress>>,
    /// The hub's public key.
    #[schemars(required)]
    pub(crate) key: Option<Text<PublicKeyText>>,
}

/// The configuration of a terminal (docs/configuration.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop terminal")]
pub(crate) struct TerminalKeys {
    /// This gateway's private key in base64; or `private_key_file`.
    pub(crate) private_key: Option<String>,
    /// A file with the private key, which only its owner can read.
    #[schemars(extend("x-restart" = true))]
    pub(crate) private_key_file: Option<String>,
    /// Host and UDP port of the hub.
    #[schemars(required, extend("examples" = ["hub.example.net:5900"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub: Option<Text<HubAddress>>,
    /// Host and TCP port of the hub, for when it does not answer over UDP: its `listen_tcp`. With
    /// `tls://` within TLS.
    #[schemars(extend("examples" = ["hub.example.net:443", "tls://hub.example.net:443"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub_tcp: Option<Text<TcpAddress>>,
    /// The hub's public key.
    #[schemars(required)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub_key: Option<Text<PublicKeyText>>,
    /// Order in which the hubs are tried: `spread` by the keys, which divides terminals among them, or
    /// as `listed`.
    #[schemars(extend("default" = "spread"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) hub_order: Option<HubOrderChoice>,
    /// Further hubs, for when the first does not answer.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) other_hub: Vec<OtherHubSection>,
    /// The rate of the return link, on which this side sends: a rate, `auto` or `modem`.
    #[schemars(required, extend("examples" = ["10 Mbit/s", "auto", "modem"]))]
    pub(crate) rate: Option<Text<RateChoice>>,
    /// With `rate = "modem"`: the rate while nothing is reported; by default measured as with `auto`.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(crate) initial_rate: Option<Text<InitialRate>>,
    /// With `auto` or `modem`: the upper limit of a session's rate on this side.
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
    pub(crate) maximum_rate: Option<Text<BitRate>>,
    /// While the rate is measured: measure the path with padding when a session is set up, or when the
    /// modem stops reporting.
    #[schemars(extend("default" = true))]
    pub(crate) probe: Option<bool>,
    /// With `probe = true`: the share of the bytes sent to a peer that this padding may take, besides
    /// two measurements in advance.
    #[schemars(extend("default" = "2 %", "examples" = ["0.5 %"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) probe_share: Option<Text<Probability>>,
    /// The control socket: a path, or `none`.
    #[schemars(extend("x-restart" = true))]
    pub(crate) control: Option<String>,
    /// A directory that keeps what measured rates have shown of paths.
    #[schemars(extend("examples" = ["/var/lib/skyhop"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) state: Option<String>,
    /// The metrics server.
    #[schemars(extend("x-restart" = true))]
    pub(crate) metrics: Option<MetricsSection>,
    /// The rate from the modem, by DLEP.
    #[schemars(extend("x-restart" = true))]
    pub(crate) dlep: Option<DlepSection>,
    /// While all sessions together hold more, new connections pass unaccelerated; by default half
    /// of the machine's memory.
    #[schemars(extend("examples" = ["1 GB"]))]
    pub(crate) total_memory: Option<Text<ByteCount>>,
    /// The most connections carried.
    #[schemars(range(min = 1))]
    pub(crate) max_connections: Option<i64>,
    /// The local UDP address.
    #[schemars(extend("examples" = ["[::]:5900"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) listen: Option<Text<AddressWithPort>>,
    /// The longest IP packet to send over the hop, in bytes.
    #[schemars(range(min = 576, max = 9216), extend("default" = 1500))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) mtu: Option<i64>,
    /// The most that all streams of a session hold, in each direction.
    #[schemars(extend("default" = "256 MB"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) memory: Option<Text<ByteCount>>,
    /// Longest burst, for links whose policer drops longer ones. Costs processor time, because the
    /// gateway wakes up for each packet.
    #[schemars(extend("examples" = ["3 kB"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) burst: Option<Text<ByteCount>>,
    /// The most that one stream holds.
    #[schemars(extend("default" = "64 MB"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) stream_window: Option<Text<ByteCount>>,
    /// Time limit for opening a connection to a destination; at most 10 min.
    #[schemars(extend("default" = "30 s"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) connect_timeout: Option<Text<Time>>,
    /// Clients and servers that are silent for this long are probed; 1 s to 2 h.
    #[schemars(extend("default" = "2 h"))]
    pub(crate) keepalive: Option<Text<Time>>,
    /// Filter of the log: a level, or levels of single modules.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(crate) log: Option<Text<LogFilter>>,
    /// Connect with the client's address and port instead of this machine's.
    #[schemars(extend("default" = false))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) transparent: Option<bool>,
    /// Connections to intercept.
    #[schemars(extend("x-restart" = "presence"))]
    pub(crate) intercept: Option<InterceptSection>,
    /// The SOCKS5 and HTTP CONNECT proxy.
    #[schemars(extend("x-restart" = true))]
    pub(crate) proxy: Option<ProxySection>,
    /// Destinations behind this terminal for the hub's side and other terminals; none without it.
    pub(crate) accept: Option<AcceptSection>,
    /// Resolution of clients' names; without it, their queries are not touched.
    #[schemars(extend("x-restart" = true))]
    pub(crate) dns: Option<DnsSection>,
    /// Cleartext HTTP is answered from a cache; without it, its connections are like others.
    #[schemars(extend("x-restart" = true))]
    pub(crate) http: Option<HttpSection>,
    /// A node for bundles, which wait while the hop is down; without it, there is none.
    #[schemars(extend("x-restart" = true))]
    pub(crate) bundles: Option<BundlesSection>,
    /// Traffic that is not split crosses the hop too, if both sides have this section.
    #[schemars(extend("x-restart" = true))]
    pub(crate) tunnel: Option<TunnelSection>,
    /// Several links to the hub, which a session uses at once, if the hub has them too.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) link: Vec<LinkSection>,
    /// Classes that share the rate; by default interactive traffic goes before bulk.
    #[serde(default)]
    pub(crate) class: Vec<ClassSection>,
    /// Rules that split, tunnel or bypass traffic; the first match decides.
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
        transparent: raw.transparent.unwrap_or(false),
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
