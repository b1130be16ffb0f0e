//! One lane of a channel: the missing packets, and the packets that wait for them.

use core::ops::Range;
use std::collections::BTreeMap;

use units::{Instant, RangeSet};

use crate::spare::{ENTRY, FreeSpare as _};
use crate::wire::frame::{ChannelPacket, PacketPart};

/// Maximum number of gaps in a lane. Beyond it the first one is given up.
const MAX_GAPS: usize = 4096;

/// The end of a lane's sequence numbers, as of packet numbers. A peer that skips as far as possible
/// with each packet reaches it after 2³³ of them.
const SEQUENCE_LIMIT: u64 = crate::wire::varint::MAX;

/// The lanes of a channel.
#[derive(Debug, Default)]
pub(super) struct LaneTable {
    /// Boxed because the map's nodes have room for eleven lanes each.
    all: BTreeMap<u8, Box<InboundLane>>,
    /// The next sequence numbers of lanes that had no gaps and no packets when the session rested.
    resting: BTreeMap<u8, u64>,
}

impl LaneTable {
    pub(super) fn get_mut(&mut self, number: u8) -> Option<&mut InboundLane> {
        Some(self.all.get_mut(&number)?)
    }

    /// The lane with this number, which is created if necessary. One that rested continues with its
    /// sequence number.
    pub(super) fn lane(&mut self, number: u8) -> &mut InboundLane {
        let resting = &mut self.resting;
        self.all.entry(number).or_insert_with(|| {
            let next = resting.remove(&number).unwrap_or_default();
            Box::new(InboundLane { next, ..InboundLane::default() })
        })
    }

    /// Number of bytes of packets and parts in all lanes.
    pub(super) fn bytes(&self) -> usize {
        self.all.values().map(|lane| lane.bytes).sum()
    }

    /// Frees lanes without gaps and packets, except for their next sequence numbers.
    pub(super) fn free_spare(&mut self) {
        let idle = self.all.extract_if(.., |_, lane| lane.held() == 0);
        self.resting.extend(idle.map(|(number, lane)| (number, lane.next)));
        self.all.free_spare();
    }
}

/// The undelivered packets of a lane.
#[derive(Debug, Default)]
pub(super) struct InboundLane {
    /// One more than the highest sequence number of which anything has been received.
    next: u64,
    /// Gaps below `next`, by their first number. The times since which they are known never
    /// decrease.
    missing: BTreeMap<u64, LaneGap>,
    waiting: BTreeMap<u64, Box<[u8]>>,
    /// Packets received in part; they count as missing too.
    partial: BTreeMap<u64, PartialPacket>,
    /// Number of bytes of packets and parts.
    bytes: usize,
    /// Number of parts in all of `partial`.
    parts: usize,
    /// The time at which the first missing packet is given up, as listed by [`super::InboundChannels`].
    pub(super) due: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct LaneGap {
    end: u64,
    since: Instant,
}

/// The received parts of a packet. Their memory grows with the bytes received, not with the size
/// that the parts announce.
#[derive(Debug)]
struct PartialPacket {
    total: usize,
    /// Parts by offset; they do not overlap.
    parts: BTreeMap<usize, Box<[u8]>>,
    have: RangeSet,
    /// Total size of the parts, in bytes.
    bytes: usize,
}

impl PartialPacket {
    fn new(total: usize) -> Self {
        Self { total, parts: BTreeMap::new(), have: RangeSet::default(), bytes: 0 }
    }

    /// Adds the bytes of a part that were not received before.
    fn add(&mut self, offset: usize, data: &[u8]) {
        let range = offset as u64..(offset + data.len()) as u64;
        for gap in self.have.gaps(range.clone()) {
            let start = gap.start as usize;
            let end = gap.end as usize;
            self.parts.insert(start, data[start - offset..end - offset].into());
            self.bytes += end - start;
        }
        self.have.insert(range);
    }

    fn is_whole(&self) -> bool {
        self.bytes == self.total
    }

    fn whole(self) -> Box<[u8]> {
        self.parts.into_values().collect::<Vec<_>>().concat().into()
    }
}

/// The use of a received packet or part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketOutcome {
    /// None: the packet was delivered before, is already waiting, or was given up.
    Late,
    /// Other parts of the packet are missing.
    Part,
    /// The packet is complete, with all its parts.
    Whole,
}

impl InboundLane {
    /// Memory in bytes, with [`ENTRY`] per packet, part and gap, and two of them for the maps of a
    /// packet in parts.
    pub(super) fn held(&self) -> usize {
        let entries = self.missing.len() + self.waiting.len() + self.parts;
        self.bytes + (entries + 2 * self.partial.len()) * ENTRY
    }

    /// The time since which the first missing packet is known to be missing.
    pub(super) fn missing_since(&self) -> Option<Instant> {
        self.missing.first_key_value().map(|(_, gap)| gap.since)
    }

    /// Handles a packet or a part. Returns its sequence number and its use.
    pub(super) fn insert(&mut self, now: Instant, packet: &ChannelPacket) -> (u64, PacketOutcome) {
        // Completed to the value nearest to the next one (docs/slacp.md, Frames).
        let sequence = packet.sequence.expand(self.next);
        if sequence >= SEQUENCE_LIMIT {
            return (sequence, PacketOutcome::Late);
        }
        if sequence >= self.next {
            self.add_missing(now, sequence, packet.part.is_some());
        } else if !self.is_missing(sequence) {
            return (sequence, PacketOutcome::Late);
        }
        let whole = match packet.part {
            None => Some(packet.data.into()),
            Some(part) => self.reassemble(sequence, part, packet.data),
        };
        let Some(whole) = whole else { return (sequence, PacketOutcome::Part) };
        // Parts of a packet that also came whole.
        self.remove_partial(sequence);
        self.remove_missing(sequence);
        self.bytes += whole.len();
        self.waiting.insert(sequence, whole);
        (sequence, PacketOutcome::Whole)
    }

    /// Records what is missing below `sequence`, the highest number so far.
    fn add_missing(&mut self, now: Instant, sequence: u64, is_part: bool) {
        let start = core::mem::replace(&mut self.next, sequence + 1);
        // A packet that came in part counts as missing.
        let end = if is_part { sequence + 1 } else { sequence };
        if start < end {
            self.missing.insert(start, LaneGap { end, since: now });
        }
    }

    /// Adds a part; returns the packet if it is complete.
    fn reassemble(&mut self, sequence: u64, part: PacketPart, data: &[u8]) -> Option<Box<[u8]>> {
        let partial =
            self.partial.entry(sequence).or_insert_with(|| PartialPacket::new(part.total));
        // The peer contradicts an earlier part.
        if partial.total < part.offset + data.len() {
            return None;
        }
        let before = (partial.bytes, partial.parts.len());
        partial.add(part.offset, data);
        self.bytes += partial.bytes - before.0;
        self.parts += partial.parts.len() - before.1;
        if !partial.is_whole() {
            return None;
        }
        self.remove_partial(sequence).map(PartialPacket::whole)
    }

    /// Removes the parts of a packet.
    fn remove_partial(&mut self, sequence: u64) -> Option<PartialPacket> {
        let partial = self.partial.remove(&sequence)?;
        self.bytes -= partial.bytes;
        self.parts -= partial.parts.len();
        Some(partial)
    }

    fn gap_at(&self, sequence: u64) -> Option<(u64, LaneGap)> {
        let (start, gap) = self.missing.range(..=sequence).next_back()?;
        (sequence < gap.end).then_some((*start, *gap))
    }

    fn is_missing(&self, sequence: u64) -> bool {
        self.gap_at(sequence).is_some()
    }

    /// Removes a packet from the missing ones.
    fn remove_missing(&mut self, sequence: u64) {
        let Some((start, gap)) = self.gap_at(sequence) else { return };
        self.missing.remove(&start);
        if start < sequence {
            self.missing.insert(start, LaneGap { end: sequence, ..gap });
        }
        if sequence + 1 < gap.end {
            self.missing.insert(sequence + 1, gap);
        }
    }

    /// Takes the next packet to deliver; if `in_order`, only one before the first gap.
    pub(super) fn pop(&mut self, in_order: bool) -> Option<(u64, Box<[u8]>)> {
        let first = *self.waiting.first_key_value()?.0;
        let gap = self.missing.first_key_value().map_or(u64::MAX, |(start, _)| *start);
        if in_order && gap < first {
            return None;
        }
        let packet = self.waiting.pop_first()?;
        self.bytes -= packet.1.len();
        Some(packet)
    }

    /// Gives up the first run of missing packets and returns it.
    pub(super) fn give_up(&mut self) -> Range<u64> {
        let Some((start, gap)) = self.missing.pop_first() else { return 0..0 };
        // Their parts will never be completed, and would go on holding memory.
        while let Some((&sequence, _)) = self.partial.range(start..gap.end).next() {
            self.remove_partial(sequence);
        }
        start..gap.end
    }

    /// Stops waiting for a packet that the sender has given up. Returns `true` if it was missing.
    pub(super) fn skip(&mut self, now: Instant, sequence: u64) -> bool {
        if sequence >= SEQUENCE_LIMIT {
            return false;
        }
        // The report may overtake the packets before it, which are still waited for.
        if sequence >= self.next {
            self.add_missing(now, sequence, true);
        }
        let missing = self.is_missing(sequence);
        self.remove_partial(sequence);
        self.remove_missing(sequence);
        missing
    }

    /// Returns `true` if there are more than [`MAX_GAPS`] gaps.
    pub(super) fn has_too_many_gaps(&self) -> bool {
        self.missing.len() > MAX_GAPS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ChannelId;
    use crate::wire::frame::TruncatedOffset;

    fn packet(sequence: u64, part: Option<PacketPart>, data: &[u8]) -> ChannelPacket<'_> {
        let sequence = TruncatedOffset::new(sequence);
        ChannelPacket { channel: ChannelId(0), lane: 0, sequence, part, data }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn popped(lane: &mut InboundLane) -> Vec<u64> {
        core::iter::from_fn(|| lane.pop(true)).map(|(sequence, _)| sequence).collect()
    }

    #[test]
    fn what_follows_a_gap_waits_until_it_is_given_up() {
        let mut lane = InboundLane::default();
        for (time, sequence) in [(0, 0), (1, 1), (2, 4), (3, 7), (4, 8)] {
            assert_eq!(
                lane.insert(at(time), &packet(sequence, None, b"x")).1,
                PacketOutcome::Whole
            );
        }
        assert_eq!(popped(&mut lane), [0, 1]);
        assert_eq!(lane.missing_since(), Some(at(2)));
        assert_eq!(lane.insert(at(5), &packet(2, None, b"x")).1, PacketOutcome::Whole);
        assert_eq!(popped(&mut lane), [2]);
        assert_eq!(lane.give_up(), 3..4);
        assert_eq!(popped(&mut lane), [4]);
        assert_eq!(lane.insert(at(6), &packet(3, None, b"x")).1, PacketOutcome::Late);
        assert_eq!(lane.insert(at(6), &packet(8, None, b"x")).1, PacketOutcome::Late);
        assert_eq!(lane.missing_since(), Some(at(3)));
        assert_eq!(lane.give_up(), 5..7);
        assert_eq!(popped(&mut lane), [7, 8]);
        assert_eq!((lane.held(), lane.missing_since()), (0, None));
    }

    #[test]
    fn a_packet_that_the_sender_has_given_up_is_not_waited_for() {
        let mut lane = InboundLane::default();
        for (time, sequence) in [(0, 0), (1, 3), (2, 4)] {
            lane.insert(at(time), &packet(sequence, None, b"x"));
        }
        assert_eq!(popped(&mut lane), [0]);
        assert!(lane.skip(at(3), 2) && !lane.skip(at(3), 2) && !lane.skip(at(3), 3));
        assert_eq!((popped(&mut lane), lane.missing_since()), (vec![], Some(at(1))));
        lane.insert(at(4), &packet(1, None, b"x"));
        assert_eq!(popped(&mut lane), [1, 3, 4]);
        // The report overtakes the packets before it, which are still waited for.
        assert!(lane.skip(at(5), 7));
        assert_eq!(lane.insert(at(6), &packet(7, None, b"x")).1, PacketOutcome::Late);
        assert_eq!(lane.insert(at(6), &packet(8, None, b"x")).1, PacketOutcome::Whole);
        for sequence in [5, 6] {
            assert_eq!(lane.insert(at(7), &packet(sequence, None, b"x")).1, PacketOutcome::Whole);
        }
        assert_eq!((popped(&mut lane), lane.held()), (vec![5, 6, 8], 0));
        assert!(!lane.skip(at(8), SEQUENCE_LIMIT));
    }

    #[test]
    fn parts_make_a_packet_and_nonsense_makes_none() {
        let mut lane = InboundLane::default();
        let part = |offset, total| Some(PacketPart { offset, total });
        assert_eq!(lane.insert(at(0), &packet(0, part(3, 6), b"def")).1, PacketOutcome::Part);
        assert_eq!(lane.insert(at(0), &packet(0, part(5, 9), b"zzz")).1, PacketOutcome::Part);
        assert_eq!(lane.insert(at(0), &packet(1, None, b"x")).1, PacketOutcome::Whole);
        assert!(lane.pop(true).is_none());
        assert_eq!(lane.insert(at(0), &packet(0, part(0, 6), b"abc")).1, PacketOutcome::Whole);
        assert_eq!(lane.pop(true), Some((0, b"abcdef"[..].into())));
        assert_eq!(lane.pop(true), Some((1, b"x"[..].into())));
        lane.insert(at(0), &packet(2, part(0, 60_000), b"abc"));
        assert_eq!(lane.bytes, 3, "what came, not what it says it is a part of");
        assert_eq!((lane.give_up(), lane.held()), (2..3, 0));
    }

    #[test]
    fn gaps_and_parts_count_as_entries() {
        let mut lane = InboundLane::default();
        for sequence in 0..100 {
            lane.insert(at(0), &packet(2 * sequence + 1, None, b"x"));
        }
        assert_eq!(lane.held(), 100 * (1 + 2 * ENTRY));
        for offset in (0..2000).step_by(2) {
            let part = Some(PacketPart { offset, total: 65_535 });
            lane.insert(at(0), &packet(0, part, b"y"));
        }
        assert_eq!(lane.held(), 100 * (1 + 2 * ENTRY) + 1000 * (1 + ENTRY) + 2 * ENTRY);
        while lane.missing_since().is_some() {
            lane.give_up();
            popped(&mut lane);
        }
        assert_eq!(lane.held(), 0);
    }

    #[test]
    fn parts_that_overlap_make_the_packet_once() {
        let mut lane = InboundLane::default();
        let part = |offset| Some(PacketPart { offset, total: 8 });
        for (offset, data) in [(4, &b"ef"[..]), (0, b"abc"), (2, b"cde"), (4, b"efg")] {
            assert_eq!(lane.insert(at(0), &packet(0, part(offset), data)).1, PacketOutcome::Part);
        }
        assert_eq!(lane.bytes, 7);
        assert_eq!(lane.insert(at(0), &packet(0, part(6), b"gh")).1, PacketOutcome::Whole);
        assert_eq!(lane.pop(true), Some((0, b"abcdefgh"[..].into())));
        assert_eq!(lane.held(), 0);
    }

    #[test]
    fn numbers_that_jump_as_far_as_they_can_end_somewhere() {
        let mut lane = InboundLane { next: SEQUENCE_LIMIT - 10, ..InboundLane::default() };
        for jump in 0..100 {
            lane.insert(at(jump), &packet(SEQUENCE_LIMIT - 1 + (jump << 20), None, b"x"));
            assert!(lane.next <= SEQUENCE_LIMIT);
        }
    }

    proptest! {
        /// Delivery in any order, with repetitions and give-ups: each packet at most once, in
        /// order, and none lost that was not given up.
        #[test]
        fn at_most_once_in_order_and_nothing_forgotten(
            steps in prop::collection::vec((0u64..60, 0u8..12), 1..200)
        ) {
            let mut lane = InboundLane::default();
            let mut out = Vec::new();
            let (mut came, mut gone) = (RangeSet::default(), RangeSet::default());
            for (time, (sequence, what)) in steps.into_iter().enumerate() {
                if what == 0 {
                    gone.insert(lane.give_up());
                } else {
                    let (_, outcome) = lane.insert(at(time as u64), &packet(sequence, None, b"x"));
                    let is_new = !came.contains(sequence) && !gone.contains(sequence);
                    prop_assert_eq!(outcome == PacketOutcome::Whole, is_new);
                    came.insert_one(sequence);
                }
                out.extend(popped(&mut lane));
            }
            while lane.missing_since().is_some() {
                gone.insert(lane.give_up());
                out.extend(popped(&mut lane));
            }
            prop_assert!(out.windows(2).all(|pair| pair[0] < pair[1]));
            for sequence in 0..60 {
                let delivered = out.contains(&sequence);
                prop_assert!(delivered || !came.contains(sequence) || gone.contains(sequence));
                prop_assert!(!(delivered && gone.contains(sequence)));
            }
            prop_assert_eq!(lane.held(), 0);
        }
    }
}
