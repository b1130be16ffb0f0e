//! Westwood's estimates of the bandwidth, in bytes per second.

use core::time::Duration;

use units::Instant;

use super::super::AckEvent;
use super::super::option::{OptionError, OptionReader};

/// The shortest round that [`BandwidthEstimator::Rounds`] measures.
const SHORTEST_ROUND: Duration = Duration::from_millis(50);
/// m: [`BandwidthEstimator::Samples`] expects an acknowledgement within τ/m.
const PER_TIME_CONSTANT: u32 = 2;
/// Number of null samples after which the estimate has decayed to nothing.
const MOST_NULLS: u32 = 100;

/// An estimator of the bandwidth, of either kind.
#[derive(Debug, Clone)]
pub(crate) enum BandwidthEstimator {
    Rounds(RoundEstimator),
    Samples(SampleEstimator),
}

/// Westwood+: one sample per round trip, with a filter of constant weight.
#[derive(Debug, Clone)]
pub(crate) struct RoundEstimator {
    filter: f64,
    bandwidth: Option<f64>,
    start: Option<Instant>,
    delivered: u64,
}

/// Westwood: one sample per acknowledgement, with a filter of constant time.
#[derive(Debug, Clone)]
pub(crate) struct SampleEstimator {
    tau: Duration,
    bandwidth: Option<f64>,
    /// The previous sample in bytes per second, and the time at which it was taken.
    last: (f64, Option<Instant>),
    /// Bytes delivered since the previous sample.
    delivered: u64,
}

impl BandwidthEstimator {
    pub(crate) fn read_rounds(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        let filter = options.number("filter", 0.9, 0.0, 0.999)?;
        Ok(Self::Rounds(RoundEstimator { filter, bandwidth: None, start: None, delivered: 0 }))
    }

    pub(crate) fn read_samples(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        let tau = options.duration("tau", Duration::from_millis(500))?;
        Ok(Self::Samples(SampleEstimator { tau, bandwidth: None, last: (0.0, None), delivered: 0 }))
    }

    /// Returns the estimate in bytes per second; `None` before the first sample.
    pub(super) fn bandwidth(&self) -> Option<f64> {
        match self {
            Self::Rounds(rounds) => rounds.bandwidth,
            Self::Samples(samples) => samples.bandwidth,
        }
    }

    pub(super) fn measure(&mut self, ack: &AckEvent) {
        match self {
            Self::Rounds(rounds) => rounds.measure(ack),
            Self::Samples(samples) => samples.measure(ack),
        }
    }
}

impl RoundEstimator {
    fn measure(&mut self, ack: &AckEvent) {
        self.delivered += ack.delivered;
        let start = *self.start.get_or_insert(ack.now);
        let time = ack.now.saturating_since(start);
        if time < ack.smoothed_rtt.max(SHORTEST_ROUND) {
            return;
        }
        let sample = self.delivered as f64 / time.as_secs_f64();
        let filter = self.filter;
        self.bandwidth =
            Some(self.bandwidth.map_or(sample, |old| filter * old + (1.0 - filter) * sample));
        (self.start, self.delivered) = (Some(ack.now), 0);
    }
}

impl SampleEstimator {
    fn measure(&mut self, ack: &AckEvent) {
        self.delivered += ack.delivered;
        let Some(before) = self.last.1 else {
            // The first acknowledgement only starts the first interval.
            (self.last.1, self.delivered) = (Some(ack.now), 0);
            return;
        };
        let since = self.add_nulls(before, ack.now);
        let interval = ack.now.saturating_since(since);
        // Acknowledgements of the same instant are one sample.
        if !interval.is_zero() {
            self.add(self.delivered as f64 / interval.as_secs_f64(), interval);
            (self.last.1, self.delivered) = (Some(ack.now), 0);
        }
    }

    /// Adds a sample of 0 for each τ/m without an acknowledgement, so that the filter samples at
    /// the rate that it needs. Returns the time of the last sample.
    fn add_nulls(&mut self, before: Instant, now: Instant) -> Instant {
        let most = (self.tau / PER_TIME_CONSTANT).max(Duration::from_nanos(1));
        let mut last = before;
        for _ in 0..MOST_NULLS {
            if now.saturating_since(last) <= most {
                return last;
            }
            self.add(0.0, most);
            last += most;
        }
        // The estimate has decayed: further null samples would change nothing and cost time.
        let rest = now.saturating_since(last).as_nanos() % most.as_nanos();
        now - Duration::from_nanos(rest as u64)
    }

    fn add(&mut self, sample: f64, interval: Duration) {
        let twice = 2.0 * self.tau.as_secs_f64();
        let interval = interval.as_secs_f64();
        let weight = (twice - interval) / (twice + interval);
        let mean = (sample + self.last.0) / 2.0;
        let old = self.bandwidth.unwrap_or(0.0);
        self.bandwidth = Some(weight * old + (1.0 - weight) * mean);
        self.last.0 = sample;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::RepairPhase;
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// By hand: α = (1 − 0.01)/(1 + 0.01), b = 1000/0.01.
    #[test]
    fn the_filter_of_the_paper() {
        let mut it = samples();
        take(&mut it, 0);
        take(&mut it, 10);
        let first = (1.0 - 0.99 / 1.01) * 100_000.0 / 2.0;
        assert!((it.bandwidth.unwrap() - first).abs() < 1e-6);
        take(&mut it, 20);
        let second = 0.99 / 1.01 * first + (1.0 - 0.99 / 1.01) * 100_000.0;
        assert!((it.bandwidth.unwrap() - second).abs() < 1e-6);
        for number in 3..500 {
            take(&mut it, 10 * number);
        }
        assert!((it.bandwidth.unwrap() - 100_000.0).abs() < 10.0);
    }

    /// α = (1 − 0.25)/(1 + 0.25) = 0.6 for each null sample of 250 ms.
    #[test]
    fn a_pause_lowers_the_estimate() {
        let mut it = samples();
        for number in 0..500 {
            take(&mut it, 10 * number);
        }
        let before = it.bandwidth.unwrap();
        assert_eq!(it.add_nulls(at(4990), at(5500)), at(5490));
        let expected = 0.6 * (0.6 * before + 0.4 * 50_000.0);
        assert!((it.bandwidth.unwrap() - expected).abs() < 1e-6);
        it.add_nulls(at(5490), at(1_000_000));
        assert!(it.bandwidth.unwrap() < 1e-6);
    }

    fn samples() -> SampleEstimator {
        let tau = Duration::from_millis(500);
        SampleEstimator { tau, bandwidth: None, last: (0.0, None), delivered: 0 }
    }

    fn take(samples: &mut SampleEstimator, ms: u64) {
        samples.measure(&AckEvent {
            now: at(ms),
            acked: 1000,
            delivered: 1000,
            total_delivered: 0,
            credit: Default::default(),
            rtt: None,
            smoothed_rtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            rate: None,
            prior_in_flight: 0,
            in_flight: 0,
            is_cwnd_limited: true,
            phase: RepairPhase::Open,
            una: 0,
            nxt: 1,
        });
    }
}
