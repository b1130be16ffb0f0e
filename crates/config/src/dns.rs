//! Configuration of name resolution.

use std::net::{IpAddr, SocketAddr};

use names::NamesConfig;
use pep::traffic::Prefix;

use super::intercept::serves;
use super::tls_files::TlsFiles;

/// Name resolution for a terminal's clients. Section `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// The cache and the pool of addresses.
    pub names: NamesConfig,
    /// Answers clients' questions to any resolver, if connections are intercepted. Key `intercept`, default
    /// true with section `[intercept]`.
    pub intercept: bool,
    /// Resolvers whose questions are not intercepted. Key `bypass`.
    pub bypass: Vec<Prefix>,
    /// UDP and TCP addresses that clients may ask. Key `listen`, default none.
    pub listen: Vec<SocketAddr>,
    /// Listeners over TLS. Keys `tls`, `https`, `certificate`, `key`; default none.
    pub secure: Option<SecureDns>,
    /// Clients that may ask these addresses; empty: this machine only. Key `clients`.
    pub clients: Vec<Prefix>,
    /// Resolvers for questions at `listen` while the hub cannot be reached; empty: the machine's own.
    /// Key `servers`.
    pub servers: Vec<SocketAddr>,
}

/// DNS listeners over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureDns {
    /// Addresses for DNS over TLS (RFC 7858). Key `tls`.
    pub tls: Vec<SocketAddr>,
    /// Addresses for DNS over HTTPS (RFC 8484). Key `https`.
    pub https: Vec<SocketAddr>,
    /// The certificate for the names or addresses by which clients know this machine.
    pub files: TlsFiles,
}

impl DnsConfig {
    /// Returns `true` if a client may ask at an address of this machine.
    pub fn serves(&self, client: IpAddr) -> bool {
        serves(&self.clients, client)
    }
}

/// Name resolution of a hub for its terminals. Section `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubDnsConfig {
    /// Resolvers to ask; empty: the machine's own. Key `servers`.
    pub servers: Vec<SocketAddr>,
    /// Questions of one terminal that are asked at a time; as many may wait. Key `questions`, default 128.
    pub questions: usize,
}
