//! The window of a session beside senders that fill the queue: CUBIC's (RFC 9438 §4), with two
//! differences.
//!
//! After an overflow the window is halved for some feedback times before it becomes what CUBIC
//! leaves of it. This is a test: if all senders are sessions, the queue empties. And it takes at least
//! [`REGROWTH`] feedback times to come back, however small it is.

use core::time::Duration;

use units::Instant;

use super::PACKET;

/// CUBIC's C, in packets per s³ (RFC 9438 §5), and its β (§4.6).
const CUBE: f64 = 0.4;
const BETA: f64 = 0.7;
/// What is left of the window in a test, and how long that lasts, in feedback times: a queue of one
/// BDP empties in one of them, and that is known after another.
const LEFT: f64 = 0.5;
const TEST: f64 = 3.0;
/// Minimum time from an overflow to the same window again, in feedback times. A hundred small windows
/// that grow as fast as CUBIC's overflow the queue long before they know.
const REGROWTH: f64 = 8.0;
/// Minimum window, in packets.
const LEAST: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Cubic {
    /// In packets.
    window: f64,
    /// The window before the last overflow, in packets.
    most: f64,
    overflowed: Instant,
    /// Until when it is halved. Losses until then belong to the last overflow.
    tests_until: Instant,
}

impl Cubic {
    /// Begins with the test after an overflow at this rate, in bit/s, with a round-trip time and a
    /// feedback time in seconds.
    pub(super) fn new(now: Instant, rate: f64, rtt: f64, feedback: f64) -> Self {
        let window = rate * rtt / PACKET;
        let mut cubic = Self { window, most: 0.0, overflowed: now, tests_until: now };
        cubic.overflow(now, feedback);
        cubic
    }

    /// The queue overflows.
    pub(super) fn overflow(&mut self, now: Instant, feedback: f64) {
        if now < self.tests_until {
            return;
        }
        // Fast convergence (§4.7): a window smaller than the last time leaves room for others.
        let smaller = self.window < self.most;
        self.most = if smaller { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * LEFT).max(LEAST);
        self.overflowed = now;
        self.tests_until = now + Duration::from_secs_f64(TEST * feedback);
    }

    /// The rate with which the window is sent in a round trip, in bit/s; times in seconds.
    pub(super) fn rate(&mut self, now: Instant, rtt: f64, feedback: f64) -> f64 {
        if now >= self.tests_until {
            let time = now.saturating_since(self.overflowed).as_secs_f64();
            self.window = self.window.max(self.grown(time, feedback));
        }
        self.window * PACKET / rtt.max(1e-3)
    }

    /// The window so long after an overflow, in packets (§4.2).
    fn grown(&self, time: f64, feedback: f64) -> f64 {
        let lost = self.most * (1.0 - BETA);
        let inflection = (lost / CUBE).cbrt().max(REGROWTH * feedback);
        let after = time - inflection;
        if after < 0.0 {
            self.most + lost * (after / inflection).powi(3)
        } else {
            self.most + CUBE * after.powi(3)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: f64 = 0.6;
    const FEEDBACK: f64 = 0.9;

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    fn rate(cubic: &mut Cubic, seconds: f64) -> f64 {
        cubic.rate(at(seconds), RTT, FEEDBACK)
    }

    #[test]
    fn a_test_halves_the_rate_and_then_it_is_that_of_rfc_9438() {
        let mut cubic = Cubic::new(at(0.0), 40e6, RTT, FEEDBACK);
        assert_eq!(rate(&mut cubic, 2.6), 20e6);
        // W_max is 2,000 packets, so K is 11.4 s; 600 (7.4 / 11.4)³ packets are missing after 4 s.
        let expected = (2000.0 - 600.0 * (7.447_f64 / 11.447).powi(3)) * PACKET / RTT;
        assert!((rate(&mut cubic, 4.0) / expected - 1.0).abs() < 1e-3);
        assert!((rate(&mut cubic, 11.447) / 40e6 - 1.0).abs() < 1e-3);
        let expected = (2000.0 + 0.4 * 1000.0) * PACKET / RTT;
        assert!((rate(&mut cubic, 21.447) / expected - 1.0).abs() < 1e-3);
    }

    #[test]
    fn small_windows_take_eight_feedback_times() {
        let mut cubic = Cubic::new(at(0.0), 0.2e6, RTT, FEEDBACK);
        assert!(rate(&mut cubic, 7.0) < 0.2e6);
        assert!((rate(&mut cubic, 7.2) / 0.2e6 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn losses_in_a_test_belong_to_the_overflow_before() {
        let mut cubic = Cubic::new(at(0.0), 40e6, RTT, FEEDBACK);
        cubic.overflow(at(2.0), FEEDBACK);
        assert_eq!(rate(&mut cubic, 2.0), 20e6);
        cubic.overflow(at(2.8), FEEDBACK);
        assert_eq!(rate(&mut cubic, 2.8), 10e6);
    }

    #[test]
    fn windows_become_equal() {
        let mut small = Cubic::new(at(0.0), 2e6, RTT, FEEDBACK);
        let mut large = Cubic::new(at(0.0), 40e6, RTT, FEEDBACK);
        for tenths in 0..3000 {
            let now = f64::from(tenths) / 10.0;
            if rate(&mut small, now) + rate(&mut large, now) > 50e6 {
                small.overflow(at(now), FEEDBACK);
                large.overflow(at(now), FEEDBACK);
            }
        }
        let [small, large] = [small, large].map(|cubic| cubic.most);
        assert!((0.8..1.25).contains(&(small / large)), "{small} {large}");
    }
}
