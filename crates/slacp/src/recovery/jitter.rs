//! Jitter for timers, so that events that hit many sessions at once do not stay synchronised (RFC
//! 8085 §3.1.1).

use core::time::Duration;

use rand_core::Rng;

/// A random duration below `most`, uniformly distributed.
pub(crate) fn part_of(most: Duration, rng: &mut impl Rng) -> Duration {
    most * (rng.next_u32() >> 16) / (1 << 16)
}

/// Exponential backoff between probes that are not answered (RFC 9002 §6.2.1).
#[derive(Debug, Default)]
pub(crate) struct ProbeBackoff {
    /// Number of probes since the last answer.
    probes: u32,
    /// Jitter of the next interval, in 65,536ths.
    jitter: u32,
}

impl ProbeBackoff {
    /// Maximum number of doublings. After these an interval is longer than any silence that the
    /// session tolerates.
    const DOUBLINGS: u32 = 10;
    /// Divisor of an interval for its maximum jitter: it becomes longer by at most one eighth.
    const JITTER_DIVISOR: u32 = 8;

    /// Restarts the backoff after an answer.
    pub(crate) fn reset(&mut self) {
        self.probes = 0;
    }

    /// Records that another probe was sent, and draws the jitter of the next interval.
    pub(crate) fn record_probe(&mut self, rng: &mut impl Rng) {
        self.probes = (self.probes + 1).min(Self::DOUBLINGS);
        self.jitter = rng.next_u32() >> 16;
    }

    /// Time to wait before the next probe, if an answer takes at most `delay`: `delay` before the
    /// first probe, 3/8 of it before the second one, then twice the previous pause each time, with
    /// jitter.
    pub(crate) fn pause(&self, delay: Duration) -> Duration {
        let Some(doublings) = self.probes.checked_sub(1) else { return delay };
        // 3/8: out of step with anything that recurs every round trip (docs/slacp.md, Loss).
        let pause = delay * 3 / 8 * 2u32.pow(doublings);
        pause + pause / Self::JITTER_DIVISOR * self.jitter / (1 << 16)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn pauses_double_until_there_is_an_answer() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let mut backoff = ProbeBackoff::default();
        let delay = Duration::from_millis(800);
        assert_eq!(backoff.pause(delay), delay);
        for least in [300, 600, 1200, 2400].map(Duration::from_millis) {
            backoff.record_probe(&mut rng);
            let pause = backoff.pause(delay);
            assert!(pause >= least && pause <= least + least / 8, "{pause:?} of {least:?}");
        }
        (0..100).for_each(|_| backoff.record_probe(&mut rng));
        assert!(backoff.pause(delay) > Duration::from_secs(100));
        backoff.reset();
        assert_eq!(backoff.pause(delay), delay);
    }

    #[test]
    fn no_two_draw_the_same_part() {
        let most = Duration::from_secs(1);
        let part = |seed| part_of(most, &mut ChaCha20Rng::from_seed([seed; 32]));
        assert!((0..100).all(|seed| part(seed) < most && part(seed) != part(seed + 1)));
    }
}
