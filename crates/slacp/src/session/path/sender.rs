//! The sending side of a path: sent packets, FEC planning, and header contexts.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use units::{BitRate, Instant};

use crate::Config;
use crate::channels::{Compressor, PacketForm, PacketPiece};
use crate::recovery::LossDetection;
use crate::recovery::planner::RepairPlanner;
use crate::recovery::sent::{SentContent, SentPacket, SentPackets};
use crate::spare::{ENTRY, FreeSpare as _};
use crate::streams::flow::PeerLimits;

/// Number of settled packets after which SETTLED is sent.
const SETTLE_EVERY: u64 = 64;

/// One packet number is skipped at random within this range. A peer that acknowledges packets it
/// has not received is caught this way; an honest one reports about one packet in 2,000 as missing.
const SKIP_INTERVAL: Range<u64> = 64..4096;
/// For this many packets, skipping waits until no packet is to be protected: a number skipped
/// inside a FEC block costs the block a repair.
const MAX_SKIP_DELAY: u64 = 4096;

/// Number of recent packets to which an *unknown* answer may refer.
const RECENT: u64 = 1 << 16;

/// The sending side of a path. The data that waits is in [`SharedState`](super::SharedState).
pub(in crate::session) struct SendSide {
    pub(in crate::session) sent: SentPackets,
    pub(in crate::session) planner: RepairPlanner,
    /// Header contexts that the peer keeps for this link.
    headers: Compressor,
    /// Second copies of retransmissions, with their due times.
    pub(super) copies: VecDeque<(Instant, SentContent)>,
    /// The next packet number to skip.
    skip_at: u64,
    /// Soft limit of the sent-packet records in bytes: beyond it no payload is sent.
    most_in_flight: usize,
    /// Hard limit in bytes: a peer that leaves more unacknowledged violates the protocol.
    most_unacknowledged: usize,
    /// The floor and the time of the last SETTLED.
    settled: u64,
    settled_at: Instant,
}

impl SendSide {
    pub(super) fn new(
        now: Instant,
        config: &Config,
        peer: &PeerLimits,
        (rate, recovery): (BitRate, LossDetection),
        rng: &mut ChaCha20Rng,
    ) -> Self {
        let memory = config.memory.get();
        Self {
            sent: SentPackets::new(recovery),
            planner: RepairPlanner::new(rate),
            headers: Compressor::new(peer.contexts),
            copies: VecDeque::new(),
            skip_at: draw_skip(0, rng),
            most_in_flight: most_in_flight(memory),
            most_unacknowledged: most_unacknowledged(memory),
            settled: 0,
            settled_at: now,
        }
    }

    /// Bytes held by all parts of the sending side.
    pub(super) fn held(&self) -> usize {
        let copies = self.copies.len() * ENTRY;
        self.sent.held() + self.planner.held() + self.headers.held() + copies
    }

    /// Frees allocated memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.sent.free_spare();
        self.planner.free_spare();
        self.copies.free_spare();
    }

    /// Returns whether so many packets await acknowledgement that only probes may be sent.
    pub(super) fn is_full(&self) -> bool {
        self.sent.held() >= self.most_in_flight
    }

    /// Size of the records in bytes, if it exceeds the hard limit.
    pub(super) fn excess_unacknowledged(&self) -> Option<usize> {
        Some(self.sent.held()).filter(|bytes| *bytes > self.most_unacknowledged)
    }

    /// Chooses the frame for a piece of a channel that compresses headers: plain, with a new
    /// context, or compressed.
    pub(super) fn form(&mut self, now: Instant, piece: &PacketPiece) -> PacketForm {
        let place = (piece.channel, piece.lane, piece.sequence);
        self.headers.form(now, place, &piece.data, piece.again)
    }

    /// Records the acknowledgement or the loss of a packet with CONTEXT.
    pub(super) fn on_context(&mut self, slot: u8, serial: u32, arrived: bool) {
        match arrived {
            true => self.headers.established(slot, serial),
            false => self.headers.failed(slot, serial),
        }
    }

    /// Returns whether a packet with this number was sent recently.
    pub(super) fn may_have_sent(&self, number: u64) -> bool {
        let next = self.sent.next_number();
        number < next && number + RECENT >= next
    }

    /// Records the next packet, and skips the following number when that is due.
    pub(super) fn enter(&mut self, packet: Option<SentPacket>, rng: &mut ChaCha20Rng) {
        let number = self.sent.next_number();
        self.sent.push(packet);
        debug_assert_eq!(self.sent.next_number(), number + 1, "packet numbers are consecutive");
        let waits = if self.planner.has_unprotected() { MAX_SKIP_DELAY } else { 0 };
        if number + 1 >= self.skip_at + waits {
            self.sent.skip_number();
            self.skip_at = draw_skip(self.sent.next_number(), rng);
        }
    }

    /// The floor for SETTLED: all packets below it have arrived or are lost, and no pending repair
    /// needs them.
    fn settled_floor(&self) -> u64 {
        self.sent.settled().min(self.planner.floor().unwrap_or(u64::MAX))
    }

    /// The floor to send in SETTLED; `None` if none is due.
    pub(in crate::session) fn settled_due(&self, now: Instant, rtt: Duration) -> Option<u64> {
        if self.sent.settled() == self.settled {
            return None;
        }
        let settled = self.settled_floor();
        // Each acknowledgement repeats all that is not settled.
        let due = settled >= self.settled + SETTLE_EVERY
            || (settled > self.settled && now >= self.settled_at + rtt);
        due.then_some(settled)
    }

    /// Takes the floor for a SETTLED frame, if one is due. With a probe it is `always` due.
    pub(super) fn next_settled(
        &mut self,
        now: Instant,
        rtt: Duration,
        always: bool,
    ) -> Option<u64> {
        let due = self.settled_due(now, rtt);
        let settled = due.or_else(|| always.then(|| self.settled_floor()))?;
        debug_assert!(self.settled <= settled && settled <= self.sent.next_number());
        self.settled = settled;
        self.settled_at = now;
        Some(settled)
    }
}

/// Draws the next number to skip, at random so that a peer cannot predict it.
fn draw_skip(next: u64, rng: &mut ChaCha20Rng) -> u64 {
    next + SKIP_INTERVAL.start + rng.next_u64() % (SKIP_INTERVAL.end - SKIP_INTERVAL.start)
}

/// The size of sent-packet records, in bytes, beyond which only probes are sent. Streams have at
/// most `memory` bytes in flight; as FEC sources these are stored again in the records, and headers
/// and records take less than half of a full packet. For packets of channels this is the only
/// limit.
fn most_in_flight(memory: u64) -> usize {
    usize::try_from(memory + memory / 2).unwrap_or(usize::MAX)
}

/// The size of sent-packet records beyond which a reachable peer is acknowledging nothing, in
/// violation of the protocol. Probes need at least ten minutes to fill half the memory, even if
/// that is only 1 MB.
fn most_unacknowledged(memory: u64) -> usize {
    usize::try_from(memory).unwrap_or(usize::MAX).saturating_mul(2)
}
