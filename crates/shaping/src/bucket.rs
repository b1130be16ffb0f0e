//! A token bucket: a rate per second, and a burst.

use core::time::Duration;

use units::Instant;

use crate::VirtualSchedule;

/// Grants one token per interval in the long run, and up to `burst` at once after a rest.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// Interval between two tokens, in nanoseconds.
    each: u64,
    /// Nanoseconds that `paid` may run ahead of the clock: one burst.
    ahead: u64,
    /// Time until which the granted tokens are paid for.
    paid: VirtualSchedule,
}

impl TokenBucket {
    /// A full bucket. `per_second` and `burst` are at least 1.
    pub fn new(per_second: u32, burst: u32) -> Self {
        debug_assert!(per_second > 0 && burst > 0, "{per_second}/s, {burst} at once");
        Self::every(Duration::from_secs(1) / per_second.max(1), burst)
    }

    /// A full bucket that grants a token per `interval`, and up to `burst` at once after a rest.
    /// With a burst of 0 it grants no tokens at all.
    pub fn every(interval: Duration, burst: u32) -> Self {
        let each = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self { each, ahead: each.saturating_mul(burst.into()), paid: VirtualSchedule::default() }
    }

    /// Takes a token if one is available.
    pub fn take(&mut self, now: Instant) -> bool {
        // Charged on a copy, so that a refusal costs nothing.
        let mut paid = self.paid;
        paid.charge(now, Duration::ZERO, Duration::from_nanos(self.each));
        let granted = paid.free_at().saturating_since(now).as_nanos() <= u128::from(self.ahead);
        if granted {
            self.paid = paid;
        }
        granted
    }

    /// Returns `true` if it would grant a whole burst: it then equals a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.paid.free_at() <= now
    }

    /// Changes the rate and the burst; tokens already taken stay taken.
    pub fn configure(&mut self, per_second: u32, burst: u32) {
        *self = Self { paid: self.paid, ..Self::new(per_second, burst) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn taken(bucket: &mut TokenBucket, now: Instant, tries: u32) -> u32 {
        (0..tries).filter(|_| bucket.take(now)).count() as u32
    }

    #[test]
    fn a_burst_at_once_and_then_the_pace() {
        let mut bucket = TokenBucket::new(10, 5);
        assert_eq!(taken(&mut bucket, at(1000), 100), 5);
        assert_eq!(taken(&mut bucket, at(1099), 100), 0);
        assert_eq!(taken(&mut bucket, at(1100), 100), 1);
        assert_eq!(taken(&mut bucket, at(1400), 100), 3);
        assert_eq!(taken(&mut bucket, at(60_000), 100), 5, "a long rest saves no more");
    }

    #[test]
    fn a_burst_of_nothing_grants_nothing() {
        let mut bucket = TokenBucket::every(Duration::from_millis(1), 0);
        assert_eq!(taken(&mut bucket, at(60_000), 100), 0);
    }

    #[test]
    fn after_a_rest_it_is_full() {
        let mut bucket = TokenBucket::new(10, 5);
        assert!(bucket.is_full(at(0)));
        assert_eq!(taken(&mut bucket, at(1000), 2), 2);
        assert!(!bucket.is_full(at(1199)) && bucket.is_full(at(1200)));
    }

    #[test]
    fn another_pace_gives_back_nothing() {
        let mut bucket = TokenBucket::new(1, 2);
        assert_eq!(taken(&mut bucket, at(0), 9), 2);
        bucket.configure(1000, 2);
        assert_eq!(taken(&mut bucket, at(0), 9), 0);
        assert_eq!(taken(&mut bucket, at(2001), 9), 2);
    }

    proptest! {
        #[test]
        fn no_period_sees_more_than_its_pace_and_a_burst(
            per_second in 1u32..100_000, burst in 1u32..1000,
            steps in prop::collection::vec((0u64..5_000_000, 0u32..50), 1..200),
        ) {
            let mut bucket = TokenBucket::new(per_second, burst);
            let mut now = 0;
            let mut granted = 0u64;
            for (step, tries) in steps {
                now += step;
                granted += u64::from(taken(&mut bucket, Instant::from_nanos(now), tries));
                let each = u64::from(1_000_000_000 / per_second);
                prop_assert!(granted <= now / each + u64::from(burst));
            }
        }
    }
}
