//! Mean and deviation of durations, without storing them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Accumulates samples (B. P. Welford, Technometrics 4 (1962) 419).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moments {
    count: u64,
    min: Duration,
    max: Duration,
    mean: f64,
    squares: f64,
}

/// Statistics of the durations that were added.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DurationStatistics {
    /// Number of durations that were added.
    pub samples: u64,
    /// The shortest duration, in seconds.
    pub min_seconds: f64,
    /// Arithmetic mean of the durations, in seconds.
    pub mean_seconds: f64,
    /// The longest duration, in seconds.
    pub max_seconds: f64,
    /// Sample standard deviation in seconds (divided by n − 1); `None` for a single sample.
    pub deviation_seconds: Option<f64>,
}

impl Moments {
    pub(super) fn add(&mut self, sample: Duration) {
        self.min = if self.count == 0 { sample } else { self.min.min(sample) };
        self.max = self.max.max(sample);
        self.count += 1;
        // Welford's method keeps its digits however many samples there are.
        let seconds = sample.as_secs_f64();
        let before = self.mean;
        self.mean += (seconds - before) / self.count as f64;
        self.squares += (seconds - before) * (seconds - self.mean);
    }

    /// Returns the shortest sample; `None` without any.
    pub(super) fn min(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.min)
    }

    pub(super) fn durations(&self) -> Option<DurationStatistics> {
        let deviation = |count: u64| (self.squares.max(0.0) / (count - 1) as f64).sqrt();
        (self.count > 0).then(|| DurationStatistics {
            samples: self.count,
            min_seconds: self.min.as_secs_f64(),
            mean_seconds: self.mean,
            max_seconds: self.max.as_secs_f64(),
            deviation_seconds: (self.count > 1).then(|| deviation(self.count)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_textbook_sample() {
        let mut moments = Moments::default();
        assert_eq!(moments.durations(), None);
        moments.add(Duration::from_secs(2));
        assert_eq!(moments.durations().unwrap().deviation_seconds, None);
        for seconds in [4, 4, 4, 5, 5, 7, 9] {
            moments.add(Duration::from_secs(seconds));
        }
        let figures = moments.durations().unwrap();
        assert_eq!((figures.samples, figures.min_seconds, figures.max_seconds), (8, 2.0, 9.0));
        assert!((figures.mean_seconds - 5.0).abs() < 1e-12);
        // Squared deviations sum to 32.
        assert!((figures.deviation_seconds.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
