//! Status of tunnel, stack and services: names, HTTP, bundles, modem.

use serde::{Deserialize, Serialize};

/// Traffic of a tunnel, in packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TunnelStatus {
    /// Packets sent over the hop.
    pub to_hop: u64,
    /// Packets received from the hop and passed to the kernel for routing.
    pub from_hop: u64,
    /// Part of `from_hop`, dropped because the egress rules deny the destination.
    pub prohibited: u64,
    /// Packets from the hop that were dropped: the source is not behind its session, or the destination
    /// is another terminal and `mesh` is off.
    pub foreign: u64,
    /// Packets dropped: not routable, without a session that accepts them, or refused by the device.
    pub dropped: u64,
}

/// skyhop's own TCP on the WAN side of a solo gateway, since the gateway started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StackStatus {
    /// Congestion controller of new connections, with its options.
    pub controller: String,
    /// Number of live connections.
    pub connections: usize,
    /// Bytes held by live connections.
    pub held_bytes: u64,
    /// Connections established towards servers.
    pub opened: u64,
    /// Connections established from the WAN side.
    pub accepted: u64,
    /// Connections of both kinds whose other end speaks SCPS-TP: it has agreed on SNACK.
    pub snack: u64,
    /// Connections of both kinds whose other end has agreed on SACK.
    pub sack: u64,
    /// SYNs ignored because there were too many connections.
    pub ignored: u64,
    /// Segments retransmitted by connections that have ended.
    pub retransmissions: u64,
    /// Packets that the device refused.
    pub unsent: u64,
}

/// DNS queries since the gateway started. A hub has `questions` and `failed` only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DnsStatus {
    /// Queries of clients; on a hub, of terminals.
    pub questions: u64,
    /// Queries answered from the cache.
    pub hits: u64,
    /// Queries answered with an expired entry, because there was no other answer.
    pub stale: u64,
    /// Queries answered at once with an address of the pool.
    pub instant: u64,
    /// Queries that waited for the answer to another client's query.
    pub coalesced: u64,
    /// Queries that crossed the hop, including prefetches.
    pub crossed: u64,
    /// Answers fetched again before they expired.
    pub prefetched: u64,
    /// Queries that were resolved without the hop.
    pub straight: u64,
    /// Queries without an answer.
    pub failed: u64,
    /// Queries refused because too many were waiting.
    pub refused: u64,
    /// Round trips over the hop for which clients did not wait: `hits`, `stale` and `instant`.
    pub saved_round_trips: u64,
    /// Number of answers in the cache.
    pub entries: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
    /// Names that have an address of the pool.
    pub names: u64,
}

impl DnsStatus {
    /// Builds the status of a hub.
    pub(crate) fn of_hub(questions: u64, failed: u64) -> Self {
        Self { questions, failed, ..Self::default() }
    }
}

impl From<&names::NamesStats> for DnsStatus {
    fn from(stats: &names::NamesStats) -> Self {
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

/// Requests of cleartext HTTP, since the gateway started. A hub has `requests`, `reused`, and those of its
/// cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HttpStatus {
    /// Requests that the cache has examined.
    pub requests: u64,
    /// Requests answered from the cache without asking the server.
    pub hits: u64,
    /// Requests answered from the cache after the server had confirmed the response.
    pub confirmed: u64,
    /// Requests answered with an expired response: during its validation, or for lack of another one.
    pub stale: u64,
    /// Cacheable requests answered by servers.
    pub misses: u64,
    /// Requests that a cache does not handle: other methods, parts of responses that are not stored.
    pub passed: u64,
    /// Connections that were not HTTP, or not HTTP that the cache handles.
    pub plain: u64,
    /// Requests answered by a response that was on its way for another client.
    pub collapsed: u64,
    /// Bytes of bodies that did not cross the hop; on a hub, that servers did not send.
    pub saved_bytes: u64,
    /// Round trips over the hop for which clients did not wait: as many as `hits`; 0 on a hub.
    pub saved_round_trips: u64,
    /// Responses stored since the start.
    pub stored: u64,
    /// Number of responses in the cache.
    pub entries: u64,
    /// Memory of the cache.
    pub memory_bytes: u64,
    /// Bytes of the cache's files.
    pub disk_bytes: u64,
    /// Files that could not be written or read.
    pub disk_errors: u64,
    /// Requests for which a hub reused an open connection.
    pub reused: u64,
}

impl HttpStatus {
    /// Builds the status of a hub with the statistics of its cache.
    pub(crate) fn of_hub(
        (requests, reused): (u64, u64),
        (stats, disk_errors): (http_cache::CacheStats, u64),
    ) -> Self {
        let cache = Self::of_terminal(&stats, (0, disk_errors));
        Self { requests, reused, saved_round_trips: 0, ..cache }
    }

    /// Builds the status of a terminal with the statistics of its cache.
    pub(crate) fn of_terminal(
        stats: &http_cache::CacheStats,
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
            collapsed: stats.collapsed,
            saved_bytes: stats.saved_bytes,
            saved_round_trips: stats.hits,
            stored: stats.stored,
            entries: stats.entries,
            memory_bytes: stats.memory.get(),
            disk_bytes: stats.disk.get(),
            disk_errors,
            reused: 0,
        }
    }
}

/// Bundles since the gateway started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BundlesStatus {
    /// Number of bundles in the store.
    pub waiting: u64,
    /// Bytes of the bundles in the store.
    pub waiting_bytes: u64,
    /// Age of the oldest bundle in the store; 0 if it is empty.
    pub oldest_s: f64,
    /// Bundles accepted into the store.
    pub taken: u64,
    /// Bundles that the next node has stored.
    pub forwarded: u64,
    /// Bundles delivered to services of this node.
    pub delivered: u64,
    /// Bundles that expired in the store.
    pub expired: u64,
    /// Bundles dropped because they had been received before.
    pub duplicates: u64,
    /// Bundles not accepted.
    pub refused: u64,
    /// Identities remembered to recognise duplicates.
    pub remembered: u64,
    /// Status reports sent by this node.
    #[serde(default)]
    pub reports: u64,
    /// Bundles reassembled from fragments.
    #[serde(default)]
    pub joined: u64,
}

impl BundlesStatus {
    /// Builds the status at a wall-clock time, in milliseconds since 1970.
    pub(crate) fn at(now: u64, stats: &bundles::AgentStats) -> Self {
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
            reports: stats.reports,
            joined: stats.joined,
        }
    }
}

/// A bundle in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BundleStatus {
    /// Identity of the bundle, in 32 hexadecimal digits.
    pub id: String,
    /// Endpoint that has created it.
    pub source: String,
    /// Endpoint that it is for.
    pub destination: String,
    /// Length of the whole bundle.
    pub bytes: u64,
    /// Time since it was stored.
    pub age_s: f64,
    /// Time until it expires.
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
    /// Reason why there is no session, or why the last one ended.
    pub trouble: Option<String>,
}

/// A destination on the modem's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DlepDestination {
    /// Link-layer (MAC) address.
    pub mac: String,
    /// True while it is reachable.
    pub up: bool,
    /// Rate towards it, if it differs from the link's.
    pub rate_bit_s: Option<u64>,
    /// Its addresses, and the subnets behind it.
    pub networks: Vec<String>,
}
