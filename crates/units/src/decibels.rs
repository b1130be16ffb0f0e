//! Ratios of powers: Es/N0, attenuation.

use core::fmt;
use core::ops::{Add, Sub};
use core::str::FromStr;

use crate::quantity::{ParseError, text_serde};

/// A ratio of powers in steps of 0.001 dB, up to 1,000,000 dB either way. Whole steps make sums
/// and comparisons exact, and the same on every platform. Text: `"12 dB"`, `"-2.35 dB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Decibels(i64);

const PER_DECIBEL: f64 = 1000.0;
const GREATEST: i64 = 1_000_000_000;

impl Decibels {
    /// 0 dB: a ratio of 1.
    pub const ZERO: Self = Self(0);

    /// Creates a ratio of `thousandths` of a decibel; saturates at the ends of the range.
    pub const fn from_thousandths(thousandths: i64) -> Self {
        if thousandths > GREATEST {
            return Self(GREATEST);
        }
        Self(if thousandths < -GREATEST { -GREATEST } else { thousandths })
    }

    /// Returns the ratio in thousandths of a decibel.
    pub const fn thousandths(self) -> i64 {
        self.0
    }

    /// Converts `ratio` to decibels, 10 log10 of it, rounded; `None` if it is not above 0 and
    /// finite.
    pub fn of_ratio(ratio: f64) -> Option<Self> {
        let possible = ratio > 0.0 && ratio.is_finite();
        possible.then(|| Self((10.0 * PER_DECIBEL * ratio.log10()).round() as i64))
    }
}

/// Adds or subtracts in decibels; saturates at the ends of the range.
impl Add for Decibels {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::from_thousandths(self.0 + other.0)
    }
}

/// Adds or subtracts in decibels; saturates at the ends of the range.
impl Sub for Decibels {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::from_thousandths(self.0 - other.0)
    }
}

impl FromStr for Decibels {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const WHAT: &str = "ratio in decibels";
        let no_number = || {
            let text = text.to_owned();
            let example = "12 dB";
            ParseError::NoNumber { what: WHAT, text, example }
        };
        let number = text.trim().strip_suffix("dB").ok_or_else(no_number)?;
        let value: f64 = number.trim().parse().map_err(|_| no_number())?;
        // Rounded to whole thousandths, so that values compare exactly.
        let thousandths = (value * PER_DECIBEL).round();
        if thousandths.abs() <= GREATEST as f64 {
            return Ok(Self(thousandths as i64));
        }
        let text = text.to_owned();
        let expected = "-1,000,000 to 1,000,000 dB";
        Err(ParseError::OutOfRange { what: WHAT, text, expected })
    }
}

impl fmt::Display for Decibels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} dB", self.0 as f64 / PER_DECIBEL))
    }
}

text_serde!(Decibels);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_decibels_with_either_sign() {
        for (text, thousandths) in
            [("12 dB", 12_000), ("-2.35 dB", -2_350), ("0dB", 0), (" 1e1 dB ", 10_000)]
        {
            assert_eq!(text.parse(), Ok(Decibels(thousandths)), "{text}");
        }
    }

    #[test]
    fn refuses_text_that_is_no_ratio() {
        for text in ["", "12", "12 dBm", "dB", "inf dB", "nan dB", "1000001 dB", "twelve dB"] {
            let error = text.parse::<Decibels>().unwrap_err().to_string();
            assert!(error.contains("is not a ratio in decibels"), "{text}: {error}");
        }
    }

    #[test]
    fn a_ratio_of_two_is_three_decibels() {
        assert_eq!(Decibels::of_ratio(2.0), Some(Decibels(3_010)));
        assert_eq!(Decibels::of_ratio(0.5), Some(Decibels(-3_010)));
        for ratio in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Decibels::of_ratio(ratio), None, "{ratio}");
        }
    }

    proptest! {
        #[test]
        fn printed_ratios_read_back(thousandths in -GREATEST..=GREATEST) {
            let ratio = Decibels(thousandths);
            prop_assert_eq!(ratio.to_string().parse(), Ok(ratio));
        }

        #[test]
        fn sums_stay_within_the_range(a: i64, b: i64) {
            let [a, b] = [a, b].map(Decibels::from_thousandths);
            for sum in [a + b, a - b] {
                prop_assert!(sum.0.abs() <= GREATEST);
            }
        }
    }
}
