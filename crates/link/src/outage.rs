//! Times during which nothing is received: fades, blockage, hand-overs.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use crate::reception::Reception;

/// A time during which the far end receives nothing. A packet is lost if any of
/// it would be received then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When it begins: so long after the link began to exist, or after the
    /// outage was announced to a running link.
    pub after: Duration,
    /// How long it lasts.
    pub lasting: Duration,
}

/// The outages of a link that are not over yet.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// In order, disjoint, none empty.
    periods: VecDeque<Range<Instant>>,
}

impl Outages {
    pub(crate) fn new(origin: Instant, outages: Vec<Outage>) -> Self {
        let mut all = Self::default();
        for outage in outages {
            all.add(origin, outage);
        }
        all
    }

    /// Adds an outage that begins `outage.after` after `now`.
    pub(crate) fn add(&mut self, now: Instant, outage: Outage) {
        let from = now + outage.after;
        let until = from + outage.lasting;
        if from < until {
            self.periods.push_back(from..until);
            self.tidy();
        }
    }

    /// Ends the outage of `now` and forgets the later ones.
    pub(crate) fn end(&mut self, now: Instant) {
        self.periods.retain(|period| period.start < now);
        for period in &mut self.periods {
            period.end = period.end.min(now);
        }
    }

    /// Whether any of `reception` falls into an outage.
    pub(crate) fn hit(&mut self, reception: Reception) -> bool {
        while self.periods.front().is_some_and(|period| period.end <= reception.from) {
            self.periods.pop_front();
        }
        self.periods.front().is_some_and(|period| reception.overlaps(period))
    }

    fn tidy(&mut self) {
        let mut sorted: Vec<_> = self.periods.drain(..).collect();
        sorted.sort_by_key(|period| period.start);
        for period in sorted {
            match self.periods.back_mut() {
                Some(last) if period.start <= last.end => last.end = last.end.max(period.end),
                _ => self.periods.push_back(period),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn outage(after: u64, lasting: u64) -> Outage {
        Outage { after: Duration::from_nanos(after), lasting: Duration::from_nanos(lasting) }
    }

    fn hits(outages: &mut Outages, from: u64, until: u64) -> bool {
        outages.hit(Reception { from: at(from), until: at(until) })
    }

    #[test]
    fn a_packet_is_hit_if_any_of_it_is() {
        let mut outages = Outages::new(at(100), vec![outage(10, 10)]);
        assert!(!hits(&mut outages, 105, 110));
        assert!(hits(&mut outages, 105, 111));
        assert!(hits(&mut outages, 112, 113));
        assert!(hits(&mut outages, 119, 125));
        assert!(!hits(&mut outages, 120, 125));
    }

    #[test]
    fn a_packet_without_length_is_hit_between_begin_and_end() {
        let mut outages = Outages::new(at(0), vec![outage(10, 10)]);
        assert!(!hits(&mut outages, 9, 9));
        assert!(hits(&mut outages, 10, 10));
        assert!(hits(&mut outages, 19, 19));
        assert!(!hits(&mut outages, 20, 20));
    }

    #[test]
    fn outages_in_any_order_are_joined() {
        let all = [outage(50, 5), outage(10, 10), outage(15, 10), outage(30, 0)];
        let mut outages = Outages::new(at(0), all.into());
        assert_eq!(outages.periods, [at(10)..at(25), at(50)..at(55)]);
        assert!(hits(&mut outages, 24, 25));
        assert!(!hits(&mut outages, 25, 50));
        assert!(hits(&mut outages, 50, 51));
    }

    #[test]
    fn an_ended_outage_has_still_hit_what_was_received_before() {
        let mut outages = Outages::new(at(0), vec![outage(10, 100), outage(200, 5)]);
        outages.end(at(50));
        assert!(hits(&mut outages, 40, 60));
        assert!(!hits(&mut outages, 50, 60));
        assert!(!hits(&mut outages, 200, 201));
    }
}
