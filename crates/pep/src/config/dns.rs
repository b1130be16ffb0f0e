//! How names are resolved.

use std::net::{IpAddr, SocketAddr};

use super::intercept::serves;
use crate::names::NamesConfig;
use crate::traffic::Prefix;

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
    /// Those who may ask there; empty: this machine only. Key `clients`.
    pub clients: Vec<Prefix>,
    /// Resolvers for questions at `listen` while the hub cannot be reached; empty: the machine's own.
    /// Key `servers`.
    pub servers: Vec<SocketAddr>,
}

impl DnsConfig {
    /// Whether a client may ask at `listen`.
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
