//! Configuration of a hub, with the terminals that it permits.

use core::fmt::Display;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pep::accounting::VolumeDefaults;
use pep::egress::EgressRules;
use pep::routes::{PermittedTerminal, TerminalQuota};
use pep::traffic::{TrafficClasses, TrafficPolicy};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{AggregateId, IndexShare, KeyPair, MAX_PARTS, PublicKey, Rate};
use units::{BitRate, ByteCount, Probability, UnixTime};

use crate::bundles::{BundlesConfig, BundlesSection};
use crate::classes::ClassSection;
use crate::dlep::DlepSection;
use crate::dns::{HubDnsConfig, HubDnsSection};
use crate::egress::EgressSection;
use crate::etcd::{EtcdConfig, EtcdSection};
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, Time};
use crate::gateway_file::{ConfigFile, KeySource};
use crate::http::{HubHttpConfig, HubHttpSection};
use crate::intercept::{InterceptConfig, InterceptSection, TunnelConfig};
use crate::limits::LimitsSection;
use crate::links::{LinkConfig, LinkSection, LinkSide};
use crate::operation::{MetricsSection, OperationConfig};
use crate::permits::{PermittedTerminalSection, TerminalList};
use crate::policies::{PolicyActions, PolicySection};
use crate::shared::{SharedSettings, shared_keys};
use crate::tls_files::TlsFiles;
use crate::tunnel::TunnelSection;
use crate::values::{AddressWithPort, InitialRate, RateChoice};
use crate::{LogFilter, bundles, dns, egress, etcd, http, intercept, limits, policies};

/// The configuration of a hub (docs/configuration.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop hub")]
pub(crate) struct HubKeys {
    /// This gateway's private key in base64; or `private_key_file`.
    pub(crate) private_key: Option<String>,
    /// A file with the private key, which only its owner can read.
    pub(crate) private_key_file: Option<String>,
    /// A file with the private key that will replace this one. The hub answers to both, and tells its
    /// terminals.
    pub(crate) next_key_file: Option<String>,
    /// With `next_key_file`: when the hub no longer answers to the present key; by default never.
    #[schemars(extend("examples" = ["2027-01-31T00:00:00Z"]))]
    pub(crate) key_until: Option<Text<UnixTime>>,
    /// The rate of the forward link, on which this side sends: a rate, `auto` or `modem`.
    #[schemars(required, extend("examples" = ["50 Mbit/s", "auto", "modem"]))]
    pub(crate) rate: Option<Text<RateChoice>>,
    /// With `rate = "modem"`: the rate while nothing is reported; by default measured as with `auto`.
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
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
    /// While all sessions together hold more, new connections are refused; by default half of the
    /// machine's memory.
    #[schemars(extend("examples" = ["4 GB"]))]
    pub(crate) total_memory: Option<Text<ByteCount>>,
    /// The most connections carried.
    #[schemars(range(min = 1))]
    pub(crate) max_connections: Option<i64>,
    /// The local UDP address; by default port 5900 of every address.
    #[schemars(extend("examples" = ["[::]:5900"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) listen: Option<Text<AddressWithPort>>,
    /// The local TCP address for terminals whose networks block UDP; by default none.
    #[schemars(extend("examples" = ["[::]:443"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) listen_tcp: Option<Text<AddressWithPort>>,
    /// A file with the certificate for terminals that come there with TLS (PEM).
    #[schemars(extend("x-restart" = true))]
    pub(crate) listen_tcp_certificate: Option<String>,
    /// The file with its private key (PEM).
    #[schemars(extend("x-restart" = true))]
    pub(crate) listen_tcp_key: Option<String>,
    /// The number of threads that carry sessions.
    #[schemars(range(min = 1, max = 64), extend("default" = 1))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) workers: Option<i64>,
    /// Which hub this is, of how many with the same key behind one address; by default the only one.
    #[schemars(extend("examples" = ["1 of 2"]))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) shared_address: Option<Text<IndexShare>>,
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
    pub(crate) connect_timeout: Option<Text<Time>>,
    /// Clients and servers that are silent for this long are probed; 1 s to 2 h.
    #[schemars(extend("default" = "2 h"))]
    pub(crate) keepalive: Option<Text<Time>>,
    /// Filter of the log: a level, or levels of single modules.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(crate) log: Option<Text<LogFilter>>,
    /// A key of earlier versions, to say what replaces it.
    #[schemars(skip)]
    pub(crate) allow_loopback: Option<bool>,
    /// Destinations that all terminals may reach through the hub.
    pub(crate) egress: Option<EgressSection>,
    /// Limits of each terminal.
    pub(crate) limits: Option<LimitsSection>,
    /// With `auto`: the forward link that all terminals share, by a name of your choice.
    #[schemars(length(min = 1), extend("examples" = ["ku-1"]))]
    pub(crate) carrier: Option<String>,
    /// Clients of one terminal may reach those of another.
    #[schemars(extend("default" = false))]
    pub(crate) mesh: Option<bool>,
    /// Connect with the client's address and port instead of this machine's.
    #[schemars(extend("default" = false))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) transparent: Option<bool>,
    /// Connections to intercept towards the terminals' networks.
    #[schemars(extend("x-restart" = "presence"))]
    pub(crate) intercept: Option<InterceptSection>,
    /// Answers to terminals' name queries; without it, the hub does not answer them.
    #[schemars(extend("x-restart" = true))]
    pub(crate) dns: Option<HubDnsSection>,
    /// Fetch for the caches of terminals, over connections that stay; without it, they connect.
    #[schemars(extend("x-restart" = true))]
    pub(crate) http: Option<HubHttpSection>,
    /// A node for bundles, which wait while a terminal is away; without it, there is none.
    #[schemars(extend("x-restart" = true))]
    pub(crate) bundles: Option<BundlesSection>,
    /// Traffic that is not split crosses the hop too, if both sides have this section.
    #[schemars(extend("x-restart" = true))]
    pub(crate) tunnel: Option<TunnelSection>,
    /// The links of terminals that have several, in the order of the terminals' files.
    #[serde(default)]
    #[schemars(extend("x-restart" = true))]
    pub(crate) link: Vec<LinkSection>,
    /// Classes that share the rate; by default interactive traffic goes before bulk.
    #[serde(default)]
    pub(crate) class: Vec<ClassSection>,
    /// Rules that split, tunnel or bypass traffic; the first match decides.
    #[serde(default)]
    pub(crate) policy: Vec<PolicySection>,
    /// The terminals that may connect; at least one, unless `permits` has them.
    #[serde(default)]
    pub(crate) terminal: Vec<PermittedTerminalSection>,
    /// A directory with further terminals, one in each file `*.toml` (docs/enrol.md). It is watched.
    #[schemars(extend("examples" = ["permits"]))]
    pub(crate) permits: Option<String>,
    /// An etcd with further terminals (docs/enrol.md). It is watched.
    pub(crate) etcd: Option<EtcdSection>,
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
    /// Carries packets that are not split over the hop; `None` leaves them alone. Section `tunnel`,
    /// which requires `networks` for every terminal.
    pub tunnel: Option<TunnelConfig>,
    /// Answers DNS questions of its terminals; `None` answers none. Section `dns`.
    pub dns: Option<HubDnsConfig>,
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

/// Default settings of terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitDefaults {
    /// Section `[egress]`.
    pub egress: EgressRules,
    /// Section `[limits]`.
    pub quota: TerminalQuota,
    /// Key `carrier`.
    pub carrier: Option<String>,
    /// Keys `quota`, `quota_period` and `quota_then` of section `[limits]`.
    pub volume: VolumeDefaults,
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
    let dns = raw.dns.map(|raw| dns::hub(place, raw)).transpose()?;
    (shared.link.names, shared.link.questions) = (true, dns.is_some());
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
    let terminals = terminals(place, raw.terminal, &defaults, &shared, next_identity.as_ref())?;
    let bundles = |raw| bundles::hub(place, raw, &terminals, elsewhere);
    let bundles = raw.bundles.map(bundles).transpose()?;
    shared.link.bundles = bundles.is_some();
    shared.link.index_share = raw.shared_address.map_or(IndexShare::WHOLE, |share| share.0);
    let transparent = raw.transparent.unwrap_or(false);
    // Terminals from permits or etcd may have the networks.
    let needs_networks = !elsewhere && (raw.intercept.is_some() || transparent);
    check_networks(place, &terminals, needs_networks)?;
    let bypass = intercept::bypass(raw.intercept.as_ref());
    let choice = PolicyActions { split: raw.intercept.is_some(), tunnel: shared.tunnel.is_some() };
    Ok(HubConfig {
        identity: shared.identity,
        next_identity,
        identity_until,
        listen: shared.listen,
        listen_tcp: raw.listen_tcp.map(|address| address.0.0),
        tls: tls(place, raw.listen_tcp.is_some(), raw.listen_tcp_certificate, raw.listen_tcp_key)?,
        workers: workers(place, raw.workers)?,
        link: shared.link,
        links: shared.links,
        connect_timeout: shared.connect_timeout,
        transparent,
        mesh: raw.mesh.unwrap_or(false),
        dns,
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
        quota: limits::usual(place, limits)?,
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
) -> Result<Vec<PermittedTerminal>, FileError> {
    let links = Some(&shared.links[..]);
    let tunnel = shared.tunnel.is_some();
    let mut list =
        TerminalList::new(defaults, &shared.link.rate, Some(&shared.classes), links, tunnel);
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

/// Checks the number of a hub's threads.
fn workers(place: &KeyContext<'_>, workers: Option<i64>) -> Result<u8, FileError> {
    let workers = workers.unwrap_or(1);
    let permitted = (1..=i64::from(MAX_PARTS)).contains(&workers);
    place.check(permitted, "workers", workers, format!("1 to {MAX_PARTS}"))?;
    Ok(workers as u8)
}

/// Checks the name of a forward link.
pub(crate) fn carrier(
    place: &KeyContext<'_>,
    name: Option<String>,
) -> Result<Option<String>, FileError> {
    name_of(place, "carrier", "the name of a forward link, like \"ku-1\"", name)
}

/// Checks that a name which terminals share is not blank.
pub(crate) fn name_of(
    place: &KeyContext<'_>,
    key: &str,
    expected: &'static str,
    name: Option<String>,
) -> Result<Option<String>, FileError> {
    let named = name.as_ref().is_none_or(|name| !name.trim().is_empty());
    let written = quoted(name.as_deref().unwrap_or_default());
    place.check(named, key, written, expected)?;
    Ok(name)
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
