//! Configuration of a terminal.

use std::net::SocketAddr;
use std::time::Duration;

use pep::egress::EgressRules;
use pep::hubs::{HubId, HubOrder, ranking};
use pep::traffic::{TrafficClasses, TrafficPolicy};
use slacp::{KeyPair, PublicKey};

use super::bundles::BundlesConfig;
use super::dns::DnsConfig;
use super::http::HttpConfig;
use super::hub_address::{HubAddress, TcpAddress};
use super::intercept::{InterceptConfig, ProxyConfig, TunnelConfig};
use super::link::LinkConfig;
use super::operation::OperationConfig;

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
