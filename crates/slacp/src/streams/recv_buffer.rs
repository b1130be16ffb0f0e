//! The receiving half of a stream: data that was received and not yet read.

use core::ops::Range;
use std::collections::BTreeMap;
use std::io::IoSlice;

use thiserror::Error;

use crate::spare::FreeSpare as _;

/// Maximum size of a piece. One that is partly read still takes all its memory, at most about the
/// minimum window of a stream.
const MAX_PIECE: usize = 16 * 1024;

/// Adjacent pieces that together are no longer than this are merged, so that a stream received in
/// tiny parts is not stored in tiny parts. Small, because merging copies the bytes.
const MERGE_LIMIT: usize = 4 * 1024;

/// Number of parts that are offered at once: 256 kB if the pieces are full.
const MAX_PARTS: usize = 16;

/// Maximum overhead of a gap, in bytes: the piece after it is an allocation and a map entry, each
/// with its waste.
pub(crate) const GAP_COST: u64 = 128;

/// Restores the order of received data. Its memory grows with the data received, not with the
/// offsets.
#[derive(Debug, Default)]
pub(crate) struct RecvBuffer {
    /// Everything before this offset has been read.
    read: u64,
    /// One more than the highest offset received.
    highest: u64,
    /// Received data by offset: no piece is empty, none overlap. The first may start before `read`.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Number of gaps: missing data before received data.
    gaps: usize,
    /// The end of the stream, once known.
    end: Option<u64>,
    /// Flow control limit: a byte at this offset or above is a violation.
    limit: u64,
}

/// A rule of the stream that the peer violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum StreamViolation {
    #[error("bytes up to {end} exceed the credit of {limit}")]
    Credit { end: u64, limit: u64 },
    #[error("the end of the stream moved from {was} to {is}")]
    End { was: u64, is: u64 },
    #[error("the peer returns credit that it was not granted")]
    Return,
}

impl RecvBuffer {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Pretends that this many bytes were received and read.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        assert!(self.pieces.is_empty());
        self.read += bytes;
        self.highest += bytes;
        self.limit += bytes;
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.pieces.free_spare();
    }

    /// One more than the highest offset received.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    pub(crate) fn read_offset(&self) -> u64 {
        self.read
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Replaces the limit, which may fall but not below the highest offset: by the granted one when
    /// the OPEN frame comes, or by what the peer keeps when it returns credit.
    pub(crate) fn replace_limit(&mut self, limit: u64) {
        debug_assert!(limit >= self.highest);
        self.limit = limit;
    }

    /// Number of gaps: missing data before received data.
    pub(crate) fn gaps(&self) -> usize {
        self.gaps
    }

    /// The end of the stream, once known.
    pub(crate) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Returns `true` if everything up to the end has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.end == Some(self.read)
    }

    /// Returns `true` if there is data to read.
    pub(crate) fn has_data(&self) -> bool {
        self.pieces.first_key_value().is_some_and(|(start, _)| *start <= self.read)
    }

    /// Returns `true` if there is data, or the end of the stream, to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.has_data() || self.is_done()
    }

    /// The offset up to which everything has been received.
    fn ready_to(&self) -> u64 {
        let mut end = self.read;
        for (start, piece) in &self.pieces {
            if *start > end {
                break;
            }
            end = start + piece.len() as u64;
        }
        end
    }

    /// Returns `true` if storing this data would add a gap.
    pub(crate) fn leaves_gap(&self, range: &Range<u64>) -> bool {
        if range.start == self.highest {
            return false;
        }
        let touched = self.pieces.range(..=range.end).next_back();
        let touches =
            touched.is_some_and(|(start, piece)| start + piece.len() as u64 >= range.start);
        range.start > self.read && !range.is_empty() && !touches
    }

    /// Stores received data, which may overlap with earlier data. Returns the growth of the highest
    /// offset.
    ///
    /// # Errors
    /// If the data exceeds the credit or contradicts an earlier end. Nothing is changed then.
    pub(crate) fn insert(
        &mut self,
        offset: u64,
        bytes: &[u8],
        fin: bool,
    ) -> Result<u64, StreamViolation> {
        let end = offset + bytes.len() as u64;
        let before = self.highest;
        if end > self.limit {
            return Err(StreamViolation::Credit { end, limit: self.limit });
        }
        match self.end {
            Some(was) if end > was || (fin && end != was) => {
                return Err(StreamViolation::End { was, is: end });
            }
            None if fin && end < before => {
                return Err(StreamViolation::End { was: before, is: end });
            }
            _ => {}
        }
        if fin {
            self.end = Some(end);
        }
        let mut at = offset.max(self.read);
        if offset == before && !bytes.is_empty() {
            // In order, as nearly always: none of it has been received, and it adds no gap.
            self.append(offset, bytes);
            at = end;
        }
        while at < end {
            let (gap, next) = self.missing(at, end);
            if !gap.is_empty() {
                self.insert_missing(
                    gap.start,
                    &bytes[index(gap.start - offset)..index(gap.end - offset)],
                );
            }
            at = next;
        }
        self.highest = before.max(end);
        debug_assert!(self.read <= self.highest && self.highest <= self.limit);
        Ok(self.highest - before)
    }

    /// The first missing part of `at..end`, which may be empty, and where to continue.
    fn missing(&self, at: u64, end: u64) -> (Range<u64>, u64) {
        let start = match self.pieces.range(..=at).next_back() {
            Some((start, piece)) => at.max(start + piece.len() as u64),
            None => at,
        };
        let next = self.pieces.range(start..).next().map_or(end, |(next, _)| (*next).min(end));
        (start.min(end)..next, next.max(start))
    }

    /// Stores data of which nothing has been received before.
    fn insert_missing(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let touches_next = self.pieces.contains_key(&end);
        let last = self.pieces.range_mut(..offset).next_back();
        let last = last.filter(|(start, piece)| *start + piece.len() as u64 == offset);
        let touches_last = last.is_some() || offset <= self.read;
        let was_gap = self.pieces.range(end..).next().is_some();
        // It may open a gap before it, and it closes, shortens or splits the one that it lies in.
        self.gaps = self.gaps + usize::from(!touches_last) + usize::from(was_gap && !touches_next)
            - usize::from(was_gap);
        self.append(offset, bytes);
        if touches_next {
            self.merge_small(end);
        }
    }

    /// Appends data to the piece before it up to the maximum size, and stores the rest as new
    /// pieces. A piece that continues another one will probably be filled, so it gets all its
    /// memory at once: growing it would copy its contents.
    fn append(&mut self, mut offset: u64, mut bytes: &[u8]) {
        let mut continues = false;
        // Data in order follows the last piece, which needs no search.
        let before = match offset == self.highest {
            true => self.pieces.iter_mut().next_back(),
            false => self.pieces.range_mut(..offset).next_back(),
        };
        if let Some((start, piece)) = before
            && start + piece.len() as u64 == offset
        {
            let (fits, rest) =
                bytes.split_at(bytes.len().min(MAX_PIECE.saturating_sub(piece.len())));
            piece.extend_from_slice(fits);
            offset += fits.len() as u64;
            bytes = rest;
            continues = true;
        }
        for part in bytes.chunks(MAX_PIECE) {
            let mut piece = Vec::with_capacity(if continues { MAX_PIECE } else { part.len() });
            piece.extend_from_slice(part);
            self.pieces.insert(offset, piece);
            offset += part.len() as u64;
        }
    }

    /// Merges the piece at `start` with the one before it if both are small.
    fn merge_small(&mut self, start: u64) {
        let small = self.pieces.get(&start).map_or(0, Vec::len);
        let before = self.pieces.range(..start).next_back().map_or(0, |(_, piece)| piece.len());
        if before + small > MERGE_LIMIT {
            return;
        }
        let joined = self.pieces.remove(&start).unwrap_or_default();
        if let Some((_, before)) = self.pieces.range_mut(..start).next_back() {
            before.extend(joined);
        }
    }

    /// Drops the data that is ready to be read. Returns the number of bytes dropped.
    pub(crate) fn drop_ready(&mut self) -> u64 {
        let ready = self.ready_to();
        self.pieces = self.pieces.split_off(&ready);
        ready - core::mem::replace(&mut self.read, ready)
    }

    /// Drops everything after the first gap. Returns the number of bytes left to read.
    pub(crate) fn truncate_at_gap(&mut self) -> u64 {
        let ready = self.ready_to();
        // After a reset the peer does not send again what is missing.
        self.pieces.split_off(&ready);
        self.gaps = 0;
        self.highest = ready;
        ready - self.read
    }

    /// Reads the next bytes in order into `out`. Returns their number.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut count = 0;
        while count < out.len()
            && let Some(first) = self.pieces.first_entry()
            && *first.key() <= self.read
        {
            let rest = &first.get()[index(self.read - first.key())..];
            let taken = rest.len().min(out.len() - count);
            out[count..count + taken].copy_from_slice(&rest[..taken]);
            let finished = taken == rest.len();
            count += taken;
            self.read += taken as u64;
            if finished {
                first.remove();
            }
        }
        count
    }

    /// Offers the next bytes in order, in parts, to `take`, and drops as many as it says that it
    /// has taken. Returns their number.
    pub(crate) fn offer(&mut self, take: impl FnOnce(&[IoSlice<'_>]) -> usize) -> usize {
        let mut parts = Vec::with_capacity(MAX_PARTS);
        let mut at = self.read;
        for (start, piece) in self.pieces.iter().take(MAX_PARTS) {
            if *start > at {
                break;
            }
            parts.push(IoSlice::new(&piece[index(at - start)..]));
            at = start + piece.len() as u64;
        }
        let offered = index(at - self.read);
        let taken = if offered == 0 { 0 } else { take(&parts).min(offered) };
        self.read += taken as u64;
        while let Some(first) = self.pieces.first_entry()
            && first.key() + first.get().len() as u64 <= self.read
        {
            first.remove();
        }
        taken
    }
}

/// Converts a distance within the held data into an index.
fn index(distance: u64) -> usize {
    usize::try_from(distance).expect("what is held fits in memory")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_order_and_overlap_gives_the_bytes_back(
            pieces in prop::collection::vec((0usize..200, 1usize..60, 0usize..40), 1..60)
        ) {
            let original: Vec<u8> = (0..260).map(|i| (i * 7 % 251) as u8).collect();
            let mut buffer = RecvBuffer::new(260);
            let mut came = [false; 260];
            let mut read = Vec::new();
            let mut grown = 0;
            for (start, len, take) in pieces {
                let before = buffer.gaps();
                let leaves_gap = buffer.leaves_gap(&(start as u64..(start + len) as u64));
                grown += buffer.insert(start as u64, &original[start..start + len], false).unwrap();
                prop_assert_eq!(buffer.gaps() > before, leaves_gap);
                came[start..start + len].fill(true);
                let gaps = came.windows(2).filter(|pair| *pair == [false, true]).count();
                prop_assert_eq!(buffer.gaps(), gaps);
                if take % 2 == 0 {
                    let mut out = vec![0; take];
                    let count = buffer.read(&mut out);
                    read.extend_from_slice(&out[..count]);
                } else {
                    buffer.offer(|parts| {
                        let parts = parts.iter().flat_map(|part| part.iter().copied());
                        let before = read.len();
                        read.extend(parts.take(take));
                        read.len() - before
                    });
                }
            }
            prop_assert_eq!(grown, buffer.highest());
            grown += buffer.insert(0, &original, true).unwrap();
            prop_assert_eq!(grown, 260);
            let mut out = vec![0; 300];
            let count = buffer.read(&mut out);
            read.extend_from_slice(&out[..count]);
            prop_assert_eq!(read, original);
            prop_assert!(buffer.is_done());
        }
    }

    #[test]
    fn credit_and_end_are_enforced() {
        let mut buffer = RecvBuffer::new(10);
        assert_eq!(
            buffer.insert(8, b"abc", false),
            Err(StreamViolation::Credit { end: 11, limit: 10 })
        );
        assert_eq!(buffer.insert(4, b"ab", true), Ok(6));
        assert_eq!(buffer.insert(5, b"ab", false), Err(StreamViolation::End { was: 6, is: 7 }));
        assert_eq!(buffer.insert(0, b"a", true), Err(StreamViolation::End { was: 6, is: 1 }));
        assert!(!buffer.is_readable());
    }

    #[test]
    fn an_empty_stream_ends_at_once() {
        let mut buffer = RecvBuffer::new(0);
        buffer.insert(0, b"", true).unwrap();
        assert!(buffer.is_readable() && buffer.is_done());
    }

    /// Memory of the pieces and their entries.
    fn footprint(buffer: &RecvBuffer) -> u64 {
        let pieces = buffer.pieces.values();
        pieces.map(|piece| piece.capacity() as u64 + GAP_COST).sum()
    }

    #[test]
    fn a_byte_just_below_the_limit_takes_no_more_memory_than_a_byte() {
        let mut buffer = RecvBuffer::new(64_000_000);
        buffer.insert(63_999_990, &[1], false).unwrap();
        assert!(footprint(&buffer) < 1000, "{}", footprint(&buffer));
        assert_eq!((buffer.highest(), buffer.gaps()), (63_999_991, 1));
        buffer.insert(63_999_999, b"", false).unwrap();
        assert!(footprint(&buffer) < 1000);
    }

    #[test]
    fn crumbs_in_any_order_are_kept_as_pieces() {
        const BYTES: u64 = 100_000;
        let orders: [&dyn Fn(u64) -> u64; 3] =
            [&|i| i, &|i| BYTES - 1 - i, &|i| (i * 2) % BYTES + (i * 2) / BYTES];
        for order in orders {
            let mut buffer = RecvBuffer::new(BYTES);
            (0..BYTES).for_each(|i| _ = buffer.insert(order(i), &[7], false).unwrap());
            assert_eq!(buffer.gaps(), 0);
            assert!(footprint(&buffer) < 3 * BYTES, "{}", footprint(&buffer));
            let mut out = vec![0; BYTES as usize + 1];
            assert_eq!(buffer.read(&mut out), BYTES as usize);
            assert!(buffer.pieces.is_empty());
        }
    }

    #[test]
    fn what_came_behind_a_gap_is_cut_off() {
        let mut buffer = RecvBuffer::new(100);
        buffer.insert(0, b"abc", false).unwrap();
        buffer.insert(10, b"xyz", false).unwrap();
        assert_eq!((buffer.truncate_at_gap(), buffer.highest(), buffer.gaps()), (3, 3, 0));
        let mut out = [0; 9];
        assert_eq!(buffer.read(&mut out), 3);
    }
}
