//! What a gateway does besides carrying connections: tunnel, stack, names, HTTP, bundles, modem.

use serde::{Deserialize, Serialize};

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
    /// Answered by what was on its way for another client.
    pub collapsed: u64,
    /// Bytes of bodies that did not cross the hop; of a hub, those that its servers did not send.
    pub saved_bytes: u64,
    /// Round trips over the hop for which clients did not wait: as many as `hits`; 0 on a hub.
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
}

impl HttpStatus {
    /// That of a hub, whose cache has done `stats`.
    pub(crate) fn of_hub(
        (requests, reused): (u64, u64),
        (stats, disk_errors): (http_cache::CacheStats, u64),
    ) -> Self {
        let cache = Self::of_terminal(&stats, (0, disk_errors));
        Self { requests, reused, saved_round_trips: 0, ..cache }
    }

    /// That of a terminal.
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
    /// Status reports sent.
    #[serde(default)]
    pub reports: u64,
    /// Made of parts that have come.
    #[serde(default)]
    pub joined: u64,
}

impl BundlesStatus {
    /// At a time of day, in milliseconds since 1970.
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
