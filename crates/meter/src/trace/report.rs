//! The report on a capture.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::BitRate;

pub use super::moments::DurationStatistics;

/// The end of a connection, as far as captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConnectionEnding {
    /// Both sides have sent FIN.
    Closed,
    /// Only the opening side sent FIN.
    HalfClosedByA,
    /// Only the other side sent FIN.
    HalfClosedByB,
    /// The opening side sent RST before both had sent FIN.
    ResetByA,
    /// The other side sent RST before both had sent FIN.
    ResetByB,
    /// The SYN was answered with RST.
    Refused,
    /// The SYN was not answered.
    Unanswered,
    /// It was still open, or its end was not captured.
    Open,
}

/// The report on a TCP connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Counted from 1, in order of the first packets.
    pub number: u64,
    /// The interface it was captured on.
    pub interface: u32,
    /// The side that sent the SYN or, without one, the first packet.
    pub a: SocketAddr,
    /// The side that A connected to.
    pub b: SocketAddr,
    /// Time of the first packet, from the start of the capture; `None`, as all times, if the file
    /// does not say when the connection's packets were captured.
    #[serde(rename = "start_seconds", with = "crate::json::maybe_seconds")]
    pub start: Option<Duration>,
    /// From the first packet to the last.
    #[serde(rename = "lasted_seconds", with = "crate::json::maybe_seconds")]
    pub lasted: Option<Duration>,
    /// From the first SYN to the first acknowledgement of the answer to it.
    #[serde(rename = "handshake_seconds", with = "crate::json::maybe_seconds")]
    pub handshake: Option<Duration>,
    /// Set if the capture has both SYNs. Without them the window scale is unknown, and windows are
    /// not reported.
    pub begins_in_capture: bool,
    /// The end of the connection.
    pub ending: ConnectionEnding,
    /// The direction from A to B.
    pub a_to_b: DirectionReport,
    /// The direction from B to A.
    pub b_to_a: DirectionReport,
}

/// The report on one direction of a connection: its packets, and the classes of their payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Number of packets, without copies.
    pub packets: u64,
    /// Packets that had been captured before, at another place or by a mirror. They count nowhere
    /// else.
    pub copies: u64,
    /// Packets with payload, without probes.
    pub data_packets: u64,
    /// Packets with only an acknowledgement.
    pub pure_acks: u64,
    /// Pure acknowledgements that repeat the last one while data is outstanding (RFC 5681 §2).
    pub duplicate_acks: u64,
    /// Packets with SACK blocks other than D-SACKs.
    pub sack_packets: u64,
    /// SACK blocks in all packets, without D-SACKs.
    pub sack_blocks: u64,
    /// D-SACKs: reports of duplicates (RFC 2883).
    pub dsacks: u64,
    /// SYNs that repeat an earlier one.
    pub syn_retransmissions: u64,
    /// FINs that repeat an earlier one.
    pub fin_retransmissions: u64,
    /// Packets with the RST flag.
    pub resets: u64,
    /// Keep-alives and zero-window probes. Their byte does not count as payload, unless the
    /// receiver took it.
    pub probes: u64,

    /// Bytes of payload in all packets.
    pub payload_bytes: u64,
    /// Bytes of payload, each counted once.
    pub unique_bytes: u64,
    /// Bytes sent again: `payload_bytes` − `unique_bytes`.
    pub retransmitted_bytes: u64,
    /// Packets with payload that had partly or completely been seen before.
    pub retransmitted_packets: u64,
    /// Retransmissions of data that the receiver had already acknowledged by ACK or SACK.
    pub needless_packets: u64,
    /// Packets that fill a hole at least a round trip late: retransmissions of data lost before the
    /// capture point. `None` without times, like the two below.
    pub repair_packets: Option<u64>,
    /// Payload bytes of the repairs.
    pub repair_bytes: Option<u64>,
    /// Packets with payload that others overtook: those that fill a hole sooner.
    pub reordered_packets: Option<u64>,
    /// Bytes acknowledged but missing from the capture.
    pub missed_bytes: u64,

    /// The MSS that this side announced.
    pub mss: Option<u16>,
    /// Maximum payload of a packet, in bytes.
    pub largest_payload: u64,
    /// The window scale that this side announced.
    pub window_scale: Option<u8>,
    /// Set if this side announced SACK support.
    pub sack_permitted: bool,
    /// Set if this side sent time stamps.
    pub timestamps: bool,
    /// The windows this side advertised, except in SYNs.
    pub advertised_window: Option<WindowReport>,

    /// Payload sent before its first acknowledgement: the initial window, if there was enough to
    /// send. `None` if the capture has no acknowledgement of payload.
    pub initial_window_bytes: Option<u64>,
    /// Maximum number of bytes outstanding; `None` if the capture has no acknowledgement.
    pub outstanding_max_bytes: Option<u64>,
    /// Mean number of bytes outstanding, from the first payload to the last acknowledgement.
    pub outstanding_mean_bytes: Option<f64>,
    /// Time during which the receiver's window had less than a full segment left.
    #[serde(rename = "window_limited_seconds", with = "crate::json::maybe_seconds")]
    pub window_limited: Option<Duration>,
    /// Time during which the receiver's window was zero.
    #[serde(rename = "zero_window_seconds", with = "crate::json::maybe_seconds")]
    pub zero_window: Option<Duration>,
    /// Round-trip times from payload to its acknowledgement.
    pub rtt: Option<DurationStatistics>,
    /// Round-trip times from the time stamps of RFC 7323, at their resolution.
    pub timestamp_rtt: Option<DurationStatistics>,

    /// Time of the first packet with payload, from the connection's first packet.
    #[serde(rename = "first_data_seconds", with = "crate::json::maybe_seconds")]
    pub first_data: Option<Duration>,
    /// Time of the last packet with payload.
    #[serde(rename = "last_data_seconds", with = "crate::json::maybe_seconds")]
    pub last_data: Option<Duration>,
    /// The longest time between two packets with payload.
    #[serde(rename = "idle_seconds", with = "crate::json::maybe_seconds")]
    pub idle: Option<Duration>,
    /// When that gap began, from the connection's first packet.
    #[serde(rename = "idle_start_seconds", with = "crate::json::maybe_seconds")]
    pub idle_start: Option<Duration>,
    /// All payload over the time from its first to its last packet.
    #[serde(rename = "throughput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub throughput: Option<BitRate>,
    /// Distinct payload over the time from the connection's first packet to the last one with
    /// payload.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
}

impl DirectionReport {
    /// Removes all figures that rest on times.
    pub(super) fn forget_times(&mut self) {
        // The maximum stays: it depends only on the order of packets.
        self.outstanding_mean_bytes = None;
        (self.repair_packets, self.repair_bytes, self.reordered_packets) = (None, None, None);
        (self.window_limited, self.zero_window) = (None, None);
        (self.rtt, self.timestamp_rtt) = (None, None);
        (self.first_data, self.last_data) = (None, None);
        (self.idle, self.idle_start) = (None, None);
        (self.throughput, self.goodput) = (None, None);
    }
}

/// The windows that a side advertised, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// The first window after the SYN.
    pub first: u64,
    /// The smallest window, scaled like the others.
    pub min: u64,
    /// The largest window after the SYN.
    pub max: u64,
    /// Number of packets with a zero window.
    pub zero: u64,
}

/// The report on a whole capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// Number of packets of any kind.
    pub packets: u64,
    /// Number of packets with TCP.
    pub tcp_packets: u64,
    /// Number of packets of other protocols, by name.
    pub other_packets: BTreeMap<String, u64>,
    /// Problems with the input, one line each.
    pub warnings: Vec<String>,
    /// The connections, in order of their first packets.
    pub connections: Vec<ConnectionReport>,
}
