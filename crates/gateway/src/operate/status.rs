//! A gateway's status, as shown by `skyhop status`, the metrics and the dashboard.
//!
//! Counters start at zero when the gateway starts; a session's when it comes up. Keys end in their
//! unit: `_s`, `_ms`, `_bytes`, `_bit_s`.

mod accounts;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

pub use accounts::accounts_text;
pub use pep::admission::Bypass;
use pep::admission::BypassHistory;
use serde::{Deserialize, Serialize};

/// Snapshot of a gateway's state. Built on request, so that an idle gateway spends nothing on it
/// and all figures are of the same moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// The gateway's role.
    pub role: Role,
    /// Process id.
    pub pid: u32,
    /// Time since the start.
    pub uptime_s: f64,
    /// While draining: time until remaining connections are reset; 0 without a time limit.
    pub draining_s: Option<f64>,
    /// Times that the configuration was reloaded.
    #[serde(default)]
    pub reloads: u64,
    /// Interception state; `None` if interception is not configured.
    pub interception: Option<InterceptionStatus>,
    /// Counters of the policies, in their order.
    #[serde(default)]
    pub policies: Vec<PolicyStatus>,
    /// Traffic of the tunnel; `None` without one.
    #[serde(default)]
    pub tunnel: Option<TunnelStatus>,
    /// Our own TCP towards servers; `None` where it is the kernel's.
    #[serde(default)]
    pub stack: Option<StackStatus>,
    /// Questions for names; `None` if they are not answered here.
    #[serde(default)]
    pub dns: Option<DnsStatus>,
    /// Requests of cleartext HTTP; `null` without a section `[http]`.
    #[serde(default)]
    pub http: Option<HttpStatus>,
    /// Bundles; `None` if there is no node for them.
    #[serde(default)]
    pub bundles: Option<BundlesStatus>,
    /// The DLEP modem; `None` if DLEP is not configured.
    #[serde(default)]
    pub dlep: Option<DlepStatus>,
    /// What waits for the hop, for whoever asks the network for capacity; `None` without a hop.
    #[serde(default)]
    pub demand: Option<DemandStatus>,
    /// The hubs of a terminal that has several, in the order of its configuration.
    #[serde(default)]
    pub hubs: Vec<HubStatus>,
    /// All sessions.
    pub sessions: Vec<SessionStatus>,
    /// Totals over all connections.
    pub traffic: TrafficStatus,
    /// Resources held, and their limits.
    pub memory: MemoryStatus,
    /// Live connections, if requested.
    pub connections: Option<Vec<ConnectionStatus>>,
}

/// A hub of a terminal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HubStatus {
    /// Name, as in the configuration.
    pub name: String,
    /// Host and port, as in the configuration.
    pub address: String,
    /// What it is to the terminal: `in use`, `ready`, `asked`, `silent`, `draining`, `ending` (it
    /// carries connections that began on it), `not needed`.
    pub state: String,
}

/// Role of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// On the earth station's side.
    Hub,
    /// On the clients' side.
    #[default]
    Terminal,
    /// A single gateway without a hop.
    Solo,
}

impl Role {
    /// The role's name, as in `skyhop hub`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Terminal => "terminal",
            Self::Solo => "solo",
        }
    }
}

/// Whether new connections are intercepted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterceptionStatus {
    /// Whether interception is on.
    pub on: bool,
    /// Why it is off; `None` while on.
    pub why: Option<Bypass>,
    /// Time since the last change.
    pub since_s: f64,
    /// Total time and number of bypasses, by reason.
    pub bypassed: Vec<BypassStatus>,
}

/// Bypasses for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BypassStatus {
    /// The reason.
    pub why: Bypass,
    /// Total duration.
    pub total_s: f64,
    /// Number of times it began.
    pub times: u64,
}

impl From<BypassHistory> for InterceptionStatus {
    fn from(history: BypassHistory) -> Self {
        let row = |(why, (total, times)): (Bypass, (Duration, u64))| BypassStatus {
            why,
            total_s: total.as_secs_f64(),
            times,
        };
        Self {
            on: history.why.is_none(),
            why: history.why,
            since_s: history.since.as_secs_f64(),
            bypassed: history.bypasses.into_iter().map(row).collect(),
        }
    }
}

/// What a terminal has used of a hub, since its account was opened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AccountStatus {
    /// Its name; empty if it is served no more.
    pub terminal: String,
    /// Its public key.
    pub key: String,
    /// When it last moved anything, in Unix seconds.
    pub last_used_unix_s: u64,
    /// What each class has carried.
    pub classes: BTreeMap<String, UsageStatus>,
    /// Its quota of volume, in bytes per period.
    pub quota_bytes: Option<u64>,
    /// When the quota starts anew.
    pub quota_period: Option<String>,
    /// What it has used of it in this period.
    pub quota_used_bytes: Option<u64>,
    /// What it gets because the quota is used up: `block`, a rate, or a class.
    pub exhausted: Option<String>,
}

/// What was carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageStatus {
    /// Bytes of connections and packets to the terminal.
    pub bytes_to: u64,
    /// The same from the terminal.
    pub bytes_from: u64,
    /// Packets carried whole to the terminal.
    pub packets_to: u64,
    /// The same from the terminal.
    pub packets_from: u64,
    /// Connections, whoever opened them.
    pub connections: u64,
}

/// Counters of a policy since it was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolicyStatus {
    /// Name in the configuration, or its number.
    pub name: String,
    /// `split`, `tunnel` or `bypass`.
    pub action: String,
    /// SYNs: new connections, including failed attempts.
    pub connections: u64,
    /// Packets other than TCP.
    pub packets: u64,
}

/// Traffic of a tunnel, in packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TunnelStatus {
    /// Sent over the hop.
    pub to_hop: u64,
    /// Received from the hop and passed to the kernel for routing.
    pub from_hop: u64,
    /// Part of `from_hop`, dropped because the egress rules deny the destination.
    pub prohibited: u64,
    /// Dropped from the hop: the source is not behind its session, or the destination is another
    /// terminal and `mesh` is off.
    pub foreign: u64,
    /// Dropped because nothing could take them.
    pub dropped: u64,
}

/// Our own TCP on the WAN side of a solo gateway, since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StackStatus {
    /// Congestion controller of new connections, with its options.
    pub controller: String,
    /// Connections now.
    pub connections: usize,
    /// Bytes that they hold.
    pub held_bytes: u64,
    /// Connections established towards servers.
    pub opened: u64,
    /// Connections established from the WAN side.
    pub accepted: u64,
    /// Those of both kinds whose other end speaks SCPS-TP: it has agreed on SNACK.
    pub snack: u64,
    /// Those whose other end has agreed on SACK.
    pub sack: u64,
    /// SYNs ignored because there were too many connections.
    pub ignored: u64,
    /// Segments retransmitted by connections that are over.
    pub retransmissions: u64,
    /// Packets that the device refused.
    pub unsent: u64,
}

/// Questions for names, since the gateway started. A hub has `questions` and `failed` only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DnsStatus {
    /// Questions of clients; on a hub, of terminals.
    pub questions: u64,
    /// Answered from the cache.
    pub hits: u64,
    /// Answered with what had expired, because there was no other answer.
    pub stale: u64,
    /// Answered at once with an address of the pool.
    pub instant: u64,
    /// Waited for another client's question.
    pub coalesced: u64,
    /// Questions that crossed the hop, prefetches among them.
    pub crossed: u64,
    /// Answers fetched again before they expired.
    pub prefetched: u64,
    /// Questions asked without the hop.
    pub straight: u64,
    /// Questions without an answer.
    pub failed: u64,
    /// Questions refused because too many waited.
    pub refused: u64,
    /// Round trips over the hop for which clients did not wait: `hits`, `stale` and `instant`.
    pub saved_round_trips: u64,
    /// Answers in the cache.
    pub entries: u64,
    /// Memory that they take.
    pub cache_bytes: u64,
    /// Names that have an address of the pool.
    pub names: u64,
}

impl DnsStatus {
    /// That of a hub.
    pub(crate) fn of_hub(questions: u64, failed: u64) -> Self {
        Self { questions, failed, ..Self::default() }
    }
}

impl From<&pep::names::NamesStats> for DnsStatus {
    fn from(stats: &pep::names::NamesStats) -> Self {
        Self {
            questions: stats.questions,
            hits: stats.hits,
            stale: stats.stale,
            instant: stats.instant,
            coalesced: stats.coalesced,
            crossed: stats.asked,
            prefetched: stats.prefetched,
            straight: stats.straight,
            failed: stats.failed,
            refused: stats.refused,
            saved_round_trips: stats.saved_round_trips(),
            entries: stats.entries,
            cache_bytes: stats.bytes.get(),
            names: stats.names,
        }
    }
}

/// Requests of cleartext HTTP, since the gateway started. A hub has `requests`, `reused`,
/// `pushed` and `pushed_bytes` only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HttpStatus {
    /// Requests that the cache has looked at.
    pub requests: u64,
    /// Answered from the cache without asking.
    pub hits: u64,
    /// Answered from the cache after the server confirmed it.
    pub confirmed: u64,
    /// Answered with what had expired: while it was validated, or for want of anything else.
    pub stale: u64,
    /// Answered by servers, although the cache might have.
    pub misses: u64,
    /// Not a cache's business: other methods, parts of what is not stored.
    pub passed: u64,
    /// Connections that were no HTTP, or not HTTP that the cache handles.
    pub plain: u64,
    /// Bytes of bodies that did not cross the hop.
    pub saved_bytes: u64,
    /// Round trips over the hop for which clients did not wait: `hits` and `push_used`.
    pub saved_round_trips: u64,
    /// Responses stored since the start.
    pub stored: u64,
    /// Responses in the cache.
    pub entries: u64,
    /// Memory that they take.
    pub memory_bytes: u64,
    /// Bytes of their files.
    pub disk_bytes: u64,
    /// Files that could not be written or read.
    pub disk_errors: u64,
    /// Requests for which a hub used a connection that it had.
    pub reused: u64,
    /// Responses that the hub pushed.
    pub pushed: u64,
    /// Those that a client asked for.
    pub push_used: u64,
    /// Those that no client asked for in time.
    pub push_wasted: u64,
    /// Bytes of their bodies.
    pub pushed_bytes: u64,
}

impl HttpStatus {
    /// That of a hub.
    pub(crate) fn of_hub(requests: u64, reused: u64, (pushed, pushed_bytes): (u64, u64)) -> Self {
        Self { requests, reused, pushed, pushed_bytes, ..Self::default() }
    }

    /// That of a terminal.
    pub(crate) fn of_terminal(
        stats: &pep::http::CacheStats,
        promises: &pep::http::PromiseStats,
        (plain, disk_errors): (u64, u64),
    ) -> Self {
        Self {
            requests: stats.requests,
            hits: stats.hits,
            confirmed: stats.confirmed,
            stale: stats.stale,
            misses: stats.misses,
            passed: stats.passed,
            plain,
            saved_bytes: stats.saved_bytes,
            saved_round_trips: stats.hits + promises.used,
            stored: stats.stored,
            entries: stats.entries,
            memory_bytes: stats.memory.get(),
            disk_bytes: stats.disk.get(),
            disk_errors,
            reused: 0,
            pushed: promises.pushed,
            push_used: promises.used,
            push_wasted: promises.wasted,
            pushed_bytes: promises.pushed_bytes,
        }
    }
}

/// Bundles, since the gateway started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BundlesStatus {
    /// In the store.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// How long the oldest has been there, in seconds; 0 if there is none.
    pub oldest_s: f64,
    /// Taken into the store.
    pub taken: u64,
    /// Stored by the next node.
    pub forwarded: u64,
    /// Delivered here.
    pub delivered: u64,
    /// Expired.
    pub expired: u64,
    /// Had come before.
    pub duplicates: u64,
    /// Not taken.
    pub refused: u64,
    /// Remembered, to tell duplicates.
    pub remembered: u64,
}

impl BundlesStatus {
    /// At a time of day, in milliseconds since 1970.
    pub(crate) fn at(now: u64, stats: &pep::bundles::AgentStats) -> Self {
        let age = stats.oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        Self {
            waiting: stats.waiting as u64,
            waiting_bytes: stats.bytes.get(),
            oldest_s: age as f64 / 1000.0,
            taken: stats.taken,
            forwarded: stats.forwarded,
            delivered: stats.delivered,
            expired: stats.expired,
            duplicates: stats.duplicates,
            refused: stats.refused,
            remembered: stats.remembered as u64,
        }
    }
}

/// A bundle in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BundleStatus {
    /// Its identity, in 32 hexadecimal digits.
    pub id: String,
    /// Who has made it.
    pub source: String,
    /// Whom it is for.
    pub destination: String,
    /// Bytes of the whole bundle.
    pub bytes: u64,
    /// How long it has been here, in seconds.
    pub age_s: f64,
    /// When it expires, in seconds from now.
    pub expires_s: f64,
    /// `waiting` for the next node, or `arrived`.
    pub state: String,
}

/// State of the DLEP session with the modem (RFC 8175).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DlepStatus {
    /// `looking`, `connecting`, `initializing`, `up`, `ending` or `stopped`.
    pub state: String,
    /// Time since the last change of state.
    pub since_s: f64,
    /// The modem's address, if known.
    pub modem: Option<String>,
    /// The modem's own description, while a session is up.
    pub peer_type: Option<String>,
    /// Rate of the link as a whole.
    pub rate_bit_s: Option<u64>,
    /// Destinations reported in this session.
    pub destinations: Vec<DlepDestination>,
    /// Number of sessions so far.
    pub sessions: u64,
    /// Why there is no session, or why the last one ended.
    pub trouble: Option<String>,
}

/// A destination on the modem's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DlepDestination {
    /// Link-layer address.
    pub mac: String,
    /// Whether it is reachable.
    pub up: bool,
    /// Rate towards it, if it differs from the link's.
    pub rate_bit_s: Option<u64>,
    /// Its addresses, and the subnets behind it.
    pub networks: Vec<String>,
}

/// What waits for the hop, and what is foreseen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DemandStatus {
    /// Bytes that wait in all sessions: of streams as far as their readers' credit allows, and
    /// packets of the tunnel.
    pub waiting_bytes: u64,
    /// Bytes that are asked for ahead, beyond these. 0 without `[dlep] on_demand`.
    pub foreseen_bytes: u64,
    /// Messages that were asked for ahead and came.
    pub forecasts_used: u64,
    /// Messages that were asked for ahead and did not come.
    pub forecasts_unused: u64,
    /// Bytes of the latter.
    pub unused_bytes: u64,
}

/// A session with a peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionStatus {
    /// Name of the terminal in the hub's configuration; on a terminal, "hub".
    pub peer: String,
    /// Public key (base64).
    pub key: String,
    /// Current address, of UDP or TCP.
    pub address: String,
    /// Whether the packets go over TCP, because UDP is blocked.
    #[serde(default)]
    pub over_tcp: bool,
    /// Time since the session came up.
    pub since_s: f64,
    /// Whether the peer answers.
    pub reachable: bool,
    /// How often it ceased to answer.
    #[serde(default)]
    pub outages: u64,
    /// Smoothed round-trip time of the hop.
    pub rtt_ms: f64,
    /// Minimum round-trip time, if measured.
    pub min_rtt_ms: Option<f64>,
    /// Sending rate of this side.
    pub rate_bit_s: u64,
    /// Source of the rate: `fixed`, `modem`, `auto`.
    pub rate_source: String,
    /// While the rate is measured (`auto`, or `modem` without a report and `initial_rate`): `blind`,
    /// `confirming`, `resuming`, `cruising`, `draining`. With a configured or reported rate:
    /// `tripped` while losses lower it.
    pub rate_state: Option<String>,
    /// How often losses have lowered a `fixed` or `modem` rate.
    #[serde(default)]
    pub trips: u64,
    /// With `modem`: remaining validity of the reported rate.
    pub told_for_s: Option<f64>,
    /// With `modem`: time since the rate was reported.
    #[serde(default)]
    pub told_age_s: Option<f64>,
    /// With `modem`: the reported rate. This side sends at `rate_bit_s`, which is more if nothing is
    /// granted on a link with capacity on demand, and at most the configured maximum.
    #[serde(default)]
    pub told_bit_s: Option<u64>,
    /// Share of the hub's rate relative to the other sessions; 1 on a terminal, and 0 from a gateway
    /// that does not say.
    #[serde(default)]
    pub weight: u32,
    /// Rate that the hub gives the session before others share.
    #[serde(default)]
    pub guaranteed_bit_s: Option<u64>,
    /// Rate that the hub does not exceed towards the session.
    #[serde(default)]
    pub maximum_bit_s: Option<u64>,
    /// Whether the rate comes from the modem itself (DLEP) rather than an operator.
    #[serde(default)]
    pub told_by_modem: bool,
    /// Capacity of the path in the sending direction, if measured.
    pub capacity_bit_s: Option<u64>,
    /// Queueing delay of this side's packets on the path; 0 if not measured.
    pub queue_ms: f64,
    /// Recent loss rate of this side's packets, 0 to 1.
    pub loss: f64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent, as IP packets.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes received, as IP packets.
    pub bytes_received: u64,
    /// Packets lost; their contents were retransmitted (ARQ).
    pub packets_lost: u64,
    /// Probe timeouts: times that an acknowledgement was overdue.
    pub probes: u64,
    /// Packets lost on the way here and restored by FEC.
    pub recovered: u64,
    /// FEC repair packets sent.
    pub repairs_sent: u64,
    /// Bytes of these, as IP packets.
    pub repair_bytes: u64,
    /// Bytes of padding sent to measure the path.
    #[serde(default)]
    pub padding_bytes: u64,
    /// How many more bytes of padding `probe_share` allows now; 0 if nothing is measured with it.
    #[serde(default)]
    pub padding_left_bytes: u64,
    /// What is known about ECN on this side's path: `testing`, `capable`, `failed`; absent if it is
    /// not used.
    #[serde(default)]
    pub ecn: Option<String>,
    /// Packets sent with ECT(0).
    #[serde(default)]
    pub ect_sent: u64,
    /// Packets sent that the path marked with CE, as reported by the peer.
    #[serde(default)]
    pub ce_reported: u64,
    /// Packets received with ECT(0).
    #[serde(default)]
    pub ect_received: u64,
    /// Packets received that the path marked with CE.
    #[serde(default)]
    pub ce_received: u64,
    /// FEC repair packets received.
    pub repairs_received: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets that failed authentication.
    pub forged: u64,
    /// Current path MTU: largest IP packet sent.
    pub packet_bytes: u64,
    /// Number of key renewals.
    pub key_changes: u64,
    /// Live streams.
    pub streams: u64,
    /// Held until acknowledged by the peer.
    pub held_to_send_bytes: u64,
    /// Held until read.
    pub held_to_read_bytes: u64,
    /// Classes sharing the rate, the default class last.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
    /// Packet channels in use; empty without a tunnel.
    #[serde(default)]
    pub channels: Vec<ChannelStatus>,
}

/// A class's share of a session's rate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClassStatus {
    /// Name in the configuration.
    pub name: String,
    /// Weight relative to other classes.
    pub weight: u16,
    /// Guaranteed rate.
    pub guaranteed_bit_s: Option<u64>,
    /// Maximum rate.
    pub maximum_bit_s: Option<u64>,
    /// Bytes of IP packets on the hop with new data of the class.
    pub sent_bytes: u64,
    /// Part of `sent_bytes`, sent under the guarantee.
    pub guaranteed_sent_bytes: u64,
    /// Queued for sending: packets, and stream data within the peer's credit.
    pub waiting_bytes: u64,
}

/// Traffic of a packet channel in a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChannelStatus {
    /// Channel number, the same on both sides.
    pub channel: u8,
    /// The class that this side sends on the channel. Classes of the other side may differ.
    pub class: Option<String>,
    /// Packets sent, not counting retransmissions.
    pub packets_sent: u64,
    /// Bytes of these packets, without the hop's headers.
    pub sent_bytes: u64,
    /// Part of `packets_sent` whose headers were left out, as the peer knows them.
    #[serde(default)]
    pub compressed: u64,
    /// Bytes of headers that were thus not sent.
    #[serde(default)]
    pub header_saved_bytes: u64,
    /// Packets or parts of packets retransmitted (ARQ).
    pub retransmitted: u64,
    /// Packets or parts of packets lost on the hop and not retransmitted.
    pub lost: u64,
    /// Packets dropped from a full queue.
    pub dropped_full: u64,
    /// Packets dropped by CoDel to slow their senders down.
    pub dropped_aqm: u64,
    /// Packets dropped because they waited too long.
    pub expired: u64,
    /// Queued for sending.
    pub waiting_bytes: u64,
    /// Queueing delay of the last packet sent.
    pub queue_ms: f64,
    /// Packets received and delivered.
    pub packets_received: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Packets or parts of packets restored here by FEC.
    pub recovered: u64,
    /// Packets given up, because later ones could not be held back any longer.
    pub missing: u64,
    /// Packets received as duplicates, or after they had been given up.
    pub late: u64,
    /// Received, but waiting for earlier packets.
    pub held_bytes: u64,
}

impl From<&slacp::ChannelStats> for ChannelStatus {
    fn from(stats: &slacp::ChannelStats) -> Self {
        Self {
            packets_sent: stats.sent,
            sent_bytes: stats.bytes_sent,
            compressed: stats.compressed,
            header_saved_bytes: stats.header_bytes_saved,
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

/// Totals over all connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficStatus {
    /// Connections carried so far, opened by either side.
    pub connections: u64,
    /// Closed cleanly by both ends.
    pub closed: u64,
    /// Reset by an end or by a gateway.
    pub reset: u64,
    /// Never connected at the far end.
    pub failed: u64,
    /// From TCP connections to the hop.
    pub to_hop_bytes: u64,
    /// From the hop to TCP connections.
    pub from_hop_bytes: u64,
    /// Connections directly to servers, without a hop: all on a solo gateway; on a terminal, the
    /// proxy's while the hub is unreachable.
    pub straight: u64,
    /// From clients to servers on `straight` connections.
    pub up_bytes: u64,
    /// From servers to clients on `straight` connections.
    pub down_bytes: u64,
    /// Urgent data marks seen. Urgent data is carried like any other.
    pub urgent: u64,
    /// UDP datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// UDP datagrams received that belonged to no session.
    pub datagrams_ignored: u64,
    /// UDP datagrams that the kernel refused because they exceed the MTU.
    pub datagrams_too_large: u64,
    /// Other errors of the UDP socket.
    pub socket_errors: u64,
    /// Times that two machines were found to use the same key. The log has their addresses.
    #[serde(default)]
    pub shared_keys: u64,
    /// Connections that ended early, by reason.
    pub resets: Vec<(String, u64)>,
    /// Streams of classes with `compress`.
    #[serde(default)]
    pub compression: CompressionStatus,
}

/// What compressed streams have carried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompressionStatus {
    /// Streams that both sides have agreed to compress where that pays, opened by either.
    pub streams: u64,
    /// Bytes that their TCP connections gave.
    pub to_hop_bytes: u64,
    /// What was sent for these.
    pub sent_bytes: u64,
    /// Bytes that their TCP connections got.
    pub from_hop_bytes: u64,
    /// What was received for these.
    pub received_bytes: u64,
    /// Streams reset because what the other side sent could not be decompressed.
    pub malformed: u64,
}

/// Resources held, and their limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryStatus {
    /// Stream data not yet acknowledged or read; without a hop, data in pipes.
    pub held_bytes: u64,
    /// Above this, new connections pass unaccelerated. Key `total_memory`.
    pub limit_bytes: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Live connections.
    pub connections: u64,
    /// Maximum number of connections. Key `max_connections`.
    pub connections_limit: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Descriptor limit of the process.
    pub descriptors_limit: u64,
}

/// A live connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Sequence number within this gateway.
    pub id: u64,
    /// Peer of the session; empty for a direct connection.
    pub peer: String,
    /// Address of the client.
    pub client: String,
    /// The client's address is the peer's claim, and is not in its `networks`.
    #[serde(default)]
    pub client_claimed: bool,
    /// Address or name of the destination.
    pub destination: String,
    /// Time since it was opened.
    pub age_s: f64,
    /// From the TCP connection here to the hop; without a hop, from the client to the server.
    pub to_hop_bytes: u64,
    /// From the hop to the TCP connection here; without a hop, from the server to the client.
    pub from_hop_bytes: u64,
    /// Current bottleneck of the direction to the hop.
    pub to_hop_limit: Limit,
    /// Current bottleneck of the direction from the hop.
    pub from_hop_limit: Limit,
    /// Round-trip time of the TCP connection here, measured by the kernel.
    pub lan_rtt_ms: Option<f64>,
    /// Round-trip time of the connection to the server, measured by the kernel; only without a hop.
    pub wan_rtt_ms: Option<f64>,
    /// The kernel's congestion window of the TCP connection here, in segments.
    pub lan_window_segments: Option<u32>,
    /// The kernel's congestion window of the connection to the server, in segments; only without a
    /// hop.
    pub wan_window_segments: Option<u32>,
    /// Round-trip time of the hop.
    pub hop_rtt_ms: f64,
    /// Stream data not yet acknowledged by the peer.
    pub held_to_send_bytes: u64,
    /// Stream data received but not yet read, including data after a gap.
    pub held_to_read_bytes: u64,
    /// Bytes that this side retransmitted (ARQ).
    pub resent_bytes: u64,
    /// Bytes lost on the way here and restored by FEC.
    pub recovered_bytes: u64,
}

/// Bottleneck of one direction of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Limit {
    /// Nothing moves and nothing waits.
    #[default]
    Idle,
    /// The client sends or reads no faster.
    Client,
    /// The hop, including the gateways.
    Hop,
    /// The server sends or reads no faster.
    Server,
    /// The hop, or the client behind it; the other gateway can tell which.
    HopOrClient,
    /// The hop, or the server behind it; the other gateway can tell which.
    HopOrServer,
}

impl Limit {
    /// Text for people.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_of_bypasses_becomes_rows() {
        let second = Duration::from_millis(1500);
        let history = BypassHistory {
            why: Some(Bypass::Memory),
            since: second,
            bypasses: [(Bypass::Memory, (2 * second, 4))].into(),
        };
        let status = InterceptionStatus::from(history);
        assert_eq!((status.on, status.why, status.since_s), (false, Some(Bypass::Memory), 1.5));
        let row = BypassStatus { why: Bypass::Memory, total_s: 3.0, times: 4 };
        assert_eq!(status.bypassed, [row]);
    }

    #[test]
    fn a_channel_s_counters_keep_their_meaning() {
        let stats = slacp::ChannelStats {
            offered: 1,
            sent: 2,
            dropped_full: 3,
            dropped_stale: 4,
            dropped_aqm: 5,
            bytes_sent: 6,
            delivered: 7,
            missing: 8,
            compressed: 9,
            header_bytes_saved: 10,
            queue_wait: Duration::from_micros(2500),
            ..slacp::ChannelStats::default()
        };
        let status = ChannelStatus::from(&stats);
        let ours = [
            status.packets_sent,
            status.dropped_full,
            status.expired,
            status.dropped_aqm,
            status.sent_bytes,
            status.packets_received,
            status.missing,
            status.compressed,
            status.header_saved_bytes,
        ];
        assert_eq!((ours, status.queue_ms), ([2, 3, 4, 5, 6, 7, 8, 9, 10], 2.5));
    }

    #[test]
    fn names_of_roles_and_limits_are_the_words_of_the_json() {
        for role in [Role::Hub, Role::Terminal, Role::Solo] {
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        }
        let all = [
            Limit::Idle,
            Limit::Client,
            Limit::Hop,
            Limit::Server,
            Limit::HopOrClient,
            Limit::HopOrServer,
        ];
        for limit in all {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.as_str().replace(' ', "-"));
        }
    }

    /// `skyhop status` of a newer version talks to an older gateway, which has fewer keys.
    #[test]
    fn a_status_without_the_keys_that_were_added_later_is_read() {
        let mut whole = Status { version: "0.1".to_owned(), ..Status::default() };
        whole.sessions.push(SessionStatus { peer: "ship".to_owned(), ..SessionStatus::default() });
        whole.connections = Some(vec![ConnectionStatus { id: 7, ..ConnectionStatus::default() }]);
        let mut old = serde_json::to_value(&whole).unwrap();
        let remove = |place: &mut serde_json::Value, keys: &[&str]| {
            for key in keys {
                assert!(place.as_object_mut().unwrap().remove(*key).is_some(), "{key}");
            }
        };
        remove(&mut old, &["policies", "tunnel", "dlep", "reloads"]);
        remove(&mut old["traffic"], &["shared_keys"]);
        remove(
            &mut old["sessions"][0],
            &["classes", "channels", "told_by_modem", "weight", "outages"],
        );
        remove(&mut old["connections"][0], &["client_claimed"]);
        assert_eq!(serde_json::from_value::<Status>(old).unwrap(), whole);
    }
}
