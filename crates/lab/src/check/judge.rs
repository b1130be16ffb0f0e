//! What the probes' times say about the link; no clock, no I/O.

use core::time::Duration;
use std::collections::VecDeque;

/// When each probe left (by sequence number) and arrived, in nanoseconds of one
/// clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// In the order of leaving, which is that of the sequence numbers.
    pub(crate) sent: Vec<(u32, u64)>,
    /// In the order of arrival.
    pub(crate) arrived: Vec<(u32, u64)>,
}

/// Probes in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// When others were dropped.
    AtDrops(u64),
    /// At most; none was dropped.
    NoDrop(u64),
}

/// Delays of a trace, against an expectation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Delays {
    pub(crate) samples: u64,
    /// In milliseconds.
    pub(crate) median: f64,
    /// The error that 99 % do not exceed, early or late, in milliseconds.
    pub(crate) p99_error: f64,
    /// The greatest error in milliseconds.
    pub(crate) worst_error: f64,
}

impl Trace {
    /// How many never arrived.
    pub(crate) fn missing(&self) -> u64 {
        self.sent.len().saturating_sub(self.arrived.len()) as u64
    }

    /// Arrivals after one that was sent later, or of one that has arrived.
    pub(crate) fn out_of_order(&self) -> u64 {
        let mut next = 0;
        let mut late = |seq: u32| {
            let late = seq < next;
            next = next.max(seq.saturating_add(1));
            late
        };
        self.arrived.iter().map(|(seq, _)| *seq).filter(|seq| late(*seq)).count() as u64
    }

    /// Delays, where `expected` is right for each. `None` without arrivals.
    pub(crate) fn delays(&self, expected: Duration) -> Option<Delays> {
        let delay = |(seq, at): &(u32, u64)| Some((*at as f64 - self.sent_at(*seq)? as f64) / 1e6);
        let delays = sorted(self.arrived.iter().filter_map(delay));
        let expected = expected.as_secs_f64() * 1e3;
        let errors = sorted(delays.iter().map(|delay| (delay - expected).abs()));
        Some(Delays {
            samples: errors.len() as u64,
            median: quantile(&delays, 0.5)?,
            p99_error: quantile(&errors, 0.99)?,
            worst_error: quantile(&errors, 1.0)?,
        })
    }

    /// Bits per second of packets of `len` bytes while the link, of that delay,
    /// was never out of packets: between two arrivals it was not if the later
    /// packet had been sent when the earlier one left the link. Lost ones count,
    /// for the link did send them. `None` if it was always out of packets.
    pub(crate) fn rate(&self, len: usize, delay: Duration) -> Option<f64> {
        let (mut packets, mut nanos) = (0, 0);
        for pair in self.arrived.windows(2) {
            let [(first, start), (last, end)] = *pair else { continue };
            let left = start.saturating_sub(delay.as_nanos() as u64);
            if last > first && self.sent_at(last).is_some_and(|sent| sent <= left) {
                packets += last - first;
                nanos += end.saturating_sub(start);
            }
        }
        (nanos > 0).then(|| f64::from(packets) * len as f64 * 8e9 / nanos as f64)
    }

    fn sent_at(&self, seq: u32) -> Option<u64> {
        let index = self.sent.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(self.sent[index].1)
    }

    /// How many probes waited in the queue when others were dropped: the median,
    /// for a stamp may be taken late. The link was empty before, loses nothing,
    /// and takes `each` for a probe. Without a drop, the most that waited.
    pub(crate) fn full_queue(&self, each: Duration) -> Option<Waiting> {
        let each = each.as_nanos() as u64;
        let (mut arrived, mut queue) = (self.arrived.iter().peekable(), VecDeque::new());
        let (mut free, mut longest, mut at_drop) = (0, 0, Vec::new());
        for (seq, sent) in &self.sent {
            while queue.pop_front_if(|start| *start <= *sent).is_some() {}
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
            Some(median) => Some(Waiting::AtDrops(*median)),
            None => (!self.sent.is_empty()).then_some(Waiting::NoDrop(longest)),
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest of `sorted` that the share `quantile` does not exceed.
fn quantile(sorted: &[f64], quantile: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Probes sent each millisecond from 7 ms on, arrived as listed.
    fn trace(sent: u32, arrived: &[(u32, u64)]) -> Trace {
        let sent = (0..sent).map(|seq| (seq, 7 * MS + u64::from(seq) * MS)).collect();
        Trace { sent, arrived: arrived.to_vec() }
    }

    #[test]
    fn delays_are_differences_of_stamps() {
        let arrived: Vec<_> = (0..100).map(|seq| (seq, (17 + u64::from(seq)) * MS)).collect();
        let mut trace = trace(100, &arrived);
        trace.arrived[50].1 += MS; // one late, one early
        trace.arrived[60].1 -= MS / 2;
        let delays = trace.delays(Duration::from_millis(10)).unwrap();
        assert_eq!((delays.samples, delays.median), (100, 10.0));
        assert_eq!((delays.p99_error, delays.worst_error), (0.5, 1.0));
    }

    #[test]
    fn what_never_left_has_no_delay() {
        assert_eq!(trace(0, &[(3, MS)]).delays(Duration::ZERO), None);
        assert_eq!(trace(3, &[]).delays(Duration::ZERO), None);
    }

    #[test]
    fn overtaken_and_repeated_probes_are_out_of_order() {
        let in_order = trace(9, &[(0, 1), (1, 2), (5, 3)]);
        assert_eq!((in_order.out_of_order(), in_order.missing()), (0, 6));
        assert_eq!(trace(4, &[(0, 1), (2, 2), (1, 3), (3, 4), (3, 5)]).out_of_order(), 2);
    }

    #[test]
    fn lost_probes_count_for_the_rate() {
        // Ten packets of 125 bytes in 10 ms, most of them lost.
        let arrived = [(0, 120 * MS), (4, 124 * MS), (10, 130 * MS)];
        let delay = Duration::from_millis(80);
        assert_eq!(trace(11, &arrived).rate(125, delay), Some(1e6));
        assert_eq!(Trace::default().rate(125, delay), None);
    }

    #[test]
    fn an_idle_link_has_no_rate() {
        // Each leaves before the next is sent, but for the last two.
        let mut trace = trace(4, &[(0, 108 * MS), (1, 109 * MS), (2, 110 * MS), (3, 112 * MS)]);
        trace.sent[3].1 = 9 * MS;
        assert_eq!(trace.rate(250, Duration::from_millis(101)), Some(1e6));
    }

    #[test]
    fn the_queue_is_what_had_come_less_what_had_gone() {
        // Sent at 0, 1, 2 … ms; the link takes 3.5 ms for each. When probe 6 is
        // dropped at 6 ms, one has gone, one is being sent, four wait; at 7 ms
        // the second has gone and a place is free.
        let arrived = [0, 1, 2, 3, 4, 5, 7].map(|seq| (seq, 0));
        let each = Duration::from_micros(3500);
        assert_eq!(trace(10, &arrived).full_queue(each), Some(Waiting::AtDrops(4)));
    }

    #[test]
    fn a_stamp_that_is_late_does_not_count() {
        let arrived = [0, 1, 2, 3, 4, 5, 7].map(|seq| (seq, 0));
        let mut trace = trace(10, &arrived);
        trace.sent[6].1 += 900_000;
        let each = Duration::from_micros(3500);
        assert_eq!(trace.full_queue(each), Some(Waiting::AtDrops(4)));
    }

    #[test]
    fn without_a_drop_there_is_no_limit() {
        let arrived: Vec<_> = (0..12).map(|seq| (seq, 0)).collect();
        let trace = trace(12, &arrived);
        let waiting = |micros| trace.full_queue(Duration::from_micros(micros));
        assert_eq!(waiting(1000), Some(Waiting::NoDrop(0)));
        // At 11 ms three have gone and one is being sent.
        assert_eq!(waiting(3500), Some(Waiting::NoDrop(8)));
        assert_eq!(Trace::default().full_queue(Duration::ZERO), None);
    }
}
