//! Configuration of a terminal.

use crate::shared::keys_of_a_pair;
use core::fmt::Display;
use core::time::Duration;
use std::net::SocketAddr;

use pep::egress::EgressRules;
use pep::hubs::{HubId, HubOrder, ranking};
use pep::traffic::{TrafficClasses, TrafficPolicy};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{KeyPair, PublicKey};

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::hop::ConnectTimeout;
use crate::hop::links::{LinkConfig, LinkSide};
use crate::intercept::{self, InterceptConfig, ProxyConfig, ProxySection, TunnelConfig};
use crate::operation::OperationConfig;
use crate::services::bundles::BundlesConfig;
use crate::services::dns::{DnsConfig, DnsSection};
use crate::services::http::{HttpConfig, HttpSection};
use crate::services::{bundles, dns, http};
use crate::shared::shared_keys;
use crate::traffic::egress::AcceptSection;
use crate::traffic::policies::PolicyActions;
use crate::traffic::{egress, policies};
use crate::values::hub_address::{HubAddress, TcpAddress};
use crate::values::identity::public_key;
use crate::values::source::{ConfigFile, KeySource};
use crate::values::{HubOrderChoice, PublicKeyText, QuicChoice};

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

keys_of_a_pair! {
    /// The configuration of a terminal (docs/configuration.md).
    #[schemars(title = "skyhop terminal")]
    struct TerminalKeys {
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
        /// Time limit for opening a connection to a destination.
        #[schemars(extend("x-restart" = true))]
        #[serde(default)]
        pub(crate) connect_timeout: ConnectTimeout,
        /// A SOCKS5 and HTTP CONNECT proxy, which works without privileges and beside or instead of `[intercept]`;
        /// see [the proxy](proxy.md).
        #[schemars(extend("x-restart" = true))]
        pub(crate) proxy: Option<ProxySection>,
        /// Destinations behind this terminal that the hub's side and other terminals may reach; nothing without this
        /// section. See [Limit what can be reached](access.md).
        pub(crate) accept: Option<AcceptSection>,
        /// New QUIC flows to port 443 (HTTP/3) that no policy matches: `"tcp"` refuses them, so that browsers go on
        /// with HTTP/2 at once, which is accelerated, and hides HTTP/3 in DNS answers; `"carry"` takes them through
        /// the tunnel; `"pass"` leaves them alone. Without it they are like all other traffic. See
        /// [QUIC](traffic.md#quic).
        pub(crate) quic: Option<QuicChoice>,
        /// Answers to clients' DNS queries, from a cache or through the hub, which needs a section `[dns]` too;
        /// otherwise queries are left alone. See [Resolve names](names.md).
        #[schemars(extend("x-restart" = true))]
        pub(crate) dns: Option<DnsSection>,
        /// Answers to clients' cleartext HTTP from a cache; without it, connections to port 80 are like others. Needs
        /// `[intercept]` with `answer = "early"`. See [Cache HTTP](http.md).
        #[schemars(extend("x-restart" = true))]
        pub(crate) http: Option<HttpSection>,
    }
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
    /// Policies of splitting, tunnelling, bypassing and refusing; the first match decides. Key
    /// `intercept.bypass`, then sections `[[policy]]`, then key `quic`.
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
    let split = intercept.is_some();
    let choice = PolicyActions { split, refuse: split, tunnel: shared.tunnel.is_some() };
    let mut policies = policies::read(place, bypass, raw.policy, choice)?;
    if let Some(quic) = raw.quic {
        policies::add_quic(place, &mut policies, quic, choice)?;
    }
    let mut dns = raw.dns.map(|raw| dns::terminal(place, raw, split)).transpose()?;
    if let Some(dns) = &mut dns {
        dns.names.hides_http_3 = raw.quic == Some(QuicChoice::Tcp);
    }
    let http = raw.http.map(|raw| http::terminal(place, raw, intercept.as_ref())).transpose()?;
    let bundles = raw.bundles.map(|raw| bundles::terminal(place, raw)).transpose()?;
    shared.link.bundles = bundles.is_some();
    shared.link.takes_address = shared.tunnel.is_some();
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
        policies,
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
