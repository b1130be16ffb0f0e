//! A gateway's status, as shown by `skyhop status`, the metrics and the dashboard.
//!
//! Counters start at zero when the gateway starts, those of a session when it comes up. Keys end in their
//! unit: `_s`, `_ms`, `_bytes`, `_bit_s`.

mod accounts;
mod connection;
mod services;
mod session;
mod terminals;
mod text;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use accounts::accounts_text;
pub use connection::{ConnectionBottleneck, ConnectionStatus};
use pep::accounting::TrafficUsage;
use pep::admission::{BypassHistory, BypassReason};
use serde::{Deserialize, Serialize};
pub use services::{
    BundleStatus, BundlesStatus, DlepDestination, DlepStatus, DnsStatus, HttpStatus, RefusalStatus,
    StackStatus, TunnelCounters, TunnelStatus,
};
pub use session::{ChannelStatus, ClassStatus, LinkStatus, SessionStatus};
pub use terminals::{AbsentStatus, StrangerStatus};
pub use verdict::{Health, OverloadStatus};

use crate::Role;
use crate::table::{Family, counter, gauge, number_of, table_of_figures};

/// Log lines that could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLoss {
    /// Number of lost lines since the start.
    pub lines: u64,
    /// Reason for the loss of the last one.
    pub cause: String,
}

table_of_figures! {
    /// Snapshot of a gateway's state. It is built on request, so that an idle gateway spends no time on it and
    /// all figures are of the same moment.
    pub struct GatewayStatus {
        /// Version of the program that runs.
        version: String;
        /// Role of the gateway: hub, terminal or solo.
        role: Role;
        /// Process identifier of the gateway.
        pid: u32;
        /// Host name of the machine.
        #[serde(default)]
        host: String;
        /// Configuration file; `None` if it was a pipe.
        #[serde(default)]
        file: Option<String>;
        /// Public key (base64); `None` for a solo gateway, which has none.
        #[serde(default)]
        key: Option<String>;
        /// Log lines that could not be written; `None` if all were.
        #[serde(default)]
        log_loss: Option<LogLoss> => counter("skyhop_log_lines_lost", "Lines of the log that could not be written"), lines_lost;
        /// Time since the gateway started.
        uptime_s: f64 => gauge("skyhop_uptime_seconds", "Time since the gateway started").before("skyhop_log_lines_lost");
        /// While draining: time until the remaining connections are reset; 0 without a time limit.
        draining_s: Option<f64> => gauge("skyhop_draining", "1 if the gateway is draining"), Option::is_some;
        /// Number of reloads of the configuration.
        #[serde(default)]
        reloads: u64;
        /// Interception state; `None` if interception is not configured.
        interception: Option<InterceptionStatus>;
        /// Counters of the policies, in their order.
        #[serde(default)]
        policies: Vec<PolicyStatus>;
        /// Traffic of the tunnel; `None` without one.
        #[serde(default)]
        tunnel: Option<TunnelStatus>;
        /// skyhop's own TCP stack towards servers; `None` if the kernel's is used.
        #[serde(default)]
        stack: Option<StackStatus>;
        /// DNS queries; `None` if they are not answered here.
        #[serde(default)]
        dns: Option<DnsStatus>;
        /// Requests of cleartext HTTP; `null` without a section `[http]`.
        #[serde(default)]
        http: Option<HttpStatus>;
        /// The bundle node; `None` without a section `[bundles]`.
        #[serde(default)]
        bundles: Option<BundlesStatus>;
        /// The DLEP modem; `None` if DLEP is not configured.
        #[serde(default)]
        dlep: Option<DlepStatus>;
        /// Data that waits for the hop, for scripts that request capacity; `None` without a hop.
        #[serde(default)]
        demand: Option<DemandStatus>;
        /// The hubs of a terminal that has several, in the order of its configuration, or the only one
        /// while it does not answer.
        #[serde(default)]
        hubs: Vec<HubStatus>;
        /// The key that replaces the hub's; `None` unless configured.
        #[serde(default)]
        next_key: Option<NextKeyStatus>;
        /// The process that this one has replaced, while it still carries connections.
        #[serde(default)]
        predecessor: Option<u32>;
        /// The threads that carry sessions; empty with a single thread.
        #[serde(default)]
        workers: Vec<WorkerStatus>;
        /// All sessions that are up.
        sessions: Vec<SessionStatus> => gauge("skyhop_sessions", "Sessions that are up").before("skyhop_session_over_tcp"), number_of;
        /// The permitted terminals of a hub that have no session, by name.
        #[serde(default)]
        absent: Vec<AbsentStatus>;
        /// Machines that have asked a hub for sessions within the last hour without an answer, the most recent
        /// first; at most 64.
        #[serde(default)]
        strangers: Vec<StrangerStatus> => gauge("skyhop_refused_terminals", "Machines that asked for a session within the last hour and were refused").before("skyhop_class_sent_bytes"), number_of;
        /// Totals over all connections since the start.
        traffic: TrafficStatus;
        /// Resources held, and their limits.
        memory: MemoryStatus;
        /// Live connections; `None` unless they were requested.
        connections: Option<Vec<ConnectionStatus>>;
    }
}

fn lines_lost(loss: &Option<LogLoss>) -> u64 {
    loss.as_ref().map_or(0, |loss| loss.lines)
}

/// A hub of a terminal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HubStatus {
    /// Name, as in the configuration.
    pub name: String,
    /// Host and port, as in the configuration.
    pub address: String,
    /// State of the hub for the terminal: `in use`, `ready`, `asked`, `silent`, `draining`, `ending` (it
    /// carries connections that began on it), `not needed`.
    pub state: String,
    /// Time for which it has been asked for a session in vain.
    #[serde(default)]
    pub silent_s: Option<f64>,
    /// Possible reasons why it does not answer.
    #[serde(default)]
    pub why: Option<String>,
}

/// The key that replaces a hub's key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NextKeyStatus {
    /// The new public key (base64).
    pub key: String,
    /// Time at which the hub stops answering to the old key (RFC 3339).
    pub until: Option<String>,
    /// True once it has stopped.
    pub in_force: bool,
    /// Number of terminals that have stored the key since the hub started.
    pub known: u64,
    /// Names of the terminals that have not stored it yet.
    pub unaware: Vec<String>,
}

/// A thread that carries sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Number of sessions on this thread.
    pub sessions: u64,
    /// Bytes held by its sessions.
    pub held_bytes: u64,
}

table_of_figures! {
    /// State of the interception of new connections.
    pub struct InterceptionStatus {
        /// True while new connections are intercepted.
        on: bool => gauge("skyhop_interception_on", "1 if new connections are intercepted");
        /// Reason why they are not; `None` while on.
        why: Option<BypassReason>;
        /// Time since the last change.
        since_s: f64;
        /// Total time and number of bypasses, by reason.
        bypassed: Vec<BypassStatus>;
        /// Clients that pass unaccelerated because their redirected SYNs were never answered; `None` if all
        /// are answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unanswered: Option<UnansweredStatus> => gauge("skyhop_unanswered_clients", "Clients that pass unaccelerated because their redirected SYNs were never answered"), number_unanswered;
        /// Packets that policies refuse; `None` if no policy does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusals: Option<RefusalStatus>;
        /// Interfaces that another gateway of this machine intercepts as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shared: Vec<SharedInterface>;
    }
}

/// An interface that another gateway of the same machine intercepts as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedInterface {
    /// Name of the interface; `lo` stands for connections of the machine itself.
    pub interface: String,
    /// Process of the other gateway; `None` if unknown.
    pub process: Option<u32>,
    /// nftables table of the other gateway.
    pub table: String,
}

/// Formats a sentence that names the other gateway.
impl fmt::Display for SharedInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, process, table } = self;
        match process {
            Some(process) => write!(f, "process {process} (nftables: inet {table})")?,
            None => write!(f, "another gateway (nftables: inet {table})")?,
        }
        match interface.as_str() {
            "lo" => f.write_str(" also intercepts this machine's own connections")?,
            interface => write!(f, " also intercepts connections from {interface}")?,
        }
        f.write_str(": the gateway that was started first carries them, until it ends")
    }
}

fn number_unanswered(unanswered: &Option<UnansweredStatus>) -> u64 {
    unanswered.as_ref().map_or(0, |unanswered| unanswered.clients)
}

/// Clients whose redirected SYNs were never answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnansweredStatus {
    /// Number of these clients: addresses, or /64 of IPv6.
    pub clients: u64,
    /// Possible reasons with their fixes, for the operator.
    pub suspects: String,
}

/// Totals of the bypasses for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BypassStatus {
    /// Reason that these bypasses have in common.
    pub why: BypassReason,
    /// Total duration of the bypasses.
    pub total_s: f64,
    /// Number of times that a bypass began.
    pub times: u64,
}

impl From<BypassHistory> for InterceptionStatus {
    fn from(history: BypassHistory) -> Self {
        let row = |(why, (total, times)): (BypassReason, (Duration, u64))| BypassStatus {
            why,
            total_s: total.as_secs_f64(),
            times,
        };
        Self {
            on: history.why.is_none(),
            why: history.why,
            since_s: history.since.as_secs_f64(),
            bypassed: history.bypasses.into_iter().map(row).collect(),
            unanswered: None,
            shared: Vec::new(),
            refusals: None,
        }
    }
}

table_of_figures! {
    /// A terminal's account at a hub, since it was opened.
    pub struct AccountStatus {
        /// Name of the terminal; empty if it is no longer permitted.
        terminal: String;
        /// Public key of the terminal (base64).
        key: String;
        /// Time of its last traffic, in Unix seconds.
        last_used_unix_s: u64;
        /// Traffic by the name of its class.
        classes: BTreeMap<String, UsageStatus>;
        /// Quota of volume, in bytes per period.
        quota_bytes: Option<u64> => gauge("skyhop_account_quota_bytes", "Volume of the quota per period");
        /// Period after which the quota starts again, such as `month`.
        quota_period: Option<String>;
        /// Volume used of the quota in this period.
        quota_used_bytes: Option<u64> => gauge("skyhop_account_quota_used_bytes", "Volume used in this period");
        /// Restriction while the quota is used up: `block`, a rate, or a class.
        exhausted: Option<String> => gauge("skyhop_account_quota_exhausted", "1 if the quota is used up"), Option::is_some;
    }
}

const ACCOUNT_BYTES: Family = Family::counters(
    "skyhop_account_bytes",
    "direction",
    "Bytes of connections and packets to and from terminals, since their accounts began",
);
const ACCOUNT_PACKETS: Family = Family::counters(
    "skyhop_account_packets",
    "direction",
    "Packets carried whole to and from terminals",
);

table_of_figures! {
    /// Traffic of a terminal in a class.
    #[derive(Copy, Eq)]
    #[serde(deny_unknown_fields)]
    pub struct UsageStatus from(usage: &TrafficUsage) {
        /// Bytes of connections and packets to the terminal.
        bytes_to: u64 = usage.bytes_to => ACCOUNT_BYTES.row("to");
        /// Bytes of connections and packets from the terminal.
        bytes_from: u64 = usage.bytes_from => ACCOUNT_BYTES.row("from");
        /// Packets of the tunnel to the terminal.
        packets_to: u64 = usage.packets_to => ACCOUNT_PACKETS.row("to");
        /// Packets of the tunnel from the terminal.
        packets_from: u64 = usage.packets_from => ACCOUNT_PACKETS.row("from");
        /// Connections opened by either side.
        connections: u64 = usage.connections => counter("skyhop_account_connections", "Connections of terminals");
    }
}

impl From<UsageStatus> for TrafficUsage {
    fn from(status: UsageStatus) -> Self {
        let UsageStatus { bytes_to, bytes_from, packets_to, packets_from, connections } = status;
        Self { bytes_to, bytes_from, packets_to, packets_from, connections }
    }
}

table_of_figures! {
    /// Counters of a policy since it was set.
    #[derive(Eq)]
    pub struct PolicyStatus {
        /// Name in the configuration, or its number.
        name: String;
        /// Action of the policy: `split`, `tunnel` or `bypass`.
        action: String;
        /// SYNs: new connections, including failed attempts.
        connections: u64 => counter("skyhop_policy_connections", "SYNs that a policy decided");
        /// Packets other than TCP that the policy decided.
        packets: u64 => counter("skyhop_policy_packets", "Other packets that a policy decided");
    }
}

/// Data that waits for the hop, and forecasts of further data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandStatus {
    /// Bytes that wait in all sessions: stream data within the peer's credit, and packets of the tunnel.
    pub waiting_bytes: u64,
    /// Bytes that are forecast beyond these, and requested ahead. 0 without `[dlep] on_demand`.
    pub foreseen_bytes: u64,
    /// Forecast messages that came as foreseen.
    pub forecasts_used: u64,
    /// Forecast messages that did not come.
    pub forecasts_unused: u64,
    /// Bytes of forecast messages that did not come.
    pub unused_bytes: u64,
}

const ENDED: Family =
    Family::counters("skyhop_connections_ended", "outcome", "Connections ended, by outcome");
const RELAYED: Family = Family::counters(
    "skyhop_relayed_bytes",
    "direction",
    "Bytes of TCP connections; up and down are to and from servers without the hop",
);
const DATAGRAMS: Family =
    Family::counters("skyhop_datagrams", "fate", "Datagrams of the hop's UDP socket");
const COMPRESSION: Family = Family::counters(
    "skyhop_compression_bytes",
    "direction,form",
    "Bytes of streams that are compressed where it pays, before and after",
);

table_of_figures! {
    /// Totals over all connections since the gateway started.
    #[derive(Eq)]
    pub struct TrafficStatus counted by TrafficCounters
        from(ignored: u64, resets: Vec<(String, u64)>, compression: CompressionStatus)
    {
        /// Connections carried so far, opened by either side.
        connections: u64 => counter("skyhop_connections_carried", "Connections carried, from both sides");
        /// Connections closed cleanly by both ends.
        closed: u64 => ENDED.row("closed");
        /// Connections reset by an end or by a gateway.
        reset: u64 => ENDED.row("reset");
        /// Connections that were never established at the far end.
        failed: u64 => ENDED.row("failed");
        /// Bytes from TCP connections to the hop.
        to_hop_bytes: u64 => RELAYED.row("to_hop");
        /// Bytes from the hop to TCP connections.
        from_hop_bytes: u64 => RELAYED.row("from_hop");
        /// Connections directly to servers, without a hop: all on a solo gateway; on a terminal, the
        /// proxy's while the hub is unreachable.
        straight: u64;
        /// Bytes from clients to servers on `straight` connections.
        up_bytes: u64 => RELAYED.row("up");
        /// Bytes from servers to clients on `straight` connections.
        down_bytes: u64 => RELAYED.row("down");
        /// Urgent data marks seen. Urgent data is carried like any other.
        urgent: u64 => counter("skyhop_urgent", "Urgent marks received, which are not passed on");
        /// UDP datagrams handed to the kernel.
        datagrams_sent: u64 => DATAGRAMS.row("sent");
        /// UDP datagrams received from the hop.
        datagrams_received: u64 => DATAGRAMS.row("received");
        /// UDP datagrams received that belonged to no session.
        datagrams_ignored: u64 = ignored => DATAGRAMS.row("ignored");
        /// UDP datagrams that the kernel refused because they exceed the MTU.
        datagrams_too_large: u64 => DATAGRAMS.row("too_large");
        /// Other errors of the UDP socket.
        socket_errors: u64 => DATAGRAMS.row("error");
        /// Number of times that two terminals used the same key. The log has their addresses.
        #[serde(default)]
        shared_keys: u64 => counter("skyhop_shared_keys", "Times that two terminals used one key").before("skyhop_datagrams");
        /// Connections that ended early, by reason.
        resets: Vec<(String, u64)> = resets;
        /// Totals of the streams of classes with `compress`.
        #[serde(default)]
        compression: CompressionStatus = compression;
    }
}

table_of_figures! {
    /// Totals of compressed streams since the gateway started.
    #[derive(Eq)]
    pub struct CompressionStatus {
        /// Streams that both sides have agreed to compress where that pays, opened by either.
        streams: u64;
        /// Bytes read from their TCP connections.
        to_hop_bytes: u64 => COMPRESSION.row("to_hop,plain").before("skyhop_urgent");
        /// Compressed bytes sent for these.
        sent_bytes: u64 => COMPRESSION.row("to_hop,compressed");
        /// Bytes written to their TCP connections.
        from_hop_bytes: u64 => COMPRESSION.row("from_hop,plain");
        /// Compressed bytes received for these.
        received_bytes: u64 => COMPRESSION.row("from_hop,compressed");
        /// Streams reset because the other side's data could not be decompressed.
        malformed: u64;
    }
}

table_of_figures! {
    /// Resources held, and their limits.
    #[derive(Eq)]
    pub struct MemoryStatus {
        /// Stream data not yet acknowledged or read; without a hop, data in pipes.
        held_bytes: u64 => gauge("skyhop_held_bytes", "Bytes held for streams and in pipes");
        /// Above this, new connections pass unaccelerated. Key `total_memory`.
        limit_bytes: u64 => gauge("skyhop_held_limit_bytes", "Held bytes above which no new connection is carried");
        /// Resident memory of the process.
        resident_bytes: u64 => gauge("skyhop_resident_bytes", "Resident memory of the process");
        /// Number of live connections, at most `connections_limit`.
        connections: u64 => gauge("skyhop_connections", "Open connections").before("skyhop_connections_carried");
        /// Maximum number of connections. Key `max_connections`.
        connections_limit: u64 => gauge("skyhop_connections_limit", "Limit of connections");
        /// Number of descriptors that the process has open.
        descriptors: u64 => gauge("skyhop_descriptors", "Open descriptors");
        /// Descriptor limit of the process.
        descriptors_limit: u64 => gauge("skyhop_descriptors_limit", "Limit of open descriptors");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_of_bypasses_becomes_rows() {
        let second = Duration::from_millis(1500);
        let history = BypassHistory {
            why: Some(BypassReason::Memory),
            since: second,
            bypasses: [(BypassReason::Memory, (2 * second, 4))].into(),
        };
        let status = InterceptionStatus::from(history);
        assert_eq!(
            (status.on, status.why, status.since_s),
            (false, Some(BypassReason::Memory), 1.5)
        );
        let row = BypassStatus { why: BypassReason::Memory, total_s: 3.0, times: 4 };
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
        let status = ChannelStatus::new(0, None, &stats);
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
            ConnectionBottleneck::Idle,
            ConnectionBottleneck::Client,
            ConnectionBottleneck::Hop,
            ConnectionBottleneck::Server,
            ConnectionBottleneck::HopOrClient,
            ConnectionBottleneck::HopOrServer,
        ];
        for limit in all {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.as_str().replace(' ', "-"));
        }
    }

    /// `skyhop status` of a newer version talks to an older gateway, which has fewer keys.
    #[test]
    fn a_status_without_the_keys_that_were_added_later_is_read() {
        let mut whole = GatewayStatus { version: "0.1".to_owned(), ..GatewayStatus::default() };
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
        assert_eq!(serde_json::from_value::<GatewayStatus>(old).unwrap(), whole);
    }
}
