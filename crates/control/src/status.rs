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
use std::time::Duration;

pub use accounts::accounts_text;
pub use connection::{ConnectionBottleneck, ConnectionStatus};
use pep::accounting::TrafficUsage;
use pep::admission::{BypassHistory, BypassReason};
use serde::{Deserialize, Serialize};
pub use services::{
    BundleStatus, BundlesStatus, DlepDestination, DlepStatus, DnsStatus, HttpStatus, RefusalStatus,
    StackStatus, TunnelStatus,
};
pub use session::{ChannelStatus, ClassStatus, LinkStatus, SessionStatus};
pub use terminals::{AbsentStatus, StrangerStatus};
pub use verdict::{Health, OverloadStatus};

use crate::Role;
use crate::table::{Family, counter, gauge, table_of_figures};

/// Log lines that could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLoss {
    /// Number of lost lines since the start.
    pub lines: u64,
    /// Reason for the loss of the last one.
    pub cause: String,
}

/// Snapshot of a gateway's state. It is built on request, so that an idle gateway spends no time on it and
/// all figures are of the same moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Version of the program that runs.
    pub version: String,
    /// Role of the gateway: hub, terminal or solo.
    pub role: Role,
    /// Process identifier of the gateway.
    pub pid: u32,
    /// Host name of the machine.
    #[serde(default)]
    pub host: String,
    /// Configuration file; `None` if it was a pipe.
    #[serde(default)]
    pub file: Option<String>,
    /// Public key (base64); `None` for a solo gateway, which has none.
    #[serde(default)]
    pub key: Option<String>,
    /// Log lines that could not be written; `None` if all were.
    #[serde(default)]
    pub log_loss: Option<LogLoss>,
    /// Time since the gateway started.
    pub uptime_s: f64,
    /// While draining: time until the remaining connections are reset; 0 without a time limit.
    pub draining_s: Option<f64>,
    /// Number of reloads of the configuration.
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
    /// skyhop's own TCP stack towards servers; `None` if the kernel's is used.
    #[serde(default)]
    pub stack: Option<StackStatus>,
    /// DNS queries; `None` if they are not answered here.
    #[serde(default)]
    pub dns: Option<DnsStatus>,
    /// Requests of cleartext HTTP; `null` without a section `[http]`.
    #[serde(default)]
    pub http: Option<HttpStatus>,
    /// The bundle node; `None` without a section `[bundles]`.
    #[serde(default)]
    pub bundles: Option<BundlesStatus>,
    /// The DLEP modem; `None` if DLEP is not configured.
    #[serde(default)]
    pub dlep: Option<DlepStatus>,
    /// Data that waits for the hop, for scripts that request capacity; `None` without a hop.
    #[serde(default)]
    pub demand: Option<DemandStatus>,
    /// The hubs of a terminal that has several, in the order of its configuration, or the only one
    /// while it does not answer.
    #[serde(default)]
    pub hubs: Vec<HubStatus>,
    /// The key that replaces the hub's; `None` unless configured.
    #[serde(default)]
    pub next_key: Option<NextKeyStatus>,
    /// The process that this one has replaced, while it still carries connections.
    #[serde(default)]
    pub predecessor: Option<u32>,
    /// The threads that carry sessions; empty with a single thread.
    #[serde(default)]
    pub workers: Vec<WorkerStatus>,
    /// All sessions that are up.
    pub sessions: Vec<SessionStatus>,
    /// The permitted terminals of a hub that have no session, by name.
    #[serde(default)]
    pub absent: Vec<AbsentStatus>,
    /// Machines that have asked a hub for sessions within the last hour without an answer, the most recent
    /// first; at most 64.
    #[serde(default)]
    pub strangers: Vec<StrangerStatus>,
    /// Totals over all connections since the start.
    pub traffic: TrafficStatus,
    /// Resources held, and their limits.
    pub memory: MemoryStatus,
    /// Live connections; `None` unless they were requested.
    pub connections: Option<Vec<ConnectionStatus>>,
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

/// State of the interception of new connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InterceptionStatus {
    /// True while new connections are intercepted.
    pub on: bool,
    /// Reason why they are not; `None` while on.
    pub why: Option<BypassReason>,
    /// Time since the last change.
    pub since_s: f64,
    /// Total time and number of bypasses, by reason.
    pub bypassed: Vec<BypassStatus>,
    /// Clients that pass unaccelerated because their redirected SYNs were never answered; `None` if all
    /// are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<UnansweredStatus>,
    /// Packets that policies refuse; `None` if no policy does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<RefusalStatus>,
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
            refusals: None,
        }
    }
}

/// A terminal's account at a hub, since it was opened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AccountStatus {
    /// Name of the terminal; empty if it is no longer permitted.
    pub terminal: String,
    /// Public key of the terminal (base64).
    pub key: String,
    /// Time of its last traffic, in Unix seconds.
    pub last_used_unix_s: u64,
    /// Traffic by the name of its class.
    pub classes: BTreeMap<String, UsageStatus>,
    /// Quota of volume, in bytes per period.
    pub quota_bytes: Option<u64>,
    /// Period after which the quota starts again, such as `month`.
    pub quota_period: Option<String>,
    /// Volume used of the quota in this period.
    pub quota_used_bytes: Option<u64>,
    /// Restriction while the quota is used up: `block`, a rate, or a class.
    pub exhausted: Option<String>,
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

/// Totals over all connections since the gateway started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// Connections carried so far, opened by either side.
    pub connections: u64,
    /// Connections closed cleanly by both ends.
    pub closed: u64,
    /// Connections reset by an end or by a gateway.
    pub reset: u64,
    /// Connections that were never established at the far end.
    pub failed: u64,
    /// Bytes from TCP connections to the hop.
    pub to_hop_bytes: u64,
    /// Bytes from the hop to TCP connections.
    pub from_hop_bytes: u64,
    /// Connections directly to servers, without a hop: all on a solo gateway; on a terminal, the
    /// proxy's while the hub is unreachable.
    pub straight: u64,
    /// Bytes from clients to servers on `straight` connections.
    pub up_bytes: u64,
    /// Bytes from servers to clients on `straight` connections.
    pub down_bytes: u64,
    /// Urgent data marks seen. Urgent data is carried like any other.
    pub urgent: u64,
    /// UDP datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// UDP datagrams received from the hop.
    pub datagrams_received: u64,
    /// UDP datagrams received that belonged to no session.
    pub datagrams_ignored: u64,
    /// UDP datagrams that the kernel refused because they exceed the MTU.
    pub datagrams_too_large: u64,
    /// Other errors of the UDP socket.
    pub socket_errors: u64,
    /// Number of times that two machines used the same key. The log has their addresses.
    #[serde(default)]
    pub shared_keys: u64,
    /// Connections that ended early, by reason.
    pub resets: Vec<(String, u64)>,
    /// Totals of the streams of classes with `compress`.
    #[serde(default)]
    pub compression: CompressionStatus,
}

/// Totals of compressed streams since the gateway started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionStatus {
    /// Streams that both sides have agreed to compress where that pays, opened by either.
    pub streams: u64,
    /// Bytes read from their TCP connections.
    pub to_hop_bytes: u64,
    /// Compressed bytes sent for these.
    pub sent_bytes: u64,
    /// Bytes written to their TCP connections.
    pub from_hop_bytes: u64,
    /// Compressed bytes received for these.
    pub received_bytes: u64,
    /// Streams reset because the other side's data could not be decompressed.
    pub malformed: u64,
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
        connections: u64;
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
