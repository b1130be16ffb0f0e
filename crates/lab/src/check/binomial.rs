//! Confidence interval for the number of losses.

use core::ops::RangeInclusive;

/// Returns the numbers of losses among `trials` packets, each lost with probability `p`, that lie
/// in neither tail of probability `(1 − confidence) / 2` of the binomial distribution.
pub(crate) fn interval(trials: u64, p: f64, confidence: f64) -> RangeInclusive<u64> {
    if p <= 0.0 {
        return 0..=0;
    }
    if p >= 1.0 {
        return trials..=trials;
    }
    let tail = (1.0 - confidence) / 2.0;
    let mut below = 0.0;
    let mut least = None;
    let mut most = trials;
    // ln P(X = k), from the ratio of neighbours: P(0) alone may underflow.
    let mut log = trials as f64 * (-p).ln_1p();
    let odds = p.ln() - (-p).ln_1p();
    for k in 0..=trials {
        below += log.exp();
        if least.is_none() && below > tail {
            least = Some(k);
        }
        if below >= 1.0 - tail {
            most = k;
            break;
        }
        log += odds + ((trials - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    least.unwrap_or(0)..=most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_the_normal_distribution_where_that_is_good() {
        // 10,000 · 0.1 ± 2.576 · 30
        let range = interval(10_000, 0.1, 0.99);
        assert!((922..=924).contains(range.start()), "{range:?}");
        assert!((1077..=1079).contains(range.end()), "{range:?}");
    }

    #[test]
    fn agrees_with_a_table_for_few_trials() {
        // P(X ≤ 0) = 0.599, P(X ≤ 2) = 0.9885, P(X ≤ 3) = 0.99897 of B(10, 0.05).
        assert_eq!(interval(10, 0.05, 0.99), 0..=3);
        // P(X = 0) = 0.00098 and P(X ≤ 1) = 0.0107 of B(10, 0.5).
        assert_eq!(interval(10, 0.5, 0.99), 1..=9);
    }

    #[test]
    fn the_ends_are_certain() {
        assert_eq!(interval(1000, 0.0, 0.99), 0..=0);
        assert_eq!(interval(1000, 1.0, 0.99), 1000..=1000);
        assert_eq!(interval(0, 0.5, 0.99), 0..=0);
    }

    proptest! {
        #[test]
        fn the_mean_is_inside(trials in 1u64..100_000, p in 0.0f64..1.0) {
            let range = interval(trials, p, 0.99);
            let mean = trials as f64 * p;
            prop_assert!(*range.start() as f64 <= mean.ceil());
            prop_assert!(*range.end() as f64 >= mean.floor());
        }
    }
}
