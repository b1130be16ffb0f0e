//! How names are resolved.

use std::net::{IpAddr, SocketAddr};

use names::NamesConfig;
use pep::traffic::Prefix;

use super::intercept::serves;
use super::tls_files::TlsFiles;

/// The names of a terminal's clients. Section `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// The cache, and the addresses that stand for names.
    pub names: NamesConfig,
    /// Whether questions of clients to any resolver are answered here, if connections are
    /// intercepted. Key `intercept`, default true with section `[intercept]`.
    pub intercept: bool,
    /// Resolvers whose questions are left alone. Key `bypass`.
    pub bypass: Vec<Prefix>,
    /// Addresses, UDP and TCP, at which clients may ask. Key `listen`, default none.
    pub listen: Vec<SocketAddr>,
    /// Listeners within TLS, if there are any. Keys `tls`, `https`, `certificate`, `key`.
    pub secure: Option<SecureDns>,
    /// Those who may ask there; empty: this machine only. Key `clients`.
    pub clients: Vec<Prefix>,
    /// Resolvers for questions at `listen` while the hub cannot be reached; empty: the machine's own.
    /// Key `servers`.
    pub servers: Vec<SocketAddr>,
}

/// Where clients may ask within TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureDns {
    /// For DNS over TLS (RFC 7858). Key `tls`.
    pub tls: Vec<SocketAddr>,
    /// For DNS over HTTPS (RFC 8484). Key `https`.
    pub https: Vec<SocketAddr>,
    /// The certificate for the names or addresses by which clients know this machine.
    pub files: TlsFiles,
}

impl DnsConfig {
    /// Whether a client may ask at an address of this machine.
    pub fn serves(&self, client: IpAddr) -> bool {
        serves(&self.clients, client)
    }
}

/// How a hub answers its terminals' questions. Section `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubDnsConfig {
    /// Resolvers to ask; empty: the machine's own. Key `servers`.
    pub servers: Vec<SocketAddr>,
    /// Questions of one terminal that are asked at once; as many wait. Key `questions`, default 128.
    pub questions: usize,
}
