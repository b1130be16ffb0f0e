//! Configuration of a hub.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pep::accounting::VolumeDefaults;
use pep::egress::EgressRules;
use pep::routes::{PermittedTerminal, TerminalQuota};
use pep::traffic::{TrafficClasses, TrafficPolicy};
use slacp::{AggregateId, KeyPair, PublicKey, Rate};
use units::{ByteCount, UnixTime};

use super::bundles::BundlesConfig;
use super::dns::HubDnsConfig;
use super::http::HubHttpConfig;
use super::hub_address::HubAddress;
use super::intercept::{InterceptConfig, TunnelConfig};
use super::link::LinkConfig;
use super::operation::OperationConfig;
use super::tls_files::TlsFiles;

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
/// Settings of an etcd that stores permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Client addresses of its members, at least one. Key `members`.
    pub members: Vec<HubAddress>,
    /// Prefix of the keys of permits; ends in `/`. Key `prefix`, default [`Self::PREFIX`].
    pub prefix: String,
    /// TLS with the members. Key `tls`, default none.
    pub tls: Option<EtcdTls>,
    /// The user as which the hub authenticates. Keys `user` and `password_file`, default none.
    pub login: Option<EtcdLogin>,
}

/// TLS to an etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdTls {
    /// Authorities that verify the members (PEM). Key `authorities`, default the system's.
    pub authorities: Option<PathBuf>,
    /// Certificate of the hub for members that request one. Keys `certificate` and `key`, default none.
    pub identity: Option<TlsFiles>,
}

/// A user of an etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdLogin {
    /// Name of the user in etcd.
    pub user: String,
    /// The file with its password.
    pub password_file: PathBuf,
}

impl EtcdConfig {
    /// Prefix of the keys unless one is configured.
    pub const PREFIX: &str = "/skyhop/terminals/";
}
