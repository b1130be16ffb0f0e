//! Evaluates the probes' times. No clock, no I/O.

use core::time::Duration;
use std::collections::VecDeque;

use stats::{median, percentile};

use super::rehearse::ExpectedTimes;

/// Departure and arrival of each probe (by sequence number), in nanoseconds since the link started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProbeTrace {
    /// The departures, in the order of time and of sequence numbers.
    pub(crate) sent: Vec<(u32, u64)>,
    /// The arrivals, in order of time.
    pub(crate) arrived: Vec<(u32, u64)>,
}

/// Number of probes that waited in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueOccupancy {
    /// Median number when other probes were dropped.
    AtDrops(u64),
    /// Maximum number, if no probe was dropped.
    NoDrop(u64),
}

/// Delays of a trace compared with expectations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DelayFigures {
    pub(crate) samples: u64,
    /// Median of the expected delays in milliseconds.
    pub(crate) asked: f64,
    /// Median of the measured delays in milliseconds.
    pub(crate) median: f64,
    /// 99th percentile of the error, early or late, in milliseconds.
    pub(crate) p99_error: f64,
    /// Maximum error, early or late, in milliseconds.
    pub(crate) worst_error: f64,
    /// Maximum delay beyond the expected one, in milliseconds.
    pub(crate) greatest_extra: f64,
}

/// Expected and measured rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateFigures {
    pub(crate) asked: f64,
    pub(crate) measured: f64,
    /// Total measured time, of `runs` pieces.
    pub(crate) time: Duration,
    pub(crate) runs: u32,
}

impl ProbeTrace {
    /// Returns the number of probes that never arrived.
    pub(crate) fn missing(&self) -> u64 {
        self.sent.len().saturating_sub(self.arrived.len()) as u64
    }

    /// Counts arrivals after a later probe, or of one that had already arrived.
    pub(crate) fn out_of_order(&self) -> u64 {
        let mut next = 0;
        let mut late = |seq: u32| {
            let late = seq < next;
            next = next.max(seq.saturating_add(1));
            late
        };
        self.arrived.iter().map(|(seq, _)| *seq).filter(|seq| late(*seq)).count() as u64
    }

    /// Evaluates delays. Each probe is expected at `expected`, or up to `extra` later, plus
    /// whatever `late` adds to it. `None` without arrivals.
    pub(crate) fn delays(
        &self,
        expected: &[Option<u64>],
        late: &[Option<u64>],
        extra: Duration,
    ) -> Option<DelayFigures> {
        let mut delays = Vec::new();
        let mut asked = Vec::new();
        let mut errors = Vec::new();
        let mut extras = Vec::new();
        let ms = |nanos: f64| nanos / 1e6;
        for (index, at) in self.arrivals() {
            let Some(due) = expected[index] else { continue };
            let Some(late) = late[index] else { continue };
            let sent = self.sent[index].1;
            let due = due as f64;
            let at = at as f64;
            let latest = late as f64 + extra.as_nanos() as f64;
            delays.push(ms(at - sent as f64));
            asked.push(ms(due - sent as f64));
            // Between the expected and the latest time a probe is right.
            errors.push(ms((due - at).max(at - latest).max(0.0)));
            extras.push(ms(at - due));
        }
        Some(DelayFigures {
            samples: errors.len() as u64,
            asked: median(&asked)?,
            median: median(&delays)?,
            p99_error: percentile(&errors, 99.0)?,
            worst_error: percentile(&errors, 100.0)?,
            greatest_extra: percentile(&extras, 100.0)?,
        })
    }

    /// Measures the rate while the `expected` link had packets of `len` bytes waiting. (The arrival
    /// times do not show when the real one had, because a time stamp may be late.) Lost packets
    /// count, because the link did send them, but not those that the expected queue drops. The
    /// reference is the rate of the same packets in `expected`. `None` if there never were packets
    /// waiting.
    pub(crate) fn rate(&self, len: usize, expected: &ExpectedTimes) -> Option<RateFigures> {
        let mut arrivals = self.arrivals();
        // In the order of sending, which jitter may have changed.
        arrivals.sort_unstable();
        let pauses = self.pauses(expected);
        let mut packets = 0;
        let mut asked = 0;
        let mut measured = 0;
        let mut runs = 0u32;
        let mut running = false;
        for pair in arrivals.windows(2) {
            let [(first, start), (last, end)] = *pair else { continue };
            let way = |index: usize| {
                let left = expected.left[index]?;
                Some((left, expected.arrived[index]?.saturating_sub(left)))
            };
            let Some((begun, there)) = way(first) else { continue };
            let Some((done, then)) = way(last) else { continue };
            let start = start.saturating_sub(there);
            let end = end.saturating_sub(then);
            // Between the two, the expected link was never idle.
            let busy = last > first && pauses[first] == pauses[last];
            runs += u32::from(busy && !running);
            running = busy;
            if busy {
                packets += expected.left[first + 1..=last].iter().flatten().count();
                asked += done - begun;
                measured += end as i64 - start as i64;
            }
        }
        let rate = |nanos: f64| packets as f64 * len as f64 * 8e9 / nanos;
        (asked > 0 && measured > 0).then(|| RateFigures {
            asked: rate(asked as f64),
            measured: rate(measured as f64),
            time: Duration::from_nanos(measured.unsigned_abs()),
            runs,
        })
    }

    /// Returns, for each probe, the number of times that the expected link had been idle before it
    /// came.
    fn pauses(&self, expected: &ExpectedTimes) -> Vec<u32> {
        let mut free = 0;
        let mut pauses = 0;
        let probes = self.sent.iter().zip(&expected.left);
        let count = probes.map(|((_, sent), left)| {
            pauses += u32::from(*sent > free);
            free = left.unwrap_or(free);
            pauses
        });
        count.collect()
    }

    /// Returns the arrivals of sent probes: index among those sent, and time.
    fn arrivals(&self) -> Vec<(usize, u64)> {
        let place = |seq: &u32| self.sent.binary_search_by_key(seq, |(seq, _)| *seq).ok();
        self.arrived.iter().filter_map(|(seq, at)| Some((place(seq)?, *at))).collect()
    }

    /// Returns the number of probes that waited in the queue when others were dropped: the median,
    /// because a time stamp may be late. The link must start empty, lose nothing, and take `each`
    /// per probe. Without drops, returns the maximum that waited.
    pub(crate) fn full_queue(&self, each: Duration) -> Option<QueueOccupancy> {
        let each = each.as_nanos() as u64;
        let mut arrived = self.arrived.iter().peekable();
        let mut queue = VecDeque::new();
        let mut free = 0;
        let mut longest = 0;
        let mut at_drop = Vec::new();
        for (seq, sent) in &self.sent {
            // A probe whose transmission has begun no longer waits.
            while queue.pop_front_if(|start| *start <= *sent).is_some() {}
            // It never arrived, and only the queue loses anything here.
            if arrived.next_if(|(next, _)| next == seq).is_none() {
                at_drop.push(queue.len() as u64);
                continue;
            }
            let start = free.max(*sent);
            if start > *sent {
                queue.push_back(start);
            }
            free = start + each;
            longest = longest.max(queue.len() as u64);
        }
        at_drop.sort_unstable();
        match at_drop.get(at_drop.len() / 2) {
            Some(median) => Some(QueueOccupancy::AtDrops(*median)),
            None => (!self.sent.is_empty()).then_some(QueueOccupancy::NoDrop(longest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Probes sent every millisecond from 7 ms on, with the listed arrivals.
    fn trace(sent: u32, arrived: &[(u32, u64)]) -> ProbeTrace {
        let sent = (0..sent).map(|seq| (seq, 7 * MS + u64::from(seq) * MS)).collect();
        ProbeTrace { sent, arrived: arrived.to_vec() }
    }

    /// The expectation that each probe leaves `each` after it was sent or after the one before it
    /// left, and arrives `delay` later.
    fn expected(trace: &ProbeTrace, each: u64, delay: u64) -> ExpectedTimes {
        let mut free = 0;
        let mut left = |(_, sent): &(u32, u64)| {
            free = free.max(*sent) + each;
            Some(free)
        };
        let left: Vec<_> = trace.sent.iter().map(&mut left).collect();
        let arrived = left.iter().map(|at| at.map(|at| at + delay)).collect();
        ExpectedTimes { left, arrived }
    }

    #[test]
    fn delays_are_differences_of_stamps() {
        let arrived: Vec<_> = (0..101).map(|seq| (seq, (17 + u64::from(seq)) * MS)).collect();
        let mut trace = trace(101, &arrived);
        trace.arrived[50].1 += MS; // one late, one early
        trace.arrived[60].1 -= MS / 2;
        let due = expected(&trace, 0, 10 * MS).arrived;
        let delays = trace.delays(&due, &due, Duration::ZERO).unwrap();
        assert_eq!((delays.samples, delays.median, delays.asked), (101, 10.0, 10.0));
        assert_eq!((delays.p99_error, delays.worst_error), (0.5, 1.0));
        assert_eq!(delays.greatest_extra, 1.0);
        // Jitter allows for the late one, and so does a later expectation.
        let jitter = trace.delays(&due, &due, Duration::from_millis(1)).unwrap();
        assert_eq!((jitter.worst_error, jitter.greatest_extra), (0.5, 1.0));
        let late: Vec<_> = due.iter().map(|at| at.map(|at| at + 3 * MS / 4)).collect();
        let vague = trace.delays(&due, &late, Duration::ZERO).unwrap();
        assert_eq!((vague.p99_error, vague.worst_error), (0.25, 0.5));
    }

    #[test]
    fn what_never_left_has_no_delay() {
        assert_eq!(trace(0, &[(3, MS)]).delays(&[], &[], Duration::ZERO), None);
        let nothing = [None; 3];
        assert_eq!(trace(3, &[]).delays(&nothing, &nothing, Duration::ZERO), None);
    }

    #[test]
    fn overtaken_and_repeated_probes_are_out_of_order() {
        let in_order = trace(9, &[(0, 1), (1, 2), (5, 3)]);
        assert_eq!((in_order.out_of_order(), in_order.missing()), (0, 6));
        assert_eq!(trace(4, &[(0, 1), (2, 2), (1, 3), (3, 4), (3, 5)]).out_of_order(), 2);
    }

    #[test]
    fn lost_probes_count_for_the_rate() {
        // Ten packets of 125 bytes in 10 ms, most of them lost. The configured link would have
        // taken 12.5 ms.
        let trace = trace(11, &[(0, 120 * MS), (4, 124 * MS), (10, 130 * MS)]);
        let rates = trace.rate(125, &expected(&trace, MS * 5 / 4, 80 * MS)).unwrap();
        assert_eq!((rates.measured, rates.asked), (1e6, 8e5));
        assert_eq!((rates.time, rates.runs), (Duration::from_millis(10), 1));
        assert_eq!(ProbeTrace::default().rate(125, &ExpectedTimes::default()), None);
    }

    #[test]
    fn what_the_queue_drops_takes_no_time() {
        let trace = trace(11, &[(0, 120 * MS), (4, 124 * MS), (10, 129 * MS)]);
        let mut expected = expected(&trace, MS, 80 * MS);
        expected.left[7] = None;
        assert_eq!(trace.rate(125, &expected).unwrap().measured, 1e6);
    }

    #[test]
    fn overtaking_does_not_change_the_rate() {
        let trace = trace(11, &[(4, 124 * MS), (0, 125 * MS), (10, 135 * MS)]);
        let rates = trace.rate(125, &expected(&trace, MS, 80 * MS)).unwrap();
        assert_eq!((rates.measured, rates.asked), (1e6, 1e6));
    }

    #[test]
    fn an_idle_link_has_no_rate() {
        // Each leaves before the next is sent, except the last two.
        let mut trace = trace(4, &[(0, 108 * MS), (1, 109 * MS), (2, 110 * MS), (3, 112 * MS)]);
        trace.sent[3].1 = 9 * MS;
        let rates = trace.rate(250, &expected(&trace, MS / 2, 101 * MS)).unwrap();
        assert_eq!((rates.measured, rates.asked), (1e6, 4e6));
    }

    #[test]
    fn the_queue_is_what_had_come_less_what_had_gone() {
        // Sent at 0, 1, 2 … ms; the link takes 3.5 ms each. When probe 6 is dropped at 6 ms, one
        // has left, one is being sent and four are waiting; at 7 ms the second has left and a slot
        // is free.
        let arrived = [0, 1, 2, 3, 4, 5, 7].map(|seq| (seq, 0));
        let each = Duration::from_micros(3500);
        assert_eq!(trace(10, &arrived).full_queue(each), Some(QueueOccupancy::AtDrops(4)));
    }

    #[test]
    fn a_stamp_that_is_late_does_not_count() {
        let arrived = [0, 1, 2, 3, 4, 5, 7].map(|seq| (seq, 0));
        let mut trace = trace(10, &arrived);
        trace.sent[6].1 += 900_000;
        let each = Duration::from_micros(3500);
        assert_eq!(trace.full_queue(each), Some(QueueOccupancy::AtDrops(4)));
    }

    #[test]
    fn without_a_drop_there_is_no_limit() {
        let arrived: Vec<_> = (0..12).map(|seq| (seq, 0)).collect();
        let trace = trace(12, &arrived);
        let waiting = |micros| trace.full_queue(Duration::from_micros(micros));
        assert_eq!(waiting(1000), Some(QueueOccupancy::NoDrop(0)));
        // At 11 ms three have left and one is being sent.
        assert_eq!(waiting(3500), Some(QueueOccupancy::NoDrop(8)));
        assert_eq!(ProbeTrace::default().full_queue(Duration::ZERO), None);
    }
}
