//! The rate of a link over time.

pub(crate) mod opportunities;
mod steps;

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::{Opportunities, Trace};
use steps::Steps;

/// The rate of a link. Traces start with the link, or when they are set.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Rate {
    /// The same rate for all time.
    Constant(BitRate),
    /// In steps: MODCOD changes, rain fades, LEO passes. When the rate changes, a packet being sent
    /// continues at the new rate.
    Trace(Trace<BitRate>),
    /// 1500 bytes at a time. A packet has left at the opportunity that takes its last byte; waiting
    /// for opportunities does not count as airtime.
    Opportunities(Opportunities),
}

impl Rate {
    /// Returns the maximum rate; for opportunities, the mean.
    pub fn greatest(&self) -> BitRate {
        match self {
            Self::Constant(rate) => *rate,
            Self::Trace(trace) => {
                trace.values().max().copied().unwrap_or(BitRate::from_bits_per_second(0))
            }
            Self::Opportunities(opportunities) => opportunities.mean_rate(),
        }
    }

    /// Returns the bytes that a link of this rate can carry, encapsulation included, between two
    /// times since the rate was set.
    pub fn capacity(&self, from: Duration, until: Duration) -> ByteCount {
        let capacity = WorkCapacity::new(self.clone(), Instant::ZERO);
        let [from, until] = [from, until].map(|time| Instant::ZERO + time);
        let bytes = capacity.work_between(from, until) / WORK_PER_BIT / 8;
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns the minimum rate above zero, or zero if there is none; for opportunities, the mean.
    pub fn least(&self) -> BitRate {
        let zero = BitRate::from_bits_per_second(0);
        match self {
            Self::Trace(trace) => {
                trace.values().filter(|rate| **rate > zero).min().copied().unwrap_or(zero)
            }
            Self::Constant(_) | Self::Opportunities(_) => self.greatest(),
        }
    }
}

impl From<BitRate> for Rate {
    fn from(rate: BitRate) -> Self {
        Self::Constant(rate)
    }
}

impl From<Trace<BitRate>> for Rate {
    fn from(trace: Trace<BitRate>) -> Self {
        Self::Trace(trace)
    }
}

impl From<Opportunities> for Rate {
    fn from(opportunities: Opportunities) -> Self {
        Self::Opportunities(opportunities)
    }
}

/// Work is measured in bits × 10⁹: a nanosecond at `r` bit/s does `r` units, so all sums are exact.
/// The longest packet is below 2¹⁰⁰.
pub(crate) const WORK_PER_BIT: u128 = 1_000_000_000;

/// The work of one mahimahi opportunity.
const WORK_PER_OPPORTUNITY: u128 = opportunities::BYTES as u128 * 8 * WORK_PER_BIT;

/// The completion of some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkCompletion {
    pub(crate) at: Instant,
    /// Work left over in the last, partial nanosecond, or in the opportunity at that time.
    pub(crate) spare: u64,
}

/// A rate that has started, to compute the work that is possible between two times.
#[derive(Debug)]
pub(crate) struct WorkCapacity {
    begin: Instant,
    kind: RateCurve,
}

#[derive(Debug)]
enum RateCurve {
    Constant(u64),
    Steps(Box<Steps>),
    Opportunities(Opportunities),
}

impl WorkCapacity {
    pub(crate) fn new(rate: Rate, begin: Instant) -> Self {
        let kind = match rate {
            Rate::Constant(rate) => RateCurve::Constant(rate.bits_per_second()),
            Rate::Trace(trace) => RateCurve::Steps(Box::new(Steps::new(&trace))),
            Rate::Opportunities(opportunities) => RateCurve::Opportunities(opportunities),
        };
        Self { begin, kind }
    }

    /// Returns true if packets leave in bursts at single instants.
    #[inline]
    pub(crate) fn is_instant(&self) -> bool {
        matches!(self.kind, RateCurve::Opportunities(_))
    }

    /// Returns the work possible after `from` up to and including `until`.
    #[inline]
    pub(crate) fn work_between(&self, from: Instant, until: Instant) -> u128 {
        if let RateCurve::Constant(rate) = self.kind {
            let nanos = until.as_nanos().saturating_sub(from.as_nanos());
            return u128::from(rate) * u128::from(nanos);
        }
        self.work_by(until).saturating_sub(self.work_by(from))
    }

    /// Returns the first time at which `work` can be done after `from`; `None` if it never can, and
    /// at a constant rate of 0 even for no work.
    #[inline(always)]
    pub(crate) fn time_for(&self, from: Instant, work: u128) -> Option<WorkCompletion> {
        // The usual case, with only a 64-bit division.
        if let (RateCurve::Constant(rate @ 1..), Ok(work)) = (&self.kind, u64::try_from(work))
            && let nanos = work.div_ceil(*rate)
            && let Some(at) = from.as_nanos().checked_add(nanos)
        {
            let spare = nanos.wrapping_mul(*rate).wrapping_sub(work);
            return Some(WorkCompletion { at: Instant::from_nanos(at), spare });
        }
        self.finish_of(from, work)
    }

    #[inline(never)]
    fn finish_of(&self, from: Instant, work: u128) -> Option<WorkCompletion> {
        let at = self.end_of(from, work)?;
        let spare = self.work_between(from, at).saturating_sub(work);
        // The spare work is less than that of a nanosecond or an opportunity.
        Some(WorkCompletion { at, spare: u64::try_from(spare).unwrap_or(u64::MAX) })
    }

    fn end_of(&self, from: Instant, work: u128) -> Option<Instant> {
        if let RateCurve::Constant(rate) = self.kind {
            if rate == 0 {
                return None;
            }
            let nanos = u64::try_from(work.div_ceil(rate.into())).unwrap_or(u64::MAX);
            return Some(Instant::from_nanos(from.as_nanos().saturating_add(nanos)));
        }
        if work == 0 {
            return Some(from);
        }
        let target = self.work_by(from).checked_add(work)?;
        let elapsed = match &self.kind {
            RateCurve::Constant(_) => return None,
            RateCurve::Steps(steps) => steps.time_for(target)?,
            RateCurve::Opportunities(all) => all.time_of(target.div_ceil(WORK_PER_OPPORTUNITY)),
        };
        let elapsed = Duration::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX));
        Some(from.max(self.begin + elapsed))
    }

    /// Returns the work possible from the start up to and including `at`.
    fn work_by(&self, at: Instant) -> u128 {
        let elapsed = at.as_nanos().saturating_sub(self.begin.as_nanos());
        match &self.kind {
            RateCurve::Constant(rate) => u128::from(*rate) * u128::from(elapsed),
            RateCurve::Steps(steps) => steps.work_by(elapsed),
            RateCurve::Opportunities(all) => all.count_by(elapsed) * WORK_PER_OPPORTUNITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capacity(rate: impl Into<Rate>, begin: u64) -> WorkCapacity {
        WorkCapacity::new(rate.into(), Instant::from_nanos(begin))
    }

    fn any_rate() -> impl Strategy<Value = Rate> {
        let rates = prop::collection::vec(0u64..1_000_000_000, 1..6);
        let traces = (rates, prop::option::of(1u64..5)).prop_map(|(rates, last)| {
            let steps = rates.len() as u64;
            let at = |index| Duration::from_micros(100 * index);
            let points = (0..).map(at).zip(rates.into_iter().map(BitRate::from_bits_per_second));
            let period = last.map(|last| at(steps - 1 + last));
            Rate::Trace(Trace::new(points.collect(), period).unwrap())
        });
        let opportunities = prop::sample::select(vec!["1", "0\n0\n1\n1\n7", "3\n9"])
            .prop_map(|text| Rate::Opportunities(Opportunities::parse(text).unwrap()));
        let constants = (1u64..1_000_000_000).prop_map(BitRate::from_bits_per_second);
        prop_oneof![constants.prop_map(Rate::Constant), traces, opportunities]
    }

    #[test]
    fn the_ends_of_a_rate_are_found() {
        let ends = |rate: Rate| [rate.greatest(), rate.least()].map(BitRate::bits_per_second);
        let trace = |text: &str| Rate::Trace(Trace::parse(text).unwrap());
        assert_eq!(ends(trace("0s 5 bit/s\n1s 0 bit/s\n2s 9 bit/s")), [9, 5]);
        assert_eq!(ends(trace("0s 0 bit/s")), [0, 0]);
        assert_eq!(ends(BitRate::from_mbit(3).into()), [3_000_000; 2]);
        // Three times 1500 bytes in 4 ms.
        let opportunities = Opportunities::parse("0\n0\n4").unwrap();
        assert_eq!(ends(opportunities.into()), [9_000_000; 2]);
    }

    #[test]
    fn capacity_is_what_there_was_and_not_the_greatest_rate() {
        let seconds = Duration::from_secs;
        let trace: Rate = Trace::parse("0s 8 Mbit/s\n1s 16 Mbit/s\n2s 0 bit/s").unwrap().into();
        let bytes = |from, until| trace.capacity(seconds(from), seconds(until)).get();
        assert_eq!(
            [bytes(0, 1), bytes(0, 2), bytes(1, 9), bytes(3, 9)],
            [1_000_000, 3_000_000, 2_000_000, 0]
        );
        let opportunities: Rate = Opportunities::parse("0\n500\n1000").unwrap().into();
        // Two in the second half: at 1 s, and at the start of the next cycle.
        let half = Duration::from_millis(500);
        assert_eq!(opportunities.capacity(half, seconds(1)).get(), 2 * 1500);
    }

    proptest! {
        #[test]
        fn work_is_done_at_the_first_possible_time(
            rate in any_rate(), begin in 0u64..1000, after in 0u64..100_000_000, bytes in 1u128..100_000,
        ) {
            let capacity = capacity(rate, begin);
            let from = Instant::from_nanos(begin + after);
            let work = bytes * 8 * WORK_PER_BIT;
            if let Some(WorkCompletion { at, spare }) = capacity.time_for(from, work) {
                let before = Instant::from_nanos(at.as_nanos() - 1);
                prop_assert_eq!(capacity.work_between(from, at), work + u128::from(spare));
                prop_assert!(capacity.work_between(from, before) < work);
            } else {
                prop_assert!(capacity.work_between(from, Instant::MAX) < work);
            }
        }

        #[test]
        fn work_adds_up(rate in any_rate(), times in prop::array::uniform3(0u64..1_000_000_000)) {
            let capacity = capacity(rate, 0);
            let mut times = times.map(Instant::from_nanos);
            times.sort();
            let [a, b, c] = times;
            let parts = capacity.work_between(a, b) + capacity.work_between(b, c);
            prop_assert_eq!(parts, capacity.work_between(a, c));
        }
    }
}
