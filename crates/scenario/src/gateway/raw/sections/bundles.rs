//! Section `[bundles]` as written.

use bundles::BundleNodeId;
use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;
use units::ByteCount;

use super::super::values::AddressWithPort;
use crate::text::{Text, Time};

/// A node for bundles (BPv7).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Bundles {
    /// This node.
    #[schemars(required, extend("examples" = ["ipn:2.0", "dtn://ship/"]))]
    pub(in crate::gateway) node: Option<Text<BundleNodeId>>,
    /// On a terminal: the hub's node, which gets all bundles that have no other route.
    #[schemars(extend("examples" = ["ipn:1.0"]))]
    pub(in crate::gateway) hub: Option<Text<BundleNodeId>>,
    /// A directory of its own, which keeps bundles until the next node has them.
    #[schemars(required, extend("examples" = ["/var/lib/skyhop/bundles"]))]
    pub(in crate::gateway) store: Option<String>,
    /// The most bytes of bundles in the store.
    #[schemars(extend("default" = "1 GB"))]
    pub(in crate::gateway) size: Option<Text<ByteCount>>,
    /// The most bundles in the store.
    #[schemars(range(min = 4, max = 1_000_000), extend("default" = 10_000))]
    pub(in crate::gateway) bundles: Option<i64>,
    /// The largest bundle, at most a quarter of `size`.
    #[schemars(extend("default" = "16 MB"))]
    pub(in crate::gateway) largest: Option<Text<ByteCount>>,
    /// Maximum number of bundles remembered to detect duplicates, each until it expires.
    #[schemars(range(min = 100, max = 10_000_000), extend("default" = 100_000))]
    pub(in crate::gateway) remembered: Option<i64>,
    /// Size above which a bundle is sent to other nodes in fragments, if it permits that; at least 10 kB. By
    /// default bundles are not fragmented.
    pub(in crate::gateway) fragment: Option<Text<ByteCount>>,
    /// The longest lifetime of a bundle; 1 min to 8784 h.
    #[schemars(extend("default" = "720 h"))]
    pub(in crate::gateway) longest_lifetime: Option<Text<Time>>,
    /// Bundles sent to a node and not acknowledged.
    #[schemars(range(min = 1, max = 256), extend("default" = 16))]
    pub(in crate::gateway) window: Option<i64>,
    /// A directory in which files appear that are sent to this node.
    #[schemars(extend("examples" = ["/var/spool/skyhop/inbox"]))]
    pub(in crate::gateway) inbox: Option<String>,
    /// The TCP address for nodes that connect by TCPCLv4.
    #[schemars(extend("examples" = ["127.0.0.1:4556"]))]
    pub(in crate::gateway) listen: Option<Text<AddressWithPort>>,
    /// Nodes (prefixes) that may connect there; required when others can reach `listen`.
    #[serde(default)]
    pub(in crate::gateway) clients: Vec<Text<Prefix>>,
    /// Sessions of TCPCLv4 are within TLS, for which this is our certificate (PEM, then those that lead to its
    /// authority). It goes with `key` and `authorities`.
    #[schemars(extend("examples" = ["/etc/skyhop/node.pem"]))]
    pub(in crate::gateway) certificate: Option<String>,
    /// The private key of `certificate` (PEM).
    pub(in crate::gateway) key: Option<String>,
    /// The authorities that certify the other nodes (PEM).
    pub(in crate::gateway) authorities: Option<String>,
    /// Send the status reports that bundles ask for, at most 10 a second.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) reports: Option<bool>,
    /// Nodes to exchange bundles with.
    #[serde(default)]
    pub(in crate::gateway) peer: Vec<BundlePeer>,
}

/// A node to exchange bundles with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct BundlePeer {
    /// The node.
    #[schemars(required, extend("examples" = ["ipn:7.0"]))]
    pub(in crate::gateway) node: Option<Text<BundleNodeId>>,
    /// Nodes behind it: it may hand over their bundles, and gets those for them.
    #[serde(default)]
    #[schemars(extend("examples" = [["ipn:8.0"]]))]
    pub(in crate::gateway) behind: Vec<Text<BundleNodeId>>,
    /// It gets all bundles that have no other route.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) everything: Option<bool>,
    /// On a hub: it is the terminal of this name.
    pub(in crate::gateway) terminal: Option<String>,
    /// Connect to it by TCPCLv4 at this address. Without it, it may connect to `listen`.
    #[schemars(extend("examples" = ["10.1.0.9:4556"]))]
    pub(in crate::gateway) address: Option<Text<AddressWithPort>>,
    /// With TLS: the host name or address that its certificate is for; by default the address at the other end
    /// of the connection.
    #[schemars(extend("examples" = ["sensor.example"]))]
    pub(in crate::gateway) certificate_name: Option<String>,
    /// Size above which a bundle is sent to it in fragments, if it permits that; by default that of `[bundles]`.
    pub(in crate::gateway) fragment: Option<Text<ByteCount>>,
}
