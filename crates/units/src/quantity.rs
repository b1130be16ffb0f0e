//! Numbers with units: the single parser of all quantities.

use thiserror::Error;

/// The reason why a text is not a valid quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not start with a number.
    #[error("{text:?} is not a {what}: expected a number and a unit, like {example:?}")]
    NoNumber {
        /// The kind of quantity, such as `rate`.
        what: &'static str,
        /// The rejected text, as given.
        text: String,
        /// A text that would be accepted.
        example: &'static str,
    },
    /// The unit is unknown.
    #[error("{text:?} is not a {what}: the unit {unit:?} is not one of {accepted}{}", hint(.meant))]
    UnknownUnit {
        /// The kind of quantity, such as `rate`.
        what: &'static str,
        /// The rejected text, as given.
        text: String,
        /// The unknown unit, as given.
        unit: String,
        /// The units that would be accepted.
        accepted: String,
        /// The unit that was probably meant, if there is a single candidate.
        meant: Option<&'static str>,
    },
    /// The number means one thing here and another elsewhere.
    #[error("{text:?} is ambiguous for a {what}: {readings}")]
    Ambiguous {
        /// The kind of quantity, such as `rate`.
        what: &'static str,
        /// The rejected text, as given.
        text: String,
        /// Its meaning here, and unambiguous notations.
        readings: &'static str,
    },
    /// The number is negative, not finite, or too large for its type.
    #[error("{text:?} is not a {what}: out of range, expected {expected}")]
    OutOfRange {
        /// The kind of quantity, such as `rate`.
        what: &'static str,
        /// The rejected text, as given.
        text: String,
        /// The range that would be accepted.
        expected: &'static str,
    },
}

fn hint(unit: &Option<&'static str>) -> String {
    unit.map(|unit| format!("; did you mean {unit}?")).unwrap_or_default()
}

/// A kind of quantity: its name, its units with their size in base units, and an example for error
/// messages.
pub(crate) struct QuantityKind {
    pub(crate) what: &'static str,
    pub(crate) units: &'static [(&'static str, f64)],
    pub(crate) example: &'static str,
}

impl QuantityKind {
    /// Parses `text` as a whole number of base units, rounded to the nearest.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, ParseError> {
        let (value, unit) = split_quantity(text).ok_or_else(|| self.no_number(text))?;
        let scale = self.scale(unit).ok_or_else(|| self.unknown_unit(text, unit))?;
        let base = (value * scale).round();
        // The bound is the largest f64 below 2⁶⁴, so that the cast cannot saturate.
        if !(0.0..18_446_744_073_709_549_568.0).contains(&base) {
            return Err(ParseError::OutOfRange {
                what: self.what,
                text: text.to_owned(),
                expected: "zero or more, below 2^64 base units",
            });
        }
        Ok(base as u64)
    }

    fn scale(&self, unit: &str) -> Option<f64> {
        self.units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
    }

    fn no_number(&self, text: &str) -> ParseError {
        ParseError::NoNumber { what: self.what, text: text.to_owned(), example: self.example }
    }

    fn unknown_unit(&self, text: &str, unit: &str) -> ParseError {
        let accepted: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
        ParseError::UnknownUnit {
            what: self.what,
            text: text.to_owned(),
            unit: unit.to_owned(),
            accepted: accepted.join(", "),
            meant: self.meant(unit),
        }
    }

    /// Returns the unit that is probably meant by the notation of other programs: `Mbps`, `Mb/s`,
    /// `mbit/s`, `KB`.
    fn meant(&self, unit: &str) -> Option<&'static str> {
        let bits = unit.strip_suffix("bps").or_else(|| unit.strip_suffix("b/s"));
        let spelled = bits.map_or_else(|| unit.to_owned(), |prefix| format!("{prefix}bit/s"));
        let mut like = self.units.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&spelled));
        // No suggestion if several units differ only in case.
        like.next().map(|(name, _)| *name).filter(|_| like.next().is_none())
    }

    /// Formats `base` in the largest of `names` (largest first) that keeps it at least 1 and needs
    /// the fewest digits to parse back to the same value.
    pub(crate) fn format(&self, base: u64, names: &[&str]) -> String {
        let fits = |name: &&&str| self.scale(name).is_some_and(|scale| base as f64 >= scale);
        let print = |name: &&str| {
            let scale = self.scale(name).unwrap_or(1.0);
            format!("{} {name}", base as f64 / scale)
        };
        let mut texts = names.iter().filter(fits).map(print);
        // A larger unit is taken only if nothing is lost by it.
        let exact = texts.find(|text| self.parse(text) == Ok(base));
        exact.or_else(|| names.last().map(print)).unwrap_or_default()
    }
}

/// Splits `text` into the number that it starts with and its unit, whatever that is: `"2.5 Mbit/s"`
/// into 2.5 and `"Mbit/s"`. The unit may be empty. `None` if `text` starts with no number.
pub fn split_quantity(text: &str) -> Option<(f64, &str)> {
    let trimmed = text.trim();
    let split = number_length(trimmed);
    Some((trimmed[..split].parse().ok()?, trimmed[split..].trim()))
}

/// Returns the length of the decimal number, with exponent, at the start of `text`.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    end += digits(end);
    if bytes.get(end) == Some(&b'.') {
        end += 1;
        end += digits(end);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(end + 1 + sign..).map_or(0, |_| digits(end + 1 + sign));
        if exponent > 0 {
            // Without digits the `e` belongs to the unit.
            end += 1 + sign + exponent;
        }
    }
    end
}

/// Implements `FromStr`, `Serialize` and `Deserialize` through text for a quantity.
macro_rules! text_serde {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use text_serde;
