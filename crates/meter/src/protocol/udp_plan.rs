//! The plan of a UDP measurement, and the counts of its receiver.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};

use super::direction::Directions;

/// Size of a datagram's head, and so the minimum size of a datagram, in bytes.
pub(crate) const HEAD_LEN: usize = 20;

/// Maximum number of datagrams per direction.
pub const DATAGRAMS_MAX: u64 = 10_000_000;

/// The plan of a stream of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPlan {
    /// Bits of datagram contents per second.
    pub rate: BitRate,
    /// Size of each datagram in bytes: a head of 20, the rest payload.
    pub length: u16,
    /// Time during which to send.
    pub time: Duration,
    /// The directions in which to send.
    pub directions: Directions,
}

impl UdpPlan {
    /// Returns the number of datagrams per direction.
    pub fn datagrams(&self) -> u64 {
        self.rate.bytes_in(self.time).get().div_ceil(u64::from(self.length))
    }

    pub(crate) fn due(&self, number: u64) -> Duration {
        let bytes = number.saturating_mul(self.length.into());
        self.rate.time_to_send(ByteCount::new(bytes))
    }
}

/// A receiver's counts of a stream of datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpCounts {
    /// Datagrams received intact, each counted once.
    pub received: u64,
    /// Datagrams that had been received before.
    pub duplicates: u64,
    /// Datagrams that arrived after one with a higher number (RFC 4737 §3).
    pub reordered: u64,
    /// Datagrams with wrong contents or length.
    pub corrupt: u64,
    /// Datagrams that arrived and found no room in the receiver's socket: the path has not lost
    /// them.
    #[serde(default)]
    pub overflowed: u64,
    /// Interarrival jitter after the last datagram (RFC 3550 §6.4.1); `None` with fewer than two.
    #[serde(rename = "jitter_seconds", with = "crate::json::maybe_seconds")]
    pub jitter: Option<Duration>,
    /// The most by which the delay of 99 % of the datagrams exceeds the shortest one (packet delay
    /// variation, RFC 5481 §4.2), rounded up to 0.1 ms; `None` with fewer than two.
    #[serde(default, rename = "delay_variation_p99_seconds", with = "crate::json::maybe_seconds")]
    pub delay_variation: Option<Duration>,
    /// From the first to the last arrival.
    #[serde(rename = "span_seconds", with = "crate::json::seconds")]
    pub span: Duration,
}
