//! Configuration of a hub, with the terminals that it permits.

pub(crate) mod limits;
pub(crate) mod permits;
pub(crate) mod shared_name;
pub(crate) mod terminal_list;
pub(crate) mod terminal_section;

use crate::shared::keys_of_a_pair;
use core::fmt::Display;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use pep::routes::{PermittedTerminal, TerminalQuota};
use pep::traffic::{TrafficClasses, TrafficPolicy};
use slacp::{AggregateId, IndexShare, KeyPair, MAX_PARTS, PublicKey, Rate};
use units::{ByteCount, UnixTime};

use self::limits::LimitsSection;
use self::shared_name::carrier;
use self::terminal_list::{PermitDefaults, TerminalList};
use self::terminal_section::PermittedTerminalSection;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::hop::ConnectTimeout;
use crate::hop::links::{LinkConfig, LinkSide};
use crate::intercept::{self, InterceptConfig, TunnelConfig};
use crate::operation::OperationConfig;
use crate::services::bundles::BundlesConfig;
use crate::services::dns::HubDnsSection;
use crate::services::etcd::{EtcdConfig, EtcdSection};
use crate::services::http::{HubHttpConfig, HubHttpSection};
use crate::services::{bundles, etcd, http};
use crate::shared::{SharedSettings, shared_keys};
use crate::traffic::egress::EgressSection;
use crate::traffic::policies::PolicyActions;
use crate::traffic::{egress, policies};
use crate::values::AddressWithPort;
use crate::values::bounded::Number;
use crate::values::source::{ConfigFile, KeySource};
use crate::values::tls_files::TlsFiles;

keys_of_a_pair! {
    /// The configuration of a hub (docs/configuration.md).
    #[schemars(title = "skyhop hub")]
    struct HubKeys {
        /// A file with this gateway's private key, as `skyhop keygen` writes it. Only its owner may be able to read
        /// it. Give either this or `private_key`.
        pub(crate) private_key_file: Option<String>,
        /// A file with the private key that will replace the present one. The hub answers to both keys and announces
        /// the next one to its terminals; see [Replace a hub's key](hubs.md#replace-a-hubs-key).
        pub(crate) next_key_file: Option<String>,
        /// With `next_key_file`: when the hub stops answering to the present key, as a date, or a date and time in
        /// UTC such as `"2027-01-31T00:00:00Z"`. Choose it so that every terminal connects at least once before.
        /// Default: never.
        #[schemars(extend("examples" = ["2027-01-31T00:00:00Z"]))]
        pub(crate) key_until: Option<Text<UnixTime>>,
        /// A local TCP address for terminals whose networks drop UDP, such as `"[::]:443"`. TCP recovers losses and
        /// queues by itself, so losses on the hop cost more than over UDP. See [Where UDP is
        /// blocked](behaviour.md#where-udp-is-blocked).
        #[schemars(extend("examples" = ["[::]:443"]))]
        #[schemars(extend("x-restart" = true))]
        pub(crate) listen_tcp: Option<Text<AddressWithPort>>,
        /// With `listen_tcp`: a PEM file with the certificate for terminals that connect there over TLS; others may
        /// still connect without. TLS only gets the connection through firewalls: a self-signed certificate is
        /// enough.
        #[schemars(extend("x-restart" = true))]
        pub(crate) listen_tcp_certificate: Option<String>,
        /// A PEM file with the private key of `listen_tcp_certificate`.
        #[schemars(extend("x-restart" = true))]
        pub(crate) listen_tcp_key: Option<String>,
        /// The number of threads that carry sessions; more than the machine has processors gain nothing. A terminal
        /// is served by one thread, so a single terminal gets no faster, and terminals with the same `carrier` share
        /// a thread. See [what a second one gains](performance.md#several-workers).
        #[schemars(extend("x-restart" = true))]
        #[serde(default)]
        pub(crate) workers: Number<1, { MAX_PARTS as u32 }, 1>,
        /// This hub's number among those that share one address and key, such as `"1 of 2"`; at most 64. A router in
        /// front of the hubs finds the hub of a packet by it; see [One address for several
        /// hubs](hubs.md#one-address-for-several-hubs). Default: the only one.
        #[schemars(extend("examples" = ["1 of 2"]))]
        #[schemars(extend("x-restart" = true))]
        pub(crate) shared_address: Option<Text<IndexShare>>,
        /// Time limit for opening a connection to a destination.
        #[serde(default)]
        pub(crate) connect_timeout: ConnectTimeout,
        /// A key of earlier versions, to say what replaces it.
        #[schemars(skip)]
        pub(crate) allow_loopback: Option<bool>,
        /// Destinations that all terminals may reach through the hub. Without it, everything but special addresses
        /// and those of the gateways; see [Limit what can be reached](access.md).
        pub(crate) egress: Option<EgressSection>,
        /// Limits on what each terminal uses of the hub. A `[[terminal]]` may have its own.
        pub(crate) limits: Option<LimitsSection>,
        /// While rates are measured (`"auto"`, or `"modem"` without `initial_rate`): a name for the forward link that
        /// all terminals share. Their sessions measure it together and divide it by `weight` ([Sessions of one
        /// hub](rate.md#sessions-of-one-hub)); without it, each measures alone and finds its share only through the
        /// common queue. Set it only for terminals that do share the link: a session with a slower path of its own
        /// makes the measurement worse until it is noticed.
        #[schemars(length(min = 1), extend("examples" = ["ku-1"]))]
        pub(crate) carrier: Option<String>,
        /// Let clients of one terminal reach those of another through the hub. Both addresses must be in the
        /// `networks` of their terminals, and the second terminal must permit it in `[accept]`; see [Connections
        /// between terminals](traffic.md#connections-from-the-hubs-side-and-between-terminals).
        #[serde(default)]
        pub(crate) mesh: bool,
        /// Resolution of names for the clients of terminals, if the terminal has this section too; without it the hub
        /// answers no queries. See [Resolve names](names.md).
        #[schemars(extend("x-restart" = true))]
        pub(crate) dns: Option<HubDnsSection>,
        /// Fetching of HTTP for the caches of terminals, over connections to servers that stay open. Without it the
        /// hub connects to the server for each client. See [Cache HTTP](http.md).
        #[schemars(extend("x-restart" = true))]
        pub(crate) http: Option<HubHttpSection>,
        /// The terminals that may connect. At least one, unless `permits` or `[etcd]` provides them.
        #[serde(default)]
        pub(crate) terminal: Vec<PermittedTerminalSection>,
        /// An existing directory with further terminals, one in each file `*.toml` with the keys of a `[[terminal]]`.
        /// The hub watches it; see [Let terminals join a hub](enrol.md).
        #[schemars(extend("examples" = ["permits"]))]
        pub(crate) permits: Option<String>,
        /// An etcd with the permits of further terminals, which the hub watches; see [Keep permits in
        /// etcd](enrol.md#keep-permits-in-etcd).
        pub(crate) etcd: Option<EtcdSection>,
    }
}

/// Configuration of a hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The hub's key. Key `private_key` or `private_key_file`.
    pub identity: KeyPair,
    /// The key that will replace it. The hub already answers to it and announces it to terminals. Key
    /// `next_key_file`, default none.
    pub next_identity: Option<KeyPair>,
    /// Time from which it no longer answers to `identity`, if there is a next key. Key `key_until`, default
    /// never.
    pub identity_until: Option<UnixTime>,
    /// Local UDP address; `None` is port 5900 on all addresses. Key `listen`.
    pub listen: Option<SocketAddr>,
    /// Local TCP address for terminals whose networks block UDP. Key `listen_tcp`, default none.
    pub listen_tcp: Option<SocketAddr>,
    /// Certificate for terminals that connect there by TLS. Keys `listen_tcp_certificate` and
    /// `listen_tcp_key`, default none.
    pub tls: Option<TlsFiles>,
    /// Number of threads that carry sessions, 1 to [`slacp::MAX_PARTS`]. Key `workers`, default 1.
    pub workers: u8,
    /// Hop settings. Keys `rate`, `initial_rate`, `maximum_rate`, `probe`, `mtu`, `memory`, `stream_window`.
    pub link: slacp::Config,
    /// Links over which terminals that have several may use a session at once; empty for a single link.
    /// Their rates are also in [`Self::link`]. Sections `[[link]]`.
    pub links: Vec<LinkConfig>,
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
    /// Permitted terminals; at least one, or there are `permits`. Sections `[[terminal]]`.
    pub terminals: Vec<PermittedTerminal>,
    /// Directory with the permits of further terminals, one in each file. Key `permits`, default none.
    pub permits: Option<PathBuf>,
    /// The etcd that has the permits of further terminals. Section `etcd`, default none.
    pub etcd: Option<EtcdConfig>,
    /// Settings for terminals whose sections or permits do not contain their own.
    pub defaults: PermitDefaults,
    /// Operational settings. Keys `control`, `metrics`, `state`, `total_memory`, `max_connections`,
    /// `keepalive`, `log`.
    pub operation: OperationConfig,
    /// Carries packets that are not split over the hop; `None` leaves them alone. Section `tunnel`.
    pub tunnel: Option<TunnelConfig>,
    /// Answers DNS questions of its terminals; `None` answers none. Section `dns`.
    pub dns: Option<HubDnsSection>,
    /// Fetches HTTP for its terminals; `None` fetches nothing. Section `http`.
    pub http: Option<HubHttpConfig>,
    /// The bundle node; `None` for none. Section `bundles`.
    pub bundles: Option<BundlesConfig>,
    /// Traffic classes that share the rate. Sections `[[class]]`.
    pub classes: TrafficClasses,
    /// Policies of splitting, tunnelling and bypassing; the first match decides. Key `intercept.bypass`,
    /// then sections `[[policy]]`.
    pub policies: Vec<TrafficPolicy>,
}

impl HubConfig {
    /// The keys to which the hub answers at this time; at least one.
    pub fn identities(&self, now: UnixTime) -> Vec<KeyPair> {
        let Some(next) = self.next_identity.clone() else { return vec![self.identity.clone()] };
        match self.identity_until.is_some_and(|end| end <= now) {
            true => vec![next],
            false => vec![self.identity.clone(), next],
        }
    }
}

/// The forward link of each terminal that shares one.
pub fn aggregates(terminals: &[PermittedTerminal]) -> BTreeMap<PublicKey, AggregateId> {
    let carrier = |terminal: &PermittedTerminal| {
        Some((terminal.key, AggregateId::from(terminal.carrier.as_deref()?)))
    };
    terminals.iter().filter_map(carrier).collect()
}

/// Limits on each terminal's use of the hub.
pub fn quotas(terminals: &[PermittedTerminal]) -> BTreeMap<PublicKey, TerminalQuota> {
    terminals.iter().map(|terminal| (terminal.key, terminal.quota)).collect()
}

/// Source addresses of packets from the terminals without networks of their own; `None` if none is free.
pub fn packet_addresses(terminals: &[PermittedTerminal]) -> BTreeMap<PublicKey, Option<Ipv4Addr>> {
    let without =
        |terminal: &&PermittedTerminal| terminal.address.is_some() || terminal.networks.is_empty();
    let terminals = terminals.iter().filter(without);
    terminals.map(|terminal| (terminal.key, terminal.address)).collect()
}

/// Memory limits of the terminals that have their own.
pub fn memory_limits(terminals: &[PermittedTerminal]) -> BTreeMap<PublicKey, ByteCount> {
    let own = |terminal: &PermittedTerminal| Some((terminal.key, terminal.quota.memory?));
    terminals.iter().filter_map(own).collect()
}

/// Individual rates of terminals on these links, by the index of the link. Names that are not among `links`
/// are ignored.
pub fn link_rates(
    terminals: &[PermittedTerminal],
    links: &[LinkConfig],
) -> BTreeMap<PublicKey, BTreeMap<u8, Rate>> {
    let number = |name: &String| links.iter().position(|link| link.name == *name);
    let of = |terminal: &PermittedTerminal| {
        let numbered = |(name, rate): (&String, &Rate)| {
            Some((u8::try_from(number(name)?).ok()?, rate.clone()))
        };
        let rates: BTreeMap<u8, Rate> = terminal.links.iter().filter_map(numbered).collect();
        // Other terminals have the rates of the links.
        (!rates.is_empty()).then_some((terminal.key, rates))
    };
    terminals.iter().filter_map(of).collect()
}

pub(crate) fn hub<E: Display>(
    place: &KeyContext<'_>,
    raw: HubKeys,
    file: &ConfigFile<'_>,
    key: impl Fn(KeySource) -> Result<KeyPair, E>,
) -> Result<HubConfig, FileError> {
    let identity_until = raw.key_until.map(|end| end.0);
    let next_key_file = raw.next_key_file.as_deref();
    let next_identity = next_identity(place, next_key_file, identity_until.is_some(), &key)?;
    let mut shared = shared_keys!(raw, LinkSide::Hub).read(place, file, &key)?;
    (shared.link.names, shared.link.questions) = (true, raw.dns.is_some());
    let http = raw.http.map(|raw| http::hub(place, raw)).transpose()?;
    shared.link.exchanges = http.is_some();
    egress::no_allow_loopback(place, raw.allow_loopback)?;
    let defaults = permit_defaults(place, raw.limits, raw.egress, raw.carrier)?;
    let permits = raw.permits.map(|directory| place.folder().locate(Path::new(&directory)));
    let etcd = raw.etcd.map(|raw| etcd::read(&place.within("etcd"), raw)).transpose()?;
    let elsewhere = permits.is_some() || etcd.is_some();
    if raw.terminal.is_empty() && !elsewhere {
        return Err(place.missing_key("terminal", TERMINAL));
    }
    let transparent = raw.transparent;
    let needs_networks = transparent && shared.tunnel.is_some();
    let next = next_identity.as_ref();
    let terminals = terminals(place, raw.terminal, &defaults, &shared, next, needs_networks)?;
    check_pool(place, shared.tunnel.as_ref(), &terminals)?;
    let bundles = |raw| bundles::hub(place, raw, &terminals, elsewhere);
    let bundles = raw.bundles.map(bundles).transpose()?;
    shared.link.bundles = bundles.is_some();
    shared.link.index_share = raw.shared_address.map_or(IndexShare::WHOLE, |share| share.0);
    // Terminals from permits or etcd may have the networks.
    let needs_networks = !elsewhere && (raw.intercept.is_some() || transparent);
    check_networks(place, &terminals, needs_networks)?;
    let bypass = intercept::bypass(raw.intercept.as_ref());
    let split = raw.intercept.is_some();
    let choice = PolicyActions { split, refuse: split, tunnel: shared.tunnel.is_some() };
    Ok(HubConfig {
        identity: shared.identity,
        next_identity,
        identity_until,
        listen: shared.listen,
        listen_tcp: raw.listen_tcp.map(|address| address.0.0),
        tls: tls(place, raw.listen_tcp.is_some(), raw.listen_tcp_certificate, raw.listen_tcp_key)?,
        workers: raw.workers.get() as u8,
        link: shared.link,
        links: shared.links,
        connect_timeout: shared.connect_timeout,
        transparent,
        mesh: raw.mesh,
        dns: raw.dns,
        http,
        bundles,
        intercept: raw.intercept.map(|raw| intercept::intercept(place, raw)).transpose()?,
        terminals,
        permits,
        etcd,
        defaults,
        operation: shared.operation,
        tunnel: shared.tunnel,
        classes: shared.classes,
        policies: policies::read(place, bypass, raw.policy, choice)?,
    })
}

const TERMINAL: &str = "at least one section [[terminal]], `permits` or [etcd]";

/// Reads the settings of terminals that do not have their own.
fn permit_defaults(
    place: &KeyContext<'_>,
    limits: Option<LimitsSection>,
    egress: Option<EgressSection>,
    name: Option<String>,
) -> Result<PermitDefaults, FileError> {
    Ok(PermitDefaults {
        volume: limits::usual_volume(place, limits.as_ref())?,
        egress: egress::usual(place, egress)?,
        quota: limits::usual(limits),
        carrier: carrier(place, name)?,
    })
}

/// Reads the sections `[[terminal]]`.
fn terminals(
    place: &KeyContext<'_>,
    raw: Vec<PermittedTerminalSection>,
    defaults: &PermitDefaults,
    shared: &SharedSettings,
    next_identity: Option<&KeyPair>,
    needs_networks: bool,
) -> Result<Vec<PermittedTerminal>, FileError> {
    let links = Some(&shared.links[..]);
    let rate = &shared.link.rate;
    let classes = Some(&shared.classes);
    let mut list = TerminalList::new(defaults, rate, classes, links, needs_networks);
    // First, so that no terminal can be given a key of the hub.
    list.reserve_keys_of_hub(&shared.identity, next_identity);
    for (index, raw) in raw.into_iter().enumerate() {
        list.add(&place.within("terminal").within(index), raw)?;
    }
    Ok(list.terminals)
}

/// Reads the private key that `next_key_file` names; it is needed if the present key has an end.
fn next_identity<E: Display>(
    place: &KeyContext<'_>,
    file: Option<&str>,
    has_end: bool,
    key: impl Fn(KeySource) -> Result<KeyPair, E>,
) -> Result<Option<KeyPair>, FileError> {
    const NAME: &str = "next_key_file";
    let file = match file {
        Some(file) => file,
        None if has_end => {
            return Err(place.missing_key(NAME, "the file with the key after `key_until`"));
        }
        None => return Ok(None),
    };
    let source = KeySource::File(place.folder().locate(Path::new(file)));
    key(source).map(Some).map_err(|error| place.unreadable(NAME, error))
}

/// Reads the files of the keys `listen_tcp_certificate` and `listen_tcp_key`, which go together.
fn tls(
    place: &KeyContext<'_>,
    listens: bool,
    certificate: Option<String>,
    key: Option<String>,
) -> Result<Option<TlsFiles>, FileError> {
    let at = |path: String| place.folder().locate(Path::new(&path));
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) if !listens => {
            Err(place.missing_key("listen_tcp", "as there is a certificate"))
        }
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate: at(certificate), key: at(key) }))
        }
        (None, Some(_)) => {
            Err(place.missing_key("listen_tcp_certificate", "the certificate of the key"))
        }
        (Some(_), None) => Err(place.missing_key("listen_tcp_key", "the key of the certificate")),
    }
}

/// Checks that the pool of the tunnel, if a terminal needs an address of it, overlaps no networks.
fn check_pool(
    place: &KeyContext<'_>,
    tunnel: Option<&TunnelConfig>,
    terminals: &[PermittedTerminal],
) -> Result<(), FileError> {
    let Some(pool) = tunnel.and_then(|tunnel| tunnel.pool) else { return Ok(()) };
    if terminals.iter().all(|terminal| !terminal.networks.is_empty()) {
        return Ok(());
    }
    let overlaps = |terminal: &&PermittedTerminal| {
        terminal.networks.iter().any(|network| network.overlaps(pool))
    };
    let Some(other) = terminals.iter().find(overlaps) else { return Ok(()) };
    let expected = format!("a prefix that overlaps no `networks`, unlike those of {}", other.name);
    Err(place.wrong_value("tunnel.pool", quoted(pool), expected))
}

/// Checks that at least one terminal has networks, if `any` is set because other settings need them.
fn check_networks(
    place: &KeyContext<'_>,
    terminals: &[PermittedTerminal],
    any: bool,
) -> Result<(), FileError> {
    if any && terminals.iter().all(|terminal| terminal.networks.is_empty()) {
        const EXPECTED: &str = "the addresses behind a terminal, like [\"10.1.0.0/16\"], which \
                                [intercept] and `transparent` need";
        return Err(place.missing_key("terminal.0.networks", EXPECTED));
    }
    Ok(())
}
