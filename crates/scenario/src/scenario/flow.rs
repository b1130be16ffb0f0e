//! Flows of a scenario: the traffic of its applications.

mod read;

use core::time::Duration;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use units::{BitRate, ByteCount};

pub(super) use read::read_all;

/// One or more identical applications.
#[derive(Debug, Clone)]
pub struct ScenarioFlow {
    /// Name of 1 to 64 letters, digits, - and _.
    pub name: String,
    /// Number of applications, 1 to 100,000.
    pub count: u32,
    /// Platform, from 0, on whose terminals the applications are; `None`: on all terminals.
    pub platform: Option<u32>,
    /// When the first application starts.
    pub start: Duration,
    /// Time between the starts of the applications.
    pub spacing: Duration,
    /// Names of the client's and the server's TCP.
    pub tcp: [String; 2],
    /// IP version of its packets.
    pub ip: IpVersion,
    /// Traffic of each application.
    pub traffic: FlowTraffic,
    /// Data of its connections, for gateways that compress it.
    pub contents: FlowContents,
    /// True if windows and segments are recorded.
    pub watch: bool,
}

/// The traffic of an application.
#[derive(Debug, Clone)]
pub enum FlowTraffic {
    /// One transfer at full speed.
    Bulk {
        /// The sending side.
        direction: Direction,
        /// Size or duration of the transfer.
        amount: FlowSize,
    },
    /// Requests and replies over one connection.
    Request {
        /// Size of a request in bytes.
        request: u64,
        /// Size of a reply in bytes.
        reply: u64,
        /// Pause between a reply and the next request.
        think: Duration,
        /// Number of requests.
        repeat: u64,
    },
    /// Files by FTP, in passive mode.
    Ftp {
        /// The sending side.
        direction: Direction,
        /// Size of a file in bytes.
        bytes: u64,
        /// Pause between files.
        think: Duration,
        /// Number of files.
        repeat: u64,
    },
    /// Messages by SMTP, to the server.
    Mail {
        /// Size of a message in bytes.
        bytes: u64,
        /// True if the commands of an envelope are sent together (RFC 2920).
        pipelining: bool,
        /// Pause between messages.
        think: Duration,
        /// Number of messages.
        repeat: u64,
    },
    /// A file in bundles, which each gateway on the way stores and passes on over TCP.
    Bundles {
        /// The sending side.
        direction: Direction,
        /// Size of the file in bytes.
        bytes: u64,
        /// Payload of a bundle in bytes; the last may have less.
        bundle: u64,
        /// Maximum number of unacknowledged bundles on a hop, 1 or more.
        window: u32,
    },
    /// Web pages, fetched over HTTP.
    Page {
        /// Use of connections by HTTP.
        method: FetchMethod,
        /// Size of a request in bytes.
        request: u64,
        /// Sizes of the objects in bytes, the document first.
        objects: Arc<[u64]>,
        /// Number of host names over which the objects are distributed in turn, 1 or more.
        names: u32,
        /// Pause between pages.
        think: Duration,
        /// Number of pages.
        repeat: u64,
    },
    /// Requests of many users at random times (Poisson), each over its own connection.
    Users {
        /// Mean time between requests, over all users.
        every: Duration,
        /// Size of a request in bytes.
        request: u64,
        /// Size of a reply.
        sizes: ReplySizes,
        /// Duration from the flow's start; `None`: to the end of the run.
        time: Option<Duration>,
    },
    /// Datagrams at a constant rate.
    Udp {
        /// The sending side.
        direction: Direction,
        /// Rate of the payload.
        rate: BitRate,
        /// Payload of a datagram in bytes.
        size: u32,
        /// Code point in the IP header, 0 to 63.
        dscp: u8,
        /// Duration from the flow's start; `None`: to the end of the run.
        time: Option<Duration>,
    },
}

/// The data of connections, in both directions.
#[derive(Debug, Clone, Default)]
pub enum FlowContents {
    /// Data that looks encrypted and does not compress.
    #[default]
    Noise,
    /// A text, repeated.
    Sample(Arc<str>),
}

/// The sending side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Direction {
    /// The server.
    Down,
    /// The client.
    Up,
}

/// The IP headers of a flow's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum IpVersion {
    /// 20 bytes.
    #[default]
    Ipv4,
    /// 40 bytes.
    Ipv6,
    /// IPv6 in a tunnel through IPv4 (RFC 4213): 60 bytes.
    #[serde(rename = "ipv6-in-ipv4")]
    Ipv6InIpv4,
}

/// The size of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowSize {
    /// A size in bytes.
    Bytes(ByteCount),
    /// As many bytes as possible in this time from the flow's start.
    Time(Duration),
}

/// The way in which HTTP fetches the objects of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchMethod {
    /// HTTP/1.0: a connection per object, at most this many at a time.
    Http10(u32),
    /// This many persistent connections, each with one outstanding request.
    KeepAlive(u32),
    /// This many persistent connections, with all requests sent at once.
    Pipelining(u32),
}

/// Sizes of replies, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplySizes {
    /// A fixed size.
    Fixed(u64),
    /// Heavy-tailed: the probability of more than `x` is `(least/x)^alpha`, truncated at `most`
    /// (Crovella and Bestavros, "Self-similarity in World Wide Web traffic", 1997: alpha 1.1 to
    /// 1.3).
    Pareto {
        /// Minimum size.
        least: u64,
        /// Maximum size; larger ones are reduced to it.
        most: u64,
        /// Exponent of the tail; must be above 0.
        alpha: f64,
    },
}

/// The kind of traffic, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum Kind {
    Bulk,
    Request,
    Ftp,
    Mail,
    Bundles,
    Page,
    Users,
    Udp,
}

/// The way in which HTTP fetches the objects of a page, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum HttpMethod {
    #[serde(rename = "http/1.0")]
    Http10,
    KeepAlive,
    Pipelining,
}

impl FetchMethod {
    /// Returns the maximum number of simultaneous connections.
    pub const fn connections(self) -> u32 {
        match self {
            Self::Http10(count) | Self::KeepAlive(count) | Self::Pipelining(count) => count,
        }
    }
}
