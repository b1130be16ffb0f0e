//! Times without reception: fades, blockage, hand-overs.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use super::reception::ReceptionTime;
use crate::SettingError;
use crate::text::{SettingKind, duration, word};

const KIND: SettingKind = SettingKind {
    what: "outage",
    expected: "AFTER+DURATION, like \"60s+10s\", or repeated, like \"15s+30ms every 15s\", with a \
               time between two",
};

/// A time without reception at the far end. A packet is lost if any part of it would be received
/// then. Text: `"60s+10s"` (after 60 s for 10 s), `"15s+30ms every 15s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Time until it starts, from the start of the link, or from when the outage was added to a
    /// running link.
    pub after: Duration,
    /// Duration of the outage, above zero.
    pub lasting: Duration,
    /// Period from start to start, repeated for ever; `None` for a single outage. If it does not
    /// exceed `lasting`, the outage never ends.
    pub every: Option<Duration>,
}

impl FromStr for Outage {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        KIND.read(text, |text| {
            let (once, every) = match text.split_once("every") {
                Some((once, every)) => (once, Some(duration(every)?)),
                None => (text, None),
            };
            let (after, lasting) = once.split_once('+')?;
            let after = duration(after)?;
            let lasting = duration(lasting)?;
            // Otherwise one occurrence would run into the next.
            let pause = every.is_none_or(|every| every > lasting);
            (pause && lasting > Duration::ZERO).then_some(Self { after, lasting, every })
        })
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", word(self.after), word(self.lasting))?;
        self.every.map_or(Ok(()), |every| write!(f, " every {}", word(every)))
    }
}

/// The outages of a link that are not over yet.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// Ordered, disjoint and not empty.
    periods: VecDeque<Range<Instant>>,
    recurring: Vec<Recurring>,
}

/// A periodic outage with pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recurring {
    first: Instant,
    lasting: Duration,
    every: Duration,
}

impl Recurring {
    /// Returns the last occurrence that starts before `until`.
    fn last_before(&self, until: Instant) -> Option<Range<Instant>> {
        if until <= self.first {
            return None;
        }
        let every = u64::try_from(self.every.as_nanos()).unwrap_or(u64::MAX);
        // An occurrence that begins exactly at `until` is not before it.
        let since = until.as_nanos() - self.first.as_nanos() - 1;
        let start = self.first + Duration::from_nanos(since - since % every);
        Some(start..start + self.lasting)
    }
}

impl Outages {
    pub(crate) fn new(origin: Instant, outages: Vec<Outage>) -> Self {
        let mut all = Self::default();
        for outage in outages {
            all.add(origin, outage);
        }
        all
    }

    /// Adds an outage that starts `outage.after` after `now`.
    pub(crate) fn add(&mut self, now: Instant, outage: Outage) {
        let from = now + outage.after;
        let until = from + outage.lasting;
        match outage.every {
            _ if from >= until => {}
            None => self.push(from..until),
            // Without a pause between two occurrences the outage never ends.
            Some(every) if every <= outage.lasting => self.push(from..Instant::MAX),
            Some(every) => {
                self.recurring.push(Recurring { first: from, lasting: outage.lasting, every });
            }
        }
    }

    fn push(&mut self, period: Range<Instant>) {
        self.periods.push_back(period);
        self.tidy();
    }

    /// Ends the current outage and removes later ones.
    pub(crate) fn end(&mut self, now: Instant) {
        for recurring in core::mem::take(&mut self.recurring) {
            // Packets that are received across `now` are still hit by the current occurrence.
            recurring.last_before(now).into_iter().for_each(|period| self.push(period));
        }
        self.periods.retain(|period| period.start < now);
        for period in &mut self.periods {
            period.end = period.end.min(now);
        }
    }

    /// Returns true if any part of `reception` is in an outage.
    #[inline]
    pub(crate) fn hit(&mut self, reception: ReceptionTime) -> bool {
        // Most links have no outages, and this runs for every packet.
        let any = !self.periods.is_empty() || !self.recurring.is_empty();
        any && self.hit_any(reception)
    }

    fn hit_any(&mut self, reception: ReceptionTime) -> bool {
        while self.periods.front().is_some_and(|period| period.end <= reception.from) {
            self.periods.pop_front();
        }
        // Earlier occurrences of a periodic outage end before its last one starts.
        let recurs = |recurring: &Recurring| {
            let last = recurring.last_before(reception.until());
            last.is_some_and(|period| reception.overlaps(&period))
        };
        self.periods.front().is_some_and(|period| reception.overlaps(period))
            || self.recurring.iter().any(recurs)
    }

    fn tidy(&mut self) {
        let mut sorted: Vec<_> = self.periods.drain(..).collect();
        // An added outage may overlap planned ones.
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
        let after = Duration::from_nanos(after);
        let lasting = Duration::from_nanos(lasting);
        Outage { after, lasting, every: None }
    }

    fn every(period: u64, outage: Outage) -> Outage {
        Outage { every: Some(Duration::from_nanos(period)), ..outage }
    }

    fn hits(outages: &mut Outages, from: u64, until: u64) -> bool {
        outages.hit(ReceptionTime { from: at(from), until: at(until) })
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
    fn some_outages_come_again_and_again() {
        let mut outages = Outages::new(at(100), vec![every(15, outage(10, 3)), outage(12, 4)]);
        let hit: Vec<_> = (100..160).filter(|&n| hits(&mut outages, n, n)).collect();
        let expected = [110, 111, 112, 113, 114, 115, 125, 126, 127, 140, 141, 142, 155, 156, 157];
        assert_eq!(hit, expected);
        assert!(hits(&mut outages, 158, 171));
        assert!(!hits(&mut outages, 158, 170));
        outages.end(at(186));
        assert!(hits(&mut outages, 185, 190));
        assert!(!hits(&mut outages, 186, 300));
    }

    #[test]
    fn without_a_pause_an_outage_never_ends() {
        for period in [0, 3] {
            let mut outages = Outages::new(at(0), vec![every(period, outage(5, 3))]);
            assert!(!hits(&mut outages, 4, 4));
            assert!(hits(&mut outages, u64::MAX - 1, u64::MAX - 1));
        }
    }

    #[test]
    fn text_is_read_back_or_refused() {
        for (text, after, lasting, every) in
            [("60s+10s", 60_000, 10_000, None), ("0s+30ms every 15s", 0, 30, Some(15_000))]
        {
            let outage: Outage = text.parse().unwrap();
            let ms = Duration::from_millis;
            let expected = Outage { after: ms(after), lasting: ms(lasting), every: every.map(ms) };
            assert_eq!((outage, outage.to_string().as_str()), (expected, text));
        }
        for wrong in ["", "60s", "60+10", "5s+0s", "1s+2s every 2s", "1s+2s+3s", "1s+2s every"] {
            let error = wrong.parse::<Outage>().unwrap_err().to_string();
            assert!(error.contains("is not a valid outage: expected AFTER+DURATION"), "{error}");
        }
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
