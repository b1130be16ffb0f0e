//! Status of sessions with peers, and of their links, classes and channels.

use std::time::Duration;

use slacp::{ChannelStats, ClassRates, ClassStats, EcnState, LinkStats, RateState, SessionStats};
use units::BitRate;

use super::{Health, OverloadStatus};
use crate::table::{counter, gauge, or_zero, table_of_figures};

table_of_figures! {
    /// A session with a peer. The gateway adds what it knows besides the session's own counters.
    pub struct SessionStatus from(stats: &SessionStats) {
        /// Name of the terminal in the hub's configuration; on a terminal, "hub".
        peer: String;
        /// Public key of the peer (base64).
        key: String;
        /// Current UDP or TCP address of the peer.
        address: String;
        /// True while the packets go over TCP, because UDP is blocked; with several links, on all of them.
        #[serde(default)]
        over_tcp: bool => gauge("skyhop_session_over_tcp", "1 while the packets go over TCP, because UDP is blocked");
        /// Summary of the session's state.
        #[serde(default)]
        health: Health;
        /// Description of the session's state in a sentence.
        #[serde(default)]
        verdict: String;
        /// Time since the session came up.
        since_s: f64 => gauge("skyhop_session_age_seconds", "Age of the session");
        /// True while the peer answers.
        reachable: bool => gauge("skyhop_session_reachable", "1 if the peer answers").before("skyhop_session_over_tcp");
        /// Number of times that the peer ceased to answer.
        #[serde(default)]
        outages: u64 => counter("skyhop_session_outages", "Times that the peer ceased to answer").before("skyhop_session_key_changes");
        /// Smoothed round-trip time of the hop.
        rtt_ms: f64 = ms(stats.rtt) => gauge("skyhop_session_rtt_seconds", "Smoothed round-trip time of the hop"), seconds;
        /// Minimum round-trip time, if measured.
        min_rtt_ms: Option<f64> = stats.min_rtt.map(ms);
        /// Sending rate of this side.
        rate_bit_s: u64 = stats.rate.bits_per_second() => gauge("skyhop_session_rate_bits_per_second", "Rate at which this side sends");
        /// Source of the rate: `fixed`, `modem`, `auto`.
        rate_source: String;
        /// While the rate is measured (`auto`, or `modem` without a report and `initial_rate`): `blind`,
        /// `confirming`, `resuming`, `cruising`, `draining`. With a configured or reported rate:
        /// `tripped` while losses lower it.
        rate_state: Option<String> = name_of_state(stats.rate_state).map(str::to_owned) => gauge("skyhop_session_rate_tripped", "1 while losses lower a configured or reported rate"), is_tripped;
        /// Set while a `fixed` or `modem` rate exceeds the link: a standing queue before it overflows.
        #[serde(default)]
        overload: Option<OverloadStatus> = stats.overload.as_ref().map(OverloadStatus::from)
            => gauge("skyhop_session_rate_exceeds_link", "1 while the configured or reported rate exceeds the link"), Option::is_some
            => gauge("skyhop_session_carried_bits_per_second", "What the link carries of a rate that exceeds it; 0 otherwise"), carried_bit_s;
        /// Number of times that the measured capacity of the path fell below 70 % of its usual value.
        #[serde(default)]
        capacity_falls: u64 = stats.capacity_falls => counter("skyhop_session_capacity_falls", "Times that the measured capacity has fallen").before("skyhop_session_packets_recovered");
        /// Number of times that losses have lowered a `fixed` or `modem` rate.
        #[serde(default)]
        trips: u64 = stats.trips => counter("skyhop_session_rate_trips", "Times that losses lowered a configured or reported rate").before("skyhop_session_capacity_falls");
        /// With `modem`: remaining validity of the reported rate.
        told_for_s: Option<f64>;
        /// With `modem`: time since the rate was reported.
        #[serde(default)]
        told_age_s: Option<f64>;
        /// With `modem`: the reported rate. This side sends at `rate_bit_s`, which is higher while nothing is
        /// granted on a link with capacity on demand, and at most the configured maximum.
        #[serde(default)]
        told_bit_s: Option<u64>;
        /// Weight of the session among the hub's sessions; 1 on a terminal, and 0 from a gateway that does not
        /// report it.
        #[serde(default)]
        weight: u32;
        /// Rate that the session gets before the others share.
        #[serde(default)]
        guaranteed_bit_s: Option<u64>;
        /// Rate that the hub does not exceed towards the session.
        #[serde(default)]
        maximum_bit_s: Option<u64>;
        /// Restriction while the terminal's quota is used up: `block`, a rate, or the name of a class.
        #[serde(default)]
        exhausted: Option<String>;
        /// True if the rate was reported by the modem itself (DLEP), not by an operator.
        #[serde(default)]
        told_by_modem: bool;
        /// Capacity of the path in the sending direction, if measured.
        capacity_bit_s: Option<u64> = stats.capacity.map(BitRate::bits_per_second) => gauge("skyhop_session_capacity_bits_per_second", "Measured capacity of the path; 0 if not measured"), or_zero;
        /// Queueing delay of this side's packets on the path; 0 if not measured.
        queue_ms: f64 = ms(stats.queue) => gauge("skyhop_session_queue_seconds", "Measured queueing delay of the path"), seconds;
        /// Recent loss rate of this side's packets, 0 to 1.
        loss: f64 = stats.loss => gauge("skyhop_session_loss_ratio", "Recent share of packets lost by the link");
        /// Packets sent to the peer.
        packets_sent: u64 = stats.packets_sent => counter("skyhop_session_packets_sent", "Packets sent");
        /// Bytes sent, as IP packets.
        bytes_sent: u64 = stats.bytes_sent => counter("skyhop_session_sent_bytes", "Bytes of IP packets sent");
        /// Packets received from the peer.
        packets_received: u64 = stats.packets_received => counter("skyhop_session_packets_received", "Packets received");
        /// Bytes received, as IP packets.
        bytes_received: u64 = stats.bytes_received => counter("skyhop_session_received_bytes", "Bytes of IP packets received");
        /// Packets lost; their contents were retransmitted (ARQ).
        packets_lost: u64 = stats.packets_lost => counter("skyhop_session_packets_lost", "Packets lost on the hop; their contents were sent again");
        /// Probe timeouts: times that an acknowledgement was overdue.
        probes: u64 = stats.probes => counter("skyhop_session_probes", "Probes sent because nothing was acknowledged for too long").before("skyhop_session_duplicates");
        /// Packets lost on the way here and restored by FEC.
        recovered: u64 = stats.recovered => counter("skyhop_session_packets_recovered", "Packets restored here by FEC");
        /// FEC repair packets sent to the peer.
        repairs_sent: u64 = stats.repairs_sent => counter("skyhop_session_repairs_sent", "FEC repairs sent");
        /// Bytes of the FEC repair packets sent, as IP packets.
        repair_bytes: u64 = stats.repair_bytes => counter("skyhop_session_repair_bytes", "Bytes of IP packets with FEC repairs");
        /// Bytes of padding sent to measure the path.
        #[serde(default)]
        padding_bytes: u64 = stats.padding_bytes => counter("skyhop_session_padding_bytes", "Bytes of padding sent to measure the path");
        /// Bytes of padding that `probe_share` still allows now; 0 if the path is not measured with padding.
        #[serde(default)]
        padding_left_bytes: u64 = stats.padding_left;
        /// State of ECN on this side's path: `testing`, `capable`, `failed`; absent if it is not used.
        #[serde(default)]
        ecn: Option<String> = name_of_ecn(stats.ecn).map(str::to_owned);
        /// Packets sent as ECN-capable, with ECT(0).
        #[serde(default)]
        ect_sent: u64 = stats.ect_sent => counter("skyhop_session_ect_sent", "Packets sent as ECN-capable, ECT(0)");
        /// Packets sent that the path marked with CE, as reported by the peer.
        #[serde(default)]
        ce_reported: u64 = stats.ce_reported => counter("skyhop_session_ce_reported", "Packets sent that the path marked with CE");
        /// Packets received as ECN-capable, with ECT(0).
        #[serde(default)]
        ect_received: u64 = stats.ect_received => counter("skyhop_session_ect_received", "Packets received with ECT(0)");
        /// Packets received that the path marked with CE.
        #[serde(default)]
        ce_received: u64 = stats.ce_received => counter("skyhop_session_ce_received", "Packets received that the path marked with CE");
        /// FEC repair packets received from the peer.
        repairs_received: u64 = stats.repairs_received => counter("skyhop_session_repairs_received", "FEC repairs received");
        /// Acknowledgements sent by this side.
        acknowledgements: u64 = stats.acknowledgements => counter("skyhop_session_acknowledgements", "Acknowledgements sent");
        /// Packets received more than once.
        duplicates: u64 = stats.duplicates => counter("skyhop_session_duplicates", "Duplicate packets received");
        /// Packets received that failed authentication.
        forged: u64 = stats.forged => counter("skyhop_session_forged", "Packets that failed authentication");
        /// Current path MTU: largest IP packet sent.
        packet_bytes: u64 = stats.packet_size.get();
        /// Number of key renewals since the session came up.
        key_changes: u64 = stats.key_changes => counter("skyhop_session_key_changes", "Key renewals");
        /// Number of live streams, opened by either side.
        streams: u64 = stats.streams as u64 => gauge("skyhop_session_streams", "Open streams").before("skyhop_session_packets_sent");
        /// Stream data held until the peer has acknowledged it.
        held_to_send_bytes: u64 = stats.held_to_send.get() => gauge("skyhop_session_held_to_send_bytes", "Bytes held until the peer acknowledges them").before("skyhop_session_packets_sent");
        /// Received stream data held until it is read.
        held_to_read_bytes: u64 = stats.held_to_read.get() => gauge("skyhop_session_held_to_read_bytes", "Bytes held until they are read").before("skyhop_session_packets_sent");
        /// Classes sharing the rate, the default class last.
        #[serde(default)]
        classes: Vec<ClassStatus>;
        /// Packet channels in use; empty without a tunnel.
        #[serde(default)]
        channels: Vec<ChannelStatus>;
        /// The links of a multi-link session; empty for other sessions.
        #[serde(default)]
        links: Vec<LinkStatus>;
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn name_of_state(state: RateState) -> Option<&'static str> {
    match state {
        RateState::Blind => Some("blind"),
        RateState::Confirming => Some("confirming"),
        RateState::Resuming => Some("resuming"),
        RateState::Cruising => Some("cruising"),
        RateState::Draining => Some("draining"),
        RateState::Tripped => Some("tripped"),
        _ => None,
    }
}

fn name_of_ecn(state: EcnState) -> Option<&'static str> {
    match state {
        EcnState::Testing => Some("testing"),
        EcnState::Capable => Some("capable"),
        EcnState::Failed => Some("failed"),
        _ => None,
    }
}

fn seconds(ms: &f64) -> f64 {
    ms / 1e3
}

fn is_tripped(state: &Option<String>) -> bool {
    state.as_deref() == Some("tripped")
}

fn carried_bit_s(overload: &Option<OverloadStatus>) -> u64 {
    overload.map_or(0, |overload| overload.carries_bit_s)
}

table_of_figures! {
    /// A link of a multi-link session.
    pub struct LinkStatus from(name: &str, stats: &LinkStats, over_tcp: bool) {
        /// Name of the link in the configuration.
        name: String = name.to_owned();
        /// The peer's address on the link.
        address: String = stats.address.to_string();
        /// True while packets arrive on it, as far as is known.
        works: bool = stats.works => gauge("skyhop_link_works", "1 if packets arrive on the link");
        /// True while its packets go over TCP, because UDP is blocked on it.
        #[serde(default)]
        over_tcp: bool = over_tcp => gauge("skyhop_link_over_tcp", "1 while the link's packets go over TCP, because UDP is blocked on it");
        /// Smoothed round-trip time of the link.
        rtt_ms: f64 = ms(stats.rtt) => gauge("skyhop_link_rtt_seconds", "Smoothed round-trip time of the link"), seconds;
        /// Sending rate of this side.
        rate_bit_s: u64 = stats.rate.bits_per_second() => gauge("skyhop_link_rate_bits_per_second", "Rate at which this side sends on the link");
        /// Recent loss rate of this side's packets, 0 to 1.
        loss: f64 = stats.loss => gauge("skyhop_link_loss_ratio", "Recent share of packets lost on the link");
        /// Bytes sent, as IP packets.
        sent_bytes: u64 = stats.bytes_sent => counter("skyhop_link_sent_bytes", "Bytes of IP packets sent on the link");
        /// Bytes received, as IP packets.
        received_bytes: u64 = stats.bytes_received => counter("skyhop_link_received_bytes", "Bytes of IP packets received on the link");
        /// Packets lost; their contents were sent again.
        packets_lost: u64 = stats.packets_lost => counter("skyhop_link_packets_lost", "Packets lost on the link; their contents were sent again");
    }
}

table_of_figures! {
    /// A class's share of a session's rate.
    #[derive(Eq)]
    pub struct ClassStatus from(name: &str, weight: u16, rates: &ClassRates, stats: &ClassStats) {
        /// Name of the class in the configuration.
        name: String = name.to_owned();
        /// Weight relative to other classes.
        weight: u16 = weight;
        /// Guaranteed rate; `None` without a guarantee.
        guaranteed_bit_s: Option<u64> = rates.guaranteed.map(BitRate::bits_per_second);
        /// Maximum rate; `None` without a limit.
        maximum_bit_s: Option<u64> = rates.maximum.map(BitRate::bits_per_second);
        /// Bytes of IP packets on the hop with new data of the class.
        sent_bytes: u64 = stats.bytes_sent => counter("skyhop_class_sent_bytes", "Bytes of IP packets on the hop with new data");
        /// Part of `sent_bytes`, sent under the guarantee.
        guaranteed_sent_bytes: u64 = stats.guaranteed_bytes_sent => counter("skyhop_class_guaranteed_sent_bytes", "The part of sent_bytes that the guaranteed rate covered");
        /// Bytes queued for sending: packets, and stream data within the peer's credit.
        waiting_bytes: u64 = stats.waiting.get() => gauge("skyhop_class_waiting_bytes", "Bytes waiting in the class");
    }
}

table_of_figures! {
    /// Traffic of a packet channel in a session.
    pub struct ChannelStatus from(channel: u8, class: Option<String>, stats: &ChannelStats) {
        /// Channel number, the same on both sides.
        channel: u8 = channel;
        /// The class that this side sends on the channel. Classes of the other side may differ.
        class: Option<String> = class;
        /// Packets sent, not counting retransmissions.
        packets_sent: u64 = stats.sent => counter("skyhop_channel_packets_sent", "Packets sent, without retransmissions");
        /// Bytes of these packets, without the hop's headers.
        sent_bytes: u64 = stats.bytes_sent => counter("skyhop_channel_sent_bytes", "Bytes of packets sent");
        /// Part of `packets_sent` sent with compressed headers.
        #[serde(default)]
        compressed: u64 = stats.compressed => counter("skyhop_channel_compressed", "Packets sent without the headers that the peer knows");
        /// Bytes saved by header compression.
        #[serde(default)]
        header_saved_bytes: u64 = stats.header_bytes_saved => counter("skyhop_channel_header_saved_bytes", "Bytes of headers that were not sent");
        /// Packets or parts of packets retransmitted (ARQ).
        retransmitted: u64 = stats.retransmitted => counter("skyhop_channel_retransmitted", "Packets, or parts, retransmitted");
        /// Packets or parts of packets lost on the hop and not retransmitted.
        lost: u64 = stats.lost => counter("skyhop_channel_lost", "Packets, or parts, lost and not retransmitted");
        /// Packets dropped from a full queue.
        dropped_full: u64 = stats.dropped_full => counter("skyhop_channel_dropped_full", "Packets dropped because the queue was full");
        /// Packets dropped by CoDel to slow their senders down.
        dropped_aqm: u64 = stats.dropped_aqm => counter("skyhop_channel_dropped_aqm", "Packets dropped by CoDel");
        /// Packets dropped because they waited too long.
        expired: u64 = stats.dropped_stale => counter("skyhop_channel_expired", "Packets dropped because they had waited too long");
        /// Bytes of packets queued for sending.
        waiting_bytes: u64 = stats.waiting.get() => gauge("skyhop_channel_waiting_bytes", "Bytes waiting to be sent");
        /// Queueing delay of the last packet sent.
        queue_ms: f64 = ms(stats.queue_wait) => gauge("skyhop_channel_queue_seconds", "Queueing time of the last packet"), seconds;
        /// Packets received and delivered on this side.
        packets_received: u64 = stats.delivered => counter("skyhop_channel_packets_received", "Packets received and delivered").before("skyhop_channel_waiting_bytes");
        /// Bytes of the packets delivered.
        received_bytes: u64 = stats.bytes_delivered => counter("skyhop_channel_received_bytes", "Bytes of packets received").before("skyhop_channel_waiting_bytes");
        /// Packets or parts of packets restored here by FEC.
        recovered: u64 = stats.recovered => counter("skyhop_channel_recovered", "Packets, or parts, restored here by FEC").before("skyhop_channel_waiting_bytes");
        /// Packets given up, because later packets could not be held any longer.
        missing: u64 = stats.missing => counter("skyhop_channel_missing", "Packets given up as missing").before("skyhop_channel_waiting_bytes");
        /// Packets received as duplicates, or after they had been given up.
        late: u64 = stats.late => counter("skyhop_channel_late", "Packets that arrived twice or too late").before("skyhop_channel_waiting_bytes");
        /// Bytes received and held until earlier packets arrive.
        held_bytes: u64 = stats.held.get();
    }
}
