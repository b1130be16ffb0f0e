//! Random numbers with given distributions. Uses only additions, multiplications and divisions, so
//! that results are the same on every platform; `f64::ln` and `powf` do not guarantee that.

use core::time::Duration;

/// The natural logarithm of a positive, normal number, to about 1e-15.
fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & MANTISSA | 1023 << 52);
    // ln m = 2·artanh((m − 1)/(m + 1)); the argument is at most 1/3, so 18 terms suffice.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let series = (0..18).rev().fold(0.0, |sum, k| sum * square + 1.0 / (2 * k + 1) as f64);
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * z * series
}

/// e^x for 0 ≤ x < 700; the relative error is about 1e-13 up to 300 and 3e-11 at the end.
fn exp(x: f64) -> f64 {
    // e^x = (e^(x/1024))^1024: the series converges fast for the small argument.
    let halvings = 10;
    let small = x / f64::from(1 << halvings);
    let series = (1..14).rev().fold(1.0, |sum, k| 1.0 + sum * small / f64::from(k));
    (0..halvings).fold(series, |power, _| power * power)
}

/// Returns an exponentially distributed duration with this mean; `chance` must be in `0.0..1.0`.
pub(crate) fn exponential(chance: f64, mean: Duration) -> Duration {
    let factor = -ln((1.0 - chance).max(f64::MIN_POSITIVE));
    Duration::try_from_secs_f64(mean.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// Returns a Pareto distributed value: at least `least`, with tail exponent `alpha`.
pub(crate) fn pareto(chance: f64, least: f64, alpha: f64) -> f64 {
    // Bounded to the range of `exp`; a small `alpha` would leave it.
    least * exp((-ln((1.0 - chance).max(f64::MIN_POSITIVE)) / alpha).min(600.0))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "what ours are compared with")]
mod tests {
    use link::Dice;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_the_library_s(x in 1e-300f64..1e300, y in 0.0f64..600.0) {
            prop_assert!((ln(x) - x.ln()).abs() <= 1e-13 * x.ln().abs().max(1.0));
            prop_assert!((exp(y) / y.exp() - 1.0).abs() < 1e-11);
        }
    }

    proptest! {
        #[test]
        fn a_greater_chance_is_a_longer_pause_and_a_larger_size(
            mut chances in prop::array::uniform2(0.0f64..1.0)
        ) {
            chances.sort_by(f64::total_cmp);
            let mean = Duration::from_millis(300);
            let [short, long] = chances.map(|chance| exponential(chance, mean));
            prop_assert!(short <= long);
            let [small, large] = chances.map(|chance| pareto(chance, 2000.0, 1.2));
            prop_assert!(2000.0 <= small && small <= large);
        }
    }

    #[test]
    fn the_extremes_are_within_bounds() {
        assert_eq!(exponential(0.0, Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(pareto(0.0, 2000.0, 1.2), 2000.0);
        // The greatest chance that a draw of 53 bits gives: 53 ln 2 means.
        let most = 1.0 - 2f64.powi(-53);
        let pause = exponential(most, Duration::from_secs(1)).as_secs_f64();
        assert!((pause - 36.736_800_569_677_1).abs() < 1e-6, "{pause}");
        assert_eq!(exponential(most, Duration::MAX), Duration::MAX);
        // A tail without a mean and without an end.
        assert!(pareto(most, 2000.0, 0.001).is_finite());
    }

    /// Quartiles, which the tail does not move as it does the mean.
    #[test]
    fn the_quartiles_are_those_of_theory() {
        for (chance, pause) in [(0.25, 0.287_682), (0.75, 1.386_294)] {
            let ours = exponential(chance, Duration::from_secs(1)).as_secs_f64();
            assert!((ours - pause).abs() < 1e-6, "{ours}");
        }
        // least / (1 - chance)^(1/alpha).
        for (chance, size) in [(0.75, 4.0), (0.99, 100.0)] {
            assert!((pareto(chance, 1.0, 1.0) / size - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn the_means_are_those_of_theory() {
        let mut dice = Dice::new(1);
        let n = 200_000;
        let mean = Duration::from_secs(2);
        let total: f64 = (0..n).map(|_| exponential(dice.chance(), mean).as_secs_f64()).sum();
        assert!((total / f64::from(n) - 2.0).abs() < 0.02);
        // alpha 3: the mean is least·3/2.
        let total: f64 = (0..n).map(|_| pareto(dice.chance(), 10.0, 3.0)).sum();
        assert!((total / f64::from(n) - 15.0).abs() < 0.2);
    }
}
