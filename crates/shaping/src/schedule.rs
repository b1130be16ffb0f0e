//! The state of a token bucket as a single point in time.

use core::time::Duration;

use units::Instant;

/// The time at which everything that has left so far is paid for: the virtual scheduling algorithm
/// of the generic cell rate algorithm (ITU-T I.371 annex A). As its state is a time instead of
/// tokens, nothing drifts, nothing overflows, and the rate may change between two calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtualSchedule {
    free_at: Instant,
}

impl VirtualSchedule {
    /// Returns the time at which the next packet or event may go.
    #[inline]
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Sets the time at which the next packet or event may go.
    #[inline]
    pub fn set_free_at(&mut self, free_at: Instant) {
        self.free_at = free_at;
    }

    /// Returns the time from which the next charge counts; a pause earns at most `earned`.
    #[inline]
    pub fn start(&self, now: Instant, earned: Duration) -> Instant {
        self.free_at.max(now - earned)
    }

    /// Charges a packet or event at `now` that takes `cost`; a pause earns at most `earned`.
    #[inline]
    pub fn charge(&mut self, now: Instant, earned: Duration, cost: Duration) {
        self.free_at = self.start(now, earned) + cost;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_pause_earns_no_more_than_it_may() {
        let mut schedule = VirtualSchedule::default();
        let at = |time| Instant::ZERO + ms(time);
        schedule.charge(at(1000), ms(4), ms(1));
        assert_eq!(schedule.free_at(), at(997));
        (0..3).for_each(|_| schedule.charge(at(1000), ms(4), ms(1)));
        assert_eq!((schedule.free_at(), schedule.start(at(1002), ms(4))), (at(1000), at(1000)));
        schedule.set_free_at(at(5000));
        assert_eq!(schedule.start(at(1002), ms(4)), at(5000));
    }

    proptest! {
        /// Whatever leaves when it may, no period sees more than itself and what a pause earns.
        #[test]
        fn no_period_is_charged_more_than_its_length_and_a_burst(
            earned in 0u64..100, steps in prop::collection::vec((0u64..50, 0u64..20), 1..200),
        ) {
            let mut schedule = VirtualSchedule::default();
            let mut now = Instant::ZERO;
            let mut charged = 0;
            for (step, cost) in steps {
                now = (now + ms(step)).max(schedule.free_at());
                let left = now.as_nanos() / 1_000_000;
                prop_assert!(charged <= left + earned);
                schedule.charge(now, ms(earned), ms(cost));
                charged += cost;
            }
        }
    }
}
