//! The book of packets sent: what each carried, and which were lost.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use units::Instant;

use crate::StreamId;
use crate::channels::{ChannelId, Piece};
use crate::frame::{Ack, Frame};
use crate::pmtu::MtuProbe;
use crate::reordering::Reordering;
use crate::stats::ENTRY;

/// A packet is lost when one sent so many packets later has arrived (RFC 9002
/// §6.1.1), and the time by which packets overtake each other is over.
pub(crate) const REORDER_THRESHOLD: u64 = 3;

/// What a packet carried that must arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cargo {
    Stream {
        stream: StreamId,
        range: Range<u64>,
        fin: bool,
        /// The bytes had been lost before.
        again: bool,
    },
    /// A frame to be sent again as it stands.
    Control(Frame<'static>),
    /// A packet of a channel, or a part of it, to be sent once more.
    Packet(Piece),
    /// A packet of a channel that is not sent again.
    Gone(ChannelId),
    /// The peer was told of the channel.
    Announced(ChannelId, Duration),
    /// Nothing, in a large packet.
    MtuProbe(MtuProbe),
}

/// A packet that the peer should acknowledge.
#[derive(Debug)]
pub(crate) struct SentPacket {
    /// The size of the IP packet in bytes.
    pub(crate) size: u16,
    /// The bytes of all IP packets sent until and with it.
    pub(crate) sent_bytes: u64,
    pub(crate) time: Instant,
    pub(crate) cargo: SmallVec<[Cargo; 2]>,
    /// The frames as they were sent, if the packet is a source of FEC blocks.
    pub(crate) source: Option<Box<[u8]>>,
}

impl SentPacket {
    pub(crate) fn is_mtu_probe(&self) -> bool {
        matches!(self.cargo[..], [Cargo::MtuProbe(_)])
    }

    /// Bytes that are kept for it beside its slot. What streams carry is in their own
    /// buffers.
    fn held(&self) -> usize {
        let pieces = self.cargo.iter().map(|cargo| match cargo {
            Cargo::Packet(piece) => piece.len(),
            _ => 0,
        });
        let source = self.source.as_ref().map_or(0, |source| source.len());
        // A packet of small frames carries a hundred.
        let spilled = if self.cargo.spilled() { self.cargo.capacity() } else { 0 };
        size_of::<Self>() + source + pieces.sum::<usize>() + spilled * size_of::<Cargo>()
    }
}

#[derive(Debug)]
enum Slot {
    /// Not acknowledged, not lost. Boxed: a peer that acknowledges nothing has the
    /// other kinds pile up behind it.
    Outstanding(Box<SentPacket>),
    /// Carried nothing that must arrive.
    Untracked,
    /// Acknowledged or lost.
    Done(Fate),
}

/// What became of a packet on the link. One that FEC restored was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// When it was sent.
    pub(crate) time: Instant,
    pub(crate) lost: bool,
}

/// A packet that was declared lost; its acknowledgement may still come.
#[derive(Debug)]
struct Missed {
    sent: Instant,
    declared: Instant,
    /// Only of streams: for the rest it is too late.
    cargo: SmallVec<[Cargo; 2]>,
}

/// An acknowledgement of a packet that was never sent (RFC 9000 §13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsent {
    #[error("packet {largest} is acknowledged, and {next} is yet to be sent")]
    Ahead { largest: u64, next: u64 },
    #[error("packet {number} is acknowledged, and was left out")]
    LeftOut { number: u64 },
}

/// How many of the numbers left out are remembered. Who acknowledges ahead meets the
/// newest.
const LEFT_OUT: usize = 4;

/// Every packet from the first outstanding one on, by number.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    /// The number of `slots[0]`.
    first: u64,
    slots: VecDeque<Slot>,
    /// What is kept for packets beside their slots.
    bytes: usize,
    outstanding: usize,
    /// Numbers that no packet has had.
    left_out: VecDeque<u64>,
    missed: BTreeMap<u64, Missed>,
    /// Of packets that have left `slots`, not taken yet.
    fates: Vec<Fate>,
    /// One more than the largest number acknowledged.
    acked_end: u64,
    /// The lowest number of which that acknowledgement told.
    told_from: u64,
    /// When the newest packet of which we know was sent, and when we heard of it.
    newest: Option<(Instant, Instant)>,
    reordering: Reordering,
}

/// What an acknowledgement changed.
#[derive(Debug, Default)]
pub(crate) struct Acked {
    /// With their numbers.
    pub(crate) packets: Vec<(u64, Box<SentPacket>)>,
    /// What packets carried that had been declared lost.
    pub(crate) late: Vec<Cargo>,
    /// How many of those packets were not lost but late.
    pub(crate) were_late: usize,
    /// When the largest packet acknowledged was sent, if it is news.
    pub(crate) largest_sent_at: Option<Instant>,
}

impl SentPackets {
    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Nothing below this number is cared for any more.
    pub(crate) fn settled(&self) -> u64 {
        self.first
    }

    pub(crate) fn acked_end(&self) -> u64 {
        self.acked_end
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.outstanding == 0
    }

    /// Bytes that the book takes. Its owner sends nothing more to be remembered when
    /// that is too much; each packet declared lost is forgotten after a while.
    pub(crate) fn held(&self) -> usize {
        self.bytes
            + self.slots.len() * size_of::<Slot>()
            + self.missed.len() * (size_of::<Missed>() + ENTRY)
    }

    /// Enters the packet with [`Self::next_number`]; `None` for one that the
    /// peer need not acknowledge.
    pub(crate) fn push(&mut self, packet: Option<SentPacket>) {
        match packet {
            Some(packet) => {
                self.outstanding += 1;
                self.bytes += packet.held();
                self.slots.push_back(Slot::Outstanding(Box::new(packet)));
            }
            None => self.slots.push_back(Slot::Untracked),
        }
        self.advance();
    }

    /// Leaves the next number out, so that a peer that acknowledges what it has not
    /// received is found out (RFC 9000 §21.4).
    pub(crate) fn leave_out(&mut self) {
        self.left_out.push_back(self.next_number());
        if self.left_out.len() > LEFT_OUT {
            self.left_out.pop_front();
        }
        self.push(None);
    }

    /// When the oldest outstanding packet was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(Slot::Outstanding(packet)) => Some(packet.time),
            _ => None,
        }
    }

    /// Takes out what the peer has. The work is bounded by what is under way.
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: &Ack) -> Result<Acked, Unsent> {
        let (largest, next) = (ack.largest, self.next_number());
        if largest >= next {
            return Err(Unsent::Ahead { largest, next });
        }
        self.reordering.age(now);
        self.hear_of(now, ack);
        let mut acked = Acked::default();
        let restored: Vec<Range<u64>> = ack.restored().collect();
        let restored_from = ack.restored_from();
        let lowest = self.missed.first_key_value().map_or(self.first, |(n, _)| self.first.min(*n));
        for range in ack.ranges() {
            if range.end <= lowest {
                break;
            }
            if let Some(&number) = self.left_out.iter().find(|number| range.contains(number)) {
                return Err(Unsent::LeftOut { number });
            }
            self.take_missed(&range, &restored, restored_from, &mut acked);
            for number in range.start.max(self.first)..range.end {
                let lost = contains(&restored, number);
                let Some(packet) = self.take(number, lost) else { continue };
                if !lost && number >= restored_from {
                    self.came(number, packet.time);
                }
                if number == ack.largest {
                    acked.largest_sent_at = Some(packet.time);
                }
                acked.packets.push((number, packet));
            }
        }
        if ack.largest >= self.acked_end {
            self.acked_end = ack.largest + 1;
            self.told_from = ack.ranges().last().map_or(0, |range| range.start);
        }
        self.advance();
        Ok(acked)
    }

    /// Notes the newest packet that is acknowledged.
    fn hear_of(&mut self, now: Instant, ack: &Ack) {
        let mut numbers =
            ack.ranges().flat_map(|range| (range.start.max(self.first)..range.end).rev());
        let sent = numbers.find_map(|number| self.sent_at(number));
        if sent > self.newest.map(|(newest, _)| newest) {
            self.newest = sent.map(|sent| (sent, now));
        }
    }

    /// Takes out packets of `range` that had been declared lost.
    /// Of those below `restored_from` nobody knows whether they were restored.
    fn take_missed(
        &mut self,
        range: &Range<u64>,
        restored: &[Range<u64>],
        restored_from: u64,
        acked: &mut Acked,
    ) {
        while let Some((&number, _)) = self.missed.range(range.clone()).next() {
            let Some(missed) = self.missed.remove(&number) else { break };
            acked.late.extend(missed.cargo);
            if number >= restored_from && !contains(restored, number) {
                acked.were_late += 1;
                self.came(number, missed.sent);
            }
        }
    }

    /// A packet that was sent then has come by itself; is it late?
    fn came(&mut self, number: u64, sent: Instant) {
        let missed = number >= self.told_from && self.is_passed(number);
        if let (true, Some((newest, _))) = (missed, self.newest) {
            self.reordering.came_late(newest.saturating_since(sent));
        }
    }

    /// Whether enough that was sent later has come.
    fn is_passed(&self, number: u64) -> bool {
        number + REORDER_THRESHOLD < self.acked_end
    }

    /// The fates that have become known since the last time, in the order in
    /// which the packets were sent.
    pub(crate) fn take_fates(&mut self) -> Vec<Fate> {
        core::mem::take(&mut self.fates)
    }

    /// Takes out the packets that are lost by `now`, with their numbers: passed
    /// by later ones for longer than packets overtake each other, or `delay`
    /// longer than that after they were sent if at least one later one has
    /// arrived. Acknowledgements of those declared lost are awaited for `delay`.
    pub(crate) fn take_lost(
        &mut self,
        now: Instant,
        delay: Duration,
    ) -> Vec<(u64, Box<SentPacket>)> {
        self.missed.retain(|_, missed| missed.declared + delay > now);
        let mut lost = Vec::new();
        for number in self.first..self.acked_end {
            let Some(sent) = self.sent_at(number) else { continue };
            if self.lost_at(number, sent, delay) > now {
                continue;
            }
            if let Some(packet) = self.take(number, true) {
                let of_stream = |cargo: &&Cargo| matches!(cargo, Cargo::Stream { .. });
                let cargo = packet.cargo.iter().filter(of_stream).cloned().collect();
                self.missed.insert(number, Missed { sent, declared: now, cargo });
                lost.push((number, packet));
            }
        }
        self.advance();
        lost
    }

    /// When [`Self::take_lost`] finds the next one by time.
    pub(crate) fn loss_time(&self, delay: Duration) -> Option<Instant> {
        let oldest = self.oldest().filter(|_| self.first < self.acked_end)?;
        Some(self.lost_at(self.first, oldest, delay))
    }

    /// When a packet below [`Self::acked_end`], sent then, is lost unless it is
    /// heard of.
    fn lost_at(&self, number: u64, sent: Instant, delay: Duration) -> Instant {
        let window = self.reordering.window().min(delay);
        let overdue = sent + delay + window;
        match self.newest.filter(|_| self.is_passed(number)) {
            Some((newest, heard)) => overdue.min(heard + window - newest.saturating_since(sent)),
            None => overdue,
        }
    }

    /// The frames of the packet if it is a FEC source, nothing if it is none;
    /// `None` if they are not kept any more.
    pub(crate) fn source(&self, number: u64) -> Option<&[u8]> {
        match self.slot(number)? {
            Slot::Outstanding(packet) => Some(packet.source.as_deref().unwrap_or_default()),
            Slot::Untracked => Some(&[]),
            Slot::Done(_) => None,
        }
    }

    /// When the packet was sent, if it is outstanding.
    pub(crate) fn sent_at(&self, number: u64) -> Option<Instant> {
        match self.slot(number)? {
            Slot::Outstanding(packet) => Some(packet.time),
            _ => None,
        }
    }

    /// The lowest number from which on [`Self::source`] knows every packet.
    pub(crate) fn kept_from(&self) -> u64 {
        let done = self.slots.iter().rposition(|slot| matches!(slot, Slot::Done(_)));
        self.first + done.map_or(0, |index| index as u64 + 1)
    }

    /// What the oldest outstanding packet carried, to be sent again although it
    /// may have arrived. Packets of channels go again only once, so they are not
    /// the old packet's any more.
    pub(crate) fn oldest_cargo(&mut self) -> SmallVec<[Cargo; 2]> {
        let Some(Slot::Outstanding(packet)) = self.slots.front_mut() else {
            return SmallVec::new();
        };
        let mut cargo = packet.cargo.clone();
        cargo.retain(|cargo| !matches!(cargo, Cargo::Gone(_) | Cargo::Announced(..)));
        for cargo in &mut packet.cargo {
            if let Cargo::Packet(piece) = cargo {
                self.bytes -= piece.len();
                *cargo = Cargo::Gone(piece.channel);
            }
        }
        cargo
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn take(&mut self, number: u64, lost: bool) -> Option<Box<SentPacket>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        let Slot::Outstanding(packet) = slot else { return None };
        self.outstanding -= 1;
        let done = Slot::Done(Fate { time: packet.time, lost });
        match core::mem::replace(slot, done) {
            Slot::Outstanding(packet) => {
                self.bytes -= packet.held();
                Some(packet)
            }
            Slot::Untracked | Slot::Done(_) => None,
        }
    }

    fn advance(&mut self) {
        loop {
            match self.slots.front() {
                Some(Slot::Done(fate)) => self.fates.push(*fate),
                Some(Slot::Untracked) => {}
                _ => return,
            }
            self.slots.pop_front();
            self.first += 1;
        }
    }
}

/// Whether one of the ranges, the highest first, contains the number.
fn contains(descending: &[Range<u64>], number: u64) -> bool {
    let below = descending.partition_point(|range| range.start > number);
    descending.get(below).is_some_and(|range| range.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResetReason;
    use crate::frame::{self, Report};

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn sent(count: u64) -> SentPackets {
        let mut book = SentPackets::default();
        for number in 0..count {
            let (time, cargo) = (at(number), SmallVec::new());
            book.push(Some(SentPacket { size: 1500, sent_bytes: 0, time, cargo, source: None }));
        }
        book
    }

    fn acknowledge(book: &mut SentPackets, ranges: &[(u64, u64)]) -> Result<Acked, Unsent> {
        acknowledge_restored(book, ranges, &[])
    }

    fn acknowledge_restored(
        book: &mut SentPackets,
        ranges: &[(u64, u64)],
        restored: &[(u64, u64)],
    ) -> Result<Acked, Unsent> {
        let mut bytes = Vec::new();
        let [ranges, restored] = [ranges, restored].map(|list| list.iter().map(|r| r.0..r.1));
        frame::write_ack(&mut bytes, ranges, restored, &Report::default(), 1000);
        let Ok(Some(Frame::Ack(ack))) = frame::read(&mut &bytes[..]) else { panic!() };
        book.acknowledge(at(10), &ack)
    }

    #[test]
    fn passed_by_three_is_lost_and_earlier_only_by_time() {
        let mut book = sent(10);
        let acked = acknowledge(&mut book, &[(5, 6), (0, 1)]).unwrap();
        assert_eq!((acked.packets.len(), acked.largest_sent_at), (2, Some(at(5))));
        let lost = book.take_lost(at(10), Duration::from_millis(100));
        assert_eq!(lost.iter().map(|(_, p)| p.time).collect::<Vec<_>>(), [at(1), at(2)]);
        assert_eq!(book.loss_time(Duration::from_millis(100)), Some(at(103)));
        let lost = book.take_lost(at(104), Duration::from_millis(100));
        assert_eq!(lost.len(), 2);
        assert_eq!(book.settled(), 6);
        assert_eq!(book.loss_time(Duration::from_millis(100)), None);
    }

    #[test]
    fn where_packets_overtake_each_other_the_late_ones_are_awaited() {
        let delay = Duration::from_millis(100);
        let mut book = sent(40);
        acknowledge(&mut book, &[(3, 10), (0, 1)]).unwrap();
        assert_eq!(book.take_lost(at(10), delay).len(), 2);
        // 1 comes when 13 is known to have come: 12 ms late. 2 was restored.
        acknowledge_restored(&mut book, &[(0, 14)], &[(2, 3)]).unwrap();
        assert!(book.take_lost(at(10), delay).is_empty());
        acknowledge(&mut book, &[(20, 30), (0, 14)]).unwrap();
        // 14 passed 15 ms before 29, 18 only 11 ms.
        let lost = book.take_lost(at(10), delay);
        assert_eq!(lost.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [14, 15, 16, 17]);
        assert_eq!(book.loss_time(delay), Some(at(11)));
        // 18 comes, before it was taken for lost.
        let acked = acknowledge(&mut book, &[(20, 34), (18, 19)]).unwrap();
        assert_eq!((acked.packets.len(), acked.were_late), (5, 0));
        assert_eq!(book.reordering.window(), Duration::from_millis(15));
    }

    #[test]
    fn packets_without_cargo_hide_no_newer_ones() {
        let mut book = sent(20);
        acknowledge(&mut book, &[(2, 10), (0, 1)]).unwrap();
        // 1 comes 8 ms behind 9.
        acknowledge(&mut book, &[(0, 10)]).unwrap();
        book.push(None);
        acknowledge(&mut book, &[(18, 21), (0, 16)]).unwrap();
        // 16 passed 3 ms before 19, the newest with cargo, of which was heard at 10.
        assert_eq!(book.loss_time(Duration::from_millis(100)), Some(at(15)));
    }

    #[test]
    fn what_an_acknowledgement_did_not_tell_is_not_late() {
        let mut book = sent(20);
        acknowledge(&mut book, &[(6, 10)]).unwrap();
        acknowledge(&mut book, &[(2, 12)]).unwrap();
        assert_eq!(book.reordering.window(), Duration::ZERO);
    }

    #[test]
    fn an_acknowledgement_counts_once() {
        let mut book = sent(3);
        assert_eq!(acknowledge(&mut book, &[(0, 3)]).unwrap().packets.len(), 3);
        assert!(book.is_empty());
        let again = acknowledge(&mut book, &[(0, 3)]).unwrap();
        assert!(again.packets.is_empty() && again.largest_sent_at.is_none());
    }

    #[test]
    fn an_acknowledgement_of_a_packet_never_sent_breaks_the_protocol() {
        let mut book = sent(3);
        for ranges in [&[(3, 4)][..], &[(2, 4)], &[(1 << 61, (1 << 61) + 1), (0, 3)]] {
            let error = acknowledge(&mut book, ranges).unwrap_err();
            assert_eq!(error, Unsent::Ahead { largest: ranges[0].1 - 1, next: 3 });
        }
        assert!(!book.is_empty());
    }

    #[test]
    fn a_number_left_out_is_no_loss_and_nobody_can_have_it() {
        let mut book = sent(3);
        book.leave_out();
        for number in 4..9 {
            let (time, cargo) = (at(number), SmallVec::new());
            book.push(Some(SentPacket { size: 1500, sent_bytes: 0, time, cargo, source: None }));
        }
        let error = acknowledge(&mut book, &[(0, 9)]).unwrap_err();
        assert_eq!(error, Unsent::LeftOut { number: 3 });
        let mut book = sent(3);
        book.leave_out();
        acknowledge(&mut book, &[(0, 3)]).unwrap();
        assert_eq!((book.settled(), book.is_empty()), (4, true));
        assert!(book.take_lost(at(10_000), Duration::from_millis(50)).is_empty());
        assert_eq!(lost(&mut book), [false; 3]);
    }

    #[test]
    fn what_the_book_holds_is_counted_and_goes_with_the_packets() {
        let mut book = SentPackets::default();
        for number in 0..100 {
            let (time, source) = (at(number), Some(vec![1; 1000].into()));
            let cargo = SmallVec::new();
            book.push(Some(SentPacket { size: 1040, sent_bytes: 0, time, cargo, source }));
        }
        assert_eq!(book.held(), 100 * (size_of::<Slot>() + size_of::<SentPacket>() + 1000));
        acknowledge(&mut book, &[(50, 100)]).unwrap();
        book.take_lost(at(200), Duration::from_millis(50));
        assert!((1..100 * 1000).contains(&book.held()), "{}", book.held());
        book.take_lost(at(1000), Duration::from_millis(50));
        assert_eq!(book.held(), 0);
    }

    #[test]
    fn a_packet_of_many_small_frames_counts_for_all_of_them() {
        let mut book = SentPackets::default();
        let reset = |n| Frame::Reset { stream: StreamId(n), reason: ResetReason::Reset, sent: 0 };
        let cargo: SmallVec<[Cargo; 2]> = (0..100).map(|n| Cargo::Control(reset(n))).collect();
        book.push(Some(SentPacket { size: 1040, sent_bytes: 0, time: at(0), cargo, source: None }));
        assert!(book.held() >= 100 * size_of::<Cargo>(), "{}", book.held());
        acknowledge(&mut book, &[(0, 1)]).unwrap();
        book.take_lost(at(1000), Duration::from_millis(50));
        assert_eq!(book.held(), 0);
    }

    fn lost(book: &mut SentPackets) -> Vec<bool> {
        book.take_fates().iter().map(|fate| fate.lost).collect()
    }

    #[test]
    fn restored_packets_were_lost() {
        let mut book = sent(4);
        acknowledge_restored(&mut book, &[(0, 4)], &[(1, 3)]).unwrap();
        assert_eq!(lost(&mut book), [false, true, true, false]);
    }

    #[test]
    fn a_packet_that_comes_after_all_was_late_or_restored() {
        let delay = Duration::from_millis(100);
        let mut book = sent(9);
        acknowledge(&mut book, &[(2, 9)]).unwrap();
        assert_eq!(book.take_lost(at(10), delay).len(), 2);
        assert_eq!(lost(&mut book)[..3], [true, true, false]);
        let acked = acknowledge_restored(&mut book, &[(0, 9)], &[(1, 2)]).unwrap();
        assert_eq!((acked.packets.len(), acked.were_late), (0, 1));
        assert!(lost(&mut book).is_empty());
    }
}
