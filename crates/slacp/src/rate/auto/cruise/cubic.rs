//! The window of a session beside senders that fill the queue: CUBIC's (RFC 9438 §4), with two
//! differences.
//!
//! After an overflow the session keeps to the law for a while before it has what CUBIC leaves of its
//! window. This is a test: if all senders are sessions, the queue falls until it is short. And the
//! window takes at least [`REGROWTH`] feedback times to come back, however small it is.

use core::time::Duration;

use units::Instant;

use super::PACKET;

/// CUBIC's C, in packets per s³ (RFC 9438 §5), and its β (§4.6).
const CUBE: f64 = 0.4;
const BETA: f64 = 0.7;
/// A test takes this many feedback times, one of them until its effect is known. While the queue falls
/// by this factor in a feedback time, the test goes on.
const TEST: f64 = 2.0;
const FALLS: f64 = 0.9;
/// Minimum time from an overflow to the same window again, in feedback times. A hundred small windows
/// that grow as fast as CUBIC's overflow the queue long before they know.
const REGROWTH: f64 = 8.0;
/// Minimum window in packets, after any number of overflows.
const LEAST: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Cubic {
    /// The window that the session keeps in flight after the test, in packets.
    window: f64,
    /// The window before the last overflow (RFC 9438's W_max), in packets.
    most: f64,
    overflowed: Instant,
    /// Until when the test lasts. Losses until then belong to the last overflow.
    tests_until: Instant,
    /// The shortest queue in it, in seconds.
    lowest: f64,
}

/// Delays at present, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) queue: f64,
    /// Round-trip time and feedback time without the queue.
    pub(super) min_rtt: f64,
    pub(super) feedback: f64,
}

impl Times {
    /// Round-trip time with the queue, in seconds; at least 1 ms.
    fn rtt(&self) -> f64 {
        (self.min_rtt + self.queue).max(1e-3)
    }
}

impl Cubic {
    /// Begins with the test after an overflow at this rate, in bit/s.
    pub(super) fn new(now: Instant, rate: f64, times: Times) -> Self {
        let window = rate * times.rtt() / PACKET;
        let lowest = times.queue;
        let mut cubic = Self { window, most: 0.0, overflowed: now, tests_until: now, lowest };
        cubic.overflow(now, times);
        cubic
    }

    /// Reduces the window after an overflow of the queue, and begins a test.
    pub(super) fn overflow(&mut self, now: Instant, times: Times) {
        // Losses in a test belong to the overflow before it.
        if now < self.tests_until {
            return;
        }
        // Fast convergence (§4.7): a window smaller than the last time leaves room for others.
        let smaller = self.window < self.most;
        self.most = if smaller { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(LEAST);
        self.overflowed = now;
        self.tests_until = now + Duration::from_secs_f64(TEST * times.feedback);
        self.lowest = times.queue;
    }

    /// The rate with which the window is sent in a round trip, in bit/s; 0 in a test.
    pub(super) fn rate(&mut self, now: Instant, times: Times) -> f64 {
        if now < self.tests_until {
            self.watch(now, times);
            return 0.0;
        }
        let time = now.saturating_since(self.overflowed).as_secs_f64();
        self.window = self.window.max(self.grown(time, times.feedback));
        self.window * PACKET / times.rtt()
    }

    /// Goes on with a test while the queue falls.
    fn watch(&mut self, now: Instant, times: Times) {
        if times.queue < FALLS * self.lowest {
            self.lowest = times.queue;
            let after = now + Duration::from_secs_f64(times.feedback);
            self.tests_until = self.tests_until.max(after);
        }
    }

    /// The window `time` seconds after an overflow, in packets (§4.2).
    fn grown(&self, time: f64, feedback: f64) -> f64 {
        let lost = self.most * (1.0 - BETA);
        let inflection = (lost / CUBE).cbrt().max(REGROWTH * feedback);
        let after = time - inflection;
        // Up to W_max the curve is stretched to `inflection`; beyond, it is that of RFC 9438.
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

    const TIMES: Times = Times { queue: 0.0, min_rtt: 0.6, feedback: 0.9 };

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    fn rate(cubic: &mut Cubic, seconds: f64) -> f64 {
        cubic.rate(at(seconds), TIMES)
    }

    #[test]
    fn after_a_test_the_rate_is_that_of_rfc_9438() {
        let mut cubic = Cubic::new(at(0.0), 40e6, TIMES);
        assert_eq!(rate(&mut cubic, 1.7), 0.0);
        // W_max is 2,000 packets, so K is 11.4 s; 600 (7.4 / 11.4)³ packets are missing after 4 s.
        let expected = (2000.0 - 600.0 * (7.447_f64 / 11.447).powi(3)) * PACKET / 0.6;
        assert!((rate(&mut cubic, 4.0) / expected - 1.0).abs() < 1e-3);
        assert!((rate(&mut cubic, 11.447) / 40e6 - 1.0).abs() < 1e-3);
        let expected = (2000.0 + 0.4 * 1000.0) * PACKET / 0.6;
        assert!((rate(&mut cubic, 21.447) / expected - 1.0).abs() < 1e-3);
    }

    #[test]
    fn small_windows_take_eight_feedback_times() {
        let mut cubic = Cubic::new(at(0.0), 0.2e6, TIMES);
        assert!(rate(&mut cubic, 7.0) < 0.2e6);
        assert!((rate(&mut cubic, 7.2) / 0.2e6 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn losses_in_a_test_belong_to_the_overflow_before() {
        let mut cubic = Cubic::new(at(0.0), 40e6, TIMES);
        cubic.overflow(at(1.0), TIMES);
        assert!(rate(&mut cubic, 1.8) > 0.7 * 40e6);
        cubic.overflow(at(1.9), TIMES);
        assert_eq!(rate(&mut cubic, 1.9), 0.0);
    }

    #[test]
    fn a_test_goes_on_while_the_queue_falls() {
        let mut cubic = Cubic::new(at(0.0), 40e6, Times { queue: 0.6, ..TIMES });
        let mut rate = |tenths: u32, queue: u32| {
            let queue = f64::from(queue) / 1e3;
            cubic.rate(at(f64::from(tenths) / 10.0), Times { queue, ..TIMES })
        };
        assert!((0..40).all(|n| rate(n, 600 - 10 * n) == 0.0));
        assert!((40..48).all(|n| rate(n, 200) == 0.0));
        assert!(rate(49, 200) > 0.0);
    }

    #[test]
    fn windows_become_equal() {
        let mut small = Cubic::new(at(0.0), 2e6, TIMES);
        let mut large = Cubic::new(at(0.0), 40e6, TIMES);
        for tenths in 0..3000 {
            let now = f64::from(tenths) / 10.0;
            if rate(&mut small, now) + rate(&mut large, now) > 50e6 {
                small.overflow(at(now), TIMES);
                large.overflow(at(now), TIMES);
            }
        }
        let [small, large] = [small, large].map(|cubic| cubic.most);
        assert!((0.8..1.25).contains(&(small / large)), "{small} {large}");
    }
}
