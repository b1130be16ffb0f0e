//! Classifies the payload of one direction, as seen at the capture point: new, retransmitted, late
//! or reordered.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Instant;

use super::ranges::Ranges;

/// Maximum number of holes with a known age. Others count as old.
const HOLES_MAX: usize = 4096;
/// Maximum delay by reordering while no round-trip time is known.
const REORDERED_WITHIN: Duration = Duration::from_millis(3);

/// The classification of a segment's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadClass {
    /// All of it lies above everything seen before.
    New,
    /// Some or all of it was seen before. Needless if the receiver had already acknowledged what
    /// was seen.
    Retransmitted {
        /// Set if the receiver already had those bytes.
        needless: bool,
    },
    /// Fills a hole so late that it must be a retransmission; the original was lost before the
    /// capture point.
    Repair,
    /// Fills a hole because it was overtaken.
    Reordered,
}

/// The payload of one direction, its holes and acknowledgements.
#[derive(Debug, Default)]
pub(super) struct PayloadTracker {
    /// Bytes that were in some packet.
    seen: Ranges,
    /// Bytes that the receiver has selectively acknowledged.
    sacked: Ranges,
    /// Holes by their first byte.
    holes: BTreeMap<u64, Hole>,
    /// The end of the highest payload.
    high: u64,
    /// Bytes of the stream that were seen at least once.
    pub(super) unique: u64,
}

/// Missing bytes below later ones.
#[derive(Debug, Clone, Copy)]
struct Hole {
    end: u64,
    opened: Instant,
    /// TSval of the first segment above the hole.
    stamp: Option<u32>,
}

/// The payload of a segment as a range of the stream, and its times.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadRange {
    pub(super) time: Instant,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) stamp: Option<u32>,
}

impl PayloadTracker {
    /// Sets where the payload starts.
    pub(super) fn begin(&mut self, start: u64) {
        self.high = self.high.max(start);
    }

    /// The end of the highest payload.
    pub(super) fn high(&self) -> u64 {
        self.high
    }

    /// Returns the number of bytes of `start..end` that were seen.
    pub(super) fn seen(&self, start: u64, end: u64) -> u64 {
        self.seen.overlap(start, end)
    }

    /// Adds a segment and classifies it. `acked` is the highest acknowledgement, `rtt` the shortest
    /// round-trip time so far.
    pub(super) fn add(
        &mut self,
        range: &PayloadRange,
        acked: u64,
        rtt: Option<Duration>,
    ) -> PayloadClass {
        let before = self.seen.overlap(range.start, range.end);
        self.unique += self.seen.insert(range.start, range.end);
        if range.start >= self.high {
            if range.start > self.high {
                self.open(self.high, range.start, range.time, range.stamp);
            }
            self.high = range.end;
            return PayloadClass::New;
        }
        let hole = self.fill(range.start, range.end);
        let was_high = self.high;
        self.high = self.high.max(range.end);
        if before > 0 {
            let end = range.end.min(was_high);
            let unacked = range.start.max(acked);
            let missing = self.seen.overlap(unacked, end);
            // Needless if the peer had reported all of it that was not acknowledged yet.
            let needless = self.sacked.overlap(unacked, end) >= missing;
            return PayloadClass::Retransmitted { needless };
        }
        match hole {
            Some(hole) if hole.was_overtaken(range, rtt) => PayloadClass::Reordered,
            _ => PayloadClass::Repair,
        }
    }

    /// Records that the receiver has these bytes.
    pub(super) fn sack(&mut self, start: u64, end: u64) {
        self.sacked.insert(start, end.min(self.high));
    }

    /// Records that the receiver has everything before `ack`.
    pub(super) fn acked(&mut self, ack: u64) {
        self.sacked.forget_before(ack);
    }

    fn open(&mut self, start: u64, end: u64, opened: Instant, stamp: Option<u32>) {
        if self.holes.len() == HOLES_MAX {
            self.holes.pop_first();
        }
        self.holes.insert(start, Hole { end, opened, stamp });
    }

    /// Fills `start..end` of the holes; returns the lowest hole touched.
    fn fill(&mut self, start: u64, end: u64) -> Option<Hole> {
        let mut filled = None;
        while let Some((&low, &hole)) = self.holes.range(..end).next_back()
            && hole.end > start
        {
            filled = Some(hole);
            self.holes.remove(&low);
            if hole.end > end {
                self.holes.insert(end, hole);
            }
            if low < start {
                self.holes.insert(low, Hole { end: start, ..hole });
            }
        }
        filled
    }
}

impl Hole {
    /// Returns true if a late segment was overtaken rather than retransmitted. A retransmission
    /// takes at least a round trip, because the receiver must report the loss. It is also sent
    /// after the data above the hole, which time stamps (RFC 7323) show if present.
    fn was_overtaken(&self, range: &PayloadRange, rtt: Option<Duration>) -> bool {
        let late = range.time.saturating_since(self.opened);
        let soon = late < rtt.map_or(REORDERED_WITHIN, |rtt| rtt / 2);
        match (range.stamp, self.stamp) {
            (Some(stamp), Some(above)) if stamp != above => {
                stamp.wrapping_sub(above).cast_signed() < 0
            }
            _ => soon,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Option<Duration> = Some(Duration::from_millis(100));

    fn payload(millis: u64, start: u64, end: u64) -> PayloadRange {
        let time = Instant::from_nanos(millis * 1_000_000);
        PayloadRange { time, start, end, stamp: None }
    }

    fn started() -> PayloadTracker {
        let mut delivery = PayloadTracker::default();
        assert_eq!(delivery.add(&payload(0, 0, 100), 0, RTT), PayloadClass::New);
        delivery
    }

    #[test]
    fn what_was_seen_comes_again() {
        let mut delivery = started();
        let needed = PayloadClass::Retransmitted { needless: false };
        let needless = PayloadClass::Retransmitted { needless: true };
        assert_eq!(delivery.add(&payload(300, 0, 100), 0, RTT), needed);
        assert_eq!(delivery.add(&payload(300, 50, 150), 0, RTT), needed);
        assert_eq!(delivery.unique, 150);
        delivery.acked(120);
        assert_eq!(delivery.add(&payload(300, 20, 120), 120, RTT), needless);
        assert_eq!(delivery.add(&payload(300, 20, 130), 120, RTT), needed);
        delivery.sack(120, 150);
        assert_eq!(delivery.add(&payload(300, 120, 150), 120, RTT), needless);
        assert_eq!(delivery.unique, 150);
    }

    #[test]
    fn a_hole_is_filled_soon_or_late() {
        let mut delivery = started();
        delivery.add(&payload(10, 300, 400), 0, RTT);
        assert_eq!(delivery.add(&payload(11, 100, 200), 0, RTT), PayloadClass::Reordered);
        assert_eq!(delivery.add(&payload(110, 250, 300), 0, RTT), PayloadClass::Repair);
        assert_eq!(delivery.add(&payload(110, 200, 250), 0, RTT), PayloadClass::Repair);
        assert!(delivery.holes.is_empty());
        assert_eq!(delivery.unique, 400);
    }

    #[test]
    fn without_a_round_trip_three_milliseconds_decide() {
        let mut delivery = started();
        delivery.add(&payload(10, 300, 400), 0, None);
        assert_eq!(delivery.add(&payload(12, 100, 200), 0, None), PayloadClass::Reordered);
        assert_eq!(delivery.add(&payload(13, 200, 300), 0, None), PayloadClass::Repair);
    }

    #[test]
    fn time_stamps_know_what_was_sent_first() {
        let stamped = |millis, start, end, stamp| PayloadRange {
            stamp: Some(stamp),
            ..payload(millis, start, end)
        };
        let mut delivery = started();
        delivery.add(&stamped(10, 300, 400, 2), 0, RTT);
        // Late but sent before; and soon but sent after.
        assert_eq!(
            delivery.add(&stamped(200, 100, 200, u32::MAX), 0, RTT),
            PayloadClass::Reordered
        );
        assert_eq!(delivery.add(&stamped(11, 200, 250, 3), 0, RTT), PayloadClass::Repair);
        assert_eq!(delivery.add(&stamped(12, 250, 300, 2), 0, RTT), PayloadClass::Reordered);
    }

    #[test]
    fn holes_are_bounded() {
        let mut delivery = PayloadTracker::default();
        for index in 0..2 * HOLES_MAX as u64 {
            delivery.add(&payload(index, 10 * index + 5, 10 * index + 10), 0, RTT);
        }
        assert_eq!(delivery.holes.len(), HOLES_MAX);
        assert_eq!(delivery.add(&payload(10, 0, 5), 0, RTT), PayloadClass::Repair);
    }
}
