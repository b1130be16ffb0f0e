//! The sections of gateways' configuration files as written.

mod bundles;

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::{HubAddress, TcpAddress};
use names::Domain;
use pep::accounting::{ExhaustedAction, RenewalPeriod};
use pep::egress::EgressTarget;
use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;
use units::{BitRate, ByteCount, UnixTime};

use super::values::{
    Action, AddressWithPort, Answer, Aqm, Channel, Device, DnsAnswer, Names, PublicKeyText,
    RateChoice, ResolverAddress, Stack,
};
use crate::item::Item;
use crate::scenario::RawTcp;
use crate::text::{Text, Time};

pub(in crate::gateway) use self::bundles::{BundlePeer, Bundles};

/// The metrics server.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Metrics {
    /// The TCP address that serves metrics and a page over HTTP.
    #[schemars(required, extend("examples" = ["127.0.0.1:9590"]))]
    pub(in crate::gateway) listen: Option<Text<AddressWithPort>>,
    /// A file with the token that every request must carry, 16 to 128 letters, digits, `-` or `_`.
    /// Without it, or `allow`, only a loopback address can be listened on.
    pub(in crate::gateway) token_file: Option<String>,
    /// The clients that are served (prefixes), besides this machine's own; default all.
    pub(in crate::gateway) allow: Option<Vec<Text<Prefix>>>,
    /// The names by which browsers may ask for this machine, besides `localhost` and addresses.
    #[serde(default)]
    #[schemars(extend("examples" = [["hub.example.net"]]))]
    pub(in crate::gateway) hosts: Vec<String>,
    /// Leave the destinations of connections out.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) hide_destinations: Option<bool>,
}

/// The rate from the modem by DLEP (RFC 8175); needs `rate = "modem"`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Dlep {
    /// The interface on which to discover the modem; or `modem`.
    pub(in crate::gateway) interface: Option<String>,
    /// The modem's address, with a port unless it is 854.
    pub(in crate::gateway) modem: Option<String>,
    /// Interval of this side's heartbeats; 1 s to 1 h.
    #[schemars(extend("default" = "5 s"))]
    pub(in crate::gateway) heartbeat: Option<Text<Time>>,
    /// Accept only packets that no router has forwarded (TTL 255, RFC 5082).
    #[schemars(extend("default" = true))]
    pub(in crate::gateway) gtsm: Option<bool>,
    /// The link gives capacity on demand: ask for it by what waits, and take a rate of 0 for nothing
    /// granted now.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) on_demand: Option<bool>,
}

/// Connections to intercept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Intercept {
    /// The interfaces to the clients.
    #[schemars(required, length(min = 1), extend("examples" = [["lan0"]]))]
    pub(in crate::gateway) interfaces: Option<Vec<String>>,
    /// Destinations (prefixes) that pass unaccelerated.
    #[serde(default)]
    pub(in crate::gateway) bypass: Vec<Text<Prefix>>,
    /// When to answer clients: at once, or when the far end has answered.
    #[schemars(extend("default" = "early"))]
    pub(in crate::gateway) answer: Option<Answer>,
    /// Also intercept connections of the gateway's own machine.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) own_traffic: Option<bool>,
}

/// The SOCKS5 and HTTP CONNECT proxy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Proxy {
    /// The TCP address.
    #[schemars(required, extend("examples" = ["127.0.0.1:1080"]))]
    pub(in crate::gateway) listen: Option<Text<AddressWithPort>>,
    /// Addresses (prefixes) that may use the proxy; required when others can reach `listen`.
    #[serde(default)]
    pub(in crate::gateway) clients: Vec<Text<Prefix>>,
    /// When to report success to a client: at once, or when the far end has connected.
    #[schemars(extend("default" = "early"))]
    pub(in crate::gateway) answer: Option<Answer>,
    /// Which side of a pair resolves names.
    #[schemars(extend("default" = "hub"))]
    pub(in crate::gateway) names: Option<Names>,
}

/// Resolution of the names of a terminal's clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Dns {
    /// Answer questions of intercepted clients to any resolver; by default with `[intercept]`.
    pub(in crate::gateway) intercept: Option<bool>,
    /// Resolvers (prefixes) whose questions are left alone.
    #[serde(default)]
    pub(in crate::gateway) bypass: Vec<Text<Prefix>>,
    /// Addresses, UDP and TCP, at which clients may ask.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.1:53"]]))]
    pub(in crate::gateway) listen: Vec<Text<AddressWithPort>>,
    /// Addresses at which clients may ask over TLS (DoT); port 853 is usual.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.1:853"]]))]
    pub(in crate::gateway) tls: Vec<Text<AddressWithPort>>,
    /// Addresses at which clients may ask over HTTPS (DoH), with the path `/dns-query`.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.1:443"]]))]
    pub(in crate::gateway) https: Vec<Text<AddressWithPort>>,
    /// With `tls` or `https`: the certificate (PEM), with those that lead to its authority.
    #[schemars(extend("examples" = ["dns.pem"]))]
    pub(in crate::gateway) certificate: Option<String>,
    /// With `tls` or `https`: the private key (PEM).
    #[schemars(extend("examples" = ["dns.key"]))]
    pub(in crate::gateway) key: Option<String>,
    /// Clients (prefixes) that may ask there; required when others can reach `listen`, `tls` or `https`.
    #[serde(default)]
    pub(in crate::gateway) clients: Vec<Text<Prefix>>,
    /// Resolvers for questions at these addresses while the hub cannot be reached; by default the
    /// machine's own.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.53"]]))]
    pub(in crate::gateway) servers: Vec<Text<ResolverAddress>>,
    /// Answer to a new name: its `real` address, or an `instant` one of `pool`.
    #[schemars(extend("default" = "real"))]
    pub(in crate::gateway) answer: Option<DnsAnswer>,
    /// With `instant`: domains whose names get real answers.
    #[serde(default)]
    #[schemars(extend("examples" = [["corp.example"]]))]
    pub(in crate::gateway) real: Vec<Text<Domain>>,
    /// With `instant`: a prefix of each IP version, whose addresses are not used for anything else.
    #[schemars(extend("default" = ["198.18.0.0/15", "fd7a:5be2:91c4:53::/64"]))]
    pub(in crate::gateway) pool: Option<Vec<Text<Prefix>>>,
    /// With `instant`: how long a name keeps its address after the last use, 1 min to 24 h.
    #[schemars(extend("default" = "1 h"))]
    pub(in crate::gateway) pool_time: Option<Text<Time>>,
    /// The most memory of the cache.
    #[schemars(extend("default" = "16 MB"))]
    pub(in crate::gateway) cache: Option<Text<ByteCount>>,
    /// Time for which an expired answer may be used while there is no other, at most 168 h; 0 s for never.
    #[schemars(extend("default" = "24 h"))]
    pub(in crate::gateway) stale: Option<Text<Time>>,
    /// Answers in use that are fetched again before they expire, per second; 0 for none.
    #[schemars(range(min = 0, max = 1000), extend("default" = 1))]
    pub(in crate::gateway) prefetch: Option<i64>,
}

/// Cache for the cleartext HTTP of a terminal's clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Http {
    /// Ports of connections that carry it.
    #[schemars(extend("default" = [80]))]
    pub(in crate::gateway) ports: Option<Vec<i64>>,
    /// The most memory of the cache.
    #[schemars(extend("default" = "64 MB"))]
    pub(in crate::gateway) memory: Option<Text<ByteCount>>,
    /// A directory in which the cache is kept, too; without it, in memory only.
    #[schemars(extend("examples" = ["/var/cache/skyhop"]))]
    pub(in crate::gateway) directory: Option<String>,
    /// With `directory`: the most bytes there.
    #[schemars(extend("default" = "2 GB"))]
    pub(in crate::gateway) disk: Option<Text<ByteCount>>,
    /// The longest response that is stored.
    #[schemars(extend("default" = "16 MB"))]
    pub(in crate::gateway) object: Option<Text<ByteCount>>,
    /// Time for which an expired response may be used while its server cannot be reached, at most 720 h.
    #[schemars(extend("default" = "24 h"))]
    pub(in crate::gateway) stale: Option<Text<Time>>,
    /// Serve clients while the hub cannot be reached: from the cache, or without the hop.
    #[schemars(extend("default" = true))]
    pub(in crate::gateway) offline: Option<bool>,
    /// Sites whose TLS is ended here.
    #[serde(default)]
    pub(in crate::gateway) site: Vec<Site>,
    /// Ports of connections that may be for these sites.
    #[schemars(extend("default" = [443]))]
    pub(in crate::gateway) tls_ports: Option<Vec<i64>>,
    /// PEM file with the authorities that the sites' servers are verified by; by default the system's.
    pub(in crate::gateway) authorities: Option<String>,
}

/// A site whose owner has given a certificate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Site {
    /// Its names.
    #[schemars(extend("examples" = [["mirror.example"]]))]
    pub(in crate::gateway) hosts: Option<Vec<String>>,
    /// PEM file with its certificate, and those that lead to its authority.
    pub(in crate::gateway) certificate: Option<String>,
    /// PEM file with the private key.
    pub(in crate::gateway) key: Option<String>,
}

/// Requests of a hub for its terminals' caches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct HubHttp {
    /// Keep responses, and answer terminals' requests from them.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) cache: Option<bool>,
    /// PEM file with the authorities that servers of terminals' sites are verified by; by default the system's.
    pub(in crate::gateway) authorities: Option<String>,
    /// With `cache`: the most memory.
    #[schemars(extend("default" = "64 MB"))]
    pub(in crate::gateway) memory: Option<Text<ByteCount>>,
    /// With `cache`: a directory in which it is kept, too; without it, in memory only.
    #[schemars(extend("examples" = ["/var/cache/skyhop"]))]
    pub(in crate::gateway) directory: Option<String>,
    /// With `directory`: the most bytes there.
    #[schemars(extend("default" = "2 GB"))]
    pub(in crate::gateway) disk: Option<Text<ByteCount>>,
    /// With `cache`: the longest response that is stored.
    #[schemars(extend("default" = "16 MB"))]
    pub(in crate::gateway) object: Option<Text<ByteCount>>,
    /// With `cache`: time for which an expired response may be used while its server cannot be reached.
    #[schemars(extend("default" = "24 h"))]
    pub(in crate::gateway) stale: Option<Text<Time>>,
}

/// Resolution of names that terminals ask for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct HubDns {
    /// Resolvers to ask; by default the machine's own.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.53"]]))]
    pub(in crate::gateway) servers: Vec<Text<ResolverAddress>>,
    /// Queries of one terminal that are resolved at the same time; as many more may wait.
    #[schemars(range(min = 1, max = 512), extend("default" = 128))]
    pub(in crate::gateway) questions: Option<i64>,
}

/// An etcd that keeps permits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Etcd {
    /// Client addresses of its members: host and port. They are asked in this order.
    #[schemars(extend("examples" = [["127.0.0.1:2379"]]))]
    pub(in crate::gateway) members: Vec<Text<HubAddress>>,
    /// Beginning of the keys of permits. The rest of a key is the terminal's name.
    #[schemars(extend("default" = "/skyhop/terminals/"))]
    pub(in crate::gateway) prefix: Option<String>,
    /// Use TLS for the connections to members.
    #[serde(default)]
    pub(in crate::gateway) tls: bool,
    /// With `tls`: file with the authorities (PEM) that members are verified by; default the system's.
    #[schemars(extend("examples" = ["etcd-ca.pem"]))]
    pub(in crate::gateway) authorities: Option<String>,
    /// With `tls`: file with a certificate (PEM) that this hub shows to members that ask for one.
    #[schemars(extend("examples" = ["etcd-client.pem"]))]
    pub(in crate::gateway) certificate: Option<String>,
    /// File with the private key (PEM) of `certificate`.
    #[schemars(extend("examples" = ["etcd-client-key.pem"]))]
    pub(in crate::gateway) key: Option<String>,
    /// The user as whom this hub asks, if etcd has authentication switched on.
    pub(in crate::gateway) user: Option<String>,
    /// File with the user's password, which only its owner can read.
    #[schemars(extend("examples" = ["etcd.password"]))]
    pub(in crate::gateway) password_file: Option<String>,
}

/// The tunnel for traffic that is not split.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Tunnel {
    /// The network device.
    #[schemars(extend("default" = "skyhop0"))]
    pub(in crate::gateway) name: Option<String>,
    /// Its type; `auto` takes the first that works.
    #[schemars(extend("default" = "auto"))]
    pub(in crate::gateway) device: Option<Device>,
    /// The longest packet that the tunnel takes, in bytes; by default 1500, or the hop's `mtu` if
    /// that is larger.
    #[schemars(range(min = 1280, max = 9216))]
    pub(in crate::gateway) mtu: Option<i64>,
    /// Lower the MSS in SYNs to a size that fits into one packet of the hop.
    #[schemars(extend("default" = true))]
    pub(in crate::gateway) clamp_mss: Option<bool>,
}

/// A class of traffic: what matches one of `dscp`, `ports` and `protocols`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Class {
    /// Unique; `default` is the class of what no other matches.
    pub(in crate::gateway) name: String,
    /// Code points by name or number.
    #[serde(default)]
    #[schemars(extend("examples" = [["EF", "AF41", 8]]))]
    pub(in crate::gateway) dscp: Vec<Item>,
    /// Ports of either end.
    #[serde(default)]
    #[schemars(extend("examples" = [[22, "5060-5061", "udp/443"]]))]
    pub(in crate::gateway) ports: Vec<Item>,
    /// IP protocols by name or number.
    #[serde(default)]
    #[schemars(extend("examples" = [["icmp", "esp", 50]]))]
    pub(in crate::gateway) protocols: Vec<Item>,
    /// Share of the rate, relative to other classes.
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub(in crate::gateway) weight: Option<i64>,
    /// A rate that the class gets before others share.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(in crate::gateway) guaranteed: Option<Text<BitRate>>,
    /// A rate that the class does not exceed.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(in crate::gateway) maximum: Option<Text<BitRate>>,
    /// Code point of its packets on the hop, by name or number, for links that serve classes
    /// differently.
    #[schemars(extend("default" = 0, "examples" = ["EF", "AF41", 8]))]
    pub(in crate::gateway) mark: Option<Item>,
    /// The link, by name, that carries it as long as it works; by default the one that delivers
    /// first.
    #[schemars(extend("examples" = ["leo"]))]
    pub(in crate::gateway) link: Option<String>,
    /// Error control of its packets on the hop.
    #[schemars(extend("default" = "fec-arq"))]
    pub(in crate::gateway) channel: Option<Channel>,
    /// The most of its packets that waits for the hop, over all flows.
    #[schemars(extend("default" = "1 MB"))]
    pub(in crate::gateway) queue: Option<Text<ByteCount>>,
    /// The longest wait of a packet for the hop; then it is dropped.
    /// Default 500 ms, or 3 s with `[dlep] on_demand`.
    pub(in crate::gateway) queue_time: Option<Text<Time>>,
    /// `codel` keeps each flow's queue short (RFC 8289), `none` drops packets that find the queue full.
    /// Default `codel`, or `none` with `[dlep] on_demand`.
    pub(in crate::gateway) aqm: Option<Aqm>,
    /// Time for which one of its packets may wait for others, to share a packet of the hop with them.
    #[schemars(extend("default" = "0 ms", "examples" = ["20 ms"]))]
    pub(in crate::gateway) gather: Option<Text<Time>>,
    /// Compress its streams, and the headers of its packets, where that saves bytes.
    /// By default headers only.
    pub(in crate::gateway) compress: Option<bool>,
}

/// A rule for traffic that matches all of `to`, `from`, `ports` and `dscp`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Policy {
    /// Unique; by default its number.
    pub(in crate::gateway) name: Option<String>,
    /// Destinations (prefixes).
    #[serde(default)]
    pub(in crate::gateway) to: Vec<Text<Prefix>>,
    /// Sources (prefixes).
    #[serde(default)]
    pub(in crate::gateway) from: Vec<Text<Prefix>>,
    /// Ports of the destination.
    #[serde(default)]
    #[schemars(extend("examples" = [[22, "5060-5061", "udp/443"]]))]
    pub(in crate::gateway) ports: Vec<Item>,
    /// Code points by name or number.
    #[serde(default)]
    #[schemars(extend("examples" = [["EF", "AF41", 8]]))]
    pub(in crate::gateway) dscp: Vec<Item>,
    /// Split, tunnel or bypass.
    #[schemars(required)]
    pub(in crate::gateway) action: Option<Action>,
}

/// A further hub of a terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct OtherHub {
    /// A name for logs and status; by default `hub-2` and so on.
    pub(in crate::gateway) name: Option<String>,
    /// Host and UDP port of the hub.
    #[schemars(required, extend("examples" = ["hub-2.example.net:5900"]))]
    pub(in crate::gateway) address: Option<Text<HubAddress>>,
    /// Host and TCP port of the hub, for when it does not answer over UDP: its `listen_tcp`.
    #[schemars(extend("examples" = ["hub-2.example.net:443"]))]
    pub(in crate::gateway) tcp: Option<Text<TcpAddress>>,
    /// The hub's public key.
    #[schemars(required)]
    pub(in crate::gateway) key: Option<Text<PublicKeyText>>,
}

/// One of several links between terminal and hub.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Link {
    /// A name for classes and status.
    #[schemars(length(min = 1), extend("examples" = ["geo", "leo"]))]
    pub(in crate::gateway) name: String,
    /// The rate at which this side sends on it, to each peer: a rate or `auto`; by default that of
    /// the side.
    #[schemars(extend("examples" = ["20 Mbit/s", "auto"]))]
    pub(in crate::gateway) rate: Option<Text<RateChoice>>,
    /// On a terminal: the interface to send on.
    #[schemars(extend("examples" = ["wan1"]))]
    pub(in crate::gateway) interface: Option<String>,
    /// On a terminal: the local address to send from.
    #[schemars(extend("examples" = ["192.0.2.7"]))]
    pub(in crate::gateway) source: Option<Text<IpAddr>>,
}

/// A terminal that may connect.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "A terminal of a skyhop hub",
    extend("oneOf" = [{ "required": ["key"] }, { "required": ["invite"] }])
)]
pub(crate) struct PermittedTerminal {
    /// A name for logs and status; by default that of the file, in a file of its own.
    pub(in crate::gateway) name: Option<String>,
    /// The terminal's public key; or `invite`.
    pub(in crate::gateway) key: Option<Text<PublicKeyText>>,
    /// The public key of an invitation, by which the terminal replaces it with its own
    /// (`skyhop enrol`).
    pub(in crate::gateway) invite: Option<Text<PublicKeyText>>,
    /// When the terminal, or its invitation, is no longer served.
    #[schemars(extend("examples" = ["2027-01-31", "2027-01-31T12:00:00Z"]))]
    pub(in crate::gateway) expires: Option<Text<UnixTime>>,
    /// Addresses of its clients (prefixes).
    #[serde(default)]
    #[schemars(extend("examples" = [["10.1.0.0/16", "fd00:1::/64"]]))]
    pub(in crate::gateway) networks: Vec<Text<Prefix>>,
    /// Destinations that its clients may reach; by default as in `[egress]`.
    pub(in crate::gateway) reach: Option<Vec<Text<EgressTarget>>>,
    /// Destinations that its clients may not reach, besides those that `[egress]` denies.
    #[serde(default)]
    pub(in crate::gateway) deny: Vec<Text<EgressTarget>>,
    /// The forward link that it shares with other terminals; by default `carrier` of the hub.
    #[schemars(length(min = 1))]
    pub(in crate::gateway) carrier: Option<String>,
    /// With `[http] cache`: what is stored for terminals with the same name serves all of them.
    #[schemars(length(min = 1))]
    pub(in crate::gateway) cache: Option<String>,
    /// Share of the hub's rate, relative to other terminals.
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub(in crate::gateway) weight: Option<i64>,
    /// A rate that the terminal gets before others share. Needs a `carrier` if the hub's rate is
    /// measured.
    #[schemars(extend("examples" = ["1 Mbit/s"]))]
    pub(in crate::gateway) guaranteed: Option<Text<BitRate>>,
    /// A rate that the hub does not exceed towards the terminal.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(in crate::gateway) maximum: Option<Text<BitRate>>,
    /// Rates of classes towards the terminal, by name; what is missing is as in `[[class]]`.
    #[serde(default)]
    pub(in crate::gateway) classes: BTreeMap<String, OwnRates>,
    /// The hub's rates towards the terminal on links, by name; what is missing is as in `[[link]]`.
    #[serde(default)]
    pub(in crate::gateway) links: BTreeMap<String, Text<RateChoice>>,
    /// The most that the streams of its session hold, in each direction; by default `memory` of
    /// the hub.
    pub(in crate::gateway) memory: Option<Text<ByteCount>>,
    /// The most connections that it opens and holds; by default as in `[limits]`.
    #[schemars(range(min = 1, max = 65_536))]
    pub(in crate::gateway) max_connections: Option<i64>,
    /// New connections per second; by default as in `[limits]`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::gateway) connections_per_second: Option<i64>,
    /// Names resolved at once; by default as in `[limits]`.
    #[schemars(range(min = 1, max = 128))]
    pub(in crate::gateway) lookups: Option<i64>,
    /// Bytes that the terminal may move in a period, both directions together; by default as in `[limits]`.
    #[schemars(extend("examples" = ["50 GB"]))]
    pub(in crate::gateway) quota: Option<Text<ByteCount>>,
    /// When the quota starts anew, in UTC: `month`, `day`, or a time counted from 1970; by default as in `[limits]`.
    #[schemars(extend("examples" = ["month", "day", "168 h"]))]
    pub(in crate::gateway) quota_period: Option<Text<RenewalPeriod>>,
    /// Consequence of a used-up quota: `block`, a rate towards the terminal, or the class of all its
    /// traffic; by default as in `[limits]`.
    #[schemars(extend("examples" = ["block", "256 kbit/s", "bulk"]))]
    pub(in crate::gateway) quota_then: Option<Text<ExhaustedAction>>,
}

/// Rates of a class towards one terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct OwnRates {
    /// A rate that the class gets before others share.
    #[schemars(extend("examples" = ["64 kbit/s"]))]
    pub(in crate::gateway) guaranteed: Option<Text<BitRate>>,
    /// A rate that the class does not exceed.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(in crate::gateway) maximum: Option<Text<BitRate>>,
}

/// Limits of each terminal.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Limits {
    /// The most connections that one terminal opens and holds; by default all, or half of them
    /// with several terminals.
    #[schemars(range(min = 1, max = 65_536))]
    pub(in crate::gateway) max_connections: Option<i64>,
    /// New connections of one terminal per second, on average.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    pub(in crate::gateway) connections_per_second: Option<i64>,
    /// Names resolved at once for one terminal.
    #[schemars(range(min = 1, max = 128), extend("default" = 16))]
    pub(in crate::gateway) lookups: Option<i64>,
    /// Bytes that each terminal may move in a period, both directions together.
    #[schemars(extend("examples" = ["50 GB"]))]
    pub(in crate::gateway) quota: Option<Text<ByteCount>>,
    /// When the quota starts anew, in UTC: `month`, `day`, or a time counted from 1970.
    #[schemars(extend("default" = "month", "examples" = ["month", "day", "168 h"]))]
    pub(in crate::gateway) quota_period: Option<Text<RenewalPeriod>>,
    /// Consequence of a used-up quota: `block`, a rate towards the terminal, or the class of all its
    /// traffic.
    #[schemars(extend("default" = "block", "examples" = ["block", "256 kbit/s", "bulk"]))]
    pub(in crate::gateway) quota_then: Option<Text<ExhaustedAction>>,
}

/// Destinations that terminals may reach through the hub.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Egress {
    /// Destinations; by default all but special addresses and the hub's own.
    #[schemars(extend("examples" = [["0.0.0.0/0:443", "10.1.0.0/16"]]))]
    pub(in crate::gateway) reach: Option<Vec<Text<EgressTarget>>>,
    /// Destinations out of these that are refused.
    #[serde(default)]
    pub(in crate::gateway) deny: Vec<Text<EgressTarget>>,
}

/// Destinations behind this terminal for the hub's side and other terminals.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Accept {
    /// Destinations.
    #[schemars(extend("examples" = [["10.1.0.0/16:22"]]))]
    pub(in crate::gateway) to: Vec<Text<EgressTarget>>,
    /// Destinations out of these that are refused.
    #[serde(default)]
    pub(in crate::gateway) deny: Vec<Text<EgressTarget>>,
}

/// The kernel's TCP on one side of a solo gateway.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Side {
    /// A congestion control that the kernel has.
    #[schemars(extend("examples" = ["cubic", "bbr"]))]
    pub(in crate::gateway) congestion_control: Option<String>,
    /// Size of the send buffer, 4096 B to 1 GB; by default the kernel's
    /// tuning.
    pub(in crate::gateway) send_buffer: Option<Text<ByteCount>>,
    /// Size of the receive buffer, 4096 B to 1 GB; by default the kernel's tuning.
    pub(in crate::gateway) receive_buffer: Option<Text<ByteCount>>,
    /// The highest rate at which one connection sends.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(in crate::gateway) pacing_rate: Option<Text<BitRate>>,
    /// Acknowledge at once.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) quick_ack: Option<bool>,
}

/// TCP towards servers: the kernel's, or skyhop's own (docs/solo.md).
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway) struct Wan {
    /// The TCP stack: `kernel`, which the keys `congestion_control` to `quick_ack` configure, or `skyhop`,
    /// which the others configure.
    #[schemars(extend("default" = "kernel"))]
    pub(in crate::gateway) stack: Option<Stack>,
    /// With `skyhop`: connections that come in by these interfaces are accepted too.
    #[serde(default)]
    #[schemars(extend("examples" = [["sat0"]]))]
    pub(in crate::gateway) interfaces: Vec<String>,
    /// With `skyhop`: the network device.
    #[schemars(extend("default" = "skyhop-wan"))]
    pub(in crate::gateway) name: Option<String>,
    /// With `skyhop`: the device's type; `auto` takes the first that works.
    #[schemars(extend("default" = "auto"))]
    pub(in crate::gateway) device: Option<Device>,
    /// With `skyhop`: the longest packet towards the servers, in bytes.
    #[schemars(range(min = 1280, max = 9216), extend("default" = 1500))]
    pub(in crate::gateway) mtu: Option<i64>,
    /// With `skyhop`: the options of its TCP, by the names of docs/tcp.md.
    #[schemars(extend("examples" = [{"profile": "scps", "max-rate": "10 Mbit/s"}]))]
    pub(in crate::gateway) tcp: Option<RawTcp>,
    /// A congestion control that the kernel has.
    #[schemars(extend("examples" = ["cubic", "bbr"]))]
    pub(in crate::gateway) congestion_control: Option<String>,
    /// Size of the send buffer, 4096 B to 1 GB; by default the kernel's
    /// tuning.
    pub(in crate::gateway) send_buffer: Option<Text<ByteCount>>,
    /// Size of the receive buffer, 4096 B to 1 GB; by default the kernel's tuning.
    pub(in crate::gateway) receive_buffer: Option<Text<ByteCount>>,
    /// The highest rate at which one connection sends.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(in crate::gateway) pacing_rate: Option<Text<BitRate>>,
    /// Acknowledge at once.
    #[schemars(extend("default" = false))]
    pub(in crate::gateway) quick_ack: Option<bool>,
}
