//! Sections `[[link]]` of a terminal and of a hub.

use std::net::IpAddr;

/// One of several links that a session uses at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Name in classes and status. Key `name`.
    pub name: String,
    /// The rate at which this side sends on it, to each peer. Key `rate`, by default that of the side.
    pub rate: slacp::Rate,
    /// The interface that a terminal sends on; needs CAP_NET_RAW. Key `interface`, default none.
    pub interface: Option<String>,
    /// The local address that a terminal sends from. Key `source`, default none.
    pub source: Option<IpAddr>,
}
