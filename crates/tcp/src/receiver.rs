//! The receiving half: orders the stream, and reports what has arrived and how much more may come.

#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};

use arrayvec::ArrayVec;
use smallvec::{SmallVec, smallvec};

use crate::SegmentPayload;

/// The classification of a segment's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataArrival {
    /// The next data, with nothing waiting behind it.
    InOrder,
    /// The next data while later data waits: all or part of a hole is filled.
    FilledHole,
    OutOfOrder,
    /// All of it had already arrived.
    Duplicate,
}

/// Positions of the peer's stream, counted from its SYN at 0.
#[derive(Debug, Clone)]
pub(crate) struct StreamReceiver<P> {
    /// The next position expected: RCV.NXT.
    next: u64,
    /// Data waiting for what is missing before it: start → island.
    islands: BTreeMap<u64, Island<P>>,
    /// Data in order, to be read.
    ready: VecDeque<P>,
    ready_len: u64,
    capacity: u64,
    /// The right edge of the window as last advertised.
    edge: u64,
    /// Position of the FIN, once it has arrived.
    fin: Option<u64>,
    /// The islands that grew last, latest first, with their current extent (RFC 2018 §4).
    recent: ArrayVec<Range<u64>, MAX_BLOCKS>,
    /// A duplicate to be reported once (RFC 2883).
    duplicate: Option<Range<u64>>,
    /// The start of the hole reported last (SNACK).
    last_reported: u64,
}

/// Contiguous data.
#[derive(Debug, Clone)]
struct Island<P> {
    end: u64,
    pieces: Pieces<P>,
}

/// Usually a single piece: data is joined if that needs no copying.
type Pieces<P> = SmallVec<[P; 1]>;

/// Maximum number of SACK blocks in a segment (RFC 2018 §3).
const MAX_BLOCKS: usize = 4;

impl<P: SegmentPayload> StreamReceiver<P> {
    /// A receiver of a stream whose SYN has arrived, with room for `capacity`
    /// bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            next: 1,
            islands: BTreeMap::new(),
            ready: VecDeque::new(),
            ready_len: 0,
            capacity,
            edge: 1,
            fin: None,
            recent: ArrayVec::new(),
            duplicate: None,
            last_reported: 0,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of bytes ready to read.
    pub(crate) fn ready_len(&self) -> u64 {
        self.ready_len
    }

    /// Returns the number of bytes received and not read.
    pub(crate) fn held_bytes(&self) -> u64 {
        let waiting = self.islands.iter().map(|(start, island)| island.end - start);
        self.ready_len + waiting.sum::<u64>()
    }

    /// Returns true if all of the stream has arrived, the FIN included.
    pub(crate) fn is_complete(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    pub(crate) fn has_holes(&self) -> bool {
        !self.islands.is_empty()
    }

    /// Returns a hole to report: each in turn, from the first.
    pub(crate) fn next_hole(&mut self) -> Option<Range<u64>> {
        let (first, _) = self.islands.first_key_value()?;
        let first = self.next..*first;
        let after = |(_, island): (&u64, &Island<P>)| {
            let (start, _) = self.islands.range(island.end..).next()?;
            Some(island.end..*start)
        };
        let later = self.islands.range(self.last_reported..).find_map(after);
        // After the last hole, the turn starts again at the first.
        let hole = if self.last_reported < first.start { first } else { later.unwrap_or(first) };
        self.last_reported = hole.start;
        Some(hole)
    }

    /// Returns what is left of the window last advertised to the peer: RCV.WND.
    pub(crate) fn window(&self) -> u64 {
        self.edge.saturating_sub(self.next)
    }

    /// Returns the right edge of the window that the buffer has room for.
    fn room_edge(&self) -> u64 {
        self.next + self.capacity.saturating_sub(self.ready_len)
    }

    /// Returns true if the window has grown enough to announce it (RFC 9293 §3.8.6.2.2): by two
    /// segments or half of the buffer.
    pub(crate) fn owes_update(&self, mss: u64) -> bool {
        self.room_edge().saturating_sub(self.edge) >= (2 * mss).min(self.capacity.div_ceil(2))
    }

    /// The window to advertise, in units of `1 << shift`, at most 65,535 units. The right edge
    /// never moves back, and advances only by a full segment or half of the buffer (RFC 9293
    /// §3.8.6.2.2).
    pub(crate) fn advertise(&mut self, shift: u8, mss: u64) -> u16 {
        let mut edge = self.edge.max(self.next);
        let room = self.room_edge();
        if room >= edge + mss.min(self.capacity / 2) {
            edge = room;
        }
        // Rounded down as it opens; never below the promised edge, since windows must not shrink
        // (RFC 9293 §3.8.6).
        let window = edge - self.next;
        let units = (window >> shift).min(65_535);
        let promised = self.edge.saturating_sub(self.next);
        let rounded_up = (promised >> shift) + u64::from(promised & ((1 << shift) - 1) != 0);
        let units = units.max(rounded_up.min(65_535));
        self.edge = self.edge.max(self.next + (units << shift));
        units as u16
    }

    /// Stores data that starts at `start` and lies within the window; known data is dropped.
    pub(crate) fn insert(&mut self, start: u64, data: &P) -> DataArrival {
        let end = start + data.len() as u64;
        if start > self.next {
            return self.insert_later(start, data);
        }
        if end <= self.next {
            self.duplicate = Some(start..end);
            return DataArrival::Duplicate;
        }
        if start < self.next {
            // RFC 2883 §4: the part that arrived before is reported as a duplicate.
            self.duplicate = Some(start..self.next);
        }
        self.deliver(data.slice((self.next - start) as usize..data.len()));
        let had_holes = self.has_holes();
        if had_holes {
            self.deliver_islands(end);
        }
        self.pass_fin();
        if had_holes { DataArrival::FilledHole } else { DataArrival::InOrder }
    }

    fn insert_later(&mut self, start: u64, data: &P) -> DataArrival {
        let end = start + data.len() as u64;
        let island = match self.insert_last(start, data) {
            // The usual case behind a hole: data follows the latest island or forms a new one after
            // it.
            Some(island) => island,
            None if self.held(start).is_some_and(|held| end <= held) => {
                self.duplicate = Some(start..end);
                return DataArrival::Duplicate;
            }
            None => self.insert_island(start, data),
        };
        self.note_recent(island);
        DataArrival::OutOfOrder
    }

    /// Records that `island` has grown, possibly merging others.
    fn note_recent(&mut self, island: Range<u64>) {
        // Islands that have merged into this one are no longer reported by themselves.
        self.recent.retain(|known| known.start < island.start || island.end < known.end);
        self.recent.truncate(MAX_BLOCKS - 1);
        // The first block must hold the segment that triggers the ACK (RFC 2018 §4).
        self.recent.insert(0, island);
    }

    /// Returns the end of the island that holds the byte at `position`.
    fn held(&self, position: u64) -> Option<u64> {
        let (_, island) = self.island_before(position)?;
        (island.end > position).then_some(island.end)
    }

    /// Returns the island with the largest start at or below `position`.
    fn island_before(&self, position: u64) -> Option<(&u64, &Island<P>)> {
        self.islands.range(..=position).next_back()
    }

    /// Delivers the islands reached by data up to `end`; overlaps are cut off.
    fn deliver_islands(&mut self, end: u64) {
        while let Some(entry) = self.islands.first_entry()
            && *entry.key() <= self.next
        {
            let (mut at, island) = entry.remove_entry();
            if at < end {
                self.duplicate = Some(at..end.min(island.end));
            }
            for piece in island.pieces {
                let piece_end = at + piece.len() as u64;
                if piece_end > self.next {
                    self.deliver(piece.slice((self.next - at) as usize..piece.len()));
                }
                at = piece_end;
            }
        }
        self.recent.retain(|known| known.start > self.next);
    }

    fn deliver(&mut self, data: P) {
        let len = data.len() as u64;
        self.next += len;
        self.ready_len += len;
        // Small pieces would each hold on to their whole packet.
        let joined = self.ready.back_mut().is_some_and(|last| last.try_join(&data));
        if !joined && len > 0 {
            self.ready.push_back(data);
        }
    }

    /// Stores data into the holes between the islands that it covers. Returns the island that it is
    /// now part of.
    fn insert_island(&mut self, start: u64, data: &P) -> Range<u64> {
        let end = start + data.len() as u64;
        let cut = |range: Range<u64>| {
            data.slice((range.start - start) as usize..(range.end - start) as usize)
        };
        // The island that contains or precedes the start of the data, or a new one.
        let before = self.island_before(start);
        let base = before.filter(|(_, island)| island.end >= start).map_or(start, |(at, _)| *at);
        let mut whole =
            self.islands.remove(&base).unwrap_or(Island { end: start, pieces: Pieces::new() });
        if whole.end > start {
            self.duplicate = Some(start..whole.end.min(end));
        }
        while whole.end < end {
            let hole_end =
                self.islands.range(whole.end..).next().map_or(end, |(at, _)| end.min(*at));
            let hole = whole.end..hole_end;
            if !hole.is_empty() {
                whole.pieces.push(cut(hole));
                whole.end = hole_end;
            }
            self.absorb(&mut whole, end);
        }
        self.absorb(&mut whole, end);
        let island = base..whole.end;
        self.islands.insert(base, whole);
        island
    }

    /// Stores data after all islands or at the end of the last, if it belongs there. Returns the
    /// island that it is now part of.
    fn insert_last(&mut self, start: u64, data: &P) -> Option<Range<u64>> {
        let end = start + data.len() as u64;
        if let Some(mut last) = self.islands.last_entry() {
            let base = *last.key();
            let last = last.get_mut();
            // Not behind the last island: a matter for the general case.
            if last.end > start {
                return None;
            }
            if last.end == start {
                last.end = end;
                let joined = last.pieces.last_mut().is_some_and(|piece| piece.try_join(data));
                if !joined {
                    last.pieces.push(data.clone());
                }
                return Some(base..end);
            }
        }
        self.islands.insert(start, Island { end, pieces: smallvec![data.clone()] });
        Some(start..end)
    }

    /// Joins the island that starts where `whole` ends, if there is one.
    fn absorb(&mut self, whole: &mut Island<P>, end: u64) {
        if let Some(island) = self.islands.remove(&whole.end) {
            if whole.end < end {
                self.duplicate = Some(whole.end..end.min(island.end));
            }
            whole.end = island.end;
            whole.pieces.extend(island.pieces);
        }
    }

    /// Sets the end of the stream to `position`. A different end than before, or one below received
    /// data, is invalid and ignored.
    pub(crate) fn finish(&mut self, position: u64) {
        let highest = self.islands.last_key_value().map_or(self.next, |(_, island)| island.end);
        if self.fin.is_none() && position >= highest {
            self.fin = Some(position);
            self.pass_fin();
        }
    }

    fn pass_fin(&mut self) {
        // RFC 9293 §3.4: a FIN takes a sequence number of its own.
        if self.fin == Some(self.next) {
            self.next += 1;
        }
    }

    /// Takes the next data in order, at most `max` bytes.
    pub(crate) fn read(&mut self, max: usize) -> Option<P> {
        let first = self.ready.front_mut()?;
        let data = if first.len() <= max {
            self.ready.pop_front()?
        } else {
            let data = first.slice(0..max);
            *first = first.slice(max..first.len());
            data
        };
        self.ready_len -= data.len() as u64;
        (!data.is_empty()).then_some(data)
    }

    /// Returns true if there is anything to report in SACK blocks.
    pub(crate) fn has_sack(&self) -> bool {
        self.has_holes() || self.duplicate.is_some()
    }

    /// The SACK blocks in the order of RFC 2018 §4: first a duplicate, if `dsack` (RFC 2883 §4),
    /// then the islands that grew last, latest first, then others.
    pub(crate) fn sack_blocks(&mut self, dsack: bool) -> ArrayVec<Range<u64>, MAX_BLOCKS> {
        let mut blocks = ArrayVec::new();
        let duplicate = self.duplicate.take();
        if dsack {
            blocks.extend(duplicate);
        }
        let room = MAX_BLOCKS - blocks.len();
        blocks.extend(self.recent.iter().take(room).cloned());
        if self.recent.len() < self.islands.len() {
            let known = |start: &u64| self.recent.iter().any(|known| known.start == *start);
            let others = self.islands.iter().take(MAX_BLOCKS).filter(|(start, _)| !known(start));
            let room = MAX_BLOCKS - blocks.len();
            blocks.extend(others.take(room).map(|(start, island)| *start..island.end));
        }
        blocks
    }

    /// Records that `range`, all of it below the next expected position, has arrived again.
    pub(crate) fn note_duplicate(&mut self, range: Range<u64>) {
        self.duplicate = Some(range);
    }
}
