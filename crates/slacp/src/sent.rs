//! The book of packets sent: what each carried, and which were lost.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use smallvec::SmallVec;
use units::Instant;

use crate::StreamId;
use crate::frame::{Ack, Frame};

/// A packet is lost when one sent so many packets later has arrived (RFC 9002
/// §6.1.1).
pub(crate) const REORDER_THRESHOLD: u64 = 3;

/// What a packet carried that must arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cargo {
    Stream {
        stream: StreamId,
        range: Range<u64>,
        fin: bool,
    },
    /// A frame to be sent again as it stands.
    Control(Frame<'static>),
}

/// A packet that the peer should acknowledge.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) time: Instant,
    pub(crate) cargo: SmallVec<[Cargo; 2]>,
    /// The frames as they were sent, if the packet is a source of FEC blocks.
    pub(crate) source: Option<Box<[u8]>>,
}

#[derive(Debug)]
enum Slot {
    /// Not acknowledged, not lost.
    Outstanding(SentPacket),
    /// Carried nothing that must arrive.
    Untracked,
    /// Acknowledged or lost.
    Done,
}

/// Every packet from the first outstanding one on, by number.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    /// The number of `slots[0]`.
    first: u64,
    slots: VecDeque<Slot>,
    outstanding: usize,
    /// One more than the largest number acknowledged.
    acked_end: u64,
}

/// What an acknowledgement changed.
#[derive(Debug, Default)]
pub(crate) struct Acked {
    pub(crate) packets: Vec<SentPacket>,
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

    /// Enters the packet with [`Self::next_number`]; `None` for one that the
    /// peer need not acknowledge.
    pub(crate) fn push(&mut self, packet: Option<SentPacket>) {
        match packet {
            Some(packet) => {
                self.outstanding += 1;
                self.slots.push_back(Slot::Outstanding(packet));
            }
            None => self.slots.push_back(Slot::Untracked),
        }
        self.advance();
    }

    /// When the oldest outstanding packet was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(Slot::Outstanding(packet)) => Some(packet.time),
            _ => None,
        }
    }

    /// Takes out what the peer has. An acknowledgement of packets that were
    /// never sent is ignored: `None`.
    pub(crate) fn acknowledge(&mut self, ack: &Ack) -> Option<Acked> {
        if ack.largest >= self.next_number() {
            return None;
        }
        let mut acked = Acked::default();
        for range in ack.ranges() {
            if range.end <= self.first {
                break;
            }
            for number in range.start.max(self.first)..range.end {
                let Some(packet) = self.take(number) else { continue };
                if number == ack.largest {
                    acked.largest_sent_at = Some(packet.time);
                }
                acked.packets.push(packet);
            }
        }
        self.acked_end = self.acked_end.max(ack.largest + 1);
        self.advance();
        Some(acked)
    }

    /// Takes out the packets that are lost by `now`: passed by later ones, or
    /// `delay` after they were sent if at least one later one has arrived.
    pub(crate) fn take_lost(&mut self, now: Instant, delay: Duration) -> Vec<SentPacket> {
        let mut lost = Vec::new();
        for number in self.first..self.acked_end {
            let passed = number + REORDER_THRESHOLD < self.acked_end;
            let overdue = |packet: &SentPacket| packet.time + delay <= now;
            match self.slot(number) {
                Some(Slot::Outstanding(packet)) if passed || overdue(packet) => {
                    lost.extend(self.take(number));
                }
                _ => {}
            }
        }
        self.advance();
        lost
    }

    /// When [`Self::take_lost`] finds the next one by time.
    pub(crate) fn loss_time(&self, delay: Duration) -> Option<Instant> {
        (self.first < self.acked_end).then(|| self.oldest().map(|time| time + delay)).flatten()
    }

    /// The frames of the packet if it is a FEC source, nothing if it is none;
    /// `None` if they are not kept any more.
    pub(crate) fn source(&self, number: u64) -> Option<&[u8]> {
        match self.slot(number)? {
            Slot::Outstanding(packet) => Some(packet.source.as_deref().unwrap_or_default()),
            Slot::Untracked => Some(&[]),
            Slot::Done => None,
        }
    }

    /// The lowest number from which on [`Self::source`] knows every packet.
    pub(crate) fn kept_from(&self) -> u64 {
        let done = self.slots.iter().rposition(|slot| matches!(slot, Slot::Done));
        self.first + done.map_or(0, |index| index as u64 + 1)
    }

    /// What the oldest outstanding packet carried.
    pub(crate) fn oldest_cargo(&self) -> SmallVec<[Cargo; 2]> {
        match self.slots.front() {
            Some(Slot::Outstanding(packet)) => packet.cargo.clone(),
            _ => SmallVec::new(),
        }
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn take(&mut self, number: u64) -> Option<SentPacket> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        if !matches!(slot, Slot::Outstanding(_)) {
            return None;
        }
        self.outstanding -= 1;
        match core::mem::replace(slot, Slot::Done) {
            Slot::Outstanding(packet) => Some(packet),
            Slot::Untracked | Slot::Done => None,
        }
    }

    fn advance(&mut self) {
        while matches!(self.slots.front(), Some(Slot::Untracked | Slot::Done)) {
            self.slots.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn sent(count: u64) -> SentPackets {
        let mut book = SentPackets::default();
        for number in 0..count {
            book.push(Some(SentPacket { time: at(number), cargo: SmallVec::new(), source: None }));
        }
        book
    }

    fn acknowledge(book: &mut SentPackets, ranges: &[(u64, u64)]) -> Option<Acked> {
        let mut bytes = Vec::new();
        frame::write_ack(&mut bytes, ranges.iter().map(|r| r.0..r.1), Duration::ZERO, 0, 1000);
        let Ok(Some(Frame::Ack(ack))) = frame::read(&mut &bytes[..]) else { panic!() };
        book.acknowledge(&ack)
    }

    #[test]
    fn passed_by_three_is_lost_and_earlier_only_by_time() {
        let mut book = sent(10);
        let acked = acknowledge(&mut book, &[(5, 6), (0, 1)]).unwrap();
        assert_eq!((acked.packets.len(), acked.largest_sent_at), (2, Some(at(5))));
        let lost = book.take_lost(at(10), Duration::from_millis(100));
        assert_eq!(lost.iter().map(|p| p.time).collect::<Vec<_>>(), [at(1), at(2)]);
        assert_eq!(book.loss_time(Duration::from_millis(100)), Some(at(103)));
        let lost = book.take_lost(at(104), Duration::from_millis(100));
        assert_eq!(lost.len(), 2);
        assert_eq!(book.settled(), 6);
        assert_eq!(book.loss_time(Duration::from_millis(100)), None);
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
    fn packets_never_sent_cannot_be_acknowledged() {
        let mut book = sent(3);
        assert!(acknowledge(&mut book, &[(3, 4)]).is_none());
        assert!(!book.is_empty());
    }
}
