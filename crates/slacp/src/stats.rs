//! What a session counts.

use core::time::Duration;
use std::sync::Arc;

use units::{BitRate, ByteCount};

use crate::RateState;

/// What an entry of a map counts for beside its bytes. A node of a `BTreeMap` has room
/// for 11 and is half full after insertions in order: 24 bytes of number and box
/// take 48, and the allocator 16 for what the box holds.
pub(crate) const ENTRY: usize = 64;

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
    /// The IP packets that carried them, in bytes.
    pub repair_bytes: u64,
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
    /// The size of the largest IP packet that is sent.
    pub packet_size: ByteCount,
    /// Times that the path stopped carrying packets of that size.
    pub black_holes: u64,
    /// How often the keys have been renewed.
    pub key_changes: u64,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The rate at which packets leave at present.
    pub rate: BitRate,
    /// How far it is known.
    pub rate_state: RateState,
    /// What the path gives this session, if that is measured.
    pub capacity: Option<BitRate>,
    /// How long packets wait in the path's queue, if that is measured.
    pub queue: Duration,
    /// The least round-trip time, if that is measured.
    pub min_rtt: Option<Duration>,
    /// The share of packets that the link loses, of those sent.
    pub loss: f64,
    /// Streams alive.
    pub streams: usize,
    /// Bytes held until the peer acknowledges them.
    pub held_to_send: ByteCount,
    /// Bytes held until the owner reads them.
    pub held_to_read: ByteCount,
    /// Bytes that the session holds in all: the two above, streams themselves, packet
    /// channels in both directions, records of packets sent and received, repairs and
    /// what they protect, frames that wait; maps with 64 bytes an entry. At most five
    /// times [`Config::memory`](crate::Config::memory), 1 kB for each stream, the queues
    /// of the owner's packet channels, 0.15 s of the rate and 3 MB.
    pub held: ByteCount,
    /// Frames of packet channels that this side does not have.
    pub unknown_channels: u64,
    /// Events that the event log had no room for any more.
    pub log_overwritten: u64,
    /// How the peer broke the protocol, if it did.
    pub failure: Option<Arc<str>>,
}

/// Counters of a packet channel of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Packets that the owner sent.
    pub offered: u64,
    /// Of these, dropped because the queue was full.
    pub dropped_full: u64,
    /// Dropped because they had waited too long.
    pub dropped_stale: u64,
    /// Dropped by the queue management so that their sender slows down.
    pub dropped_aqm: u64,
    /// Packets that left for the first time.
    pub sent: u64,
    /// Their bytes, once, without headers.
    pub bytes_sent: u64,
    /// Packets, or parts of them, that were sent again.
    pub retransmitted: u64,
    /// Packets, or parts, acknowledged.
    pub acknowledged: u64,
    /// Packets, or parts, lost and not sent (yet) again: there was no
    /// retransmission, it was lost, too, or it would have come too late.
    pub lost: u64,
    /// Bytes that wait to be sent.
    pub waiting: ByteCount,
    /// How long the packet that left last had waited.
    pub queue_wait: Duration,
    /// Packets received whole.
    pub received: u64,
    /// Packets, or parts, that came in packets that FEC restored here.
    pub recovered: u64,
    /// Bytes of packets, or parts, that wait for others.
    pub held: ByteCount,
    /// Packets delivered to the owner.
    pub delivered: u64,
    /// Their bytes.
    pub bytes_delivered: u64,
    /// Packets that came again, or after they had been given up.
    pub late: u64,
    /// Packets that were not waited for any longer.
    pub missing: u64,
}

/// Counters of a class of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of IP packets that new data of the class took.
    pub bytes_sent: u64,
    /// Of these, by its guarantee.
    pub guaranteed_bytes_sent: u64,
    /// Bytes that wait for the class's turn: of streams, except what their readers'
    /// credit does not allow, and of packet channels.
    pub waiting: ByteCount,
}

/// What is known of a stream that is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Bytes that the owner wrote.
    pub written: u64,
    /// Of these, never sent.
    pub unsent: u64,
    /// Of these, sent and not acknowledged.
    pub unacknowledged: u64,
    /// Whether only the peer's credit keeps it from sending: the reader behind
    /// the peer is slow.
    pub blocked_by_peer: bool,
    /// Bytes sent again because they were lost.
    pub resent: u64,
    /// Bytes received that wait for the owner, or for what is missing before
    /// them.
    pub held_to_read: u64,
    /// Bytes received in packets that FEC restored here.
    pub recovered: u64,
}
