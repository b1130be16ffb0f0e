//! How a gateway is: what `skyhop status`, the metrics and the dashboard show.
//!
//! All counters begin when the gateway starts, those of a session when it comes
//! up. Keys end in their unit: `_s`, `_ms`, `_bytes`, `_bit_s`.

use serde::{Deserialize, Serialize};

/// The state of a gateway at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// What it is.
    pub role: Role,
    /// Its process.
    pub pid: u32,
    /// Since it started.
    pub uptime_s: f64,
    /// It takes no new connections over and ends when the last one has, or when
    /// these seconds have passed.
    pub draining_s: Option<f64>,
    /// Whether connections are taken over, where that is its task.
    pub interception: Option<InterceptionStatus>,
    /// What its policies have decided about, in their order.
    #[serde(default)]
    pub policies: Vec<PolicyStatus>,
    /// What its tunnel has carried, where it has one.
    #[serde(default)]
    pub tunnel: Option<TunnelStatus>,
    /// Its modem, where one is asked for rates (DLEP).
    #[serde(default)]
    pub dlep: Option<DlepStatus>,
    /// Its sessions.
    pub sessions: Vec<SessionStatus>,
    /// The connections that it has carried.
    pub traffic: TrafficStatus,
    /// What it holds, and may hold.
    pub memory: MemoryStatus,
    /// The connections alive, if they were asked for.
    pub connections: Option<Vec<ConnectionStatus>>,
}

/// What a gateway is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The earth station's side.
    Hub,
    /// The clients' side.
    #[default]
    Terminal,
    /// A gateway alone, without a hop.
    Solo,
}

impl Role {
    /// The word for it, as in `skyhop hub`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Terminal => "terminal",
            Self::Solo => "solo",
        }
    }
}

/// Whether new connections are taken over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterceptionStatus {
    /// Whether they are.
    pub on: bool,
    /// Why they are not, if they are not.
    pub why: Option<Bypass>,
    /// Since when it is so.
    pub since_s: f64,
    /// How long, and how often, connections have passed by for each reason.
    pub bypassed: Vec<BypassStatus>,
}

/// Why new connections pass unaccelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Bypass {
    /// There is no session, or the peer does not answer.
    PeerUnreachable,
    /// The gateway was told to drain.
    Draining,
    /// Neither the process nor the system has room for another socket.
    Descriptors,
    /// `max_connections` are carried.
    Connections,
    /// `total_memory` is in use.
    Memory,
    /// The peer has no room for another connection.
    PeerFull,
    /// The connections of the session leave too little of its `memory` for another.
    SessionMemory,
}

impl Bypass {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::PeerUnreachable,
        Self::Draining,
        Self::Descriptors,
        Self::Connections,
        Self::Memory,
        Self::PeerFull,
        Self::SessionMemory,
    ];

    /// One word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PeerUnreachable => "peer-unreachable",
            Self::Draining => "draining",
            Self::Descriptors => "descriptors",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::PeerFull => "peer-full",
            Self::SessionMemory => "session-memory",
        }
    }
}

/// How much passed by for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BypassStatus {
    /// The reason.
    pub why: Bypass,
    /// For how long in all.
    pub total_s: f64,
    /// How often it began.
    pub times: u64,
}

/// What a policy has decided about since it was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolicyStatus {
    /// Its name in the configuration, or its number.
    pub name: String,
    /// `split`, `tunnel` or `bypass`.
    pub action: String,
    /// SYNs: connections, and tries to open some.
    pub connections: u64,
    /// Packets that are not TCP.
    pub packets: u64,
}

/// What became of the packets of a tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TunnelStatus {
    /// Sent over the hop.
    pub to_hop: u64,
    /// From the hop, given to the kernel to route on.
    pub from_hop: u64,
    /// Of these, dropped there: the egress policy does not let them go where they want.
    pub prohibited: u64,
    /// From the hop, with a source that is not behind their session, or for another
    /// terminal without a mesh.
    pub foreign: u64,
    /// That nobody could take.
    pub dropped: u64,
}

/// What a modem tells by DLEP (RFC 8175).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DlepStatus {
    /// `looking`, `connecting`, `initializing`, `up`, `ending` or `stopped`.
    pub state: String,
    /// Since when it is so.
    pub since_s: f64,
    /// Where the modem is, if one is known.
    pub modem: Option<String>,
    /// What it calls itself, while a session is up.
    pub peer_type: Option<String>,
    /// The rate of the link as a whole.
    pub rate_bit_s: Option<u64>,
    /// The destinations that it has told of in this session.
    pub destinations: Vec<DlepDestination>,
    /// Sessions with a modem so far.
    pub sessions: u64,
    /// Why there is no session, or why the last one ended.
    pub trouble: Option<String>,
}

/// A destination on a modem's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DlepDestination {
    /// Its link-layer address.
    pub mac: String,
    /// Whether it can be reached.
    pub up: bool,
    /// At which rate the modem sends there, if that is not the rate of the link.
    pub rate_bit_s: Option<u64>,
    /// Its addresses, and the subnets behind it.
    pub networks: Vec<String>,
}

/// A session with a peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionStatus {
    /// Who it is: the name in the hub's configuration; "hub".
    pub peer: String,
    /// Its public key (base64).
    pub key: String,
    /// Where it is at present.
    pub address: String,
    /// Since when the session has been up.
    pub since_s: f64,
    /// Whether it answers.
    pub reachable: bool,
    /// The round-trip time of the hop, smoothed.
    pub rtt_ms: f64,
    /// The least, if it is measured.
    pub min_rtt_ms: Option<f64>,
    /// The rate at which this side sends.
    pub rate_bit_s: u64,
    /// Where it comes from: `fixed`, `modem`, `auto`.
    pub rate_source: String,
    /// With `auto`: `blind`, `confirming`, `resuming`, `cruising`, `draining`.
    pub rate_state: Option<String>,
    /// With `modem`: how long what was told still holds.
    pub told_for_s: Option<f64>,
    /// Whether it is told by the modem itself (DLEP), not by an operator.
    #[serde(default)]
    pub told_by_modem: bool,
    /// What the path gives this side, if it is measured.
    pub capacity_bit_s: Option<u64>,
    /// How long packets of this side wait in the path, if it is measured.
    pub queue_ms: f64,
    /// The share of this side's packets that the link loses, of late.
    pub loss: f64,
    /// Packets sent.
    pub packets_sent: u64,
    /// The IP packets they made.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// The IP packets they came in.
    pub bytes_received: u64,
    /// Packets lost; what they carried was sent again (ARQ).
    pub packets_lost: u64,
    /// Times that nothing was acknowledged for too long.
    pub probes: u64,
    /// Packets that came here damaged or not at all and were restored (FEC).
    pub recovered: u64,
    /// Repairs sent (FEC).
    pub repairs_sent: u64,
    /// The IP packets that carried them.
    pub repair_bytes: u64,
    /// Repairs received (FEC).
    pub repairs_received: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
    /// Packets received again.
    pub duplicates: u64,
    /// Packets that were not authentic.
    pub forged: u64,
    /// The largest IP packet that is sent.
    pub packet_bytes: u64,
    /// How often the keys have been renewed.
    pub key_changes: u64,
    /// Streams alive.
    pub streams: u64,
    /// Held until the peer acknowledges it.
    pub held_to_send_bytes: u64,
    /// Held until it is read.
    pub held_to_read_bytes: u64,
    /// What shares this side's rate, the default class last.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
    /// The packet channels in use; none without a tunnel.
    #[serde(default)]
    pub channels: Vec<ChannelStatus>,
}

/// What a class has got of the rate of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClassStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its share against the other classes.
    pub weight: u16,
    /// What it gets before others.
    pub guaranteed_bit_s: Option<u64>,
    /// What it never exceeds.
    pub maximum_bit_s: Option<u64>,
    /// IP packets on the hop that new data of the class took.
    pub sent_bytes: u64,
    /// Of these, by its guarantee.
    pub guaranteed_sent_bytes: u64,
    /// What waits for its turn: of streams whose readers have room, and of packets.
    pub waiting_bytes: u64,
}

/// What a packet channel has carried in a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChannelStatus {
    /// Its number, the same on both sides.
    pub channel: u8,
    /// The class whose packets this side sends on it; the other side's classes are its
    /// own.
    pub class: Option<String>,
    /// Packets sent, each once.
    pub packets_sent: u64,
    /// Their bytes, without the hop's headers.
    pub sent_bytes: u64,
    /// Packets, or parts, sent again (ARQ).
    pub retransmitted: u64,
    /// Packets, or parts, lost on the hop and not sent again.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub dropped_full: u64,
    /// Packets dropped by CoDel, so that their senders slow down.
    pub dropped_aqm: u64,
    /// Packets dropped because they had waited too long to be sent.
    pub expired: u64,
    /// What waits to be sent.
    pub waiting_bytes: u64,
    /// How long the packet that left last had waited.
    pub queue_ms: f64,
    /// Packets received and handed on.
    pub packets_received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets, or parts, that came in what FEC restored here.
    pub recovered: u64,
    /// Packets that did not come before those behind them had to go on.
    pub missing: u64,
    /// Packets that came again, or after they had been given up.
    pub late: u64,
    /// What has come and waits for what is missing before it.
    pub held_bytes: u64,
}

impl From<&slacp::ChannelStats> for ChannelStatus {
    fn from(stats: &slacp::ChannelStats) -> Self {
        Self {
            packets_sent: stats.sent,
            sent_bytes: stats.bytes_sent,
            retransmitted: stats.retransmitted,
            lost: stats.lost,
            dropped_full: stats.dropped_full,
            dropped_aqm: stats.dropped_aqm,
            expired: stats.dropped_stale,
            waiting_bytes: stats.waiting.get(),
            queue_ms: stats.queue_wait.as_secs_f64() * 1e3,
            packets_received: stats.delivered,
            received_bytes: stats.bytes_delivered,
            recovered: stats.recovered,
            missing: stats.missing,
            late: stats.late,
            held_bytes: stats.held.get(),
            ..Self::default()
        }
    }
}

/// What became of the connections, and what they moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficStatus {
    /// Carried so far, of either side.
    pub connections: u64,
    /// Ended cleanly by both sides.
    pub closed: u64,
    /// Reset by an end, or by a gateway.
    pub reset: u64,
    /// Never opened at the far end.
    pub failed: u64,
    /// From TCP connections onto the hop.
    pub to_hop_bytes: u64,
    /// From the hop to TCP connections.
    pub from_hop_bytes: u64,
    /// Connections that went straight to their servers, without a hop: all of a
    /// gateway alone, those of a terminal's proxy while the hub is away.
    pub straight: u64,
    /// Of these, from clients to servers.
    pub up_bytes: u64,
    /// Of these, from servers to clients.
    pub down_bytes: u64,
    /// Times that something was marked as urgent. It is carried as any other data.
    pub urgent: u64,
    /// Handed to the kernel.
    pub datagrams_sent: u64,
    /// Received.
    pub datagrams_received: u64,
    /// That no session knew.
    pub datagrams_ignored: u64,
    /// Refused by the kernel because they exceed the MTU.
    pub datagrams_too_large: u64,
    /// Other errors of the UDP socket.
    pub socket_errors: u64,
    /// Times that two machines were found to use one key. The log names their addresses.
    #[serde(default)]
    pub shared_keys: u64,
    /// Why connections ended before their time: the reason's name, how many.
    pub resets: Vec<(String, u64)>,
}

/// What is held, and the bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryStatus {
    /// Held for streams: to be acknowledged, or to be read; in pipes where there is
    /// no hop.
    pub held_bytes: u64,
    /// Above this no new connections are carried. Key `total_memory`.
    pub limit_bytes: u64,
    /// What the process has in memory in all.
    pub resident_bytes: u64,
    /// Connections alive.
    pub connections: u64,
    /// The most that are carried. Key `max_connections`.
    pub connections_limit: u64,
    /// Descriptors open.
    pub descriptors: u64,
    /// The most that the process may open.
    pub descriptors_limit: u64,
}

/// A connection that is carried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Counts the connections of this gateway.
    pub id: u64,
    /// Over which session; nothing if it goes straight to its server.
    pub peer: String,
    /// Who opened it.
    pub client: String,
    /// The peer says so, and its `networks` do not have that address.
    #[serde(default)]
    pub client_claimed: bool,
    /// Where to.
    pub destination: String,
    /// Since when.
    pub age_s: f64,
    /// From the TCP connection here onto the hop; without one, from the client to
    /// the server.
    pub to_hop_bytes: u64,
    /// From the hop to the TCP connection here; without one, from the server to the
    /// client.
    pub from_hop_bytes: u64,
    /// What limits the direction onto the hop at present.
    pub to_hop_limit: Limit,
    /// What limits the direction from the hop at present.
    pub from_hop_limit: Limit,
    /// The round-trip time of the TCP connection here, by its kernel.
    pub lan_rtt_ms: Option<f64>,
    /// That of the connection to the server, by its kernel, where there is no hop.
    pub wan_rtt_ms: Option<f64>,
    /// The congestion window of the TCP connection here, in segments, by its kernel.
    pub lan_window_segments: Option<u32>,
    /// That of the connection to the server, where there is no hop.
    pub wan_window_segments: Option<u32>,
    /// The round-trip time of the hop.
    pub hop_rtt_ms: f64,
    /// Held for it: to be acknowledged by the peer.
    pub held_to_send_bytes: u64,
    /// Held for it: received, or waiting for what is missing before.
    pub held_to_read_bytes: u64,
    /// Lost on the hop and sent again by this side (ARQ).
    pub resent_bytes: u64,
    /// Lost on the way here and restored (FEC).
    pub recovered_bytes: u64,
}

/// What limits one direction of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Limit {
    /// Nothing moves, and nothing waits.
    #[default]
    Idle,
    /// The client: it sends no faster, or reads no faster.
    Client,
    /// The hop, with its gateways.
    Hop,
    /// The server: it sends no faster, or reads no faster.
    Server,
    /// The hop or the client behind it; the other gateway can tell.
    HopOrClient,
    /// The hop or the server behind it; the other gateway can tell.
    HopOrServer,
}

impl Limit {
    /// The words for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Client => "client",
            Self::Hop => "hop",
            Self::Server => "server",
            Self::HopOrClient => "hop or client",
            Self::HopOrServer => "hop or server",
        }
    }
}
