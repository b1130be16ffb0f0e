//! What a session counts.

use core::time::Duration;
use std::sync::Arc;

use units::ByteCount;

/// Counters of a session since it was set up, and a few present values.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Packets sent, of any kind.
    pub packets_sent: u64,
    /// The IP packets they made, in bytes.
    pub bytes_sent: u64,
    /// Authentic packets received.
    pub packets_received: u64,
    /// The IP packets they came in, in bytes.
    pub bytes_received: u64,
    /// Packets declared lost; what they carried was sent again.
    pub packets_lost: u64,
    /// Packets that FEC restored here.
    pub recovered: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Repairs received.
    pub repairs_received: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
    /// Times that nothing was acknowledged for too long.
    pub probes: u64,
    /// Packets received again.
    pub duplicates: u64,
    /// Packets that were not authentic.
    pub forged: u64,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The share of packets that the link loses, of those sent.
    pub loss: f64,
    /// Streams alive.
    pub streams: usize,
    /// Bytes held until the peer acknowledges them.
    pub held_to_send: ByteCount,
    /// Bytes held until the owner reads them.
    pub held_to_read: ByteCount,
    /// How the peer broke the protocol, if it did.
    pub failure: Option<Arc<str>>,
}
