//! Probabilities: packet and bit error rates.

use core::fmt;
use core::str::FromStr;

use crate::quantity::{ParseError, text_serde};

/// A probability in `0.0..=1.0`: a PER, a BER. Text may be a number (`"1e-6"`,
/// `"0.01"`) or a percentage (`"1 %"`).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Probability(f64);

impl Probability {
    /// The probability of an impossible event.
    pub const ZERO: Self = Self(0.0);
    /// The probability of a certain event.
    pub const ONE: Self = Self(1.0);

    /// Creates a probability; `None` if `value` is outside `0.0..=1.0`.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// Returns the value, in `0.0..=1.0`.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// A packet or bit error rate, written as a [`Probability`], but not as a bare `1`: in netem that
/// is 1 %, and here it would be the loss of all packets.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct ErrorRate(pub Probability);

impl FromStr for ErrorRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let rate: Probability = text.parse()?;
        // Users of netem mean 1 % by 1; here it would lose every packet.
        if rate == Probability::ONE && !text.contains('%') {
            return Err(ParseError::Ambiguous {
                what: "error rate",
                text: text.to_owned(),
                readings: "1 means every packet; write 1% or 100%",
            });
        }
        Ok(Self(rate))
    }
}

/// Prints a [`Probability`], but 1 as `100%`, so that it can be parsed.
impl fmt::Display for ErrorRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Probability::ONE { f.write_str("100%") } else { self.0.fmt(f) }
    }
}

impl From<ErrorRate> for Probability {
    fn from(rate: ErrorRate) -> Self {
        rate.0
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (number, scale) = match text.trim().strip_suffix('%') {
            Some(percent) => (percent.trim(), 0.01),
            None => (text.trim(), 1.0),
        };
        let value: f64 = number.parse().map_err(|_| ParseError::NoNumber {
            what: "probability",
            text: text.to_owned(),
            example: "1e-6",
        })?;
        Self::new(value * scale).ok_or_else(|| ParseError::OutOfRange {
            what: "probability",
            text: text.to_owned(),
            expected: "0 to 1, or 0 % to 100 %",
        })
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 || self.0 >= 1e-3 {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:e}", self.0)
        }
    }
}

text_serde!(Probability);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_percentages() {
        assert_eq!("1e-6".parse::<Probability>().unwrap().get(), 1e-6);
        assert_eq!("1 %".parse::<Probability>().unwrap().get(), 0.01);
    }

    #[test]
    fn refuses_text_that_is_no_probability() {
        for text in ["1.5", "-0.1", "nan", "often", "101 %"] {
            assert!(text.parse::<Probability>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_1_is_no_error_rate() {
        for text in ["1", "1.0", " 1 ", "1e0"] {
            let error = text.parse::<ErrorRate>().unwrap_err().to_string();
            assert!(error.ends_with("1 means every packet; write 1% or 100%"), "{error}");
        }
        for (text, rate) in [("1%", 0.01), ("100 %", 1.0), ("0.1", 0.1), ("0", 0.0)] {
            assert_eq!(text.parse::<ErrorRate>().unwrap().0.get(), rate, "{text}");
        }
        for text in ["0", "1e-6", "0.01", "100%"] {
            assert_eq!(text.parse::<ErrorRate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["0", "1e-6", "0.01", "1"] {
            assert_eq!(text.parse::<Probability>().unwrap().to_string(), text);
        }
    }
}
