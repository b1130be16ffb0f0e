//! The round-trip time and the retransmission time-out (RFC 6298).

use core::time::Duration;

use units::Instant;

/// Bounds of the retransmission time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtoConfig {
    /// Time-out before the first sample. Default 1 s (RFC 6298 §2.1), 3 s until 2011.
    pub initial: Duration,
    /// Minimum. 1 s in RFC 6298 §2.4, 200 ms in Linux.
    pub min: Duration,
    /// Maximum, at least 60 s (RFC 6298 §2.5).
    pub max: Duration,
    /// Clock granularity G: the minimum by which the time-out exceeds the smoothed RTT. The clocks
    /// of 1988 ticked every 500 ms.
    pub granularity: Duration,
    /// Acknowledgements that yield an RTT sample.
    pub sampling: RttSampling,
}

/// The frequency with which the RTT is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RttSampling {
    /// On every acknowledgement that allows it. The gains are divided by the number of samples per
    /// round trip (RFC 7323 appendix G).
    EveryAck,
    /// One segment at a time is timed, the minimum required by RFC 6298 §3.
    OncePerRtt,
}

impl Default for RtoConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
            granularity: Duration::from_millis(1),
            sampling: RttSampling::EveryAck,
        }
    }
}

/// Smoothed RTT, its variation, and the time-out with its backoff. In nanoseconds, because every
/// acknowledgement uses several of them.
#[derive(Debug, Clone)]
pub(crate) struct RtoEstimator {
    sampling: RttSampling,
    smoothed: Option<u64>,
    variation: u64,
    /// The minimum sample; the largest number before the first.
    min: u64,
    initial: u64,
    granularity: u64,
    /// Minimum and maximum of the time-out.
    least: u64,
    most: u64,
    /// Number of time-outs since the last sample.
    backoff: u32,
    /// No samples are taken before this position is acknowledged.
    timed_until: u64,
}

impl RtoEstimator {
    pub(crate) fn new(config: RtoConfig) -> Self {
        let most = nanos(config.max);
        Self {
            sampling: config.sampling,
            smoothed: None,
            variation: 0,
            min: u64::MAX,
            initial: nanos(config.initial),
            granularity: nanos(config.granularity),
            least: nanos(config.min).min(most),
            most,
            backoff: 0,
            timed_until: 0,
        }
    }

    /// Starts from another connection's measurements.
    pub(crate) fn adopt(&mut self, smoothed: Duration, variation: Duration) {
        (self.smoothed, self.variation) = (Some(nanos(smoothed)), nanos(variation));
    }

    /// Returns RTTVAR of RFC 6298.
    pub(crate) fn variation(&self) -> Duration {
        Duration::from_nanos(self.variation)
    }

    /// Adds a sample, in nanoseconds, from an acknowledgement of `una` when `nxt` was the next
    /// position and a round trip yields about `per_round` samples.
    #[inline]
    pub(crate) fn sample(&mut self, sample: u64, una: u64, nxt: u64, per_round: u64) {
        self.min = self.min.min(sample);
        let share = match self.sampling {
            RttSampling::EveryAck => per_round.clamp(1, 1 << 16) as i64,
            RttSampling::OncePerRtt if una < self.timed_until => return,
            RttSampling::OncePerRtt => 1,
        };
        self.timed_until = nxt;
        // RFC 6298 §5: a new measurement ends the backoff, also before the time-out is computed
        // again.
        self.backoff = 0;
        let Some(smoothed) = self.smoothed else {
            // (2.2): the first measurement.
            self.smoothed = Some(sample);
            self.variation = sample / 2;
            return;
        };
        // (2.3): β = 1/4 and α = 1/8, divided by the samples of a round trip.
        self.variation = blend(self.variation, smoothed.abs_diff(sample), 4 * share);
        self.smoothed = Some(blend(smoothed, sample, 8 * share));
    }

    #[inline]
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(Duration::from_nanos)
    }

    /// The minimum sample; `None` before the first.
    #[inline]
    pub(crate) fn min(&self) -> Option<Duration> {
        (self.min != u64::MAX).then(|| Duration::from_nanos(self.min))
    }

    /// [`Self::smoothed`] in nanoseconds.
    #[inline]
    pub(crate) fn smoothed_nanos(&self) -> Option<u64> {
        self.smoothed
    }

    /// [`Self::min`] in nanoseconds.
    #[inline]
    pub(crate) fn min_nanos(&self) -> Option<u64> {
        (self.min != u64::MAX).then_some(self.min)
    }

    /// The time-out, with backoff.
    #[inline]
    pub(crate) fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_nanos())
    }

    #[inline]
    fn rto_nanos(&self) -> u64 {
        let base = self.smoothed.map_or(self.initial, |smoothed| {
            smoothed.saturating_add(self.variation.saturating_mul(4).max(self.granularity))
        });
        let bounded = base.clamp(self.least, self.most);
        bounded.saturating_mul(1 << self.backoff.min(16)).min(self.most)
    }

    /// Doubles the time-out: rule (5.5) after an expiry.
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// Reverts the backoff: a time-out was spurious.
    pub(crate) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Restarts the time-out at 3 s: rule (5.7), for data that follows a retransmitted SYN.
    pub(crate) fn syn_was_retransmitted(&mut self) {
        self.initial = self.initial.max(nanos(Duration::from_secs(3)));
        self.backoff = 0;
    }

    #[inline]
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_add(self.rto_nanos()))
    }
}

/// `old` moved by 1/`weight` of the way to `new`.
fn blend(old: u64, new: u64, weight: i64) -> u64 {
    let old = old as i64;
    let new = new as i64;
    (old + (new - old) / weight) as u64
}

/// Converts to nanoseconds, at most 292 years, so that they fit into 63 bits for signed
/// differences.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(i64::MAX as u64, |nanos| nanos.min(i64::MAX as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A millisecond in nanoseconds.
    const MS: u64 = 1_000_000;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// RFC 6298 §2.2 and §2.3, by hand.
    #[test]
    fn the_first_two_samples() {
        let mut rtt = RtoEstimator::new(RtoConfig { min: ms(0), ..RtoConfig::default() });
        assert_eq!(rtt.rto(), ms(1000));
        rtt.sample(600 * MS, 1, 1, 1);
        assert_eq!(rtt.rto(), ms(600 + 4 * 300));
        rtt.sample(680 * MS, 2, 2, 1);
        // SRTT 600 + 80/8; RTTVAR 300·3/4 + 80/4.
        assert_eq!(rtt.rto(), ms(610 + 4 * 245));
    }

    #[test]
    fn granularity_minimum_and_maximum() {
        let config = RtoConfig { granularity: ms(500), min: ms(0), ..RtoConfig::default() };
        let mut rtt = RtoEstimator::new(config);
        (0..200).for_each(|_| rtt.sample(100 * MS, 1, 1, 1));
        assert_eq!(rtt.rto(), ms(600));
        let mut rtt = RtoEstimator::new(RtoConfig::default());
        (0..200).for_each(|_| rtt.sample(100 * MS, 1, 1, 1));
        assert_eq!(rtt.rto(), ms(1000));
        (0..9).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), ms(60_000));
        rtt.sample(100 * MS, 2, 2, 1);
        assert_eq!(rtt.rto(), ms(1000));
    }

    #[test]
    fn once_per_rtt_times_one_segment_at_a_time() {
        let config = RtoConfig { sampling: RttSampling::OncePerRtt, ..RtoConfig::default() };
        let mut rtt = RtoEstimator::new(config);
        rtt.sample(600 * MS, 1, 100, 1);
        rtt.sample(900 * MS, 99, 200, 1);
        assert_eq!(rtt.smoothed(), Some(ms(600)));
        rtt.sample(680 * MS, 100, 200, 1);
        assert_eq!(rtt.smoothed(), Some(ms(610)));
    }
}
