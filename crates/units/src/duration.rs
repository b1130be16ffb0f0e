//! Intervals of time as text. The type itself is [`core::time::Duration`].

use core::time::Duration;

use crate::quantity::{ParseError, QuantityKind};

const KIND: QuantityKind = QuantityKind {
    what: "duration",
    units: &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 6e10),
        ("h", 3.6e12),
    ],
    example: "600 ms",
};

/// Parses an interval such as `"600 ms"`, `"2 s"` or `"10 min"`.
///
/// # Errors
/// If the text is not a number with one of the units ns, us, ms, s, min, h.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    KIND.parse(text).map(Duration::from_nanos)
}

/// Formats an interval so that [`parse_duration`] can parse it; saturates at 584 years.
pub fn format_duration(duration: Duration) -> String {
    if duration.is_zero() {
        return "0 s".to_owned();
    }
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    KIND.format(nanos, &["s", "ms", "us", "ns"])
}

/// For `#[serde(with = "units::serde_duration")]`: intervals as text.
pub mod serde_duration {
    use core::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes the interval as text.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_duration(*duration))
    }

    /// Deserializes the interval from text.
    ///
    /// # Errors
    /// If the text is not an interval.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_usual_units() {
        assert_eq!(parse_duration("600 ms"), Ok(Duration::from_millis(600)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("10 min"), Ok(Duration::from_secs(600)));
    }

    #[test]
    fn refuses_negative_unitless_and_endless() {
        assert!(parse_duration("-1 s").is_err());
        assert!(parse_duration("5").is_err());
        assert!(parse_duration("1e300 h").is_err());
        assert!(parse_duration("soon").is_err());
    }

    proptest! {
        #[test]
        fn printed_durations_read_back(nanos in 0..1u64 << 50) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn what_is_read_reads_back(value in 0.0f64..1e9, unit in "(ns|us|ms|s|min|h)") {
            if let Ok(duration) = parse_duration(&format!("{value} {unit}")) {
                prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse_duration(&text);
        }
    }
}
