//! The round-trip time of the hop (RFC 9002 §5).

use core::time::Duration;

/// Before the first sample: a geostationary hop with some queue.
const INITIAL: Duration = Duration::from_millis(800);
/// The clock granularity that timers assume.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed RTT, its variation, and the path minimum.
#[derive(Debug)]
pub(crate) struct Rtt {
    sample: Option<Sampled>,
}

#[derive(Debug, Clone, Copy)]
struct Sampled {
    smoothed: Duration,
    variation: Duration,
    latest: Duration,
    min: Duration,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Self { sample: None }
    }

    /// Takes a sample: the time from sending a packet to the acknowledgement
    /// that first covered it, of which the peer says it held it for `held`.
    pub(crate) fn update(&mut self, elapsed: Duration, held: Duration) {
        let Some(old) = self.sample else {
            let path = elapsed.saturating_sub(held);
            self.sample =
                Some(Sampled { smoothed: path, variation: path / 8, latest: path, min: path });
            return;
        };
        let min = old.min.min(elapsed);
        let latest = if elapsed >= min + held { elapsed - held } else { elapsed };
        let difference = old.smoothed.abs_diff(latest);
        self.sample = Some(Sampled {
            smoothed: (old.smoothed * 7 + latest) / 8,
            variation: (old.variation * 3 + difference) / 4,
            latest,
            min,
        });
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.sample.map_or(INITIAL, |sample| sample.smoothed)
    }

    /// How long a packet may stay unacknowledged after a later one was
    /// acknowledged before it is lost (RFC 9002 §6.1.2).
    pub(crate) fn loss_delay(&self) -> Duration {
        let rtt = self.sample.map_or(INITIAL, |sample| sample.smoothed.max(sample.latest));
        (rtt * 9 / 8).max(GRANULARITY)
    }

    /// How long to wait for any acknowledgement before probing (RFC 9002
    /// §6.2.1), when the peer holds one back for at most `held`.
    pub(crate) fn probe_delay(&self, held: Duration) -> Duration {
        let variation = self.sample.map_or(INITIAL / 2, |sample| sample.variation);
        self.smoothed() + (variation * 4).max(GRANULARITY) + held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converges_and_subtracts_what_the_peer_held() {
        let mut rtt = Rtt::new();
        for _ in 0..100 {
            rtt.update(Duration::from_millis(625), Duration::from_millis(25));
        }
        assert!(rtt.smoothed().abs_diff(Duration::from_millis(600)) < Duration::from_millis(1));
        assert!(rtt.probe_delay(Duration::ZERO) < Duration::from_millis(610));
    }

    #[test]
    fn a_lying_hold_time_never_goes_below_the_minimum() {
        let mut rtt = Rtt::new();
        rtt.update(Duration::from_millis(600), Duration::ZERO);
        rtt.update(Duration::from_millis(601), Duration::from_secs(5));
        assert!(rtt.smoothed() >= Duration::from_millis(600));
    }
}
