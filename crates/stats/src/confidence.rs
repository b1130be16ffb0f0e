//! Confidence intervals of a mean, of a median, and of a ratio of means.
//!
//! *Student's t* assumes that the samples are independent and about normally distributed. The
//! *bootstrap* (percentile method: Efron, Tibshirani, *An Introduction to the Bootstrap*, 1993,
//! §13.3) assumes no distribution, but is too narrow for fewer than about ten samples. Where the
//! two agree, either will do.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::summary::{mean, percentile, sorted};

/// Number of resamples of the bootstrap.
const RESAMPLES: usize = 10_000;

/// A confidence interval, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Intervals at 95 % and 98 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConfidenceIntervals {
    /// Interval at 95 % confidence.
    pub ci95: ConfidenceInterval,
    /// Interval at 98 % confidence, the level of the ENAC paper.
    pub ci98: ConfidenceInterval,
}

/// Estimates the standard deviation of the population from `samples` (with n − 1); `None` for fewer
/// than two.
pub fn standard_deviation(samples: &[f64]) -> Option<f64> {
    let mean = mean(samples)?;
    let freedom = samples.len().checked_sub(1).filter(|&freedom| freedom > 0)?;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    Some((squares / freedom as f64).sqrt())
}

/// Returns Student's t intervals of the mean; `None` for fewer than two samples.
pub fn student_t(samples: &[f64]) -> Option<ConfidenceIntervals> {
    let [ci95, ci98] = [0.95, 0.98].map(|confidence| mean_interval(samples, confidence));
    Some(ConfidenceIntervals { ci95: ci95?, ci98: ci98? })
}

/// Returns Student's t interval of the mean at the level `confidence`, above 0 and below 1. `None`
/// for fewer than two samples and for other levels.
pub fn mean_interval(samples: &[f64], confidence: f64) -> Option<ConfidenceInterval> {
    let deviation = standard_deviation(samples)?;
    let centre = mean(samples)?;
    let count = samples.len() as f64;
    let t = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    let good = 0.0 < confidence && confidence < 1.0;
    // Two-sided: half of the rest is above the interval.
    let quantile = good.then(|| t.inverse_cdf(f64::midpoint(1.0, confidence)))?;
    let half = quantile * deviation / count.sqrt();
    Some(ConfidenceInterval { low: centre - half, high: centre + half })
}

/// Returns an interval of the median that assumes no distribution: from the rth smallest to the rth
/// largest sample, with the largest r for which a binomial variable of n and ½ is below r with a
/// probability of at most (1 − `confidence`)/2 (Hahn, Meeker, *Statistical Intervals*, 1991). Its
/// coverage is at least `confidence`. `None` if there are too few samples: fewer than 6 at 95 %,
/// fewer than 7 at 98 %.
pub fn median_interval(samples: &[f64], confidence: f64) -> Option<ConfidenceInterval> {
    let count = samples.len();
    let binomial = Binomial::new(0.5, count as u64).ok()?;
    let tail = f64::midpoint(1.0, -confidence);
    // The probability falls with r, so the last acceptable rank gives the narrowest interval.
    let ranks = (1..=count.div_ceil(2)).take_while(|rank| binomial.cdf(*rank as u64 - 1) <= tail);
    let rank = ranks.last()?;
    let sorted = sorted(samples);
    Some(ConfidenceInterval { low: sorted[rank - 1], high: sorted[count - rank] })
}

/// A source of bootstrap intervals, reproducible for a seed.
pub struct Bootstrap(ChaCha8Rng);

impl Bootstrap {
    /// Creates a bootstrap with random numbers seeded from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns intervals of the mean; `None` for fewer than two samples.
    pub fn mean(&mut self, samples: &[f64]) -> Option<ConfidenceIntervals> {
        if samples.len() < 2 {
            return None;
        }
        let means: Vec<f64> = (0..RESAMPLES).map(|_| self.resampled_mean(samples)).collect();
        intervals(&means)
    }

    /// Returns intervals of the ratio of means, `above` to `below`; `None` for fewer than two samples of
    /// either, and if a sample of `below` is not positive.
    pub fn ratio(&mut self, above: &[f64], below: &[f64]) -> Option<ConfidenceIntervals> {
        if above.len().min(below.len()) < 2 || below.iter().any(|sample| *sample <= 0.0) {
            return None;
        }
        let draw = |_| self.resampled_mean(above) / self.resampled_mean(below);
        intervals(&(0..RESAMPLES).map(draw).collect::<Vec<f64>>())
    }

    /// Returns intervals of the ratio of means, `above` to `below`. Samples with the same index are drawn
    /// together, so that variation common to both does not widen the interval. `None` as in
    /// [`Bootstrap::ratio`], and if the numbers of samples differ.
    pub fn paired_ratio(&mut self, above: &[f64], below: &[f64]) -> Option<ConfidenceIntervals> {
        let count = above.len();
        if count < 2 || below.len() != count || below.iter().any(|sample| *sample <= 0.0) {
            return None;
        }
        let mut draw = |_| {
            let add = |(above_sum, below_sum): (f64, f64), at: usize| {
                (above_sum + above[at], below_sum + below[at])
            };
            let (above, below) = (0..count).map(|_| self.below(count)).fold((0.0, 0.0), add);
            above / below
        };
        intervals(&(0..RESAMPLES).map(&mut draw).collect::<Vec<f64>>())
    }

    /// Returns intervals of a statistic of several groups of samples, each resampled by itself; `None` if a
    /// group has fewer than two samples.
    pub fn statistic(
        &mut self,
        groups: &[Vec<f64>],
        statistic: impl Fn(&[Vec<f64>]) -> f64,
    ) -> Option<ConfidenceIntervals> {
        if groups.iter().any(|group| group.len() < 2) {
            return None;
        }
        let mut again = groups.to_vec();
        let mut draws = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            for (drawn, group) in again.iter_mut().zip(groups) {
                drawn.fill_with(|| group[self.below(group.len())]);
            }
            draws.push(statistic(&again));
        }
        intervals(&draws)
    }

    fn resampled_mean(&mut self, samples: &[f64]) -> f64 {
        let sum: f64 = samples.iter().map(|_| samples[self.below(samples.len())]).sum();
        sum / samples.len() as f64
    }

    /// Draws a number below `count` by Lemire's multiplication. Its bias, less than count / 2^64, is
    /// negligible here.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.0.next_u64()) * count as u128) >> 64) as usize
    }
}

fn intervals(draws: &[f64]) -> Option<ConfidenceIntervals> {
    let interval = |low, high| {
        Some(ConfidenceInterval { low: percentile(draws, low)?, high: percentile(draws, high)? })
    };
    Some(ConfidenceIntervals { ci95: interval(2.5, 97.5)?, ci98: interval(1.0, 99.0)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // With a deviation of √(n) the half width is the quantile itself.
        for (count, t975, t990) in
            [(2, 12.7062, 31.8205), (10, 2.26216, 2.82144), (20, 2.09302, 2.53948)]
        {
            let mut samples = vec![0.0; count];
            for (index, sample) in samples.iter_mut().enumerate() {
                *sample = index as f64;
            }
            let scale = standard_deviation(&samples).unwrap() / (count as f64).sqrt();
            let found = student_t(&samples).unwrap();
            let half = |interval: ConfidenceInterval| (interval.high - interval.low) / 2.0 / scale;
            assert!((half(found.ci95) - t975).abs() < 1e-4, "{count}: {}", half(found.ci95));
            assert!((half(found.ci98) - t990).abs() < 1e-4, "{count}: {}", half(found.ci98));
        }
    }

    #[test]
    fn ranks_of_the_median_follow_from_the_binomial_distribution() {
        // Of 20 samples, 5 or fewer are below the median with a probability of 0.0207, 6 or fewer
        // with 0.0577.
        for (count, low, high) in [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15)] {
            let samples: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let found = median_interval(&samples, 0.95);
            assert_eq!(
                found,
                Some(ConfidenceInterval { low: low.into(), high: high.into() }),
                "{count}"
            );
        }
        assert_eq!(median_interval(&[1.0; 5], 0.95), None);
        assert_eq!(median_interval(&[1.0; 6], 0.98), None);
        assert_eq!(median_interval(&[], 0.95), None);
        assert_eq!(mean_interval(&[1.0, 2.0], 1.0), None);
    }

    #[test]
    fn one_sample_says_nothing_about_its_spread() {
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(student_t(&[1.0]), None);
        assert_eq!(Bootstrap::new(1).mean(&[1.0]), None);
        assert_eq!(Bootstrap::new(1).ratio(&[1.0, 2.0], &[0.0, 1.0]), None);
    }

    #[test]
    fn the_mean_is_inside_as_often_as_promised() {
        let mut draws = Bootstrap::new(7);
        let mut inside = [0; 2];
        let rounds = 4000;
        for _ in 0..rounds {
            // Sums of twelve uniform numbers: about normal, mean 6.
            let mut sample =
                || (0..12).map(|_| draws.below(1 << 30) as f64 / f64::from(1 << 30)).sum();
            let samples: Vec<f64> = (0..8).map(|_| sample()).collect();
            let found = student_t(&samples).unwrap();
            for (count, interval) in inside.iter_mut().zip([found.ci95, found.ci98]) {
                *count += u32::from(interval.low <= 6.0 && 6.0 <= interval.high);
            }
        }
        // Three standard deviations of a binomial count.
        let share = inside.map(|count| f64::from(count) / f64::from(rounds));
        assert!((share[0] - 0.95).abs() < 0.0104 && (share[1] - 0.98).abs() < 0.0067, "{share:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn intervals_hold_the_mean_and_grow(samples in prop::collection::vec(1.0..1e6f64, 2..20), seed: u64) {
            let centre = mean(&samples).unwrap();
            let drawn = Bootstrap::new(seed).mean(&samples).unwrap();
            prop_assert_eq!(Bootstrap::new(seed).mean(&samples).unwrap(), drawn);
            let slack = centre * 1e-9;
            for found in [student_t(&samples).unwrap(), drawn] {
                prop_assert!(found.ci95.low <= centre + slack && centre <= found.ci95.high + slack);
                prop_assert!(found.ci98.low <= found.ci95.low && found.ci95.high <= found.ci98.high);
            }
            let ratio = Bootstrap::new(seed).ratio(&samples, &samples).unwrap();
            prop_assert!(ratio.ci95.low <= 1.0 + 1e-9 && ratio.ci95.high >= 1.0 - 1e-9);
        }
    }
}
