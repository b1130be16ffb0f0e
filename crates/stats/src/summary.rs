use serde::{Deserialize, Serialize};

/// Common statistics of a set of samples, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    /// Number of samples, at least 1.
    pub count: usize,
    /// Smallest of the samples.
    pub min: f64,
    /// Arithmetic mean ([`mean`]).
    pub mean: f64,
    /// Median ([`median`]).
    pub median: f64,
    /// The 90th percentile ([`percentile`]).
    pub p90: f64,
    /// The 99th percentile ([`percentile`]).
    pub p99: f64,
    /// Largest of the samples.
    pub max: f64,
}

impl SampleSummary {
    /// Summarises `samples`; `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        Some(Self {
            count: sorted.len(),
            min: *sorted.first()?,
            mean: mean(samples)?,
            median: rank(&sorted, 50.0)?,
            p90: rank(&sorted, 90.0)?,
            p99: rank(&sorted, 99.0)?,
            max: *sorted.last()?,
        })
    }
}

/// Returns the arithmetic mean; `None` without samples.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Returns the median: the middle sample, or the mean of the two in the middle. `None` without
/// samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    percentile(samples, 50.0)
}

/// Returns the `percent`th percentile (0 to 100), interpolated linearly between the closest ranks:
/// definition 7 of Hyndman and Fan, "Sample quantiles in statistical packages", The American
/// Statistician 50 (1996). `None` without samples.
pub fn percentile(samples: &[f64], percent: f64) -> Option<f64> {
    rank(&sorted(samples), percent)
}

/// Returns Jain's fairness index of the shares, `(Σx)² / (n·Σx²)`: 1 if all are equal, 1/n if one has
/// everything (Jain, Chiu, Hawe, DEC TR-301, 1984). `None` without shares or if all are zero.
pub fn jain_index(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

pub(crate) fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn rank(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = last as f64 * (percent / 100.0).clamp(0.0, 1.0);
    let below = rank.floor() as usize;
    let above = rank.ceil() as usize;
    let low = sorted[below];
    let high = sorted[above];
    // The difference of two equal infinite values would be NaN.
    Some(if low == high { low } else { low + (high - low) * (rank - below as f64) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_figures() {
        assert_eq!(SampleSummary::of(&[]), None);
        assert_eq!(jain_index(&[]), None);
        assert_eq!(jain_index(&[0.0, 0.0]), None);
    }

    #[test]
    fn figures_of_a_known_set() {
        let summary = SampleSummary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (4, 1.0, 4.0));
        assert_eq!((summary.mean, summary.median), (2.5, 2.5));
        // Hyndman and Fan 7: rank 0.9·3 = 2.7 lies between 3 and 4.
        assert!((summary.p90 - 3.7).abs() < 1e-12);
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(median(&[1.0, f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
    }

    #[test]
    fn jain_at_both_ends() {
        assert_eq!(jain_index(&[5.0, 5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain_index(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
    }

    proptest! {
        #[test]
        fn figures_are_in_order(samples in prop::collection::vec(0.0..1e9f64, 1..50)) {
            let s = SampleSummary::of(&samples).unwrap();
            let order = [s.min, s.median, s.p90, s.p99, s.max];
            prop_assert!(order.is_sorted(), "{order:?}");
            prop_assert!(s.mean >= s.min * (1.0 - 1e-9) && s.mean <= s.max * (1.0 + 1e-9));
        }

        #[test]
        fn jain_lies_between_one_nth_and_one(shares in prop::collection::vec(0.1..1e6f64, 1..50)) {
            let index = jain_index(&shares).unwrap();
            prop_assert!(index <= 1.0 + 1e-9 && index >= 1.0 / shares.len() as f64 - 1e-9);
        }
    }
}
