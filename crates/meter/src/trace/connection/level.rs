//! Quantities over time: their time-weighted mean, and how long a condition held.

use std::time::Duration;

use units::Instant;

/// A changing number of bytes: its maximum, and its mean from the first to the last value above
/// zero.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeWeightedLevel {
    now: u64,
    changed: Option<Instant>,
    /// Integral of the value over time, in byte-nanoseconds.
    area: u128,
    lasted: Duration,
    max: u64,
}

impl TimeWeightedLevel {
    /// Sets the value from `time` on.
    pub(super) fn set(&mut self, time: Instant, level: u64) {
        if let Some(changed) = self.changed {
            let passed = time.saturating_since(changed);
            self.area += u128::from(self.now) * passed.as_nanos();
            // Time at zero counts only if a higher value follows.
            if self.now > 0 || level > 0 {
                self.lasted += passed;
                self.changed = Some(time.max(changed));
            }
        } else if level > 0 {
            self.changed = Some(time);
        }
        self.now = level;
        self.max = self.max.max(level);
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The mean; `None` if it was never above zero.
    pub(super) fn mean(&self) -> Option<f64> {
        let nanos = self.lasted.as_nanos();
        (nanos > 0).then(|| self.area as f64 / nanos as f64)
    }
}

/// Measures for how long a condition holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConditionTimer {
    since: Option<Instant>,
    total: Duration,
}

impl ConditionTimer {
    /// Sets whether it holds from `time` on.
    pub(super) fn set(&mut self, time: Instant, holds: bool) {
        if let Some(since) = self.since.take() {
            self.total += time.saturating_since(since);
        }
        self.since = holds.then_some(time);
    }

    pub(super) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_mean_is_over_the_time_from_first_to_last() {
        let mut level = TimeWeightedLevel::default();
        level.set(at(0), 0);
        level.set(at(5), 100);
        level.set(at(6), 300);
        level.set(at(7), 0);
        assert_eq!((level.mean(), level.max()), (Some(200.0), 300));
        // Two seconds of nothing count when something follows.
        level.set(at(8), 0);
        assert_eq!(level.mean(), Some(200.0));
        level.set(at(9), 0);
        level.set(at(9), 400);
        level.set(at(10), 0);
        assert_eq!(level.mean(), Some(800.0 / 5.0));
        assert_eq!(TimeWeightedLevel::default().mean(), None);
    }

    #[test]
    fn conditions_hold_for_a_time() {
        let mut holding = ConditionTimer::default();
        for (time, holds) in [(1, true), (2, true), (4, false), (7, true), (8, false)] {
            holding.set(at(time), holds);
        }
        assert_eq!(holding.total(), Duration::from_secs(4));
    }
}
