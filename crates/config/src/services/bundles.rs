//! Section `[bundles]` of a terminal and of a hub: the gateway as a bundle node.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use bundles::{AgentConfig, AgentLimits, BundleNodeId, NeighbourConfig};
use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::HostName;
use units::ByteCount;

use crate::PermittedTerminal;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, TextList};
use crate::intercept::serves;
use crate::values::AddressWithPort;
use crate::values::bounded::{HOUR, Interval, MINUTE, Number, Size};
use crate::values::tls_files::TlsFiles;

/// A node for bundles (BPv7).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bundles")]
pub struct BundlesSection {
    /// This node, such as `"ipn:2.0"` or `"dtn://ship/"`.
    #[schemars(required, extend("examples" = ["ipn:2.0", "dtn://ship/"]))]
    pub(crate) node: Option<Text<BundleNodeId>>,
    /// On a terminal: the hub's node, which gets all bundles that have no other route.
    #[schemars(extend("examples" = ["ipn:1.0"]))]
    pub(crate) hub: Option<Text<BundleNodeId>>,
    /// A directory of its own for bundles, made if missing; one gateway uses it at a time.
    #[schemars(required, extend("examples" = ["/var/lib/skyhop/bundles"]))]
    pub(crate) store: Option<String>,
    /// The most bytes of bundles in the store. Each takes up to 8 kB more on the disk, and partial ones up to an
    /// eighth.
    #[serde(default)]
    pub(crate) size: Size<1_000_000, { u64::MAX }, 1_000_000_000>,
    /// The most bundles in the store.
    #[serde(default)]
    pub(crate) bundles: Number<4, 1_000_000, 10_000>,
    /// The largest bundle, 1 kB to a quarter of `size`; it is in memory while it is sent or checked. Default: 16
    /// MB, or a quarter of `size` if that is less.
    #[schemars(extend("default" = "16 MB"))]
    pub(crate) largest: Option<Text<ByteCount>>,
    /// The most bundle identities kept to detect duplicates; each is kept until its bundle expires. While it is
    /// full, no new bundle is accepted.
    #[serde(default)]
    pub(crate) remembered: Number<100, 10_000_000, 100_000>,
    /// The size above which a bundle that permits it goes to other nodes [in parts](bundles.md#parts). Parts that
    /// were acknowledged are not sent again when the link breaks. Default: bundles go whole.
    pub(crate) fragment: Option<Fragment>,
    /// The longest lifetime of a bundle; others are refused.
    #[serde(default)]
    pub(crate) longest_lifetime: Interval<{ MINUTE }, { 366 * 24 * HOUR }, { 30 * 24 * HOUR }>,
    /// The most bundles sent to a node and not yet acknowledged, and at most 4 MB unless it is one bundle.
    #[serde(default)]
    pub(crate) window: Number<1, 256, 16>,
    /// An existing directory for [files](bundles.md#files) that are sent to this node. Without it, they stay in
    /// the store.
    #[schemars(extend("examples" = ["/var/spool/skyhop/inbox"]))]
    pub inbox: Option<PathBuf>,
    /// The TCP address for nodes that connect by TCPCLv4.
    #[schemars(extend("examples" = ["127.0.0.1:4556"]))]
    pub(crate) listen: Option<Text<AddressWithPort>>,
    /// Addresses (prefixes) that may connect to `listen`. Required if that is not a loopback address. Default:
    /// this machine.
    #[serde(default)]
    pub(crate) clients: TextList<Prefix>,
    /// A PEM file with this node's certificate and its chain. All sessions of TCPCLv4 then use
    /// [TLS](bundles.md#tls). Needs `key` and `authorities`. Default: no TLS.
    #[schemars(extend("examples" = ["/etc/skyhop/node.pem"]))]
    pub(crate) certificate: Option<String>,
    /// A PEM file with the private key of `certificate`.
    pub(crate) key: Option<String>,
    /// A PEM file with the authorities that certify the other nodes.
    pub(crate) authorities: Option<String>,
    /// Send the [status reports](bundles.md#status-reports) that bundles ask for, at most 10 a second.
    #[serde(default)]
    pub(crate) reports: bool,
    /// Nodes to exchange bundles with, at most 1000.
    #[serde(default)]
    pub(crate) peer: Vec<BundlePeerSection>,
}

/// A node to exchange bundles with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BundlePeer")]
pub(crate) struct BundlePeerSection {
    /// A node to exchange bundles with.
    #[schemars(required, extend("examples" = ["ipn:7.0"]))]
    pub(crate) node: Option<Text<BundleNodeId>>,
    /// Nodes behind this one: it may hand over their bundles, and gets those for them.
    #[serde(default)]
    #[schemars(extend("examples" = [["ipn:8.0"]]))]
    pub(crate) behind: TextList<BundleNodeId>,
    /// Send this node all bundles that have no other route. At most one node; on a terminal with `hub`, that is
    /// the hub.
    #[serde(default)]
    pub(crate) everything: bool,
    /// On a hub: the name of the terminal that is this node. Give at most one of this and `address`.
    pub(crate) terminal: Option<String>,
    /// The address at which to connect to this node by TCPCLv4. Without this and `terminal`, it may connect to
    /// `listen`.
    #[schemars(extend("examples" = ["10.1.0.9:4556"]))]
    pub(crate) address: Option<Text<AddressWithPort>>,
    /// With `certificate` of `[bundles]`: the host name or address that this node's certificate is for. Default:
    /// the address at the other end of the connection.
    #[schemars(extend("examples" = ["sensor.example"]))]
    pub(crate) certificate_name: Option<String>,
    /// As `fragment` of `[bundles]`, for this node; a smaller limit that it announces by TCPCLv4 applies.
    /// Default: as there.
    pub(crate) fragment: Option<Fragment>,
}

/// Service of files in the inbox, for nodes of the schemes `ipn` and `dtn`.
pub const FILE_SERVICES: [&str; 2] = ["1000", "files"];

/// A bundle node. Section `[bundles]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundlesConfig {
    /// The keys as written, for what needs no other key; `inbox` is joined to the file's folder.
    pub keys: BundlesSection,
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
    /// TCP address for nodes that connect by TCPCLv4 (RFC 9174). Key `listen`, default none.
    pub listen: Option<SocketAddr>,
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
        serves(&self.keys.clients, client)
    }

    /// The file service of this node.
    pub fn file_service(&self) -> &'static str {
        let [number, name] = FILE_SERVICES;
        if self.agent.node.numbers_services() { number } else { name }
    }
}

/// Size above which bundles go in fragments. Smaller ones would be mostly headers, and take files of 8 kB each.
type Fragment = Size<10_000>;
const LARGEST: ByteCount = ByteCount::new(16_000_000);
/// Maximum number of bytes in flight to one node, unless a single bundle is larger. They are in memory
/// while they are sent.
const WINDOW_BYTES: ByteCount = ByteCount::new(4_000_000);
const MOST_PEERS: usize = 1000;

/// Reads the section of a terminal.
pub(crate) fn terminal(
    place: &KeyContext<'_>,
    raw: BundlesSection,
) -> Result<BundlesConfig, FileError> {
    let place = place.within("bundles");
    let hub = raw.hub.as_ref().map(|hub| hub.0.clone());
    // All bundles that have no other route go to the hub.
    let first = hub.map(|node| BundleNeighbour {
        neighbour: NeighbourConfig { node, behind: Vec::new(), everything: true },
        reach: NodeReach::Hub,
        fragment: None,
        name: None,
    });
    read(&place, raw, first, |place, name| {
        Err(place.wrong_value("terminal", quoted(name), "no such key: this is a terminal"))
    })
}

/// Reads the section of a hub. With `permits`, its terminals need not be in its file.
pub(crate) fn hub(
    place: &KeyContext<'_>,
    raw: BundlesSection,
    terminals: &[PermittedTerminal],
    permits: bool,
) -> Result<BundlesConfig, FileError> {
    let place = place.within("bundles");
    if let Some(hub) = &raw.hub {
        return Err(place.wrong_value("hub", quoted(&hub.0), "no such key: this is a hub"));
    }
    read(&place, raw, None, |place, name| {
        // Terminals with permits are not known when the file is read.
        let known = permits || terminals.iter().any(|terminal| terminal.name == name);
        place.check(known, "terminal", quoted(name), "the name of a terminal of this file")
    })
}

struct BundleNeighbour {
    neighbour: NeighbourConfig,
    reach: NodeReach,
    fragment: Option<ByteCount>,
    /// Host name or address for which its certificate has to be valid.
    name: Option<String>,
}

fn read(
    place: &KeyContext<'_>,
    mut raw: BundlesSection,
    first: Option<BundleNeighbour>,
    check_terminal: impl Fn(&KeyContext<'_>, &str) -> Result<(), FileError>,
) -> Result<BundlesConfig, FileError> {
    let node =
        raw.node.as_ref().ok_or_else(|| place.missing_key("node", BundleNodeId::FORM))?.0.clone();
    let mut keys = raw.clone();
    let limits = limits(place, &raw)?;
    let raw_tls = [raw.certificate.take(), raw.key.take(), raw.authorities.take()];
    let mut peers: Vec<BundleNeighbour> = first.into_iter().collect();
    let count = raw.peer.len();
    let expected = format!("at most {MOST_PEERS}");
    place.check(count <= MOST_PEERS, "peer", format!("{count} nodes"), expected)?;
    for (index, raw) in raw.peer.into_iter().enumerate() {
        let place = place.within("peer").within(index);
        raw.terminal.iter().try_for_each(|name| check_terminal(&place, name))?;
        peers.push(peer(&place, raw)?);
    }
    let names = peers.iter_mut().map(|peer| peer.name.take()).collect();
    let tls = tls(place, &raw_tls, names)?;
    check_nodes(place, &node, &peers)?;
    let store = raw.store.ok_or_else(|| place.missing_key("store", "a directory of its own"))?;
    let locate = |path: &Path| place.folder().locate(path);
    keys.inbox = keys.inbox.as_deref().map(locate);
    let listen = raw.listen.map(|address| address.0.0);
    // Without a list of clients, only this machine may connect.
    let open = listen.is_some_and(|address| !address.ip().to_canonical().is_loopback());
    if open && keys.clients.is_empty() {
        return Err(place.missing_key("clients", "those that may connect, like [\"10.1.0.0/16\"]"));
    }
    let usual = raw.fragment.map(Size::get);
    let fragment = peers.iter().map(|peer| peer.fragment.or(usual)).collect();
    let (peers, reach) = peers.into_iter().map(|peer| (peer.neighbour, peer.reach)).unzip();
    Ok(BundlesConfig {
        keys,
        fragment,
        agent: AgentConfig { node, peers, limits, reports: raw.reports },
        reach,
        store: locate(Path::new(&store)),
        listen,
        tls,
    })
}

/// Reads the keys of TLS, which are needed together: certificate, key and authorities.
fn tls(
    place: &KeyContext<'_>,
    given: &[Option<String>; 3],
    names: Vec<Option<String>>,
) -> Result<Option<BundlesTls>, FileError> {
    if given.iter().all(Option::is_none) {
        let named = names.iter().flatten().next();
        let written = named.map_or_else(String::new, quoted);
        let expected = "no `certificate_name` without `certificate`";
        place.check(named.is_none(), "peer", written, expected)?;
        return Ok(None);
    }
    let file = |index: usize, key: &str| {
        let path = given[index].as_deref();
        let path =
            path.ok_or_else(|| place.missing_key(key, "a PEM file, as the others are given"))?;
        Ok(place.folder().locate(Path::new(path)))
    };
    let files = TlsFiles { certificate: file(0, "certificate")?, key: file(1, "key")? };
    Ok(Some(BundlesTls { files, authorities: file(2, "authorities")?, names }))
}

fn limits(place: &KeyContext<'_>, raw: &BundlesSection) -> Result<AgentLimits, FileError> {
    let size = raw.size.get();
    // One destination may take three quarters of a store; a bundle for another must fit into the rest.
    let usual = LARGEST.min(ByteCount::new(size.get() / 4));
    let largest = raw.largest.map_or(usual, |size| size.0);
    let good = (1_000..=size.get() / 4).contains(&largest.get());
    let expected =
        "1 kB to a quarter of `size`, which is what one destination leaves to the others";
    place.check(good, "largest", quoted(largest), expected)?;
    Ok(AgentLimits {
        bytes: size,
        bundles: raw.bundles.count(),
        largest,
        remembered: raw.remembered.count(),
        lifetime: raw.longest_lifetime.get(),
        window: raw.window.count(),
        window_bytes: WINDOW_BYTES,
    })
}

fn peer(place: &KeyContext<'_>, raw: BundlePeerSection) -> Result<BundleNeighbour, FileError> {
    let node = raw.node.ok_or_else(|| place.missing_key("node", BundleNodeId::FORM))?.0;
    let behind = raw.behind.to_vec();
    let neighbour = NeighbourConfig { node, behind, everything: raw.everything };
    let reach = match (raw.terminal, raw.address) {
        (Some(name), Some(_)) => {
            return Err(place.wrong_value(
                "terminal",
                quoted(name),
                "either `terminal` or `address`",
            ));
        }
        (Some(name), None) => NodeReach::Terminal(name),
        (None, Some(address)) => NodeReach::Connect(address.0.0),
        (None, None) => NodeReach::Listen,
    };
    let fragment = raw.fragment.map(Size::get);
    let name = raw.certificate_name;
    if let Some(name) = &name {
        const KEY: &str = "certificate_name";
        let by_tcp = matches!(reach, NodeReach::Connect(_) | NodeReach::Listen);
        place.check(by_tcp, KEY, quoted(name), "nothing with `terminal`")?;
        let good = HostName::new(name).is_some() || name.parse::<IpAddr>().is_ok();
        place.check(good, KEY, quoted(name), "a host name or an address")?;
    }
    Ok(BundleNeighbour { neighbour, reach, fragment, name })
}

/// Checks that each node is listed only once, and that at most one has `everything`.
fn check_nodes(
    place: &KeyContext<'_>,
    own: &BundleNodeId,
    peers: &[BundleNeighbour],
) -> Result<(), FileError> {
    let mut seen: Vec<&BundleNodeId> = vec![own];
    let mut everything = 0;
    for BundleNeighbour { neighbour: NeighbourConfig { node, behind, everything: all }, .. } in
        peers
    {
        for node in [node].into_iter().chain(behind) {
            let expected = "a node that is nowhere else in [bundles]";
            place.check(!seen.contains(&node), "peer", quoted(node), expected)?;
            seen.push(node);
        }
        everything += usize::from(*all);
    }
    let expected = "one node at most with `everything`, which a terminal's hub has";
    place.check(everything <= 1, "peer", format!("{everything} nodes"), expected)
}
