//! Round-trip times as seen at the capture point: from a segment to its acknowledgement.

use std::collections::VecDeque;
use std::time::Duration;

use units::Instant;

use crate::trace::moments::Moments;

/// Maximum number of segments timed at once.
const TIMED_MAX: usize = 65_536;
/// Maximum number of time stamps waiting for their echo.
const STAMPS_MAX: usize = 4_096;

/// Measures round-trip times by acknowledgements and by time stamps.
#[derive(Debug, Default)]
pub(super) struct RttSampler {
    timed: VecDeque<TimedSegment>,
    stamps: VecDeque<(u32, Instant)>,
    by_ack: Moments,
    by_stamp: Moments,
}

/// A segment in flight that is timed.
#[derive(Debug)]
struct TimedSegment {
    start: u64,
    end: u64,
    sent: Instant,
    /// Set if the acknowledgement may belong to another transmission, or may have waited for a
    /// repair.
    ambiguous: bool,
}

impl RttSampler {
    /// Records a segment above everything sent before.
    pub(super) fn sent(&mut self, time: Instant, start: u64, end: u64) {
        // Bounded, because a capture of one direction has no acknowledgements to empty it.
        if self.timed.len() < TIMED_MAX {
            self.timed.push_back(TimedSegment { start, end, sent: time, ambiguous: false });
        }
    }

    /// Records a retransmission or repair. Acknowledgements of these bytes, and of everything after
    /// them that they release, are not timed. This extends Karn's rule (RFC 6298 §3) to the
    /// segments behind a hole.
    pub(super) fn repaired(&mut self, start: u64, end: u64) {
        // Sorted by end, because only segments above everything sent before are timed.
        let first = self.timed.partition_point(|timed| timed.end <= start);
        for (index, timed) in self.timed.range_mut(first..).enumerate() {
            // The first one counts even behind the repair, whose acknowledgement may release it.
            if index > 0 && timed.start >= end {
                break;
            }
            timed.ambiguous = true;
        }
    }

    /// Records that a segment with payload carried this TSval.
    pub(super) fn stamped(&mut self, time: Instant, stamp: u32) {
        // Time stamps are compared modulo 2^32 (RFC 7323 §5.2).
        let newer = |last: u32| stamp.wrapping_sub(last).cast_signed() > 0;
        if self.stamps.back().is_none_or(|&(last, _)| newer(last)) {
            if self.stamps.len() == STAMPS_MAX {
                // The oldest is the least likely to be echoed.
                self.stamps.pop_front();
            }
            self.stamps.push_back((stamp, time));
        }
    }

    /// Records that everything before `ack` is acknowledged, some of it for the first time.
    pub(super) fn acked(&mut self, time: Instant, ack: u64, echo: Option<u32>) {
        let mut newest = None;
        let mut ambiguous = false;
        while let Some(timed) = self.timed.pop_front_if(|timed| timed.end <= ack) {
            ambiguous |= timed.ambiguous;
            newest = Some(timed.sent);
        }
        // Timed from the last segment covered, as an earlier one may have waited for it.
        if let Some(sent) = newest.filter(|_| !ambiguous) {
            self.by_ack.add(time.saturating_since(sent));
        }
        if let Some(echo) = echo {
            self.echoed(time, echo);
        }
    }

    /// Times the echo on an acknowledgement of new data (RFC 7323 §4.1).
    fn echoed(&mut self, time: Instant, echo: u32) {
        let older = |stamp: u32| echo.wrapping_sub(stamp).cast_signed() >= 0;
        while let Some((stamp, sent)) = self.stamps.pop_front_if(|(stamp, _)| older(*stamp)) {
            if stamp == echo {
                self.by_stamp.add(time.saturating_since(sent));
            }
        }
    }

    /// Forgets everything that waits for an acknowledgement, because the clock was set and the time
    /// is unknown.
    pub(super) fn forget(&mut self) {
        self.timed.clear();
        self.stamps.clear();
    }

    pub(super) fn min(&self) -> Option<Duration> {
        self.by_ack.min().into_iter().chain(self.by_stamp.min()).min()
    }

    pub(super) fn by_ack(&self) -> &Moments {
        &self.by_ack
    }

    pub(super) fn by_stamp(&self) -> &Moments {
        &self.by_stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn samples(rtt: &RttSampler) -> (u64, f64) {
        rtt.by_ack().durations().map_or((0, 0.0), |rtt| (rtt.samples, rtt.mean_seconds))
    }

    #[test]
    fn the_newest_segment_of_an_ack_is_timed() {
        let mut rtt = RttSampler::default();
        rtt.sent(at(0), 0, 100);
        rtt.sent(at(40), 100, 200);
        rtt.sent(at(50), 200, 300);
        rtt.acked(at(100), 200, None);
        assert_eq!(samples(&rtt), (1, 0.060));
        // The first half of a segment is not timed, its end is.
        rtt.acked(at(101), 250, None);
        rtt.acked(at(110), 300, None);
        assert_eq!(samples(&rtt).0, 2);
    }

    #[test]
    fn a_repair_and_what_waited_for_it_are_not_timed() {
        let mut rtt = RttSampler::default();
        for start in [0, 100, 200, 300] {
            rtt.sent(at(start), start, start + 100);
        }
        rtt.acked(at(310), 100, None);
        rtt.repaired(100, 200);
        rtt.acked(at(900), 400, None);
        assert_eq!(samples(&rtt), (1, 0.310));
        // A hole that was never seen before: the segment behind it has to wait.
        rtt.sent(at(1000), 500, 600);
        rtt.repaired(400, 500);
        rtt.acked(at(1900), 600, None);
        assert_eq!(samples(&rtt).0, 1);
    }

    #[test]
    fn echoes_time_repairs_too_and_only_once() {
        let mut rtt = RttSampler::default();
        rtt.stamped(at(0), u32::MAX);
        rtt.stamped(at(1), u32::MAX);
        rtt.stamped(at(5), 3);
        rtt.acked(at(600), 10, Some(u32::MAX));
        rtt.acked(at(700), 20, Some(u32::MAX));
        rtt.acked(at(605), 30, Some(3));
        let figures = rtt.by_stamp().durations().unwrap();
        assert_eq!((figures.samples, figures.min_seconds, figures.max_seconds), (2, 0.6, 0.6));
    }

    #[test]
    fn timed_samples_are_bounded() {
        let mut rtt = RttSampler::default();
        for index in 0..TIMED_MAX as u64 + 10 {
            rtt.sent(at(0), index, index + 1);
            rtt.stamped(at(0), index as u32);
        }
        assert_eq!((rtt.timed.len(), rtt.stamps.len()), (TIMED_MAX, STAMPS_MAX));
    }
}
