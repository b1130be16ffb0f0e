//! The scoreboard: every segment that was sent and is not acknowledged, with its state: in flight,
//! selectively acknowledged or lost.

use core::ops::Range;
use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;
use units::{Instant, RangeSet};

use super::delivery_snapshot::DeliverySnapshot;

/// A segment that was sent. Positions count the bytes of the stream from the
/// SYN, which is at 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentSegment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Time of its last transmission.
    pub(crate) sent_at: Instant,
    /// Counts all transmissions of the connection; a larger number is later.
    pub(crate) serial: u64,
    /// Number of its transmissions, the first included.
    pub(crate) transmissions: u32,
    pub(crate) state: SegmentState,
    /// True if it was ever declared lost; it may have been resent since.
    was_lost: bool,
    pub(crate) snapshot: DeliverySnapshot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// In flight, for all that is known.
    InFlight,
    Sacked,
    /// Declared lost and not resent yet.
    Lost,
}

impl SentSegment {
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn was_retransmitted(&self) -> bool {
        self.transmissions > 1
    }
}

/// A segment's number: the n-th sent for the first time.
pub(crate) type SegmentId = u64;

/// All segments from the first unacknowledged one to the last sent. Processing an acknowledgement
/// costs O(log n) per segment whose state changes, and nothing for the others, so the cost does not
/// grow with the window.
///
/// Retransmissions have the original boundaries: segments are never split or merged. A partly
/// acknowledged segment counts as its remainder; a partly selectively acknowledged one counts as
/// unacknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct SegmentScoreboard {
    segments: VecDeque<SentSegment>,
    /// The id of the first in `segments`.
    first: SegmentId,
    /// Ids with serial numbers in order of transmission. Outdated entries stay until they reach the
    /// front.
    order: VecDeque<(u64, SegmentId)>,
    lost: BTreeSet<SegmentId>,
    /// Positions of the selectively acknowledged segments.
    sacked: RangeSet,
    /// No segment that starts below this and was sent once is still in flight.
    judged_below: u64,
    serial: u64,
    in_flight: u64,
    /// Number of selectively acknowledged segments.
    sacked_count: usize,
}

impl SegmentScoreboard {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of segments not cumulatively acknowledged.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Bytes neither acknowledged nor declared lost: the "pipe" of RFC 6675.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&SentSegment> {
        self.segments.front()
    }

    #[inline]
    pub(crate) fn front_id(&self) -> Option<SegmentId> {
        (!self.is_empty()).then_some(self.first)
    }

    #[inline]
    pub(crate) fn back_id(&self) -> Option<SegmentId> {
        Some(self.first + (self.segments.len() as u64).checked_sub(1)?)
    }

    #[inline]
    pub(crate) fn get(&self, id: SegmentId) -> Option<&SentSegment> {
        self.segments.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, id: SegmentId) -> Option<&mut SentSegment> {
        self.segments.get_mut(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    /// Number of selectively acknowledged segments.
    #[inline]
    pub(crate) fn sacked_count(&self) -> usize {
        self.sacked_count
    }

    /// Number of segments declared lost and not resent.
    pub(crate) fn lost_count(&self) -> usize {
        self.lost.len()
    }

    /// The position after the highest selectively acknowledged byte.
    pub(crate) fn highest_sacked(&self) -> Option<u64> {
        self.sacked.last().map(|range| range.end)
    }

    /// Records a segment sent for the first time.
    #[inline]
    pub(crate) fn push(&mut self, range: Range<u64>, now: Instant, snapshot: DeliverySnapshot) {
        self.serial += 1;
        self.in_flight += range.end - range.start;
        self.order.push_back((self.serial, self.first + self.segments.len() as u64));
        self.segments.push_back(SentSegment {
            start: range.start,
            end: range.end,
            sent_at: now,
            serial: self.serial,
            transmissions: 1,
            state: SegmentState::InFlight,
            was_lost: false,
            snapshot,
        });
    }

    /// Records a retransmission, which takes the segment back in flight.
    pub(crate) fn resend(&mut self, id: SegmentId, now: Instant, snapshot: DeliverySnapshot) {
        self.serial += 1;
        let serial = self.serial;
        let Some(sent) = self.get_mut(id) else { return };
        // A segment that was not declared lost counts as in flight already.
        let regained = if sent.state == SegmentState::Lost { sent.len() } else { 0 };
        (sent.sent_at, sent.serial, sent.snapshot) = (now, serial, snapshot);
        sent.transmissions += 1;
        sent.state = SegmentState::InFlight;
        self.in_flight += regained;
        self.lost.remove(&id);
        self.order.push_back((serial, id));
    }

    /// Forgets all outstanding segments: their data was not accepted and will be divided anew.
    pub(crate) fn clear(&mut self) {
        // Ids are never used again: others may still refer to them.
        self.first += self.segments.len() as u64;
        self.segments.clear();
        self.order.clear();
        self.lost.clear();
        self.sacked = RangeSet::default();
        (self.in_flight, self.sacked_count) = (0, 0);
    }

    /// Declares everything that overlaps `range` lost, if it was sent once, or before `before`.
    /// Returns whether there was any.
    pub(crate) fn mark_lost_within(&mut self, range: Range<u64>, before: Instant) -> bool {
        let mut any = false;
        let mut index = self.index_at(range.start);
        while let Some(sent) = self.segments.get(index)
            && sent.start < range.end
        {
            if !sent.was_retransmitted() || sent.sent_at < before {
                any |= self.mark_lost(self.first + index as u64);
            }
            index += 1;
        }
        any
    }

    /// Acknowledges everything below `position`. Calls `on` for each complete segment, with its
    /// previous state.
    pub(crate) fn acknowledge(&mut self, position: u64, mut on: impl FnMut(&SentSegment)) {
        while let Some(sent) = self.segments.front_mut() {
            if sent.end > position {
                if sent.start < position {
                    if sent.state == SegmentState::InFlight {
                        self.in_flight -= position - sent.start;
                    }
                    sent.start = position;
                }
                break;
            }
            match sent.state {
                SegmentState::InFlight => self.in_flight -= sent.len(),
                SegmentState::Sacked => self.sacked_count -= 1,
                SegmentState::Lost => {}
            }
            on(sent);
            if sent.state == SegmentState::Lost {
                self.lost.remove(&self.first);
            }
            self.segments.pop_front();
            self.first += 1;
        }
        self.sacked.remove(0..position);
        // Outdated entries at the front would only be skipped by `expire`.
        while self.order.front().is_some_and(|(_, id)| *id < self.first) {
            self.order.pop_front();
        }
    }

    /// The index of the first segment that ends after `position`.
    #[inline]
    fn index_at(&self, position: u64) -> usize {
        self.segments.partition_point(|sent| sent.end <= position)
    }

    /// Selectively acknowledges `range`. Calls `on` for each newly acknowledged segment, with its
    /// previous state.
    pub(crate) fn sack(&mut self, range: Range<u64>, mut on: impl FnMut(&SentSegment)) {
        if self.sacked.covers(&range) {
            return;
        }
        let news: SmallVec<[Range<u64>; 4]> = self.sacked.gaps(range).collect();
        for gap in news {
            let mut index = self.index_at(gap.start);
            // A segment of which the beginning is missing counts as unacknowledged.
            if self.segments.get(index).is_some_and(|sent| sent.start < gap.start) {
                index += 1;
            }
            let start = self.segments.get(index).map(|sent| sent.start);
            let mut end = None;
            while let Some(sent) = self.segments.get_mut(index)
                && sent.end <= gap.end
            {
                if sent.state == SegmentState::InFlight {
                    self.in_flight -= sent.len();
                }
                on(sent);
                if sent.state == SegmentState::Lost {
                    self.lost.remove(&(self.first + index as u64));
                }
                sent.state = SegmentState::Sacked;
                self.sacked_count += 1;
                end = Some(sent.end);
                index += 1;
            }
            if let (Some(start), Some(end)) = (start, end) {
                self.sacked.insert(start..end);
            }
        }
    }

    /// Discards all selective acknowledgements: the receiver has dropped data that it had reported
    /// (RFC 2018 §8).
    pub(crate) fn forget_sacks(&mut self) {
        for sent in &mut self.segments {
            if sent.state == SegmentState::Sacked {
                sent.state = SegmentState::InFlight;
                self.in_flight += sent.len();
            }
        }
        self.sacked = RangeSet::default();
        self.sacked_count = 0;
        // Segments below it are in flight again.
        self.judged_below = 0;
        self.sort_order();
    }

    /// Restores the order of transmission after segments came back in flight. O(n log n).
    fn sort_order(&mut self) {
        let ids = (self.first..).zip(&self.segments);
        let in_flight = ids.filter(|(_, sent)| sent.state == SegmentState::InFlight);
        let mut order: Vec<(u64, SegmentId)> =
            in_flight.map(|(id, sent)| (sent.serial, id)).collect();
        order.sort_unstable();
        self.order = order.into();
    }

    pub(crate) fn mark_lost(&mut self, id: SegmentId) -> bool {
        let Some(sent) = self.get_mut(id) else { return false };
        if sent.state != SegmentState::InFlight {
            return false;
        }
        sent.state = SegmentState::Lost;
        sent.was_lost = true;
        let len = sent.len();
        self.in_flight -= len;
        self.lost.insert(id);
        true
    }

    /// Declares everything lost that is not selectively acknowledged. O(n); only for time-outs.
    pub(crate) fn mark_all_lost(&mut self) {
        for id in self.first..self.first + self.segments.len() as u64 {
            self.mark_lost(id);
        }
    }

    /// Returns true if data declared lost is still missing, resent or not. O(n); only for the end
    /// of recoveries.
    pub(crate) fn has_unrepaired(&self) -> bool {
        self.segments.iter().any(|sent| sent.was_lost && sent.state != SegmentState::Sacked)
    }

    /// Reverts all loss declarations. O(n log n).
    pub(crate) fn unmark_lost(&mut self) {
        for sent in &mut self.segments {
            sent.was_lost = false;
        }
        for id in core::mem::take(&mut self.lost) {
            if let Some(sent) = self.get_mut(id) {
                sent.state = SegmentState::InFlight;
                let len = sent.len();
                self.in_flight += len;
            }
        }
        self.judged_below = 0;
        self.sort_order();
    }

    /// Returns the first segment to resend.
    #[inline]
    pub(crate) fn first_lost(&self) -> Option<SegmentId> {
        self.lost.first().copied()
    }

    /// `IsLost()` of RFC 6675 §4 for all segments at once: a byte is lost if `threshold`
    /// discontiguous runs above it are selectively acknowledged, or more than `threshold − 1` full
    /// segments. Examines at most `threshold` runs. Returns the position below which this holds.
    pub(crate) fn lost_below(&self, threshold: u64, mss: u64) -> Option<u64> {
        let mut bytes = 0;
        for (run, range) in self.sacked.descending().take(threshold as usize).enumerate() {
            bytes += range.end - range.start;
            if run as u64 + 1 == threshold || bytes > (threshold - 1) * mss {
                return Some(range.start);
            }
        }
        None
    }

    /// Declares all segments lost that start below `position` and are in flight for the first time.
    /// Each segment is examined only once. Returns whether there was any.
    pub(crate) fn mark_lost_below(&mut self, position: u64) -> bool {
        let mut any = false;
        let mut index = self.index_at(self.judged_below);
        while let Some(sent) = self.segments.get(index)
            && sent.start < position
        {
            if !sent.was_retransmitted() {
                any |= self.mark_lost(self.first + index as u64);
            }
            index += 1;
        }
        self.judged_below = self.judged_below.max(position);
        any
    }

    /// Goes through the segments in flight in order of transmission, up to the one before `latest`,
    /// and declares them lost while `is_lost` holds. Returns true if any was declared lost, and the
    /// first segment that was not.
    pub(crate) fn expire(
        &mut self,
        latest: u64,
        is_lost: impl Fn(&SentSegment) -> bool,
    ) -> (bool, Option<SentSegment>) {
        let mut any = false;
        while let Some(&(serial, id)) = self.order.front()
            && serial < latest
        {
            match self.get(id).copied() {
                // Others are outdated entries: the segment was resent, acknowledged or declared
                // lost since.
                Some(sent) if sent.serial == serial && sent.state == SegmentState::InFlight => {
                    if !is_lost(&sent) {
                        return (any, Some(sent));
                    }
                    any |= self.mark_lost(id);
                }
                _ => {}
            }
            self.order.pop_front();
        }
        (any, None)
    }

    /// The first segment from `from` on that is in flight for the first time and below selectively
    /// acknowledged data: `NextSeg()` rule 3 of RFC 6675.
    pub(crate) fn hole(&self, from: SegmentId) -> Option<SegmentId> {
        let limit = self.highest_sacked()?;
        let mut id = from.max(self.first);
        while let Some(sent) = self.get(id)
            && sent.end < limit
        {
            if sent.state == SegmentState::InFlight && !sent.was_retransmitted() {
                return Some(id);
            }
            id += 1;
        }
        None
    }
}

#[cfg(test)]
#[path = "flight/tests.rs"]
mod tests;
