//! Counters and statistics of sessions, channels, classes, streams and the endpoint.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use units::{BitRate, ByteCount};

use crate::{EcnState, Overload, RateState};

/// State and counters of one link of a session ([`Config::links`](crate::Config::links)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkStats {
    /// The number of the link, an index of [`Config::links`](crate::Config::links).
    pub link: u8,
    /// The peer's address on this link.
    pub address: SocketAddr,
    /// Packets arrive on it, as far as is known.
    pub works: bool,
    /// Smoothed round-trip time of this link.
    pub rtt: Duration,
    /// Rate towards the peer; 0 if nothing is known yet.
    pub rate: BitRate,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Bytes of IP packets sent.
    pub bytes_sent: u64,
    /// Bytes of IP packets received.
    pub bytes_received: u64,
    /// Packets of this link declared lost.
    pub packets_lost: u64,
}

/// Counters of a session since it was set up, and some current values.
#[derive(Debug, Clone, Default)]
pub struct SessionStats {
    /// Packets sent, of any kind.
    pub packets_sent: u64,
    /// Bytes of IP packets sent.
    pub bytes_sent: u64,
    /// Authentic packets received, without duplicates.
    pub packets_received: u64,
    /// Bytes of IP packets received.
    pub bytes_received: u64,
    /// Packets declared lost. Their contents were sent again.
    pub packets_lost: u64,
    /// Packets restored here by FEC.
    pub recovered: u64,
    /// Repairs (FEC) sent to the peer.
    pub repairs_sent: u64,
    /// Bytes of IP packets that carried repairs.
    pub repair_bytes: u64,
    /// Bytes of padding sent to measure the path.
    pub padding_bytes: u64,
    /// Padding that [`Config::padding_share`](crate::Config::padding_share) still allows now, in
    /// bytes; 0 if the configuration forbids padding, or the rate is never measured.
    pub padding_left: u64,
    /// Repairs (FEC) received from the peer.
    pub repairs_received: u64,
    /// Acknowledgements sent to the peer.
    pub acknowledgements: u64,
    /// Probes sent because no acknowledgement came for too long.
    pub probes: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets received that were not authentic.
    pub forged: u64,
    /// Arrival times reported by the peer that cannot be true. They are not used.
    pub impossible_times: u64,
    /// State of ECN on the path from this side to the peer.
    pub ecn: EcnState,
    /// Packets sent with ECT(0), on all paths of the session.
    pub ect_sent: u64,
    /// Packets of this side that met congestion (CE), as reported by the peer.
    pub ce_reported: u64,
    /// Packets received with ECT(0), which have not met congestion.
    pub ect_received: u64,
    /// Packets received that met congestion (CE).
    pub ce_received: u64,
    /// Current maximum size of IP packets.
    pub packet_size: ByteCount,
    /// Number of times the path stopped carrying packets of that size.
    pub black_holes: u64,
    /// Number of renewals of the packet keys.
    pub key_changes: u64,
    /// Smoothed round-trip time of the session.
    pub rtt: Duration,
    /// Current sending rate towards the peer.
    pub rate: BitRate,
    /// The certainty of the rate.
    pub rate_state: RateState,
    /// Number of times that the circuit breaker of a configured rate has tripped.
    pub trips: u64,
    /// Set while the configured or reported rate exceeds the link, though not so far that the breaker
    /// trips.
    pub overload: Option<Overload>,
    /// Number of falls of the measured capacity
    /// ([`Event::CapacityFell`](crate::Event::CapacityFell)).
    pub capacity_falls: u64,
    /// The rate the path offers this session, if it is measured.
    pub capacity: Option<BitRate>,
    /// Queueing delay on the path; zero if it is not measured.
    pub queue: Duration,
    /// Minimum round-trip time, if it is measured.
    pub min_rtt: Option<Duration>,
    /// Fraction of sent packets lost on the link, 0 to 1.
    pub loss: f64,
    /// Number of streams that are not over.
    pub streams: usize,
    /// Bytes held until the peer acknowledges them.
    pub held_to_send: ByteCount,
    /// Bytes held until the owner reads them.
    pub held_to_read: ByteCount,
    /// Total memory of the session: the two above, the streams themselves, packet channels in both
    /// directions, records of packets sent and received, repairs and what they protect, and waiting
    /// frames, with map entries at 64 bytes each. At most five times
    /// [`Config::memory`](crate::Config::memory), plus 1 kB per stream, the queues of the owner's
    /// packet channels, 0.15 s of the rate and 3 MB. Each further link may hold as much again of what
    /// is in flight.
    pub held: ByteCount,
    /// Frames received for packet channels that this side does not have.
    pub unknown_channels: u64,
    /// Packets received with compressed headers for which there was no context. They are lost. An
    /// honest peer sends none, except packets that arrive ten seconds late.
    pub without_context: u64,
    /// Log events overwritten before the owner took them.
    pub log_overwritten: u64,
    /// The peer's violation of the protocol, if there was one.
    pub failure: Option<Arc<str>>,
}

impl SessionStats {
    /// Adds the counters of one link of the session.
    pub(crate) fn add_link(&mut self, link: &LinkCounters) {
        self.packets_sent += link.packets_sent;
        self.bytes_sent += link.bytes_sent;
        self.packets_received += link.packets_received;
        self.bytes_received += link.bytes_received;
        self.packets_lost += link.packets_lost;
        self.recovered += link.recovered;
        self.repairs_sent += link.repairs_sent;
        self.repair_bytes += link.repair_bytes;
        self.padding_bytes += link.padding_bytes;
        self.repairs_received += link.repairs_received;
        self.acknowledgements += link.acknowledgements;
        self.probes += link.probes;
        self.duplicates += link.duplicates;
        self.forged += link.forged;
        self.black_holes += link.black_holes;
        self.trips += link.trips;
    }
}

/// What a session counts for each of its links. The fields are those of [`SessionStats`].
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    pub(crate) packets_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) bytes_received: u64,
    pub(crate) packets_lost: u64,
    pub(crate) recovered: u64,
    pub(crate) repairs_sent: u64,
    pub(crate) repair_bytes: u64,
    pub(crate) padding_bytes: u64,
    pub(crate) repairs_received: u64,
    pub(crate) acknowledgements: u64,
    pub(crate) probes: u64,
    pub(crate) duplicates: u64,
    pub(crate) forged: u64,
    pub(crate) black_holes: u64,
    pub(crate) trips: u64,
    /// Not summed up: the owner hears of the first link alone.
    pub(crate) capacity_falls: u64,
}

/// Counters of a session's packet channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Packets sent by the owner.
    pub offered: u64,
    /// Packets dropped because the queue was full.
    pub dropped_full: u64,
    /// Packets dropped because they had waited too long.
    pub dropped_stale: u64,
    /// Packets dropped by active queue management to slow down their sender.
    pub dropped_aqm: u64,
    /// Packets sent for the first time.
    pub sent: u64,
    /// Bytes of these packets, without headers and retransmissions.
    pub bytes_sent: u64,
    /// Packets sent without their headers, which the peer has as a context.
    pub compressed: u64,
    /// Bytes of headers that were thus not sent, less what the contexts cost.
    pub header_bytes_saved: u64,
    /// Packets, or parts of split packets, retransmitted.
    pub retransmitted: u64,
    /// Packets, or parts of split packets, acknowledged.
    pub acknowledged: u64,
    /// Packets or parts lost and not (yet) retransmitted: there was no retransmission, it was lost
    /// too, or it would have come too late.
    pub lost: u64,
    /// Bytes waiting to be sent.
    pub waiting: ByteCount,
    /// Queueing time of the packet sent last.
    pub queue_wait: Duration,
    /// Packets received with all their parts.
    pub received: u64,
    /// Packets or parts restored here by FEC.
    pub recovered: u64,
    /// Bytes of packets or parts that wait for missing ones.
    pub held: ByteCount,
    /// Packets delivered to the owner.
    pub delivered: u64,
    /// Bytes of the packets delivered to the owner.
    pub bytes_delivered: u64,
    /// Packets received twice, or after they had been given up.
    pub late: u64,
    /// Packets given up because they were missing for too long.
    pub missing: u64,
}

/// Counters of a session's class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of IP packets that carried new data of the class.
    pub bytes_sent: u64,
    /// The part of these sent within its guarantee.
    pub guaranteed_bytes_sent: u64,
    /// Bytes waiting for the class's turn: of packet channels, and of streams as far as their
    /// readers' credit allows.
    pub waiting: ByteCount,
}

/// Statistics of a live stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Bytes written by the owner.
    pub written: u64,
    /// Bytes written but never sent.
    pub unsent: u64,
    /// Bytes sent but not acknowledged.
    pub unacknowledged: u64,
    /// Only the peer's credit stops the stream, because the reader behind the peer is slow.
    pub blocked_by_peer: bool,
    /// Bytes retransmitted after a loss.
    pub resent: u64,
    /// Bytes received that wait for the owner, or for missing data before them.
    pub held_to_read: u64,
    /// Bytes received in packets that FEC restored here.
    pub recovered: u64,
}

/// The size of an endpoint's state, beyond the memory of its sessions
/// ([`SessionStats::held`](crate::SessionStats::held)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointFootprint {
    /// Number of sessions, those with unreachable peers included.
    pub sessions: usize,
    /// Handshakes in progress, at most one for each allowed terminal.
    pub handshakes: usize,
    /// Handshake datagrams queued for the link, at most 2,048.
    pub waiting: usize,
}

/// Work that a hub has spent on handshake datagrams, including forged ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HandshakeEffort {
    /// HMACs computed to check knocks and cookies and to seal answers.
    pub hashes: u64,
    /// Initiations decrypted. Each takes two Diffie–Hellman operations, which cost far more than a
    /// hash.
    pub handshakes: u64,
}
