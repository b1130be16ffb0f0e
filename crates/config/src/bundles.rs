//! Configuration of a gateway as a bundle node.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use bundles::AgentConfig;
use pep::traffic::Prefix;
use units::ByteCount;

use super::intercept::serves;
use super::tls_files::TlsFiles;

/// Service of files in the inbox, for nodes of the schemes `ipn` and `dtn`.
pub const FILE_SERVICES: [&str; 2] = ["1000", "files"];

/// A bundle node. Section `[bundles]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundlesConfig {
    /// The node, its neighbours, and limits of the store. Keys `node`, `hub`, `size`, `bundles`, `largest`,
    /// `remembered`, `longest_lifetime`, `window`, `reports` and sections `[[bundles.peer]]`.
    pub agent: AgentConfig,
    /// The path to each of the agent's peers, in the same order.
    pub reach: Vec<NodeReach>,
    /// Size above which a bundle is sent to each of them in fragments, if that is allowed. Key `fragment`,
    /// of the node and of a peer; default: bundles are sent whole.
    pub fragment: Vec<Option<ByteCount>>,
    /// Directory of the store. Key `store`.
    pub store: PathBuf,
    /// Directory for files that are sent to this node; [`None`] leaves them in the store. Key `inbox`.
    pub inbox: Option<PathBuf>,
    /// TCP address for nodes that connect by TCPCLv4 (RFC 9174). Key `listen`, default none.
    pub listen: Option<SocketAddr>,
    /// Addresses that may connect there; empty: this machine only. Key `clients`.
    pub clients: Vec<Prefix>,
    /// TLS of TCPCLv4 sessions; without it no session uses TLS.
    pub tls: Option<BundlesTls>,
}

/// TLS with nodes of the LAN (RFC 9174 §4.4); both sides verify certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundlesTls {
    /// Certificate of this node. Keys `certificate` and `key`.
    pub files: TlsFiles,
    /// Authorities that certify the other nodes (PEM). Key `authorities`.
    pub authorities: PathBuf,
    /// The host name or address that each of the agent's peers has a certificate for, in the same order.
    /// Key `certificate_name` of a peer; default: the address at the other end of the connection.
    pub names: Vec<Option<String>>,
}

/// Path to a bundle node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReach {
    /// The node is the hub that the terminal uses.
    Hub,
    /// The node is the terminal of this name.
    Terminal(String),
    /// By TCPCLv4 at this address.
    Connect(SocketAddr),
    /// It connects to this one by TCPCLv4.
    Listen,
}

impl BundlesConfig {
    /// Returns `true` if a node at this address may connect.
    pub fn serves(&self, client: IpAddr) -> bool {
        serves(&self.clients, client)
    }

    /// The file service of this node.
    pub fn file_service(&self) -> &'static str {
        let [number, name] = FILE_SERVICES;
        if self.agent.node.numbers_services() { number } else { name }
    }
}
