//! Status of refusals, tunnel, stack and services: names, HTTP, bundles, modem.

use serde::{Deserialize, Serialize};

use crate::table::{Family, counter, gauge, or_zero, table_of_figures};

const PACKETS: Family = Family::counters(
    "skyhop_tunnel_packets",
    "fate",
    "Packets of the tunnel; prohibited is part of from_hop",
);
const REFUSALS: Family = Family::counters(
    "skyhop_refusals",
    "fate",
    "Packets that policies refuse: answered in the name of the destination, or not, because the client was at its limit",
);
const STACK: Family = Family::counters(
    "skyhop_stack_connections",
    "kind",
    "Connections of our own TCP: who opened them, and what their ends have agreed on",
);
const NAMES: Family = Family::counters(
    "skyhop_names",
    "fate",
    "Questions for names; prefetched ones are part of crossed and not of asked",
);
const HTTP: Family =
    Family::counters("skyhop_http", "fate", "Requests of cleartext HTTP; stored counts responses");
const BUNDLES: Family = Family::counters("skyhop_bundles", "fate", "Bundles, by outcome");

table_of_figures! {
    /// Packets that policies refuse, since the gateway started.
    #[derive(Copy)]
    pub struct RefusalStatus {
        /// Packets answered with a reset or *port unreachable* in the name of their destination.
        answered: u64 => REFUSALS.row("answered");
        /// Packets dropped without an answer because their client had reached its limit.
        limited: u64 => REFUSALS.row("limited");
    }
}

table_of_figures! {
    /// Traffic of a tunnel, in packets.
    #[derive(Copy)]
    pub struct TunnelStatus counted by TunnelCounters from(prohibited: u64) {
        /// Packets sent over the hop.
        to_hop: u64 => PACKETS.row("to_hop");
        /// Packets received from the hop and passed to the kernel for routing.
        from_hop: u64 => PACKETS.row("from_hop");
        /// Part of `from_hop`, dropped because the egress rules deny the destination.
        prohibited: u64 = prohibited => PACKETS.row("prohibited");
        /// Packets from the hop that were dropped: the source is not behind its session, or the destination
        /// is another terminal and `mesh` is off.
        foreign: u64 => PACKETS.row("foreign");
        /// Packets dropped: not routable, without a session that accepts them, or refused by the device.
        dropped: u64 => PACKETS.row("dropped");
    }
}

table_of_figures! {
    /// skyhop's own TCP on the WAN side of a solo gateway, since the gateway started.
    #[derive(Eq)]
    pub struct StackStatus {
        /// Congestion controller of new connections, with its options.
        controller: String;
        /// Number of live connections, opened by either side.
        connections: usize;
        /// Bytes held by live connections.
        held_bytes: u64;
        /// Connections established from here towards servers.
        opened: u64 => STACK.row("opened");
        /// Connections established from the WAN side.
        accepted: u64 => STACK.row("accepted");
        /// Connections of both kinds whose other end speaks SCPS-TP: it has agreed on SNACK.
        snack: u64 => STACK.row("snack");
        /// Connections of both kinds whose other end has agreed on SACK.
        sack: u64 => STACK.row("sack");
        /// SYNs ignored because there were too many connections.
        ignored: u64 => counter("skyhop_stack_ignored", "SYNs ignored because our own TCP had too many connections");
        /// Segments retransmitted by connections that have ended.
        retransmissions: u64 => counter("skyhop_stack_retransmissions", "Segments retransmitted by connections of our own TCP that are over").before("skyhop_stack_ignored");
        /// Packets that the device refused.
        unsent: u64;
    }
}

table_of_figures! {
    /// DNS queries since the gateway started. A hub has `questions` and `failed` only.
    #[derive(Copy)]
    pub struct DnsStatus from(stats: &names::NamesStats) {
        /// Queries of clients; on a hub, of terminals.
        questions: u64 = stats.questions => NAMES.row("asked");
        /// Queries answered from the cache.
        hits: u64 = stats.hits => NAMES.row("hit");
        /// Queries answered with an expired entry, because there was no other answer.
        stale: u64 = stats.stale => NAMES.row("stale");
        /// Queries answered at once, with an address of the pool or without service bindings, while the hub is asked.
        instant: u64 = stats.instant => NAMES.row("instant");
        /// Queries that waited for the answer to another client's query.
        coalesced: u64 = stats.coalesced => NAMES.row("coalesced");
        /// Queries that crossed the hop, including prefetches.
        crossed: u64 = stats.asked => NAMES.row("crossed");
        /// Answers fetched again before they expired.
        prefetched: u64 = stats.prefetched => NAMES.row("prefetched");
        /// Queries that were resolved without the hop.
        straight: u64 = stats.straight => NAMES.row("straight");
        /// Queries for which no answer came.
        failed: u64 = stats.failed => NAMES.row("failed");
        /// Queries refused because too many were waiting.
        refused: u64 = stats.refused => NAMES.row("refused");
        /// Round trips over the hop for which clients did not wait: `hits`, `stale` and `instant`.
        saved_round_trips: u64 = stats.saved_round_trips() => counter("skyhop_names_saved_round_trips", "Round trips saved for clients");
        /// Number of answers in the cache.
        entries: u64 = stats.entries => gauge("skyhop_names_entries", "Answers in the cache");
        /// Bytes of memory that the cache uses.
        cache_bytes: u64 = stats.bytes.get() => gauge("skyhop_names_cache_bytes", "Memory of the cache");
        /// Names that have an address of the pool.
        names: u64 = stats.names => gauge("skyhop_names_pool", "Names with addresses of the pool");
    }
}

impl DnsStatus {
    /// Builds the status of a hub.
    pub fn of_hub(questions: u64, failed: u64) -> Self {
        Self { questions, failed, ..Self::default() }
    }
}

table_of_figures! {
    /// Requests of cleartext HTTP, since the gateway started. A hub has `requests`, `reused`, and those of its
    /// cache.
    #[derive(Copy)]
    pub struct HttpStatus from(stats: &http_cache::CacheStats, plain: u64, disk_errors: u64) {
        /// Requests that the cache has examined.
        requests: u64 = stats.requests => HTTP.row("asked");
        /// Requests answered from the cache without asking the server.
        hits: u64 = stats.hits => HTTP.row("hit");
        /// Requests answered from the cache after the server had confirmed the response.
        confirmed: u64 = stats.confirmed => HTTP.row("confirmed");
        /// Requests answered with an expired response: during its validation, or for lack of another one.
        stale: u64 = stats.stale => HTTP.row("stale");
        /// Cacheable requests answered by servers.
        misses: u64 = stats.misses => HTTP.row("miss");
        /// Requests that a cache does not handle: other methods, parts of responses that are not stored.
        passed: u64 = stats.passed => HTTP.row("passed");
        /// Connections that were not HTTP, or not HTTP that the cache handles.
        plain: u64 = plain => counter("skyhop_http_plain", "Connections to HTTP ports relayed unchanged");
        /// Requests answered by a response that was on its way for another client.
        collapsed: u64 = stats.collapsed => HTTP.row("collapsed");
        /// Bytes of bodies that did not cross the hop; on a hub, that servers did not send.
        saved_bytes: u64 = stats.saved_bytes => counter("skyhop_http_saved_bytes", "Bytes of bodies from the cache that were not sent again");
        /// Round trips over the hop for which clients did not wait: as many as `hits`; 0 on a hub.
        saved_round_trips: u64 = stats.hits;
        /// Responses stored since the start.
        stored: u64 = stats.stored => HTTP.row("stored");
        /// Number of responses in the cache.
        entries: u64 = stats.entries => gauge("skyhop_http_entries", "Responses in the cache");
        /// Bytes of memory that the cache uses.
        memory_bytes: u64 = stats.memory.get() => gauge("skyhop_http_memory_bytes", "Memory of the cache");
        /// Bytes of the cache's files.
        disk_bytes: u64 = stats.disk.get() => gauge("skyhop_http_disk_bytes", "Files of the cache");
        /// Files that could not be written or read.
        disk_errors: u64 = disk_errors => counter("skyhop_http_disk_errors", "Files that could not be written or read");
        /// Requests for which a hub reused an open connection.
        reused: u64 = 0 => counter("skyhop_http_reused", "Requests over an idle connection of the hub");
    }
}

impl HttpStatus {
    /// The status of a hub, which saves its terminals bytes, but no round trips.
    pub fn of_hub(
        requests: u64,
        reused: u64,
        stats: &http_cache::CacheStats,
        disk_errors: u64,
    ) -> Self {
        let cache = Self::new(stats, 0, disk_errors);
        Self { requests, reused, saved_round_trips: 0, ..cache }
    }
}

table_of_figures! {
    /// Bundles since the gateway started.
    #[derive(Copy)]
    pub struct BundlesStatus from(stats: &bundles::AgentStats, now: u64) {
        /// Number of bundles in the store.
        waiting: u64 = stats.waiting as u64 => gauge("skyhop_bundles_waiting", "Bundles in the store");
        /// Bytes of the bundles in the store.
        waiting_bytes: u64 = stats.bytes.get() => gauge("skyhop_bundles_waiting_bytes", "Bytes of bundles in the store");
        /// Age of the oldest bundle in the store; 0 if it is empty.
        oldest_s: f64 = oldest_s(stats, now) => gauge("skyhop_bundles_oldest_seconds", "Age of the oldest bundle in the store; 0 without bundles");
        /// Bundles accepted into the store.
        taken: u64 = stats.taken => BUNDLES.row("taken");
        /// Bundles that the next node has stored.
        forwarded: u64 = stats.forwarded => BUNDLES.row("forwarded");
        /// Bundles delivered to services of this node.
        delivered: u64 = stats.delivered => BUNDLES.row("delivered");
        /// Bundles that expired in the store.
        expired: u64 = stats.expired => BUNDLES.row("expired");
        /// Bundles dropped because they had been received before.
        duplicates: u64 = stats.duplicates => BUNDLES.row("duplicate");
        /// Bundles not accepted into the store.
        refused: u64 = stats.refused => BUNDLES.row("refused");
        /// Identities remembered to recognise duplicates.
        remembered: u64 = stats.remembered as u64 => gauge("skyhop_bundles_remembered", "Bundles remembered to tell duplicates");
        /// Status reports sent by this node.
        #[serde(default)]
        reports: u64 = stats.reports => counter("skyhop_bundle_reports", "Status reports sent");
        /// Bundles reassembled here from their fragments.
        #[serde(default)]
        joined: u64 = stats.joined => BUNDLES.row("joined");
    }
}

/// The age of the oldest bundle at a wall-clock time, in milliseconds since 1970.
fn oldest_s(stats: &bundles::AgentStats, now: u64) -> f64 {
    stats.oldest.map_or(0.0, |oldest| now.saturating_sub(oldest) as f64 / 1000.0)
}

/// A bundle in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// Time until its lifetime ends.
    pub expires_s: f64,
    /// `waiting` for the next node, or `arrived`.
    pub state: String,
}

table_of_figures! {
    /// State of the DLEP session with the modem (RFC 8175).
    pub struct DlepStatus {
        /// `looking`, `connecting`, `initializing`, `up`, `ending` or `stopped`.
        state: String => gauge("skyhop_dlep_up", "1 if the modem reports its rate"), is_up;
        /// Time since the last change of state.
        since_s: f64;
        /// The modem's address, if known.
        modem: Option<String>;
        /// The modem's own description, while a session is up.
        peer_type: Option<String>;
        /// Rate of the link as a whole.
        rate_bit_s: Option<u64> => gauge("skyhop_dlep_rate_bits_per_second", "Session-wide rate of the modem"), or_zero;
        /// Destinations reported in this session.
        destinations: Vec<DlepDestination> => gauge("skyhop_dlep_destinations", "Destinations of the modem that are up"), number_up;
        /// Number of sessions so far.
        sessions: u64 => counter("skyhop_dlep_sessions", "DLEP sessions with a modem");
        /// Reason why there is no session, or why the last one ended.
        trouble: Option<String>;
    }
}

fn is_up(state: &str) -> bool {
    state == "up"
}

fn number_up(destinations: &[DlepDestination]) -> u64 {
    destinations.iter().filter(|destination| destination.up).count() as u64
}

/// A destination on the modem's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DlepDestination {
    /// Link-layer (MAC) address, by which the modem identifies it.
    pub mac: String,
    /// True while it is reachable.
    pub up: bool,
    /// Rate towards it, if it differs from the link's.
    pub rate_bit_s: Option<u64>,
    /// Its addresses, and the subnets behind it.
    pub networks: Vec<String>,
}
