//! What a gateway is as a node for bundles.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use bundles::AgentConfig;
use pep::traffic::Prefix;
use units::ByteCount;

use super::intercept::serves;
use super::tls_files::TlsFiles;

/// The service of files in the inbox, for nodes of the scheme `ipn` and of `dtn`.
pub const FILE_SERVICES: [&str; 2] = ["1000", "files"];

/// A node for bundles. Section `[bundles]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundlesConfig {
    /// The node, those it exchanges bundles with, and what it may keep. Keys `node`, `hub`, `size`,
    /// `bundles`, `largest`, `remembered`, `longest_lifetime`, `window`, `reports` and sections
    /// `[[bundles.peer]]`.
    pub agent: AgentConfig,
    /// How each of the agent's peers is reached, in the same order.
    pub reach: Vec<Reach>,
    /// Above which size a bundle goes to each of them in parts, if it may. Key `fragment`, of the node and
    /// of a peer; default: bundles go whole.
    pub fragment: Vec<Option<ByteCount>>,
    /// Directory of the store. Key `store`.
    pub store: PathBuf,
    /// Directory in which files appear that are sent to this node; [`None`] leaves them in the store.
    /// Key `inbox`.
    pub inbox: Option<PathBuf>,
    /// TCP address for nodes that connect by TCPCLv4 (RFC 9174). Key `listen`, default none.
    pub listen: Option<SocketAddr>,
    /// Those that may connect there; empty: this machine only. Key `clients`.
    pub clients: Vec<Prefix>,
    /// Sessions of TCPCLv4 are within TLS; without it none is.
    pub tls: Option<BundlesTls>,
}

/// TLS with nodes of the LAN (RFC 9174 §4.4), whose certificates are verified, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundlesTls {
    /// What this node shows. Keys `certificate` and `key`.
    pub files: TlsFiles,
    /// Those that certify the other nodes (PEM). Key `authorities`.
    pub authorities: PathBuf,
    /// The host name or address that each of the agent's peers has a certificate for, in the same order.
    /// Key `certificate_name` of a peer; default: the address at the other end of the connection.
    pub names: Vec<Option<String>>,
}

/// How a node is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is the hub that the terminal uses.
    Hub,
    /// It is the terminal of this name.
    Terminal(String),
    /// By TCPCLv4 at this address.
    Connect(SocketAddr),
    /// It connects to this one by TCPCLv4.
    Listen,
}

impl BundlesConfig {
    /// Whether a node at this address may connect.
    pub fn serves(&self, client: IpAddr) -> bool {
        serves(&self.clients, client)
    }

    /// The service of this node for files.
    pub fn file_service(&self) -> &'static str {
        let [number, name] = FILE_SERVICES;
        if self.agent.node.numbers_services() { number } else { name }
    }
}
