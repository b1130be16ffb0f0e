//! What is told of a capture.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::BitRate;

pub use super::moments::Durations;

/// How a connection ended, as far as the capture goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// Both sides have sent FIN.
    Closed,
    /// Only the side that opened it has sent FIN.
    HalfClosedByA,
    /// Only the other side has sent FIN.
    HalfClosedByB,
    /// The side that opened it sent RST before both had sent FIN.
    ResetByA,
    /// The other side did.
    ResetByB,
    /// The SYN was answered with RST.
    Refused,
    /// The SYN was not answered.
    Unanswered,
    /// It goes on, or its end was not captured.
    Open,
}

/// One TCP connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Counted from 1 in the order of the first packets.
    pub number: u64,
    /// The interface of the capture that saw it.
    pub interface: u32,
    /// Who sent the SYN; without one, who sent the first packet.
    pub a: SocketAddr,
    /// The other side.
    pub b: SocketAddr,
    /// The first packet, from the start of the capture.
    #[serde(rename = "start_seconds", with = "crate::json::seconds")]
    pub start: Duration,
    /// From the first packet to the last.
    #[serde(rename = "lasted_seconds", with = "crate::json::seconds")]
    pub lasted: Duration,
    /// From the first SYN to the first acknowledgement of the answer to it.
    #[serde(rename = "handshake_seconds", with = "crate::json::maybe_seconds")]
    pub handshake: Option<Duration>,
    /// Whether the capture has the SYNs of both sides. Without them the scale of
    /// the windows is not known, and nothing is said of windows.
    pub begins_in_capture: bool,
    /// How it ended.
    pub ending: Ending,
    /// From A to B.
    pub a_to_b: DirectionReport,
    /// From B to A.
    pub b_to_a: DirectionReport,
}

/// One direction of a connection: the packets that went this way, and how the
/// payload in them fared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// All packets.
    pub packets: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Packets with nothing but an acknowledgement.
    pub pure_acks: u64,
    /// Of these, those that say nothing new while data is outstanding
    /// (RFC 5681 §2).
    pub duplicate_acks: u64,
    /// Packets with SACK blocks, without the D-SACKs alone.
    pub sack_packets: u64,
    /// SACK blocks in all packets, without D-SACKs.
    pub sack_blocks: u64,
    /// Reports that something arrived twice (RFC 2883).
    pub dsacks: u64,
    /// SYNs sent again.
    pub syn_retransmissions: u64,
    /// FINs sent again.
    pub fin_retransmissions: u64,
    /// Packets with RST.
    pub resets: u64,
    /// Keep-alives and probes of a closed window.
    pub probes: u64,

    /// Bytes of payload in all packets.
    pub payload_bytes: u64,
    /// Bytes of payload, each counted once.
    pub unique_bytes: u64,
    /// `payload_bytes` − `unique_bytes`.
    pub retransmitted_bytes: u64,
    /// Packets with payload of which some or all had been seen.
    pub retransmitted_packets: u64,
    /// Of these, those that the receiver had acknowledged before, by ACK or SACK.
    pub needless_packets: u64,
    /// Packets that fill a hole a round trip late: retransmissions of what was
    /// lost before the place of the capture.
    pub repair_packets: u64,
    /// The payload of these.
    pub repair_bytes: u64,
    /// Packets that were overtaken.
    pub reordered_packets: u64,
    /// Bytes that were acknowledged but are not in the capture.
    pub missed_bytes: u64,

    /// The MSS that this side announced.
    pub mss: Option<u16>,
    /// The most payload of a packet.
    pub largest_payload: u64,
    /// The window scale that this side announced.
    pub window_scale: Option<u8>,
    /// Whether this side announced that it takes SACK.
    pub sack_permitted: bool,
    /// Whether this side sent time stamps.
    pub timestamps: bool,
    /// The windows that this side advertised, SYN excepted.
    pub advertised_window: Option<WindowReport>,

    /// Payload sent before the first acknowledgement of any of it: the initial
    /// window, if there was enough to send.
    pub initial_window_bytes: Option<u64>,
    /// The most bytes sent and not acknowledged.
    pub outstanding_max_bytes: u64,
    /// The mean of that over the time from the first payload to the last
    /// acknowledgement.
    pub outstanding_mean_bytes: Option<f64>,
    /// For how long less than a full segment of the receiver's window was left.
    #[serde(rename = "window_limited_seconds", with = "crate::json::maybe_seconds")]
    pub window_limited: Option<Duration>,
    /// For how long the receiver's window was zero.
    #[serde(rename = "zero_window_seconds", with = "crate::json::maybe_seconds")]
    pub zero_window: Option<Duration>,
    /// Round trips from payload to its acknowledgement.
    pub rtt: Option<Durations>,
    /// Round trips by the time stamps of RFC 7323, to their tick.
    pub timestamp_rtt: Option<Durations>,

    /// The first packet with payload, from the first of the connection.
    #[serde(rename = "first_data_seconds", with = "crate::json::maybe_seconds")]
    pub first_data: Option<Duration>,
    /// The last one.
    #[serde(rename = "last_data_seconds", with = "crate::json::maybe_seconds")]
    pub last_data: Option<Duration>,
    /// The longest time between two packets with payload.
    #[serde(rename = "idle_seconds", with = "crate::json::maybe_seconds")]
    pub idle: Option<Duration>,
    /// When that began, from the first packet of the connection.
    #[serde(rename = "idle_start_seconds", with = "crate::json::maybe_seconds")]
    pub idle_start: Option<Duration>,
    /// All payload over the time from its first packet to its last.
    #[serde(rename = "throughput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub throughput: Option<BitRate>,
    /// Payload counted once, over the time from the first packet of the
    /// connection to the last one with payload.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
}

/// Windows in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// The first one.
    pub first: u64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// How many packets said zero.
    pub zero: u64,
}

/// The whole capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// Packets of any kind.
    pub packets: u64,
    /// Packets with TCP.
    pub tcp_packets: u64,
    /// What was not read, and why, a line for each reason.
    pub warnings: Vec<String>,
    /// In the order of their first packets.
    pub connections: Vec<ConnectionReport>,
}
