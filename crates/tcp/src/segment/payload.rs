//! The payload of segments.

use core::ops::Range;

use bytes::Bytes;

/// A run of stream bytes as seen by TCP: it can be split and joined. [`ByteRange`] is for
/// simulations, [`Bytes`] for the wire. The default is empty.
pub trait SegmentPayload: Clone + Default + core::fmt::Debug {
    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns true if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes at `range`, which must be within.
    #[must_use]
    fn slice(&self, range: Range<usize>) -> Self;

    /// Appends the bytes that follow in the stream.
    fn append(&mut self, next: &Self);

    /// [`SegmentPayload::append`] only if it needs no copying, or hardly any. Returns false, with nothing
    /// changed, otherwise.
    fn try_join(&mut self, _next: &Self) -> bool {
        false
    }
}

/// Pieces up to this length together are copied into one, in bytes.
const SMALL: usize = 512;

/// Payload on the wire. Slices share the bytes.
impl SegmentPayload for Bytes {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn slice(&self, range: Range<usize>) -> Self {
        Self::slice(self, range)
    }

    fn append(&mut self, next: &Self) {
        if self.is_empty() {
            *self = next.clone();
        } else {
            *self = [&self[..], &next[..]].concat().into();
        }
    }

    /// Joins small pieces: each piece holds on to all of the packet that it came in, and a peer that
    /// sends single bytes would fill memory with packets.
    fn try_join(&mut self, next: &Self) -> bool {
        let is_small = Self::len(self) + Self::len(next) <= SMALL;
        if is_small {
            self.append(next);
        }
        is_small
    }
}

/// A part of a stream given only by its position: bytes `start..end`, as counted by the writer.
/// There are no bytes to copy, and the receiver can still check that it got what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The bytes at the positions of `range`.
    pub const fn new(range: Range<u64>) -> Self {
        Self { start: range.start, end: range.end }
    }

    /// Returns the positions of the bytes.
    pub const fn range(self) -> Range<u64> {
        self.start..self.end
    }
}

impl SegmentPayload for ByteRange {
    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn slice(&self, range: Range<usize>) -> Self {
        debug_assert!(range.end <= self.len());
        Self { start: self.start + range.start as u64, end: self.start + range.end as u64 }
    }

    fn append(&mut self, next: &Self) {
        let joined = self.try_join(next);
        debug_assert!(joined, "{next:?} does not follow {self:?}");
    }

    fn try_join(&mut self, next: &Self) -> bool {
        if self.is_empty() {
            *self = *next;
        } else if !next.is_empty() && next.start != self.end {
            return false;
        } else {
            self.end = self.end.max(next.end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_and_join<P: SegmentPayload + PartialEq>(whole: &P) {
        for cut in 0..=whole.len() {
            let mut front = whole.slice(0..cut);
            front.append(&whole.slice(cut..whole.len()));
            assert!(front == *whole, "{front:?} {whole:?}");
        }
    }

    #[test]
    fn pieces_can_be_joined_again() {
        cut_and_join(&ByteRange::new(7..19));
        cut_and_join(&Bytes::from_static(b"hello world"));
    }

    #[test]
    fn only_neighbours_join() {
        let mut range = ByteRange::new(0..4);
        assert!(!range.try_join(&ByteRange::new(5..6)));
        assert!(range.try_join(&ByteRange::new(4..6)));
        assert_eq!(range.range(), 0..6);
    }
}
