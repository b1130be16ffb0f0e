//! Round-trip time of the hop (RFC 9002 §5).

use core::time::Duration;

/// RTT assumed before the first sample: a geostationary hop with some queue.
const INITIAL: Duration = Duration::from_millis(800);
/// The clock granularity that timers assume.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Maximum RTT accepted from a handshake: 5 s, the longest of links that this protocol serves, plus
/// a second of queue.
const MAX_PLAUSIBLE_RTT: Duration = Duration::from_secs(6);

/// The RTT sample, or bound, of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstRtt {
    /// The message was sent once, so the answer belongs to that transmission.
    Measured(Duration),
    /// The message was sent several times, so it is unknown which transmission was answered (P.
    /// Karn and C. Partridge 1987). The RTT is at most the time since the first one.
    AtMost(Duration),
}

impl FirstRtt {
    /// Classifies the answer to a message that was sent `sendings` times, first `since_first` ago.
    pub(crate) fn new(since_first: Duration, sendings: u32) -> Self {
        if sendings <= 1 { Self::Measured(since_first) } else { Self::AtMost(since_first) }
    }
}

/// The RTT estimator: smoothed RTT, its variation, and the minimum.
#[derive(Debug)]
pub(crate) struct RttEstimator {
    /// Estimate in use until the first sample.
    assumed: AssumedRtt,
    sample: Option<MeasuredRtt>,
}

#[derive(Debug, Clone, Copy)]
struct AssumedRtt {
    smoothed: Duration,
    variation: Duration,
}

#[derive(Debug, Clone, Copy)]
struct MeasuredRtt {
    smoothed: Duration,
    variation: Duration,
    latest: Duration,
    min: Duration,
}

impl RttEstimator {
    pub(crate) fn new() -> Self {
        let assumed = AssumedRtt { smoothed: INITIAL, variation: INITIAL / 2 };
        Self { assumed, sample: None }
    }

    /// Starts from the RTT that the handshake has shown.
    pub(crate) fn init_from_handshake(&mut self, first: FirstRtt) {
        match first {
            FirstRtt::Measured(rtt) => self.update(rtt, Duration::ZERO),
            FirstRtt::AtMost(rtt) => {
                let smoothed = rtt.min(MAX_PLAUSIBLE_RTT);
                self.assumed = AssumedRtt { smoothed, variation: smoothed / 8 };
            }
        }
    }

    /// Returns whether there has been a sample.
    pub(crate) fn is_measured(&self) -> bool {
        self.sample.is_some()
    }

    /// Adds a sample: the time from sending a packet until the acknowledgement that first covered
    /// it. The peer reports that it held the acknowledgement back for `held`.
    pub(crate) fn update(&mut self, elapsed: Duration, held: Duration) {
        let Some(old) = self.sample else {
            let path = elapsed.saturating_sub(held);
            self.sample =
                Some(MeasuredRtt { smoothed: path, variation: path / 8, latest: path, min: path });
            return;
        };
        let min = old.min.min(elapsed);
        // RFC 9002 §5.3: a peer that overstates `held` must not push the RTT below the minimum.
        let path = if elapsed >= min + held { elapsed - held } else { elapsed };
        // A clock that leaps, as after a machine has slept, must not produce a round trip of hours.
        let latest = path.min(MAX_PLAUSIBLE_RTT.max(old.smoothed * 4));
        let difference = old.smoothed.abs_diff(latest);
        self.sample = Some(MeasuredRtt {
            smoothed: (old.smoothed * 7 + latest) / 8,
            variation: (old.variation * 3 + difference) / 4,
            latest,
            min,
        });
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.sample.map_or(self.assumed.smoothed, |sample| sample.smoothed)
    }

    /// Time from the sending of an unacknowledged packet until it counts as lost, once a later one
    /// is acknowledged (RFC 9002 §6.1.2).
    pub(crate) fn loss_delay(&self) -> Duration {
        let sampled = self.sample.map(|sample| sample.smoothed.max(sample.latest));
        let rtt = sampled.unwrap_or(self.assumed.smoothed);
        (rtt * 9 / 8).max(GRANULARITY)
    }

    /// Time to wait for any acknowledgement before probing (RFC 9002 §6.2.1), if the peer holds it
    /// back for at most `held`.
    pub(crate) fn probe_delay(&self, held: Duration) -> Duration {
        let variation = self.sample.map_or(self.assumed.variation, |sample| sample.variation);
        self.smoothed() + (variation * 4).max(GRANULARITY) + held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converges_and_subtracts_what_the_peer_held() {
        let mut rtt = RttEstimator::new();
        for _ in 0..100 {
            rtt.update(Duration::from_millis(625), Duration::from_millis(25));
        }
        assert!(rtt.smoothed().abs_diff(Duration::from_millis(600)) < Duration::from_millis(1));
        assert!(rtt.probe_delay(Duration::ZERO) < Duration::from_millis(610));
    }

    #[test]
    fn an_ambiguous_handshake_only_bounds_the_rtt_until_the_first_sample() {
        let seconds = Duration::from_secs_f64;
        let mut rtt = RttEstimator::new();
        rtt.init_from_handshake(FirstRtt::new(seconds(3.2), 3));
        assert_eq!(rtt.smoothed(), seconds(3.2));
        assert!(rtt.probe_delay(Duration::ZERO) > seconds(3.2 * 1.4));
        rtt.update(seconds(0.6), Duration::ZERO);
        assert_eq!(rtt.smoothed(), seconds(0.6));
        let mut rtt = RttEstimator::new();
        rtt.init_from_handshake(FirstRtt::new(seconds(17.0), 6));
        assert_eq!(rtt.smoothed(), MAX_PLAUSIBLE_RTT);
        let mut rtt = RttEstimator::new();
        rtt.init_from_handshake(FirstRtt::new(seconds(0.9), 1));
        assert_eq!(rtt.smoothed(), seconds(0.9));
    }

    #[test]
    fn a_clock_that_leaps_spoils_little_and_a_longer_path_is_followed() {
        let mut rtt = RttEstimator::new();
        rtt.update(Duration::from_millis(600), Duration::ZERO);
        rtt.update(Duration::from_secs(36_000), Duration::ZERO);
        assert!(rtt.smoothed() < Duration::from_millis(1300), "{:?}", rtt.smoothed());
        (0..100).for_each(|_| rtt.update(Duration::from_secs(20), Duration::ZERO));
        assert!(rtt.smoothed() > Duration::from_secs(19), "{:?}", rtt.smoothed());
    }

    /// What arrived just before a fade is acknowledged after it.
    #[test]
    fn an_acknowledgement_that_was_held_through_a_fade_changes_nothing() {
        let (rtt_of_path, fade) = (Duration::from_millis(600), Duration::from_secs(20));
        let mut rtt = RttEstimator::new();
        rtt.update(rtt_of_path, Duration::ZERO);
        rtt.update(rtt_of_path + fade, fade);
        assert_eq!(rtt.smoothed(), rtt_of_path);
    }

    #[test]
    fn a_lying_hold_time_never_goes_below_the_minimum() {
        let mut rtt = RttEstimator::new();
        rtt.update(Duration::from_millis(600), Duration::ZERO);
        rtt.update(Duration::from_millis(601), Duration::from_secs(5));
        assert!(rtt.smoothed() >= Duration::from_millis(600));
    }
}
