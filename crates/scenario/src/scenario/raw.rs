//! Scenario files as written.

use core::fmt;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use units::{BitRate, ByteCount, Probability};

use super::cases::raw::{RawCase, RawFactor, RawLevels};
use super::flow::{Direction, HttpMethod, IpVersion, Kind};
use super::gateways::{HopProtocol, Overhead, Splitting};
use super::names::NameAnswer;
use super::study::BackEnd;
use super::study::raw::{RawMetric, RawReplications};
use crate::dama::raw::RawDama;
use crate::link_spec::raw::RawLink;
use config::file::item::Item;
use config::file::tcp_options::TcpOptions;
use config::file::text::{Text, Time};

/// A scenario of skyhop's simulator (docs/sim.md).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "skyhop scenario")]
pub(crate) struct RawScenario {
    /// One line.
    pub(super) description: String,
    /// Maximum simulated time; the run ends earlier if every application is done.
    #[schemars(extend("examples" = ["60 s"]))]
    pub(super) time: Text<Time>,
    /// Interval between samples for graphs; 100 us or more.
    #[schemars(extend("default" = "100 ms"))]
    pub(super) sample: Option<Text<Time>>,
    /// Numbers of nodes.
    #[serde(default)]
    pub(super) network: RawNetwork,
    /// The satellite hop: links, or the name or path of a preset.
    pub(super) hop: RawHop,
    /// Further satellite hops in series, from the hub towards the servers.
    #[serde(default)]
    pub(super) next_hop: Vec<RawNextHop>,
    /// Between hub and servers, in both directions. Without it the hub is the server.
    pub(super) server_side: Option<RawLink>,
    /// Between terminals and clients, in both directions. Without it terminals are the clients.
    pub(super) client_side: Option<RawLink>,
    /// TCP endpoints by name. `default` is the profile linux.
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, TcpOptions>,
    /// At the hub, before the forward link: a link for the packets to each terminal, such as the
    /// rate that a terminal has at most.
    pub(super) shaper: Option<RawLink>,
    /// Split gateways at hub and terminals.
    pub(super) gateways: Option<RawGateways>,
    /// A cache at each hub.
    pub(super) cache: Option<RawCache>,
    /// A resolver at each terminal; without it clients know all addresses.
    pub(super) names: Option<RawNames>,
    /// Applications.
    #[serde(default)]
    pub(super) flow: Vec<RawFlow>,
    /// Back ends on which the file is run.
    #[serde(default)]
    #[schemars(extend("default" = ["sim", "lab"]))]
    #[expect(dead_code, reason = "split off before (study.rs); part of the schema")]
    pub(super) back_ends: Vec<BackEnd>,
    /// Seeds with which each case is run.
    #[expect(dead_code, reason = "split off before (study.rs); part of the schema")]
    pub(super) replications: Option<RawReplications>,
    /// The metrics of interest; by default all.
    #[serde(default)]
    #[expect(dead_code, reason = "split off before (study.rs); part of the schema")]
    pub(super) result: Vec<RawMetric>,
    /// Several scenarios in one file: each combination of the levels of all factors is a case.
    #[serde(default)]
    #[expect(dead_code, reason = "split off before (cases.rs); part of the schema")]
    pub(super) factor: Vec<RawFactor>,
    /// Combinations of levels that are no cases: factors and their levels, of which a combination
    /// has all.
    #[serde(default)]
    #[expect(dead_code, reason = "split off before (cases.rs); part of the schema")]
    pub(super) exclude: Vec<BTreeMap<String, RawLevels>>,
    /// Several scenarios in one file: cases besides the combinations of the factors.
    #[serde(default)]
    #[expect(dead_code, reason = "split off before (cases.rs); part of the schema")]
    pub(super) case: Vec<RawCase>,
}

/// Numbers of nodes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(rename = "Network")]
pub(super) struct RawNetwork {
    /// Terminals; more than one are a star. All of a platform hear its forward link.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 1))]
    pub(super) terminals: Option<u32>,
    /// Hubs, each with a forward link and return links of its own: their number, among which
    /// terminals are divided evenly, or a list with the terminals of each.
    #[schemars(extend("default" = 1, "examples" = [10, [400, 400, 900]]))]
    pub(super) platforms: Option<RawPlatforms>,
    /// Servers behind each hub, each with links of its own.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 1))]
    pub(super) servers: Option<u32>,
    /// Clients behind each terminal, each with links of its own.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 1))]
    pub(super) clients: Option<u32>,
    /// Links that a platform's terminals share towards the hub; 0: each has its own.
    #[schemars(extend("default" = 0))]
    pub(super) return_channels: Option<u32>,
    /// Terminals talk to the next one, each on its own carrier.
    #[schemars(extend("default" = false))]
    pub(super) mesh: Option<bool>,
    /// Rates of the terminals' own carriers, in turn, instead of that of the return link.
    #[schemars(extend("examples" = [["384 kbit/s", "2048 kbit/s"]]))]
    pub(super) carrier_rates: Option<Vec<Text<BitRate>>>,
}

/// Platforms as a number, or by their terminals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a list of numbers of terminals")]
#[schemars(inline)]
pub(super) enum RawPlatforms {
    Number(u32),
    Terminals(Vec<u32>),
}

/// The satellite hop.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "Hop")]
pub(super) enum RawHop {
    /// The name of a built-in preset, or the path of another.
    Preset(#[schemars(extend("examples" = ["geo", "leo", "site.toml"]))] String),
    /// Its links.
    Links(Box<RawLinks>),
}

/// The links of the satellite hop.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Links")]
pub(super) struct RawLinks {
    /// The longest IP packet, in bytes, to which sizes in BDPs and queue disciplines refer.
    #[schemars(range(min = 1280, max = 9216), extend("default" = 1500))]
    pub(super) mtu: Option<u16>,
    /// Hub to terminal.
    pub(super) forward: RawLink,
    /// Terminal to hub; by default as forward.
    #[serde(rename = "return")]
    pub(super) ret: Option<RawLink>,
    /// Capacity on demand on the return link.
    pub(super) dama: Option<RawDama>,
}

/// A further satellite hop: a station beside the hub before it, and the next hub.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "NextHop")]
pub(super) struct RawNextHop {
    /// Towards the terminals.
    pub(super) forward: RawLink,
    /// Towards the servers; by default as forward.
    #[serde(rename = "return")]
    pub(super) ret: Option<RawLink>,
}

impl<'de> Deserialize<'de> for RawHop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HopVisitor)
    }
}

/// Reports errors inside a link, which an untagged enum would hide.
struct HopVisitor;

impl<'de> Visitor<'de> for HopVisitor {
    type Value = RawHop;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a preset, or a table with forward and return")
    }

    fn visit_str<E>(self, name: &str) -> Result<RawHop, E> {
        Ok(RawHop::Preset(name.to_owned()))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RawHop, M::Error> {
        RawLinks::deserialize(MapAccessDeserializer::new(map)).map(Box::new).map(RawHop::Links)
    }
}

/// Split gateways.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Gateways")]
pub(super) struct RawGateways {
    /// Where connections are split.
    pub(super) split: Splitting,
    /// The protocol between two gateways.
    #[schemars(extend("default" = "tcp"))]
    pub(super) hop: Option<HopProtocol>,
    /// The name of the TCP on the hop.
    #[schemars(extend("default" = "default"))]
    pub(super) tcp: Option<String>,
    /// The name of the TCP towards the hosts.
    #[schemars(extend("default" = "default"))]
    pub(super) lan_tcp: Option<String>,
    /// SLACP's configured rate on the forward link, or that at which acknowledgements release data
    /// (split = "spacing"); by default that of the link.
    #[schemars(extend("examples" = ["20 Mbit/s"]))]
    pub(super) forward_rate: Option<Text<BitRate>>,
    /// SLACP's configured rate on the return link; by default that of the link.
    #[schemars(extend("examples" = ["4 Mbit/s"]))]
    pub(super) return_rate: Option<Text<BitRate>>,
    /// Overhead that links charge for SLACP's packets: the whole IP packet, or SLACP's own headers only.
    #[schemars(extend("default" = "tunnel"))]
    pub(super) overhead: Option<Overhead>,
    /// Bytes of IP packets that wait in front of SLACP (split = "packets"), or that hosts with limited
    /// windows let wait for the return link (split = "window").
    #[schemars(extend("default" = "40 kB"))]
    pub(super) queue: Option<Text<ByteCount>>,
    /// Bytes that SLACP lets wait for the link below it; by default it sends at its rate.
    #[schemars(extend("examples" = ["14400 B"]))]
    pub(super) mac_buffer: Option<Text<ByteCount>>,
    /// Streams are compressed where it pays (split = "three", hop = "slacp").
    #[schemars(extend("default" = false))]
    pub(super) compress: Option<bool>,
    /// Headers of packets are compressed (split = "packets").
    #[schemars(extend("default" = false))]
    pub(super) compress_headers: Option<bool>,
    /// Time for which a packet may wait for others, to share a packet of the hop with them
    /// (split = "packets").
    #[schemars(extend("default" = "0 s", "examples" = ["20 ms"]))]
    pub(super) gather: Option<Text<Time>>,
}

/// A cache at each hub, in front of its servers, for flows of kind request, page and users.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Cache")]
pub(super) struct RawCache {
    /// The share of requests whose reply it has.
    #[schemars(extend("examples" = ["60 %"]))]
    pub(super) hit_ratio: Text<Probability>,
    /// The largest reply that it keeps; by default any.
    #[schemars(extend("examples" = ["4 MB"]))]
    pub(super) largest: Option<Text<ByteCount>>,
    /// Time of a search before it sends a reply or asks the server.
    #[schemars(extend("default" = "0 s", "examples" = ["200 ms"]))]
    pub(super) delay: Option<Text<Time>>,
}

/// A resolver at each terminal, for flows of kind request, page and users.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Names")]
pub(super) struct RawNames {
    /// Answer to names that are not in its cache: it asks the hub, or answers at once with an address of
    /// its own.
    #[schemars(extend("default" = "real"))]
    pub(super) answer: Option<NameAnswer>,
    /// Share of names that are in its cache.
    #[schemars(extend("default" = "0 %", "examples" = ["60 %"]))]
    pub(super) hit_ratio: Option<Text<Probability>>,
}

/// One or more identical applications. Which keys it may have follows from its kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Flow")]
pub(super) struct RawFlow {
    /// 1 to 64 letters, digits, - and _.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    pub(super) name: String,
    /// Kind of traffic.
    pub(super) kind: Kind,
    /// Number of applications.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 1))]
    pub(super) count: Option<u32>,
    /// One such flow for each platform, named NAME-1, NAME-2 and so on, on its terminals.
    #[schemars(extend("default" = false))]
    pub(super) per_platform: Option<bool>,
    /// When the first application starts.
    #[schemars(extend("default" = "0 s"))]
    pub(super) start: Option<Text<Time>>,
    /// Time between the starts of the applications.
    #[schemars(extend("default" = "0 s"))]
    pub(super) spacing: Option<Text<Time>>,
    /// The name of the client's TCP.
    #[schemars(extend("default" = "default"))]
    pub(super) tcp: Option<String>,
    /// The name of the server's TCP; by default the client's.
    pub(super) server_tcp: Option<String>,
    /// IP headers of the flow's packets. Segments of IPv6 are made to fit the hop's MTU.
    #[schemars(extend("default" = "ipv4"))]
    pub(super) ip: Option<IpVersion>,
    /// Data of the connections where gateways compress it (`gateways.compress`): `noise`, like
    /// encrypted data, or the path of a text file of 64 KiB or more, which they repeat.
    #[schemars(extend("default" = "noise", "examples" = ["access.log"]))]
    pub(super) contents: Option<String>,
    /// bulk, ftp, bundles, udp: to the client (down) or to the server (up).
    #[schemars(extend("default" = "down"))]
    pub(super) direction: Option<Direction>,
    /// bulk: size of a transfer; or `time`. ftp, mail, bundles: size of a file or message.
    #[schemars(extend("examples" = ["20 MB"]))]
    pub(super) bytes: Option<Text<ByteCount>>,
    /// bulk, users, udp: duration.
    #[schemars(extend("examples" = ["30 s"]))]
    pub(super) time: Option<Text<Time>>,
    /// request, page, users: size of a request.
    #[schemars(extend("examples" = ["300 B"]))]
    pub(super) request: Option<Text<ByteCount>>,
    /// request: size of a reply.
    #[schemars(extend("examples" = ["1 kB"]))]
    pub(super) reply: Option<Text<ByteCount>>,
    /// request, page, ftp, mail: pause between a reply and the next request.
    #[schemars(extend("default" = "0 s"))]
    pub(super) think: Option<Text<Time>>,
    /// request, page, ftp, mail: number of requests, pages, files or messages.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1))]
    pub(super) repeat: Option<u64>,
    /// mail: the commands of an envelope go together (RFC 2920).
    #[schemars(extend("default" = true))]
    pub(super) pipelining: Option<bool>,
    /// bundles: payload of a bundle; by default the whole file.
    #[schemars(extend("examples" = ["1 MB"]))]
    pub(super) bundle: Option<Text<ByteCount>>,
    /// bundles: maximum number of unacknowledged bundles on a hop.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 16))]
    pub(super) window: Option<u32>,
    /// page: how HTTP uses connections.
    #[schemars(extend("default" = "keep-alive"))]
    pub(super) method: Option<HttpMethod>,
    /// page: number of connections.
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub(super) connections: Option<u32>,
    /// page: sizes, the document first.
    #[schemars(extend("examples" = [["10 kB", "6 x 20 kB"]]))]
    pub(super) objects: Option<Vec<String>>,
    /// page: number of host names over which its objects are distributed in turn, the document on the first.
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub(super) names: Option<u32>,
    /// users: mean time between requests of all clients together.
    #[schemars(extend("examples" = ["100 ms"]))]
    pub(super) every: Option<Text<Time>>,
    /// users: size of a reply.
    #[schemars(extend("examples" = ["20 kB", "pareto least=2kB most=1MB alpha=1.2"]))]
    pub(super) sizes: Option<String>,
    /// udp: rate of the payload.
    #[schemars(extend("examples" = ["1 Mbit/s"]))]
    pub(super) rate: Option<Text<BitRate>>,
    /// udp: payload of a datagram in bytes, 1 to 1472.
    #[schemars(extend("default" = 1000))]
    pub(super) size: Option<DatagramSize>,
    /// udp: code point, by name or number, which decides the class on a return link with `[dama]`.
    #[schemars(extend("default" = 0, "examples" = ["EF", "AF41", 8]))]
    pub(super) dscp: Option<Item>,
    /// bulk: record windows and segments for graphs; by default for up to 8 applications.
    pub(super) watch: Option<bool>,
}

/// A number of bytes as a number or as text.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected \"1 B\" to \"1472 B\" of payload")]
#[schemars(inline)]
pub(super) enum DatagramSize {
    Bytes(u64),
    Text(Text<ByteCount>),
}
