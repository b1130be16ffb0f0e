//! Records of sent packets: their contents, and which of them were lost.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use slab::Slab;
use smallvec::SmallVec;
use units::{Instant, RangeSet};

use crate::ChannelId;
use crate::StreamId;
use crate::channels::PacketPiece;
use crate::recovery::LossDetection;
use crate::recovery::path::loss::PacketFate;
use crate::recovery::path::pmtu::MtuProbe;
use crate::recovery::path::reordering::ReorderingWindow;
use crate::spare::{ENTRY, FreeSpare as _};
use crate::wire::frame::{AckFrame, Frame, GoneFrame};

/// A packet is lost when one sent this many packets later has arrived (RFC 9002 §6.1.1) and the
/// reordering window has passed.
pub(crate) const REORDER_THRESHOLD: u64 = 3;

/// A part of a packet that must arrive or whose loss matters. Kept small, because the record of
/// each packet has room for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentContent {
    Stream {
        stream: StreamId,
        range: Range<u64>,
        fin: bool,
        /// Set if the data is a retransmission.
        again: bool,
    },
    /// A control frame, which is sent again if it is lost.
    Control(Box<Frame<'static>>),
    /// A packet of a channel, or a part of one, which is retransmitted once.
    Packet(Box<PacketPiece>),
    /// A packet of a channel that is not retransmitted.
    NotResent(ChannelId),
    /// The retransmission of a packet of a channel. If it is lost, the packet is given up.
    LastCopy(GoneFrame),
    /// A CHANNEL frame that announced this deadline.
    Announcement(ChannelId, Duration),
    /// A packet whose headers the peer keeps as a compression context.
    Context { slot: u8, serial: u32 },
    /// Padding of an MTU probe.
    MtuProbe(MtuProbe),
}

/// The contents of one packet, usually a piece of one stream.
pub(crate) type SentContents = SmallVec<[SentContent; 1]>;

/// A packet that the peer must acknowledge.
#[derive(Debug)]
pub(crate) struct SentPacket {
    /// Size of the IP packet in bytes.
    pub(crate) size: u16,
    /// Set if the packet left with the ECN codepoint ECT(0).
    pub(crate) ect: bool,
    /// Bytes of all IP packets sent up to and including this one.
    pub(crate) sent_bytes: u64,
    /// As `sent_bytes`, summed over all sessions that share the link, for the rate control.
    pub(crate) link_bytes: u64,
    pub(crate) time: Instant,
    pub(crate) contents: SentContents,
    /// The frames as sent, if the packet is a source of FEC blocks.
    pub(crate) fec_source: Option<Box<[u8]>>,
    /// Set for packets of the control channel, which may overtake new data on the link.
    pub(crate) is_control: bool,
    /// The highest number of a packet with a repair of this one; 0 if there is none.
    pub(crate) repaired_by: u64,
}

impl SentPacket {
    pub(crate) fn is_mtu_probe(&self) -> bool {
        matches!(self.contents[..], [SentContent::MtuProbe(_)])
    }

    /// Memory of the record besides its slot, in bytes. Stream data is not counted: it stays in the
    /// buffers of the streams.
    fn held(&self) -> usize {
        let pieces = self.contents.iter().map(|cargo| match cargo {
            SentContent::Packet(piece) => size_of::<PacketPiece>() + piece.len(),
            SentContent::Control(_) => size_of::<Frame>(),
            _ => 0,
        });
        let source = self.fec_source.as_ref().map_or(0, |source| source.len());
        // A packet of small frames carries a hundred.
        let spilled = if self.contents.spilled() { self.contents.capacity() } else { 0 };
        size_of::<Self>() + source + pieces.sum::<usize>() + spilled * size_of::<SentContent>()
    }
}

#[derive(Debug)]
enum PacketSlot {
    /// Neither acknowledged nor lost; the index of its record in [`SentPackets::records`]. Only
    /// this kind has a record, so that slots stay small: all kinds accumulate behind the first
    /// outstanding packet if the peer acknowledges nothing.
    Outstanding(usize),
    /// A packet that need not be acknowledged, or a skipped number.
    Untracked,
    /// A packet that was acknowledged or declared lost.
    Done(PacketFate),
}

/// A packet declared lost whose acknowledgement may still come.
#[derive(Debug)]
struct LostPacket {
    sent: Instant,
    /// Stream data only, because its retransmission can still be cancelled.
    data: SentContents,
}

/// An acknowledgement of a packet that was never sent (RFC 9000 §13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    #[error("packet {largest} is acknowledged, but {next} has not been sent yet")]
    NotSentYet { largest: u64, next: u64 },
    #[error("packet {number} is acknowledged, but was skipped")]
    Skipped { number: u64 },
}

/// Minimum number of skipped numbers remembered. They expose a peer that acknowledges packets
/// ahead; those between packets in flight, all of which are kept, expose a peer that acknowledges
/// lost packets.
const MIN_SKIPPED: usize = 4;

/// Every packet from the first outstanding one on, by number.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    /// The packet number of `slots[0]`.
    first: u64,
    slots: VecDeque<PacketSlot>,
    records: Slab<SentPacket>,
    /// Memory of the records besides their slots, in bytes.
    bytes: usize,
    /// Numbers that were skipped, in ascending order. They are at least 64 apart, so they take a
    /// small fraction of the memory of the slots.
    skipped: VecDeque<u64>,
    declared_lost: BTreeMap<u64, LostPacket>,
    /// Times at which packets were declared lost, in order, with the packet numbers. Packets that
    /// were acknowledged since then remain here until their time is over.
    loss_times: VecDeque<(Instant, u64)>,
    /// Numbers acknowledged so far, from the first outstanding packet on. Each packet is processed
    /// once, however often its acknowledgement is repeated.
    covered: RangeSet,
    /// Number of packets that acknowledgements have visited.
    #[cfg(test)]
    looks: usize,
    /// Fates of packets that have left `slots`, not yet taken.
    fates: Vec<PacketFate>,
    /// One more than the largest number acknowledged.
    acked_end: u64,
    /// The lowest number covered by the acknowledgement that set `acked_end`.
    covered_from: u64,
    /// Send time of the newest packet known to have arrived, and reception time of its
    /// acknowledgement.
    newest: Option<(Instant, Instant)>,
    reordering: ReorderingWindow,
    recovery: LossDetection,
    /// One more than the largest number acknowledged of a packet outside the control channel.
    data_end: u64,
}

/// The packets newly acknowledged by an ACK.
#[derive(Debug, Default)]
pub(crate) struct AckedPackets {
    /// Newly acknowledged packets with their numbers.
    pub(crate) packets: Vec<(u64, SentPacket)>,
    /// Stream data of packets that had been declared lost.
    pub(crate) late_data: Vec<SentContent>,
    /// Number of those packets that were late rather than restored by FEC.
    pub(crate) late_packets: usize,
    /// Send time of the largest acknowledged packet, if it is newly acknowledged.
    pub(crate) largest_sent_at: Option<Instant>,
    /// Packets that the acknowledgement reports as restored by FEC, highest first. The list is
    /// complete from `restored_from` on.
    restored: Vec<Range<u64>>,
    restored_from: u64,
}

impl AckedPackets {
    /// Returns `true` if the packet, one of the newly acknowledged, is known to have arrived itself
    /// rather than to have been restored.
    pub(crate) fn has_arrived(&self, number: u64) -> bool {
        number >= self.restored_from && !contains(&self.restored, number)
    }
}

impl SentPackets {
    /// Empty records for a link on which `recovery` detects losses.
    pub(crate) fn new(recovery: LossDetection) -> Self {
        Self { recovery, ..Self::default() }
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The number below which no acknowledgement is needed any more.
    pub(crate) fn settled(&self) -> u64 {
        self.first
    }

    pub(crate) fn acked_end(&self) -> u64 {
        self.acked_end
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Memory in bytes. The session stops sending tracked packets when this is too much. Packets
    /// declared lost are forgotten after a while ([`Self::take_lost`]).
    pub(crate) fn held(&self) -> usize {
        self.bytes
            + self.slots.len() * size_of::<PacketSlot>()
            + self.declared_lost.len() * (size_of::<LostPacket>() + ENTRY)
            + self.loss_times.len() * size_of::<(Instant, u64)>()
            + self.covered.count() * ENTRY
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.slots.free_spare();
        self.pack_records();
        self.skipped.free_spare();
        self.declared_lost.free_spare();
        self.loss_times.free_spare();
        self.covered.free_spare();
        self.fates.free_spare();
    }

    /// Moves the records into a slab without vacant entries.
    fn pack_records(&mut self) {
        // `Slab::shrink_to_fit` cannot free vacant entries below an occupied one.
        let mut packed = Slab::with_capacity(self.records.len());
        for slot in &mut self.slots {
            if let PacketSlot::Outstanding(record) = slot {
                *record = packed.insert(self.records.remove(*record));
            }
        }
        self.records = packed;
    }

    /// Records the packet with number [`Self::next_number`]; `None` if it need not be acknowledged.
    pub(crate) fn push(&mut self, packet: Option<SentPacket>) {
        match packet {
            Some(packet) => {
                self.bytes += packet.held();
                // An idle session sends one keepalive at a time.
                if self.records.capacity() == 0 {
                    self.records.reserve_exact(1);
                }
                self.slots.push_back(PacketSlot::Outstanding(self.records.insert(packet)));
            }
            None => self.slots.push_back(PacketSlot::Untracked),
        }
        self.advance();
    }

    /// Records that packet `by` carries a repair of a block with these packets.
    pub(crate) fn record_repair(&mut self, numbers: impl Iterator<Item = u64>, by: u64) {
        for number in numbers {
            if let Some(&PacketSlot::Outstanding(record)) = self.slot(number) {
                self.records[record].repaired_by = by;
            }
        }
    }

    /// Skips the next number. This exposes a peer that acknowledges packets it has not received
    /// (RFC 9000 §21.4).
    pub(crate) fn skip_number(&mut self) {
        self.skipped.push_back(self.next_number());
        // Kept as long as an earlier packet is awaited (docs/slacp.md, Acknowledgements).
        let lowest = self.lowest_awaited();
        while self.skipped.len() > MIN_SKIPPED
            && self.skipped.front().is_some_and(|number| *number < lowest)
        {
            self.skipped.pop_front();
        }
        self.push(None);
    }

    /// The first skipped number in the range.
    fn skipped_in(&self, range: &Range<u64>) -> Option<u64> {
        let at = self.skipped.partition_point(|number| *number < range.start);
        self.skipped.get(at).copied().filter(|number| *number < range.end)
    }

    /// The lowest number whose acknowledgement changes anything.
    fn lowest_awaited(&self) -> u64 {
        self.declared_lost
            .first_key_value()
            .map_or(self.first, |(number, _)| self.first.min(*number))
    }

    /// The send time of the oldest outstanding packet.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(PacketSlot::Outstanding(record)) => Some(self.records[*record].time),
            _ => None,
        }
    }

    /// The send time of the first outstanding packet after the largest acknowledged one.
    pub(crate) fn oldest_after_acked(&self) -> Option<Instant> {
        self.outstanding_from(self.acked_end).next().map(|(_, packet)| packet.time)
    }

    /// Removes the packets that the peer has received. The work is bounded by the number of ranges
    /// in the acknowledgement and of packets that it is the first to cover.
    ///
    /// # Errors
    /// If it covers a number that was not sent. The records may have changed partly by then.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        ack: &AckFrame,
    ) -> Result<AckedPackets, AckError> {
        let largest = ack.largest;
        let next = self.next_number();
        if largest >= next {
            return Err(AckError::NotSentYet { largest, next });
        }
        self.reordering.age(now);
        let lowest = self.lowest_awaited();
        let fresh = self.newly_covered(ack);
        // Needs the send times, which `take` below removes.
        self.update_newest(now, &fresh);
        let mut acked = AckedPackets::default();
        let restored: Vec<Range<u64>> = ack.restored().collect();
        let restored_from = ack.restored_from();
        for range in ack.ranges().take_while(|range| range.end > lowest) {
            if let Some(number) = self.skipped_in(&range) {
                return Err(AckError::Skipped { number });
            }
            self.take_late(&range, &restored, restored_from, &mut acked);
        }
        for range in fresh {
            self.take_fresh(range, &restored, restored_from, largest, &mut acked);
        }
        // One that a later acknowledgement has overtaken changes neither.
        if largest >= self.acked_end {
            self.acked_end = largest + 1;
            self.covered_from = ack.ranges().last().map_or(0, |range| range.start);
        }
        self.advance();
        Ok(AckedPackets { restored, restored_from, ..acked })
    }

    /// Ranges of numbers, from the first outstanding one on, that no earlier acknowledgement has
    /// covered. They follow the order of the acknowledgement, highest first; the parts of one of
    /// its ranges are in ascending order.
    fn newly_covered(&self, ack: &AckFrame) -> Vec<Range<u64>> {
        // Not a scan of all in flight, which costs some microseconds per thousand packets: a peer
        // could have that of a hub for a datagram of 63 bytes.
        let ranges = ack.ranges().take_while(|range| range.end > self.first);
        let parts = ranges.map(|range| range.start.max(self.first)..range.end);
        parts.flat_map(|range| self.covered.gaps(range)).collect()
    }

    /// Updates the newest packet known to have arrived.
    fn update_newest(&mut self, now: Instant, fresh: &[Range<u64>]) {
        let newest = fresh
            .iter()
            .filter_map(|range| range.clone().rev().find_map(|number| self.sent_at(number)));
        let sent = newest.max();
        if sent > self.newest.map(|(newest, _)| newest) {
            self.newest = sent.map(|sent| (sent, now));
        }
    }

    /// Moves the outstanding packets of `range`, which no earlier acknowledgement has covered, into
    /// `acked`. `largest` is the highest number acknowledged.
    fn take_fresh(
        &mut self,
        range: Range<u64>,
        restored: &[Range<u64>],
        restored_from: u64,
        largest: u64,
        acked: &mut AckedPackets,
    ) {
        acked.packets.reserve((range.end - range.start) as usize);
        for number in range.clone() {
            let lost = contains(restored, number);
            let Some(packet) = self.take(number, lost) else { continue };
            // A packet that FEC restored did not arrive and shows no order of arrivals.
            if !lost && number >= restored_from {
                self.on_arrival(number, packet.time);
            }
            if !lost && !packet.is_control {
                self.data_end = self.data_end.max(number + 1);
            }
            if number == largest {
                acked.largest_sent_at = Some(packet.time);
            }
            acked.packets.push((number, packet));
        }
        self.covered.insert(range);
    }

    /// Moves packets of `range` that had been declared lost into `acked`. Below `restored_from` it
    /// is unknown which of them were restored.
    fn take_late(
        &mut self,
        range: &Range<u64>,
        restored: &[Range<u64>],
        restored_from: u64,
        acked: &mut AckedPackets,
    ) {
        while let Some((&number, _)) = self.declared_lost.range(range.clone()).next() {
            let Some(missed) = self.declared_lost.remove(&number) else { break };
            acked.late_data.extend(missed.data);
            // Without the marks of restored packets, one that was lost and restored would count
            // twice, and a link of 1 % would measure 3 to 4 %.
            if number >= restored_from && !contains(restored, number) {
                acked.late_packets += 1;
                self.on_arrival(number, missed.sent);
            }
        }
    }

    /// Measures reordering if a packet, sent at that time and not restored by FEC, arrived after an
    /// acknowledgement had reported it missing.
    fn on_arrival(&mut self, number: u64, sent: Instant) {
        // An earlier acknowledgement that did not cover the number says nothing about its order.
        let missed = self.recovery == LossDetection::Reordering
            && number >= self.covered_from
            && self.is_passed(number);
        if let (true, Some((newest, _))) = (missed, self.newest) {
            self.reordering.came_late(newest.saturating_since(sent));
        }
    }

    /// Returns `true` if a packet sent at least [`REORDER_THRESHOLD`] later has been acknowledged.
    fn is_passed(&self, number: u64) -> bool {
        number + REORDER_THRESHOLD < self.acked_end
    }

    /// Takes the fates that have become known since the last call, in sending order.
    pub(crate) fn take_fates(&mut self) -> Vec<PacketFate> {
        core::mem::take(&mut self.fates)
    }

    /// Removes the packets that are lost by `now`, and returns them with their numbers. A packet is
    /// lost if later ones overtook it by more than the reordering window, or, if at least one later
    /// packet has arrived, `delay` plus that window after it was sent. Acknowledgements of packets
    /// declared lost are awaited for another `delay`.
    pub(crate) fn take_lost(&mut self, now: Instant, delay: Duration) -> Vec<(u64, SentPacket)> {
        while let Some((_, number)) = self.loss_times.pop_front_if(|(at, _)| *at + delay <= now) {
            self.declared_lost.remove(&number);
        }
        let mut lost = Vec::new();
        // Only packets sent before an acknowledged one can be lost (RFC 9002 §6.1).
        for number in self.first..self.acked_end {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let Some(packet) = self.record(number) else { continue };
            let sent = packet.time;
            if !self.is_lost(now, number, packet, delay) {
                match self.recovery {
                    // Those after it were sent later, and are lost later.
                    LossDetection::Reordering => break,
                    // Data is lost by later data only, control by any later packet.
                    LossDetection::Ordered => continue,
                }
            }
            if let Some(packet) = self.take(number, true) {
                let of_stream = |cargo: &&SentContent| matches!(cargo, SentContent::Stream { .. });
                let cargo = packet.contents.iter().filter(of_stream).cloned().collect();
                self.declared_lost.insert(number, LostPacket { sent, data: cargo });
                self.loss_times.push_back((now, number));
                lost.push((number, packet));
            }
        }
        self.advance();
        lost
    }

    /// The time at which [`Self::take_lost`] finds the next lost packet, without an acknowledgement
    /// before then.
    pub(crate) fn loss_time(&self, delay: Duration) -> Option<Instant> {
        // A link layer detects losses by later packets only.
        let timed = self.recovery == LossDetection::Reordering && self.first < self.acked_end;
        let oldest = self.oldest().filter(|_| timed)?;
        Some(self.lost_at(self.first, oldest, delay))
    }

    /// Returns `true` if a packet below [`Self::acked_end`] is lost by `now`.
    fn is_lost(&self, now: Instant, number: u64, packet: &SentPacket, delay: Duration) -> bool {
        match self.recovery {
            LossDetection::Reordering => self.lost_at(number, packet.time, delay) <= now,
            // Nothing overtakes control, and only control overtakes data.
            LossDetection::Ordered if packet.is_control => {
                self.acked_end > number.max(packet.repaired_by)
            }
            LossDetection::Ordered => self.data_end > number,
        }
    }

    /// The time at which a packet below [`Self::acked_end`], sent at `sent`, counts as lost.
    fn lost_at(&self, number: u64, sent: Instant, delay: Duration) -> Instant {
        let window = self.reordering.window().min(delay);
        let overdue = sent + delay + window;
        match self.newest.filter(|_| self.is_passed(number)) {
            Some((newest, heard)) => overdue.min(heard + window - newest.saturating_since(sent)),
            None => overdue,
        }
    }

    /// The frames of a packet, empty if it is not a FEC source; `None` if they are no longer kept.
    pub(crate) fn source(&self, number: u64) -> Option<&[u8]> {
        match self.slot(number)? {
            PacketSlot::Outstanding(record) => {
                Some(self.records[*record].fec_source.as_deref().unwrap_or_default())
            }
            PacketSlot::Untracked => Some(&[]),
            PacketSlot::Done(_) => None,
        }
    }

    /// The send time of a packet, if it is outstanding.
    pub(crate) fn sent_at(&self, number: u64) -> Option<Instant> {
        Some(self.record(number)?.time)
    }

    /// The lowest number from which on [`Self::source`] knows every packet.
    pub(crate) fn kept_from(&self) -> u64 {
        let done = self.slots.iter().rposition(|slot| matches!(slot, PacketSlot::Done(_)));
        self.first + done.map_or(0, |index| index as u64 + 1)
    }

    /// The contents of the oldest outstanding packet, to be resent although it may have arrived.
    /// The record gives up its packets of channels, because they are retransmitted only once.
    pub(crate) fn oldest_contents(&mut self) -> SentContents {
        let Some(PacketSlot::Outstanding(record)) = self.slots.front() else {
            return SentContents::new();
        };
        let packet = &mut self.records[*record];
        let mut cargo = packet.contents.clone();
        // CHANNEL goes with each PACKET until it is acknowledged, and needs no copy of its own.
        cargo.retain(|cargo| {
            !matches!(
                cargo,
                SentContent::NotResent(_)
                    | SentContent::LastCopy(_)
                    | SentContent::Announcement(..)
            )
        });
        for cargo in &mut packet.contents {
            if let SentContent::Packet(piece) = cargo {
                self.bytes -= size_of::<PacketPiece>() + piece.len();
                *cargo = SentContent::NotResent(piece.channel);
            }
        }
        cargo
    }

    /// The outstanding packets numbered `from` or later.
    fn outstanding_from(&self, from: u64) -> impl Iterator<Item = (u64, &SentPacket)> {
        let skipped = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let slots = (self.first..).zip(&self.slots).skip(skipped);
        slots.filter_map(|(number, slot)| match slot {
            PacketSlot::Outstanding(record) => Some((number, &self.records[*record])),
            _ => None,
        })
    }

    /// Stream data and control frames of all outstanding packets numbered `from` or later, for another
    /// link: first those of packets that have arrived according to an acknowledgement over that link,
    /// then the rest, to be resent.
    pub(crate) fn outstanding_contents(
        &self,
        from: u64,
        ack: Option<&AckFrame>,
    ) -> [Vec<SentContent>; 2] {
        let mut ranges: Vec<Range<u64>> = ack.into_iter().flat_map(AckFrame::ranges).collect();
        // In ascending order, for the binary search.
        ranges.reverse();
        let has = |number: u64| {
            let next = ranges.partition_point(|range| range.end <= number);
            ranges.get(next).is_some_and(|range| range.contains(&number))
        };
        let mut found = [Vec::new(), Vec::new()];
        for (number, packet) in self.outstanding_from(from) {
            let side = usize::from(!has(number));
            found[side].extend(packet.contents.iter().filter(|cargo| is_movable(cargo)).cloned());
        }
        found
    }

    /// Number of packets that are neither acknowledged nor lost.
    pub(crate) fn outstanding(&self) -> usize {
        self.records.len()
    }

    fn record(&self, number: u64) -> Option<&SentPacket> {
        match self.slot(number)? {
            PacketSlot::Outstanding(record) => self.records.get(*record),
            _ => None,
        }
    }

    fn slot(&self, number: u64) -> Option<&PacketSlot> {
        self.slots.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn take(&mut self, number: u64, lost: bool) -> Option<SentPacket> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        let PacketSlot::Outstanding(record) = slot else { return None };
        let packet = self.records.try_remove(*record)?;
        *slot = PacketSlot::Done(PacketFate { time: packet.time, size: packet.size, lost });
        self.bytes -= packet.held();
        Some(packet)
    }

    fn advance(&mut self) {
        loop {
            match self.slots.front() {
                Some(PacketSlot::Done(fate)) => self.fates.push(*fate),
                Some(PacketSlot::Untracked) => {}
                _ => break,
            }
            self.slots.pop_front();
            self.first += 1;
        }
        self.covered.remove(0..self.first);
        debug_assert!(self.acked_end <= self.next_number());
        debug_assert!(
            !self.records.is_empty() || self.bytes == 0,
            "{} bytes of nothing",
            self.bytes
        );
    }
}

/// Returns `true` for cargo that another link may carry. Packets of channels are left to the loss
/// detection, because they are retransmitted only once.
fn is_movable(cargo: &SentContent) -> bool {
    matches!(cargo, SentContent::Stream { .. } | SentContent::Control(_))
}

/// Returns `true` if one of the ranges (highest first) contains the number.
fn contains(descending: &[Range<u64>], number: u64) -> bool {
    let below = descending.partition_point(|range| range.start > number);
    descending.get(below).is_some_and(|range| range.contains(&number))
}

#[cfg(test)]
mod tests;
