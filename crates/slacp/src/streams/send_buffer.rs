//! The sending half of a stream: data that is not acknowledged.

use core::ops::Range;

use units::RangeSet;

use super::pieces::{PieceQueue, WriteRoom};
use crate::spare::FreeSpare as _;

/// Data that was written and is not acknowledged, the parts of it to be sent or sent again, and the
/// peer's credit.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    /// Offset of the first byte in `data`: everything before it is acknowledged.
    base: u64,
    data: PieceQueue,
    /// The first offset never sent.
    next: u64,
    /// Data above `base` that is acknowledged.
    acked: RangeSet,
    /// Lost data to be sent again.
    lost: RangeSet,
    /// The peer's credit: the first offset that must not be sent.
    credit: u64,
    fin: FinState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FinState {
    #[default]
    Open,
    /// To be sent, for the first time or again.
    Pending,
    Sent,
    Acked,
}

impl SendBuffer {
    pub(crate) fn new(credit: u64) -> Self {
        Self { credit, ..Self::default() }
    }

    /// Continues as if this many bytes had been sent and acknowledged.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        assert!(self.data.is_empty());
        self.base += bytes;
        self.next += bytes;
        self.credit += bytes;
    }

    /// Appends data, which must not follow [`Self::finish`].
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        debug_assert!(self.fin == FinState::Open);
        self.data.extend(bytes);
    }

    /// Appends the bytes that `read` writes, at most `most`, and returns their number.
    pub(crate) fn fill(&mut self, most: usize, read: impl FnOnce(&mut WriteRoom<'_>)) -> usize {
        debug_assert!(self.fin == FinState::Open);
        self.data.fill(most, read)
    }

    pub(crate) fn finish(&mut self) {
        self.fin = FinState::Pending;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.fin != FinState::Open
    }

    /// Returns `true` if everything, including the end, is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.fin == FinState::Acked && self.data.is_empty()
    }

    /// Bytes held because they are not yet acknowledged.
    pub(crate) fn held(&self) -> u64 {
        self.data.len() as u64
    }

    /// Bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.end() - self.next
    }

    /// The unsent bytes that the stream's credit allows to send.
    pub(crate) fn sendable(&self) -> u64 {
        self.end().min(self.credit).saturating_sub(self.next)
    }

    /// Number of bytes sent at least once.
    pub(crate) fn sent(&self) -> u64 {
        self.next
    }

    pub(crate) fn written(&self) -> u64 {
        self.end()
    }

    /// Returns `true` if there is new data but no credit for it.
    pub(crate) fn is_blocked(&self) -> bool {
        self.next >= self.credit && self.next < self.end()
    }

    fn end(&self) -> u64 {
        self.base + self.data.len() as u64
    }

    /// The first offset that must not be sent.
    #[cfg(test)]
    pub(crate) fn credit(&self) -> u64 {
        self.credit
    }

    /// Gives up the credit beyond the next `kept` bytes. Returns the new limit, or `None` if so
    /// little would be given up that the credit is kept.
    pub(crate) fn give_up_credit(&mut self, kept: u64) -> Option<u64> {
        let limit = self.next + kept;
        // A RETURN of less than that is not worth its frame.
        let is_worth_it = self.credit >= limit + kept / 2;
        is_worth_it.then(|| self.credit = limit)?;
        Some(limit)
    }

    pub(crate) fn grant(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    /// Returns `true` if lost data waits to be retransmitted.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Bytes of lost data that wait to be retransmitted.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost.descending().map(|range| range.end - range.start).sum()
    }

    /// Returns `true` if new data, or the end, may be sent within the credit.
    pub(crate) fn has_new(&self) -> bool {
        self.next < self.end().min(self.credit) || self.fin_is_next()
    }

    fn fin_is_next(&self) -> bool {
        self.fin == FinState::Pending && self.next == self.end()
    }

    /// Takes up to `max` lost bytes to retransmit; the flag says whether they include the end.
    pub(crate) fn take_lost(&mut self, max: usize) -> Option<(Range<u64>, bool)> {
        let lost = self.lost.first()?;
        let range = lost.start..lost.end.min(lost.start + max as u64);
        self.lost.remove(range.clone());
        let fin = self.take_fin(range.end);
        Some((range, fin))
    }

    /// Takes up to `max` new bytes; the flag says whether they include the end.
    pub(crate) fn take_new(&mut self, max: u64) -> Option<(Range<u64>, bool)> {
        if !self.has_new() {
            return None;
        }
        let end = self.end().min(self.credit).min(self.next + max);
        let range = self.next..end.max(self.next);
        debug_assert!(range.is_empty() || range.end <= self.credit);
        self.next = range.end;
        let fin = self.take_fin(range.end);
        (fin || !range.is_empty()).then_some((range, fin))
    }

    fn take_fin(&mut self, sent_to: u64) -> bool {
        // The end goes with the last byte, never ahead of it.
        let now = self.fin == FinState::Pending && sent_to == self.end() && self.next == self.end();
        if now {
            self.fin = FinState::Sent;
        }
        now
    }

    /// Appends the data of `range` to `out`. It must have been taken and not be acknowledged.
    pub(crate) fn copy(&self, range: &Range<u64>, out: &mut Vec<u8>) {
        let start = (range.start - self.base) as usize;
        let end = (range.end - self.base) as usize;
        self.data.copy(start..end, out);
    }

    pub(crate) fn acknowledged(&mut self, range: Range<u64>, fin: bool) {
        if fin {
            self.fin = FinState::Acked;
        }
        debug_assert!(range.end <= self.next, "only what was sent is acknowledged");
        let range = range.start.max(self.base)..range.end;
        // A packet declared lost may have been late: its data need not be sent again.
        self.lost.remove(range.clone());
        if range.start > self.base {
            self.acked.insert(range);
            return;
        }
        let mut end = range.end.max(self.base);
        while let Some(first) = self.acked.first().filter(|first| first.start <= end) {
            end = end.max(first.end);
            self.acked.remove(first);
        }
        self.data.advance((end - self.base) as usize);
        self.base = end;
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.data.free_spare();
        self.acked.free_spare();
        self.lost.free_spare();
    }

    /// Queues the data of a lost packet for retransmission, except what has arrived in another
    /// packet.
    pub(crate) fn lost(&mut self, range: Range<u64>, fin: bool) {
        let range = range.start.max(self.base)..range.end;
        for missing in self.acked.gaps(range) {
            self.lost.insert(missing);
        }
        // A copy of the end may have been acknowledged already.
        if fin && self.fin == FinState::Sent {
            self.fin = FinState::Pending;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(buffer: &SendBuffer, range: &Range<u64>) -> String {
        let mut out = Vec::new();
        buffer.copy(range, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sends_within_credit_and_the_end_with_the_last_byte() {
        let mut buffer = SendBuffer::new(4);
        buffer.write(b"abcdefgh");
        buffer.finish();
        assert_eq!(buffer.take_new(3), Some((0..3, false)));
        assert_eq!(buffer.take_new(3), Some((3..4, false)));
        assert_eq!(buffer.take_new(3), None);
        buffer.grant(100);
        assert_eq!(buffer.take_new(30), Some((4..8, true)));
        assert_eq!(buffer.take_new(30), None);
        assert_eq!(text(&buffer, &(2..6)), "cdef");
    }

    #[test]
    fn lost_bytes_go_again_unless_they_arrived() {
        let mut buffer = SendBuffer::new(100);
        buffer.write(b"abcdefgh");
        buffer.finish();
        buffer.take_new(8);
        buffer.acknowledged(2..4, false);
        buffer.lost(0..8, true);
        assert_eq!(buffer.take_lost(100), Some((0..2, false)));
        assert_eq!(buffer.take_lost(100), Some((4..8, true)));
        assert_eq!(buffer.take_lost(100), None);
        buffer.acknowledged(0..2, false);
        assert_eq!(buffer.held(), 4);
        buffer.acknowledged(4..8, true);
        assert!(buffer.is_done());
    }

    #[test]
    fn an_end_without_bytes_is_sent_and_sent_again() {
        let mut buffer = SendBuffer::new(0);
        buffer.finish();
        assert_eq!(buffer.take_new(9), Some((0..0, true)));
        assert!(!buffer.has_new());
        buffer.lost(0..0, true);
        assert_eq!(buffer.take_new(9), Some((0..0, true)));
        buffer.acknowledged(0..0, true);
        assert!(buffer.is_done());
    }
}
