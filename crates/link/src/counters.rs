//! Counters of a link, which account for every packet.

use units::ByteCount;

use crate::payload::NumberedPacket;

/// A number of packets and their bytes on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Number of packets, whatever their length.
    pub packets: u64,
    /// Their bytes: the sum of [`crate::CarriedPacket::wire_len`].
    pub bytes: ByteCount,
}

impl Tally {
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes = ByteCount::new(self.bytes.get().saturating_add(len as u64));
    }

    pub(crate) fn remove(&mut self, len: usize) {
        self.packets -= 1;
        self.bytes = ByteCount::new(self.bytes.get().saturating_sub(len as u64));
    }
}

impl PacketCounters {
    /// Records the arrival of a packet.
    pub(crate) fn deliver<P>(&mut self, frame: &NumberedPacket<P>) {
        self.delivered.add(frame.len);
        let carried = self.delivered_with_encapsulation.get().saturating_add(frame.carried);
        self.delivered_with_encapsulation = ByteCount::new(carried);
    }

    /// Records that the queue's discipline dropped a waiting packet.
    pub(crate) fn drop_waiting(&mut self, len: usize) {
        self.inside.remove(len);
        self.dropped_queue.add(len);
        self.dropped_early.add(len);
    }
}

/// The counters of a link. At any time
/// `offered = dropped_queue + lost + delivered + inside`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounters {
    /// Offered to the link, whatever happened to them.
    pub offered: Tally,
    /// Dropped before the link: by the full queue, its discipline, or the policer.
    pub dropped_queue: Tally,
    /// Dropped by the discipline although there was room; a part of `dropped_queue`.
    pub dropped_early: Tally,
    /// Dropped by the policer; a part of `dropped_queue`.
    pub dropped_policer: Tally,
    /// Marked as "congestion experienced" instead of being dropped.
    pub marked: Tally,
    /// Lost on the link; counted at the time they would have been delivered.
    pub lost: Tally,
    /// Delivered at the far end.
    pub delivered: Tally,
    /// Bytes on the link of the delivered packets, encapsulation included.
    pub delivered_with_encapsulation: ByteCount,
    /// Accepted but neither delivered nor lost yet: waiting, being serialised, propagating, or
    /// arrived but not polled.
    pub inside: Tally,
}
