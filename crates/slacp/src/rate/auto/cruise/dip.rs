//! Moments with an empty queue, to measure the path's own delay.
//!
//! That delay is known only without a queue, and the clocks of the two sides drift apart. If the
//! lowest queue of the last seconds is that long ago, the queue is emptied once. Sessions on one
//! link see the lowest queue at the same time, so they empty it together (as BBR does, whose
//! minimum RTT expires everywhere at once).

use core::time::Duration;

use units::Instant;

use crate::rate::arrivals::DRIFT;

/// After this time since the lowest queue it is emptied: clocks then are at most 1.3 ms apart.
const AFTER: Duration = Duration::from_secs(5);
/// … for at most two round trips, and as long at least as a GEO round trip, so that sessions with
/// other round trips take part.
const LASTS: Duration = Duration::from_millis(600);

/// The queue to aim at in a dip, in seconds: below zero by twice what the base may have drifted
/// since the last one. With zero, a dip would end that much above an empty queue, the next one as
/// much above that, and so on.
pub(super) const AIM: f64 = -2.0 * DRIFT * AFTER.as_secs_f64();

#[derive(Debug)]
pub(super) struct Dip {
    /// The lowest queue, in seconds, and when it was.
    lowest: f64,
    low_at: Instant,
    /// Until then, an empty queue is the effect of a dip.
    until: Instant,
}

impl Dip {
    pub(super) fn new(now: Instant) -> Self {
        Self { lowest: f64::INFINITY, low_at: now, until: now }
    }

    /// Returns `true` while the queue is being emptied.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        now.saturating_since(self.low_at) > AFTER
    }

    /// Returns `true` if the queue is, or has just been, lower than usual because of a dip.
    pub(super) fn disturbs(&self, now: Instant) -> bool {
        self.is_on(now) || now <= self.until
    }

    /// Notes a queue in seconds, `passed` seconds after the last one; `low` if it is empty, or on
    /// its way there.
    pub(super) fn note(&mut self, now: Instant, rtt: Duration, queue: f64, passed: f64, low: bool) {
        if self.is_on(now) {
            self.until = now + rtt * 2;
        }
        let over = now.saturating_since(self.low_at) > AFTER + (rtt * 2).max(LASTS);
        // A drifting clock makes the same queue look shorter.
        self.lowest -= DRIFT * passed;
        if low || over || queue < self.lowest {
            (self.low_at, self.lowest) = (now, queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    /// How often the queue is emptied in 60 s that it stands.
    fn dips(queue: impl Fn(u32) -> f64) -> usize {
        let at = |n: u32| Instant::from_nanos(u64::from(n) * 100_000_000);
        let mut dip = Dip::new(at(0));
        let mut on = false;
        let begins = (1..600).filter(|n| {
            dip.note(at(*n), RTT, queue(*n), 0.1, false);
            let before = core::mem::replace(&mut on, dip.is_on(at(*n)));
            on && !before
        });
        begins.count()
    }

    #[test]
    fn a_queue_that_stands_is_emptied_now_and_then() {
        let count = dips(|_| 0.01);
        assert!((8..=12).contains(&count), "{count}");
    }

    #[test]
    fn drift_does_not_look_like_a_lower_queue() {
        let count = dips(|n| 0.05 - 0.9 * DRIFT * 0.1 * f64::from(n));
        assert!((8..=12).contains(&count), "{count}");
    }

    #[test]
    fn a_queue_that_reaches_new_lows_is_left_alone() {
        assert_eq!(dips(|n| 0.5 - 0.0008 * f64::from(n)), 0);
    }
}
