//! The configuration of a terminal.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use slacp::{KeyPair, PublicKey};
use thiserror::Error;

use super::bundles::BundlesConfig;
use super::dns::DnsConfig;
use super::http::HttpConfig;
use super::intercept::{InterceptConfig, ProxyConfig, TunnelConfig};
use super::link::LinkConfig;
use super::operation::OperationConfig;
use pep::egress::Egress;
use pep::hubs::{HubId, HubOrder, ranking};
use pep::traffic::{Classes, Policy};

/// Configuration of a terminal.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// The terminal's key. Key `private_key` or `private_key_file`.
    pub identity: KeyPair,
    /// The hubs, at least one. Keys `hub`, `hub_key`, `hub_tcp` and sections `[[other_hub]]`.
    pub hubs: Vec<KnownHub>,
    /// In which order the hubs are tried. Key `hub_order`.
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
    pub accept: Egress,
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
    /// A node for bundles; `None` is none. Section `bundles`.
    pub bundles: Option<BundlesConfig>,
    /// Traffic classes that share the rate. Sections `[[class]]`.
    pub classes: Classes,
    /// What to split, tunnel or bypass; the first match decides. Key `intercept.bypass`, then
    /// sections `[[policy]]`.
    pub policies: Vec<Policy>,
}

/// A hub that a terminal may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHub {
    /// Name in log and status. Key `name`, by default `hub`, `hub-2` and so on.
    pub name: String,
    /// Address or name, with the UDP port. Key `hub`, or `address` of `[[other_hub]]`.
    pub address: HubAddress,
    /// Where it takes the same packets over TCP, for when it does not answer over UDP: address or
    /// name, with the port. Key `hub_tcp`, or `tcp` of `[[other_hub]]`, default none.
    pub tcp: Option<TcpAddress>,
    /// Its public key. Key `hub_key`, or `key` of `[[other_hub]]`.
    pub key: PublicKey,
}

impl TerminalConfig {
    /// The places of the hubs in [`Self::hubs`], the best first.
    pub fn ranking(&self) -> Vec<HubId> {
        let keys: Vec<PublicKey> = self.hubs.iter().map(|hub| hub.key).collect();
        ranking(self.hub_order, &self.identity.public(), &keys)
    }
}

/// Address of the hub as `host:port`, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress(String);

/// The text is not a host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", HubAddress::FORM)]
pub struct HubAddressError;

impl FromStr for HubAddress {
    type Err = HubAddressError;

    fn from_str(text: &str) -> Result<Self, HubAddressError> {
        let is_address = text.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0);
        let is_name = text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains(':') && port.parse::<u16>().is_ok_and(|p| p != 0)
        });
        (is_address || is_name).then(|| Self(text.to_owned())).ok_or(HubAddressError)
    }
}

impl HubAddress {
    /// The host without the port, and without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Its form, for error messages.
    pub const FORM: &str = "an address and a UDP port, like \"hub.example.net:5900\"";

    /// `host:port`, in the form that a resolver accepts.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a hub takes packets over TCP: `host:port`, or `tls://host:port` within TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpAddress {
    /// Host and TCP port.
    pub address: HubAddress,
    /// Whether the connection looks like TLS to the network.
    pub tls: bool,
}

impl TcpAddress {
    /// Its form, for error messages.
    pub const FORM: &str = "an address and a TCP port, like \"hub.example.net:443\" or, within TLS, \
                            \"tls://hub.example.net:443\"";
    const TLS: &str = "tls://";
}

/// The text is not a host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", TcpAddress::FORM)]
pub struct TcpAddressError;

impl FromStr for TcpAddress {
    type Err = TcpAddressError;

    fn from_str(text: &str) -> Result<Self, TcpAddressError> {
        let within = text.strip_prefix(Self::TLS);
        let address = within.unwrap_or(text).parse().map_err(|_| TcpAddressError)?;
        Ok(Self { address, tls: within.is_some() })
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.tls { Self::TLS } else { "" }, self.address.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_has_a_host_and_a_port() {
        for text in ["hub.example.net:5900", "192.0.2.1:1", "[2001:db8::1]:5900"] {
            assert_eq!(text.parse::<HubAddress>().unwrap().as_str(), text);
        }
        for text in
            ["", "hub", ":5900", "hub:", "hub:0", "192.0.2.1:0", "2001:db8::1:5900", "h:65536"]
        {
            assert_eq!(text.parse::<HubAddress>(), Err(HubAddressError), "{text}");
        }
        for (text, host) in
            [("hub:1", "hub"), ("[2001:db8::1]:1", "2001:db8::1"), ("192.0.2.1:1", "192.0.2.1")]
        {
            assert_eq!(text.parse::<HubAddress>().unwrap().host(), host);
        }
    }

    #[test]
    fn tcp_may_be_within_tls() {
        for (text, tls) in [("hub:443", false), ("tls://[2001:db8::1]:443", true)] {
            let address: TcpAddress = text.parse().unwrap();
            assert_eq!((address.to_string(), address.tls), (text.to_owned(), tls));
        }
        for text in ["tls://", "tls://hub", "https://hub:443", "tls:hub:443"] {
            assert_eq!(text.parse::<TcpAddress>(), Err(TcpAddressError), "{text}");
        }
    }
}
