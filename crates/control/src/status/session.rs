//! Status of sessions with peers, and of their links, classes and channels.

use serde::{Deserialize, Serialize};

use super::{Health, OverloadStatus};

/// A session with a peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Name of the terminal in the hub's configuration; on a terminal, "hub".
    pub peer: String,
    /// Public key of the peer (base64).
    pub key: String,
    /// Current UDP or TCP address of the peer.
    pub address: String,
    /// True while the packets go over TCP, because UDP is blocked; with several links, on all of them.
    #[serde(default)]
    pub over_tcp: bool,
    /// Summary of the session's state.
    #[serde(default)]
    pub health: Health,
    /// Description of the session's state in a sentence.
    #[serde(default)]
    pub verdict: String,
    /// Time since the session came up.
    pub since_s: f64,
    /// True while the peer answers.
    pub reachable: bool,
    /// Number of times that the peer ceased to answer.
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
    /// Set while a `fixed` or `modem` rate exceeds the link: a standing queue before it overflows.
    #[serde(default)]
    pub overload: Option<OverloadStatus>,
    /// Number of times that the measured capacity of the path fell below 70 % of its usual value.
    #[serde(default)]
    pub capacity_falls: u64,
    /// Number of times that losses have lowered a `fixed` or `modem` rate.
    #[serde(default)]
    pub trips: u64,
    /// With `modem`: remaining validity of the reported rate.
    pub told_for_s: Option<f64>,
    /// With `modem`: time since the rate was reported.
    #[serde(default)]
    pub told_age_s: Option<f64>,
    /// With `modem`: the reported rate. This side sends at `rate_bit_s`, which is higher while nothing is
    /// granted on a link with capacity on demand, and at most the configured maximum.
    #[serde(default)]
    pub told_bit_s: Option<u64>,
    /// Weight of the session among the hub's sessions; 1 on a terminal, and 0 from a gateway that does not
    /// report it.
    #[serde(default)]
    pub weight: u32,
    /// Rate that the session gets before the others share.
    #[serde(default)]
    pub guaranteed_bit_s: Option<u64>,
    /// Rate that the hub does not exceed towards the session.
    #[serde(default)]
    pub maximum_bit_s: Option<u64>,
    /// Restriction while the terminal's quota is used up: `block`, a rate, or the name of a class.
    #[serde(default)]
    pub exhausted: Option<String>,
    /// True if the rate was reported by the modem itself (DLEP), not by an operator.
    #[serde(default)]
    pub told_by_modem: bool,
    /// Capacity of the path in the sending direction, if measured.
    pub capacity_bit_s: Option<u64>,
    /// Queueing delay of this side's packets on the path; 0 if not measured.
    pub queue_ms: f64,
    /// Recent loss rate of this side's packets, 0 to 1.
    pub loss: f64,
    /// Packets sent to the peer.
    pub packets_sent: u64,
    /// Bytes sent, as IP packets.
    pub bytes_sent: u64,
    /// Packets received from the peer.
    pub packets_received: u64,
    /// Bytes received, as IP packets.
    pub bytes_received: u64,
    /// Packets lost; their contents were retransmitted (ARQ).
    pub packets_lost: u64,
    /// Probe timeouts: times that an acknowledgement was overdue.
    pub probes: u64,
    /// Packets lost on the way here and restored by FEC.
    pub recovered: u64,
    /// FEC repair packets sent to the peer.
    pub repairs_sent: u64,
    /// Bytes of the FEC repair packets sent, as IP packets.
    pub repair_bytes: u64,
    /// Bytes of padding sent to measure the path.
    #[serde(default)]
    pub padding_bytes: u64,
    /// Bytes of padding that `probe_share` still allows now; 0 if the path is not measured with padding.
    #[serde(default)]
    pub padding_left_bytes: u64,
    /// State of ECN on this side's path: `testing`, `capable`, `failed`; absent if it is not used.
    #[serde(default)]
    pub ecn: Option<String>,
    /// Packets sent as ECN-capable, with ECT(0).
    #[serde(default)]
    pub ect_sent: u64,
    /// Packets sent that the path marked with CE, as reported by the peer.
    #[serde(default)]
    pub ce_reported: u64,
    /// Packets received as ECN-capable, with ECT(0).
    #[serde(default)]
    pub ect_received: u64,
    /// Packets received that the path marked with CE.
    #[serde(default)]
    pub ce_received: u64,
    /// FEC repair packets received from the peer.
    pub repairs_received: u64,
    /// Acknowledgements sent by this side.
    pub acknowledgements: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets received that failed authentication.
    pub forged: u64,
    /// Current path MTU: largest IP packet sent.
    pub packet_bytes: u64,
    /// Number of key renewals since the session came up.
    pub key_changes: u64,
    /// Number of live streams, opened by either side.
    pub streams: u64,
    /// Stream data held until the peer has acknowledged it.
    pub held_to_send_bytes: u64,
    /// Received stream data held until it is read.
    pub held_to_read_bytes: u64,
    /// Classes sharing the rate, the default class last.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
    /// Packet channels in use; empty without a tunnel.
    #[serde(default)]
    pub channels: Vec<ChannelStatus>,
    /// The links of a multi-link session; empty for other sessions.
    #[serde(default)]
    pub links: Vec<LinkStatus>,
}

/// A link of a multi-link session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Name of the link in the configuration.
    pub name: String,
    /// The peer's address on the link.
    pub address: String,
    /// True while packets arrive on it, as far as is known.
    pub works: bool,
    /// True while its packets go over TCP, because UDP is blocked on it.
    #[serde(default)]
    pub over_tcp: bool,
    /// Smoothed round-trip time of the link.
    pub rtt_ms: f64,
    /// Sending rate of this side.
    pub rate_bit_s: u64,
    /// Recent loss rate of this side's packets, 0 to 1.
    pub loss: f64,
    /// Bytes sent, as IP packets.
    pub sent_bytes: u64,
    /// Bytes received, as IP packets.
    pub received_bytes: u64,
    /// Packets lost; their contents were sent again.
    pub packets_lost: u64,
}

impl LinkStatus {
    /// The status of the link with this configured name.
    pub fn new(name: &str, stats: &slacp::LinkStats, over_tcp: bool) -> Self {
        Self {
            name: name.to_owned(),
            address: stats.address.to_string(),
            works: stats.works,
            over_tcp,
            rtt_ms: stats.rtt.as_secs_f64() * 1e3,
            rate_bit_s: stats.rate.bits_per_second(),
            loss: stats.loss,
            sent_bytes: stats.bytes_sent,
            received_bytes: stats.bytes_received,
            packets_lost: stats.packets_lost,
        }
    }
}

/// A class's share of a session's rate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Name of the class in the configuration.
    pub name: String,
    /// Weight relative to other classes.
    pub weight: u16,
    /// Guaranteed rate; `None` without a guarantee.
    pub guaranteed_bit_s: Option<u64>,
    /// Maximum rate; `None` without a limit.
    pub maximum_bit_s: Option<u64>,
    /// Bytes of IP packets on the hop with new data of the class.
    pub sent_bytes: u64,
    /// Part of `sent_bytes`, sent under the guarantee.
    pub guaranteed_sent_bytes: u64,
    /// Bytes queued for sending: packets, and stream data within the peer's credit.
    pub waiting_bytes: u64,
}

/// Traffic of a packet channel in a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Channel number, the same on both sides.
    pub channel: u8,
    /// The class that this side sends on the channel. Classes of the other side may differ.
    pub class: Option<String>,
    /// Packets sent, not counting retransmissions.
    pub packets_sent: u64,
    /// Bytes of these packets, without the hop's headers.
    pub sent_bytes: u64,
    /// Part of `packets_sent` sent with compressed headers.
    #[serde(default)]
    pub compressed: u64,
    /// Bytes saved by header compression.
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
    /// Bytes of packets queued for sending.
    pub waiting_bytes: u64,
    /// Queueing delay of the last packet sent.
    pub queue_ms: f64,
    /// Packets received and delivered on this side.
    pub packets_received: u64,
    /// Bytes of the packets delivered.
    pub received_bytes: u64,
    /// Packets or parts of packets restored here by FEC.
    pub recovered: u64,
    /// Packets given up, because later packets could not be held any longer.
    pub missing: u64,
    /// Packets received as duplicates, or after they had been given up.
    pub late: u64,
    /// Bytes received and held until earlier packets arrive.
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
