//! Functions with the same results on every platform, unlike those of the system's mathematical
//! library: only `+ − × ÷` and `√` of IEEE 754 are exact to the last bit.

/// ∛x for x ≥ 0, by Newton's method.
pub(crate) fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is within a factor of 2.
    let guess = x.to_bits() / 3 + ((1023 - 1023 / 3) << 52);
    let mut root = f64::from_bits(guess);
    // Newton's method doubles the number of correct bits each time: six passes give more than 53.
    for _ in 0..6 {
        root -= (root * root * root - x) / (3.0 * root * root);
    }
    root
}

/// 2ˣ for x in −1000..1000: the integer part exactly, the rest by the power series of eʸ.
pub(crate) fn power_of_two(x: f64) -> f64 {
    let x = x.clamp(-1000.0, 1000.0);
    let whole = x.floor();
    let y = (x - whole) * core::f64::consts::LN_2;
    // Twenty terms: the next, at most 0.7²¹/21!, is far below the last bit of the sum.
    let series = (1..=20).rev().fold(1.0, |sum, n| 1.0 + y / f64::from(n) * sum);
    series * f64::from_bits(((1023 + whole as i64) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(power_of_two(10.0), 1024.0);
        assert_eq!(power_of_two(-1.0), 0.5);
        assert!((power_of_two(0.5) - core::f64::consts::SQRT_2).abs() < 1e-15);
        assert_eq!(cube_root(0.0), 0.0);
        assert!((cube_root(27.0) - 3.0).abs() < 1e-14);
    }

    proptest! {
        #[test]
        fn the_cube_of_the_root(x in 1e-12..1e18f64) {
            let root = cube_root(x);
            prop_assert!((root * root * root / x - 1.0).abs() < 1e-14);
        }

        #[test]
        fn powers_multiply(a in -400.0..400.0f64, b in -400.0..400.0f64) {
            let ratio = power_of_two(a) * power_of_two(b) / power_of_two(a + b);
            prop_assert!((ratio - 1.0).abs() < 1e-12);
        }
    }
}
