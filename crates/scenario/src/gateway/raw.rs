//! The configuration files of gateways as written.

pub(super) mod sections;
pub(super) mod values;

use config::{HubAddress, LogFilter, TcpAddress};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::IndexShare;
use units::{BitRate, ByteCount, Probability, UnixTime};

pub(crate) use self::sections::PermittedTerminal as RawPermit;
use self::sections::{
    Accept, Bundles, Class, Dlep, Dns, Egress, Etcd, Http, HubDns, HubHttp, Intercept, Limits,
    Link, Metrics, OtherHub, PermittedTerminal, Policy, Proxy, Side, Tunnel, Wan,
};
use self::values::{AddressWithPort, HubOrder, InitialRate, PublicKeyText, RateChoice};
use crate::text::{Text, Time};

/// The configuration of a terminal (docs/configuration.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop terminal")]
pub(crate) struct RawTerminal {
    /// This gateway's private key in base64; or `private_key_file`.
    pub(super) private_key: Option<String>,
    /// A file with the private key, which only its owner can read.
    pub(super) private_key_file: Option<String>,
    /// Host and UDP port of the hub.
    #[schemars(required, extend("examples" = ["hub.example.net:5900"]))]
    pub(super) hub: Option<Text<HubAddress>>,
    /// Host and TCP port of the hub, for when it does not answer over UDP: its `listen_tcp`. With
    /// `tls://` within TLS.
    #[schemars(extend("examples" = ["hub.example.net:443", "tls://hub.example.net:443"]))]
    pub(super) hub_tcp: Option<Text<TcpAddress>>,
    /// The hub's public key.
    #[schemars(required)]
    pub(super) hub_key: Option<Text<PublicKeyText>>,
    /// Order in which the hubs are tried: `spread` by the keys, which divides terminals among them, or
    /// as `listed`.
    #[schemars(extend("default" = "spread"))]
    pub(super) hub_order: Option<HubOrder>,
    /// Further hubs, for when the first does not answer.
    #[serde(default)]
    pub(super) other_hub: Vec<OtherHub>,
    /// The rate of the return link, on which this side sends: a rate, `auto` or `modem`.
    #[schemars(required, extend("examples" = ["10 Mbit/s", "auto", "modem"]))]
    pub(super) rate: Option<Text<RateChoice>>,
    /// With `rate = "modem"`: the rate while nothing is reported; by default measured as with `auto`.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(super) initial_rate: Option<Text<InitialRate>>,
    /// With `auto` or `modem`: the upper limit of a session's rate on this side.
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
    pub(super) maximum_rate: Option<Text<BitRate>>,
    /// While the rate is measured: measure the path with padding when a session is set up, or when the
    /// modem stops reporting.
    #[schemars(extend("default" = true))]
    pub(super) probe: Option<bool>,
    /// With `probe = true`: the share of the bytes sent to a peer that this padding may take, besides
    /// two measurements in advance.
    #[schemars(extend("default" = "2 %", "examples" = ["0.5 %"]))]
    pub(super) probe_share: Option<Text<Probability>>,
    /// The control socket: a path, or `none`.
    pub(super) control: Option<String>,
    /// A directory that keeps what measured rates have shown of paths.
    #[schemars(extend("examples" = ["/var/lib/skyhop"]))]
    pub(super) state: Option<String>,
    /// The metrics server.
    pub(super) metrics: Option<Metrics>,
    /// The rate from the modem, by DLEP.
    pub(super) dlep: Option<Dlep>,
    /// While all sessions together hold more, new connections pass unaccelerated; by default half
    /// of the machine's memory.
    #[schemars(extend("examples" = ["1 GB"]))]
    pub(super) total_memory: Option<Text<ByteCount>>,
    /// The most connections carried.
    #[schemars(range(min = 1))]
    pub(super) max_connections: Option<i64>,
    /// The local UDP address.
    #[schemars(extend("examples" = ["[::]:5900"]))]
    pub(super) listen: Option<Text<AddressWithPort>>,
    /// The longest IP packet to send over the hop, in bytes.
    #[schemars(range(min = 576, max = 9216), extend("default" = 1500))]
    pub(super) mtu: Option<i64>,
    /// The most that all streams of a session hold, in each direction.
    #[schemars(extend("default" = "256 MB"))]
    pub(super) memory: Option<Text<ByteCount>>,
    /// Longest burst, for links whose policer drops longer ones. Costs processor time, because the
    /// gateway wakes up for each packet.
    #[schemars(extend("examples" = ["3 kB"]))]
    pub(super) burst: Option<Text<ByteCount>>,
    /// The most that one stream holds.
    #[schemars(extend("default" = "64 MB"))]
    pub(super) stream_window: Option<Text<ByteCount>>,
    /// Time limit for opening a connection to a destination; at most 10 min.
    #[schemars(extend("default" = "30 s"))]
    pub(super) connect_timeout: Option<Text<Time>>,
    /// Clients and servers that are silent for this long are probed; 1 s to 2 h.
    #[schemars(extend("default" = "2 h"))]
    pub(super) keepalive: Option<Text<Time>>,
    /// Filter of the log: a level, or levels of single modules.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(super) log: Option<Text<LogFilter>>,
    /// Connect with the client's address and port instead of this machine's.
    #[schemars(extend("default" = false))]
    pub(super) transparent: Option<bool>,
    /// Connections to intercept.
    pub(super) intercept: Option<Intercept>,
    /// The SOCKS5 and HTTP CONNECT proxy.
    pub(super) proxy: Option<Proxy>,
    /// Destinations behind this terminal for the hub's side and other terminals; none without it.
    pub(super) accept: Option<Accept>,
    /// Resolution of clients' names; without it, their queries are not touched.
    pub(super) dns: Option<Dns>,
    /// Cleartext HTTP is answered from a cache; without it, its connections are like others.
    pub(super) http: Option<Http>,
    /// A node for bundles, which wait while the hop is down; without it, there is none.
    pub(super) bundles: Option<Bundles>,
    /// Traffic that is not split crosses the hop too, if both sides have this section.
    pub(super) tunnel: Option<Tunnel>,
    /// Several links to the hub, which a session uses at once, if the hub has them too.
    #[serde(default)]
    pub(super) link: Vec<Link>,
    /// Classes that share the rate; by default interactive traffic goes before bulk.
    #[serde(default)]
    pub(super) class: Vec<Class>,
    /// Rules that split, tunnel or bypass traffic; the first match decides.
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
}

/// The configuration of a hub (docs/configuration.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop hub")]
pub(crate) struct RawHub {
    /// This gateway's private key in base64; or `private_key_file`.
    pub(super) private_key: Option<String>,
    /// A file with the private key, which only its owner can read.
    pub(super) private_key_file: Option<String>,
    /// A file with the private key that will replace this one. The hub answers to both, and tells its
    /// terminals.
    pub(super) next_key_file: Option<String>,
    /// With `next_key_file`: when the hub no longer answers to the present key; by default never.
    #[schemars(extend("examples" = ["2027-01-31T00:00:00Z"]))]
    pub(super) key_until: Option<Text<UnixTime>>,
    /// The rate of the forward link, on which this side sends: a rate, `auto` or `modem`.
    #[schemars(required, extend("examples" = ["50 Mbit/s", "auto", "modem"]))]
    pub(super) rate: Option<Text<RateChoice>>,
    /// With `rate = "modem"`: the rate while nothing is reported; by default measured as with `auto`.
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
    pub(super) initial_rate: Option<Text<InitialRate>>,
    /// With `auto` or `modem`: the upper limit of a session's rate on this side.
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
    pub(super) maximum_rate: Option<Text<BitRate>>,
    /// While the rate is measured: measure the path with padding when a session is set up, or when the
    /// modem stops reporting.
    #[schemars(extend("default" = true))]
    pub(super) probe: Option<bool>,
    /// With `probe = true`: the share of the bytes sent to a peer that this padding may take, besides
    /// two measurements in advance.
    #[schemars(extend("default" = "2 %", "examples" = ["0.5 %"]))]
    pub(super) probe_share: Option<Text<Probability>>,
    /// The control socket: a path, or `none`.
    pub(super) control: Option<String>,
    /// A directory that keeps what measured rates have shown of paths.
    #[schemars(extend("examples" = ["/var/lib/skyhop"]))]
    pub(super) state: Option<String>,
    /// The metrics server.
    pub(super) metrics: Option<Metrics>,
    /// The rate from the modem, by DLEP.
    pub(super) dlep: Option<Dlep>,
    /// While all sessions together hold more, new connections are refused; by default half of the
    /// machine's memory.
    #[schemars(extend("examples" = ["4 GB"]))]
    pub(super) total_memory: Option<Text<ByteCount>>,
    /// The most connections carried.
    #[schemars(range(min = 1))]
    pub(super) max_connections: Option<i64>,
    /// The local UDP address; by default port 5900 of every address.
    #[schemars(extend("examples" = ["[::]:5900"]))]
    pub(super) listen: Option<Text<AddressWithPort>>,
    /// The local TCP address for terminals whose networks block UDP; by default none.
    #[schemars(extend("examples" = ["[::]:443"]))]
    pub(super) listen_tcp: Option<Text<AddressWithPort>>,
    /// A file with the certificate for terminals that come there with TLS (PEM).
    pub(super) listen_tcp_certificate: Option<String>,
    /// The file with its private key (PEM).
    pub(super) listen_tcp_key: Option<String>,
    /// The number of threads that carry sessions.
    #[schemars(range(min = 1, max = 64), extend("default" = 1))]
    pub(super) workers: Option<i64>,
    /// Which hub this is, of how many with the same key behind one address; by default the only one.
    #[schemars(extend("examples" = ["1 of 2"]))]
    pub(super) shared_address: Option<Text<IndexShare>>,
    /// The longest IP packet to send over the hop, in bytes.
    #[schemars(range(min = 576, max = 9216), extend("default" = 1500))]
    pub(super) mtu: Option<i64>,
    /// The most that all streams of a session hold, in each direction.
    #[schemars(extend("default" = "256 MB"))]
    pub(super) memory: Option<Text<ByteCount>>,
    /// Longest burst, for links whose policer drops longer ones. Costs processor time, because the
    /// gateway wakes up for each packet.
    #[schemars(extend("examples" = ["3 kB"]))]
    pub(super) burst: Option<Text<ByteCount>>,
    /// The most that one stream holds.
    #[schemars(extend("default" = "64 MB"))]
    pub(super) stream_window: Option<Text<ByteCount>>,
    /// Time limit for opening a connection to a destination; at most 10 min.
    #[schemars(extend("default" = "30 s"))]
    pub(super) connect_timeout: Option<Text<Time>>,
    /// Clients and servers that are silent for this long are probed; 1 s to 2 h.
    #[schemars(extend("default" = "2 h"))]
    pub(super) keepalive: Option<Text<Time>>,
    /// Filter of the log: a level, or levels of single modules.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(super) log: Option<Text<LogFilter>>,
    /// A key of earlier versions, to say what replaces it.
    #[schemars(skip)]
    pub(super) allow_loopback: Option<bool>,
    /// Destinations that all terminals may reach through the hub.
    pub(super) egress: Option<Egress>,
    /// Limits of each terminal.
    pub(super) limits: Option<Limits>,
    /// With `auto`: the forward link that all terminals share, by a name of your choice.
    #[schemars(length(min = 1), extend("examples" = ["ku-1"]))]
    pub(super) carrier: Option<String>,
    /// Clients of one terminal may reach those of another.
    #[schemars(extend("default" = false))]
    pub(super) mesh: Option<bool>,
    /// Connect with the client's address and port instead of this machine's.
    #[schemars(extend("default" = false))]
    pub(super) transparent: Option<bool>,
    /// Connections to intercept towards the terminals' networks.
    pub(super) intercept: Option<Intercept>,
    /// Answers to terminals' name queries; without it, the hub does not answer them.
    pub(super) dns: Option<HubDns>,
    /// Fetch for the caches of terminals, over connections that stay; without it, they connect.
    pub(super) http: Option<HubHttp>,
    /// A node for bundles, which wait while a terminal is away; without it, there is none.
    pub(super) bundles: Option<Bundles>,
    /// Traffic that is not split crosses the hop too, if both sides have this section.
    pub(super) tunnel: Option<Tunnel>,
    /// The links of terminals that have several, in the order of the terminals' files.
    #[serde(default)]
    pub(super) link: Vec<Link>,
    /// Classes that share the rate; by default interactive traffic goes before bulk.
    #[serde(default)]
    pub(super) class: Vec<Class>,
    /// Rules that split, tunnel or bypass traffic; the first match decides.
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
    /// The terminals that may connect; at least one, unless `permits` has them.
    #[serde(default)]
    pub(super) terminal: Vec<PermittedTerminal>,
    /// A directory with further terminals, one in each file `*.toml` (docs/enrol.md). It is watched.
    #[schemars(extend("examples" = ["permits"]))]
    pub(super) permits: Option<String>,
    /// An etcd with further terminals (docs/enrol.md). It is watched.
    pub(super) etcd: Option<Etcd>,
}

/// The configuration of a solo gateway (docs/solo.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop solo gateway")]
pub(crate) struct RawSolo {
    /// The control socket: a path, or `none`.
    pub(super) control: Option<String>,
    /// The metrics server.
    pub(super) metrics: Option<Metrics>,
    /// While more waits in pipes, new connections pass unaccelerated; by default half of the
    /// machine's memory.
    #[schemars(extend("examples" = ["1 GB"]))]
    pub(super) total_memory: Option<Text<ByteCount>>,
    /// The most connections carried.
    #[schemars(range(min = 1))]
    pub(super) max_connections: Option<i64>,
    /// Time limit for opening a connection to a destination; at most 10 min.
    #[schemars(extend("default" = "30 s"))]
    pub(super) connect_timeout: Option<Text<Time>>,
    /// Clients and servers that are silent for this long are probed; 1 s to 2 h.
    #[schemars(extend("default" = "2 h"))]
    pub(super) keepalive: Option<Text<Time>>,
    /// Filter of the log: a level, or levels of single modules.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(super) log: Option<Text<LogFilter>>,
    /// Servers see the clients' addresses (with other ports) for intercepted connections.
    #[schemars(extend("default" = false))]
    pub(super) transparent: Option<bool>,
    /// Clients may reach services on this machine's own loopback addresses.
    #[schemars(extend("default" = false))]
    pub(super) allow_loopback: Option<bool>,
    /// Connections to intercept.
    pub(super) intercept: Option<Intercept>,
    /// The SOCKS5 and HTTP CONNECT proxy.
    pub(super) proxy: Option<Proxy>,
    /// Rules that split or bypass traffic; the first match decides.
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
    /// TCP towards clients.
    #[serde(default)]
    pub(super) lan: Side,
    /// TCP towards servers.
    #[serde(default)]
    pub(super) wan: Wan,
}
