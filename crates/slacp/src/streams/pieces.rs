//! A queue of bytes in pieces, each of which is one allocation.
//!
//! A ring passes all of its memory through the processor's caches; this queue touches only what it
//! holds. Data may be read from a socket directly into it.

use core::ops::Range;
use std::collections::VecDeque;

use bytes::BufMut as _;
use bytes::buf::Limit;

use crate::spare::FreeSpare as _;

/// A piece that holds less than this may grow, which copies its contents; and less room than this
/// is not worth a system call of its own.
const SMALL_PIECE: usize = 16 * 1024;

/// Minimum room for a reader that does not know how much data will come.
const READ_ROOM: usize = 64 * 1024;

/// Maximum size of a piece. A socket is read once per piece, after which the kernel acknowledges
/// the data.
const MAX_PIECE: usize = 256 * 1024;

/// A buffer with room for a limited number of bytes ([`bytes::BufMut`]), which become the next data
/// of a stream.
pub type WriteRoom<'b> = Limit<&'b mut Vec<u8>>;

/// Bytes in the order in which they were appended.
#[derive(Debug, Default)]
pub(super) struct PieceQueue {
    /// In order and without gaps; none is empty.
    pieces: VecDeque<BufferPiece>,
    /// Number of bytes dropped so far: the offset of the first byte held.
    begin: u64,
    /// Number of bytes appended so far: the offset after the last byte held.
    end: u64,
    /// Memory of dropped pieces, to be used again: at most one more than there are pieces, and none
    /// larger than [`READ_ROOM`] while the queue is empty.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct BufferPiece {
    /// Offset of its first byte.
    start: u64,
    bytes: Vec<u8>,
}

impl BufferPiece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }
}

impl PieceQueue {
    pub(super) fn len(&self) -> usize {
        (self.end - self.begin) as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end == self.begin
    }

    /// Appends bytes, which are copied.
    pub(super) fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let last = self.with_room(1, bytes.len());
            let (part, rest) = bytes.split_at(bytes.len().min(last.room()));
            last.bytes.extend_from_slice(part);
            self.end += part.len() as u64;
            bytes = rest;
        }
    }

    /// Appends the bytes that `read` writes, at most `most`, and returns their number.
    pub(super) fn fill(&mut self, most: usize, read: impl FnOnce(&mut WriteRoom<'_>)) -> usize {
        let last = self.with_room(SMALL_PIECE, READ_ROOM);
        let before = last.bytes.len();
        let room = last.room();
        read(&mut (&mut last.bytes).limit(most.min(room)));
        let held = last.bytes.len();
        let count = last.bytes.len() - before;
        self.end += count as u64;
        if held == 0 {
            self.pieces.pop_back();
        } else if before + room > 2 * self.len().max(SMALL_PIECE)
            && let Some(last) = self.pieces.back_mut()
        {
            // Gives back unused room: many streams hold little each.
            last.bytes.shrink_to(held.next_power_of_two());
        }
        count
    }

    /// The last piece, with room for at least `least` bytes. New memory has room for `wanted`
    /// bytes.
    fn with_room(&mut self, least: usize, wanted: usize) -> &mut BufferPiece {
        let size = wanted.max(self.len()).next_power_of_two().min(MAX_PIECE);
        match self.pieces.back_mut() {
            Some(last) if last.room() >= least => {}
            Some(last) if last.bytes.len() < SMALL_PIECE => last.bytes.reserve_exact(size),
            // A new piece, since a larger one would be copied to grow.
            _ => {
                let fits = |piece: &Vec<u8>| (size / 2..=2 * size).contains(&piece.capacity());
                let spare = self.spare.pop().filter(fits);
                let bytes = spare.unwrap_or_else(|| Vec::with_capacity(size));
                self.pieces.push_back(BufferPiece { start: self.end, bytes });
            }
        }
        self.pieces.back_mut().expect("there is a piece")
    }

    /// Drops the first `count` bytes, at most as many as are held.
    pub(super) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.begin += count as u64;
        while let Some(mut first) = self.pieces.pop_front_if(|first| first.end() <= self.begin) {
            first.bytes.clear();
            self.spare.push(first.bytes);
        }
        self.spare.truncate(self.pieces.len() + 1);
        if self.is_empty() {
            // A stream may be idle for long after it was fast.
            self.spare.retain(|piece| piece.capacity() <= READ_ROOM);
        }
    }

    /// Appends the bytes of `range`, counted from the first byte held, to `out`.
    pub(super) fn copy(&self, range: Range<usize>, out: &mut Vec<u8>) {
        let mut at = self.begin + range.start as u64;
        let end = self.begin + range.end as u64;
        let mut index = self.pieces.partition_point(|piece| piece.end() <= at);
        while at < end {
            let piece = &self.pieces[index];
            let to = piece.end().min(end);
            out.extend_from_slice(
                &piece.bytes[(at - piece.start) as usize..(to - piece.start) as usize],
            );
            (at, index) = (to, index + 1);
        }
    }

    /// Frees memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.spare = Vec::new();
        self.pieces.free_spare();
        if let Some(last) = self.pieces.back_mut() {
            last.bytes.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &PieceQueue) -> Vec<u8> {
        let mut out = Vec::new();
        pieces.copy(0..pieces.len(), &mut out);
        out
    }

    #[test]
    fn memory_follows_what_is_held() {
        let capacity = |pieces: &PieceQueue| -> usize {
            let used = pieces.pieces.iter().map(|piece| &piece.bytes);
            used.chain(&pieces.spare).map(Vec::capacity).sum()
        };
        let mut pieces = PieceQueue::default();
        for _ in 0..100 {
            assert_eq!(pieces.fill(30, |room| room.put_slice(&[1; 30])), 30);
            assert!(capacity(&pieces) < 4 * pieces.len(), "a little is held in little");
        }
        for _ in 0..100 {
            pieces.extend(&[1; 300]);
            pieces.extend(&[1; MAX_PIECE]);
            assert!(capacity(&pieces) <= pieces.len() + 2 * MAX_PIECE);
        }
        pieces.advance(pieces.len());
        assert!(pieces.is_empty() && capacity(&pieces) <= READ_ROOM);
        assert_eq!(pieces.fill(9, |_| {}), 0);
        assert!(pieces.is_empty() && pieces.pieces.is_empty());
        pieces.free_spare();
        assert_eq!(capacity(&pieces), 0);
    }

    proptest! {
        /// It is a queue of bytes, however they are appended.
        #[test]
        fn behaves_like_a_plain_queue(
            steps in prop::collection::vec((0..4_u8, 0..2 * MAX_PIECE, any::<u8>()), 1..60),
        ) {
            let (mut pieces, mut plain) = (PieceQueue::default(), VecDeque::new());
            for (kind, size, byte) in steps {
                match kind {
                    0 => {
                        pieces.extend(&vec![byte; size]);
                        plain.extend(vec![byte; size]);
                    }
                    1 => {
                        // A socket that has more than there is room for, or less.
                        let count = pieces.fill(size.max(1), |room| {
                            let count = room.remaining_mut().min(size * 2 / 3);
                            room.put_bytes(byte, count);
                        });
                        plain.extend(vec![byte; count]);
                    }
                    2 => {
                        let count = size.min(plain.len());
                        pieces.advance(count);
                        plain.drain(..count);
                    }
                    _ => pieces.free_spare(),
                }
                prop_assert_eq!(pieces.len(), plain.len());
                prop_assert_eq!(pieces.is_empty(), plain.is_empty());
            }
            prop_assert!(all(&pieces).iter().eq(&plain));
            let middle = plain.len() / 3..plain.len() / 2;
            let mut out = Vec::new();
            pieces.copy(middle.clone(), &mut out);
            prop_assert!(out.iter().eq(plain.range(middle)));
        }
    }
}
