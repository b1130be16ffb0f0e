//! Bursts of errors with a duration in time: while one lasts, everything is lost.
//!
//! A link is alternately good and bad, for random durations with uniform distributions (D. Astuti,
//! SLACP, §4). The state depends only on the time and the seed: neither the traffic nor the
//! rate affects the bursts.

use core::fmt;
use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use thiserror::Error;
use units::{Instant, format_duration};

use crate::Dice;
use crate::propagation::reception::ReceptionTime;
use crate::text::{duration, values, word};

/// After a silence of this many mean cycles the process starts afresh. Otherwise a packet after
/// years without traffic would have to wait until all their bursts are drawn.
const LONG_SILENCE: u64 = 1_000_000;

/// The two-state model, with uniformly distributed good and bad durations. It starts in the good
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstModel {
    good: DurationRange,
    bad: DurationRange,
}

/// The reason why durations do not form a valid [`BurstModel`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BurstError {
    /// A minimum exceeds its maximum.
    #[error(
        "the least {state} duration, {}, is above the greatest, {}",
        format_duration(*.min), format_duration(*.max)
    )]
    Reversed {
        /// The state, `good` or `bad`.
        state: &'static str,
        /// The start of the given range.
        min: Duration,
        /// The end of the given range.
        max: Duration,
    },
    /// Both states always have zero duration.
    #[error("both the good and the bad duration are always zero")]
    NoTime,
}

impl BurstModel {
    /// Bursts of duration `bad`, with `good` between the end of one and the start of the next.
    ///
    /// # Errors
    /// If a range is reversed, or everything is zero.
    pub fn new(
        good: RangeInclusive<Duration>,
        bad: RangeInclusive<Duration>,
    ) -> Result<Self, BurstError> {
        let burst = Self {
            good: DurationRange::new("good", &good)?,
            bad: DurationRange::new("bad", &bad)?,
        };
        if burst.good.max == 0 && burst.bad.max == 0 {
            return Err(BurstError::NoTime);
        }
        Ok(burst)
    }

    /// Returns the fraction of time in the bad state, in `0.0..=1.0`. Packets with a serialisation
    /// time are lost more often than that, because one that starts before a burst is hit by it.
    pub fn bad_share(self) -> f64 {
        let good = self.good.twice_mean();
        let bad = self.bad.twice_mean();
        bad as f64 / (good + bad) as f64
    }

    /// Returns the mean time from the start of one burst to the start of the next, at least one
    /// nanosecond.
    pub fn mean_cycle(self) -> Duration {
        let twice = self.good.twice_mean() + self.bad.twice_mean();
        Duration::from_nanos(u64::try_from(twice / 2).unwrap_or(u64::MAX).max(1))
    }

    /// Parses a text such as `good=10s..30s bad=60ms`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let [good, bad] = values(text, ["good", "bad"])?;
        Self::new(range(good?)?, range(bad?)?).ok()
    }
}

/// Parses `10s..30s`, or `60ms` for a constant.
fn range(text: &str) -> Option<RangeInclusive<Duration>> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    Some(duration(min)?..=duration(max)?)
}

/// In the format that [`crate::ErrorModel`] parses.
impl fmt::Display for BurstModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "good={} bad={}", self.good, self.bad)
    }
}

/// A range of nanoseconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurationRange {
    min: u64,
    max: u64,
}

impl DurationRange {
    fn new(state: &'static str, range: &RangeInclusive<Duration>) -> Result<Self, BurstError> {
        let min = *range.start();
        let max = *range.end();
        if min > max {
            return Err(BurstError::Reversed { state, min, max });
        }
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { min: nanos(min), max: nanos(max) })
    }

    /// Converts from milliseconds, for the built-in models.
    pub(super) const fn millis(min: u64, max: u64) -> Self {
        Self { min: min * 1_000_000, max: max * 1_000_000 }
    }

    fn draw(self, dice: &mut Dice) -> Duration {
        let width = self.max - self.min;
        Duration::from_nanos(self.min + dice.below(width.saturating_add(1)))
    }

    fn twice_mean(self) -> u128 {
        u128::from(self.min) + u128::from(self.max)
    }
}

impl fmt::Display for DurationRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, max] = [self.min, self.max].map(|nanos| word(Duration::from_nanos(nanos)));
        if min == max { f.write_str(&min) } else { write!(f, "{min}..{max}") }
    }
}

impl BurstModel {
    /// Creates one of the built-in models, which are known to be valid.
    pub(super) const fn known(good: DurationRange, bad: DurationRange) -> Self {
        Self { good, bad }
    }
}

/// The bursts of one link, as they follow each other in time.
#[derive(Debug)]
pub(super) struct Bursts {
    model: BurstModel,
    dice: Dice,
    /// The current burst, or the next one.
    bad: Range<Instant>,
}

impl Bursts {
    pub(super) fn new(model: BurstModel, begin: Instant, seed: u64) -> Self {
        let mut bursts = Self { model, dice: Dice::new(seed), bad: begin..begin };
        bursts.next_after(begin);
        bursts
    }

    /// Returns true if any part of `reception` is in a burst. Receptions must come in order.
    pub(super) fn hit(&mut self, reception: ReceptionTime) -> bool {
        let silence = reception.from.saturating_since(self.bad.end).as_nanos();
        if silence / u128::from(LONG_SILENCE) > self.model.mean_cycle().as_nanos() {
            self.next_after(reception.from);
        }
        // Receptions come in order, so bursts that are over are not needed again.
        while self.bad.end <= reception.from && self.bad.end < Instant::MAX {
            self.next_after(self.bad.end);
        }
        reception.overlaps(&self.bad)
    }

    fn next_after(&mut self, at: Instant) {
        let from = at + self.model.good.draw(&mut self.dice);
        self.bad = from..from + self.model.bad.draw(&mut self.dice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(range: RangeInclusive<u64>) -> RangeInclusive<Duration> {
        Duration::from_millis(*range.start())..=Duration::from_millis(*range.end())
    }

    fn instant(at: u64) -> ReceptionTime {
        ReceptionTime { from: Instant::from_nanos(at), until: Instant::from_nanos(at) }
    }

    #[test]
    fn constant_durations_alternate_exactly() {
        let model = BurstModel::new(ms(2..=2), ms(1..=1)).unwrap();
        let mut bursts = Bursts::new(model, Instant::from_nanos(5), 1);
        for at in 5..30_000_000 / 100 {
            let at = at * 100 + 5;
            let bad = (at - 5) % 3_000_000 >= 2_000_000;
            assert_eq!(bursts.hit(instant(at)), bad, "{at} ns");
        }
    }

    #[test]
    fn a_long_packet_is_hit_by_a_short_burst() {
        let model = BurstModel::new(ms(2..=2), ms(1..=1)).unwrap();
        let mut bursts = Bursts::new(model, Instant::ZERO, 1);
        let until = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert!(!bursts.hit(ReceptionTime { from: until(0), until: until(2) }));
        assert!(bursts.hit(ReceptionTime { from: until(1), until: until(4) }));
        assert!(!bursts.hit(ReceptionTime { from: until(3), until: until(5) }));
    }

    #[test]
    fn durations_are_uniform_between_their_ends() {
        let model = BurstModel::new(ms(2000..=10_000), ms(100..=300)).unwrap();
        let mut bursts = Bursts::new(model, Instant::ZERO, 7);
        let mut end = Instant::ZERO;
        let mut good = Vec::new();
        let mut bad = Vec::new();
        for _ in 0..20_000 {
            good.push(bursts.bad.start.saturating_since(end).as_secs_f64());
            bad.push(bursts.bad.end.saturating_since(bursts.bad.start).as_secs_f64());
            end = bursts.bad.end;
            bursts.next_after(end);
        }
        for (mut drawn, min, max) in [(good, 2.0, 10.0), (bad, 0.1, 0.3)] {
            drawn.sort_by(f64::total_cmp);
            // Kolmogorov–Smirnov at 1 %: 1.63 / √n.
            let steps = drawn.iter().enumerate();
            let distance = steps
                .map(|(i, x)| ((x - min) / (max - min) - i as f64 / 20_000.0).abs())
                .fold(0.0, f64::max);
            assert!(drawn[0] >= min && drawn[19_999] <= max);
            assert!(distance < 1.63 / f64::sqrt(20_000.0), "{distance}");
        }
    }

    #[test]
    fn years_of_silence_take_no_time() {
        let model = BurstModel::new(ms(0..=0), Duration::ZERO..=Duration::from_nanos(1)).unwrap();
        let mut bursts = Bursts::new(model, Instant::ZERO, 1);
        bursts.hit(instant(u64::MAX / 2));
        bursts.hit(instant(u64::MAX));
    }

    #[test]
    fn impossible_durations_are_refused() {
        assert_eq!(BurstModel::new(ms(0..=0), ms(0..=0)), Err(BurstError::NoTime));
        let reversed = RangeInclusive::new(Duration::from_secs(2), Duration::from_secs(1));
        let error = BurstModel::new(ms(1..=1), reversed).unwrap_err();
        assert_eq!(error.to_string(), "the least bad duration, 2 s, is above the greatest, 1 s");
    }
}
