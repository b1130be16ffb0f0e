//! Units of published values.

use core::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A unit, as documents write it. Rates and volumes are decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Unit {
    /// A plain number.
    #[serde(rename = "1")]
    One,
    /// Hundredths.
    #[serde(rename = "%")]
    Percent,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitPerSecond,
    /// 1,000 bits per second.
    #[serde(rename = "kbit/s")]
    KilobitPerSecond,
    /// 1,000,000 bits per second.
    #[serde(rename = "Mbit/s")]
    MegabitPerSecond,
    /// Bytes per second.
    #[serde(rename = "bytes/s")]
    BytePerSecond,
    /// 1,000 bytes per second.
    #[serde(rename = "kbytes/s")]
    KilobytePerSecond,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millisecond,
    /// Seconds.
    #[serde(rename = "s")]
    Second,
    /// Minutes.
    #[serde(rename = "min")]
    Minute,
    /// Bytes.
    #[serde(rename = "bytes")]
    Byte,
    /// 1,000 bytes.
    #[serde(rename = "kbytes")]
    Kilobyte,
    /// 1,000,000 bytes.
    #[serde(rename = "Mbytes")]
    Megabyte,
    /// 1,000,000,000 bytes.
    #[serde(rename = "Gbytes")]
    Gigabyte,
    /// Packets.
    #[serde(rename = "packets")]
    Packet,
    /// Decibels.
    #[serde(rename = "dB")]
    Decibel,
}

/// The quantity that a unit measures. Units of one dimension convert into each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Number,
    Rate,
    Time,
    Volume,
    Packets,
    Decibels,
}

impl Unit {
    /// Returns the unit of a metric, with which its name ends: `goodput-mbit/s`.
    pub fn of_metric(name: &str) -> Self {
        match name.rsplit('-').next() {
            Some("mbit/s") => Self::MegabitPerSecond,
            Some("s") => Self::Second,
            Some("bytes") => Self::Byte,
            Some("packets") => Self::Packet,
            // Metrics without a unit in their name are numbers and shares.
            _ => Self::One,
        }
    }

    /// Converts a value of this unit to another one; `None` if they have different dimensions.
    pub fn in_unit(self, value: f64, other: Self) -> Option<f64> {
        let (dimension, size) = self.measure();
        let (of_other, size_of_other) = other.measure();
        (dimension == of_other).then(|| value * size / size_of_other)
    }

    /// Returns the dimension, and the size of the unit in the dimension's basic unit.
    const fn measure(self) -> (Dimension, f64) {
        match self {
            Self::One => (Dimension::Number, 1.0),
            Self::Percent => (Dimension::Number, 0.01),
            Self::BitPerSecond => (Dimension::Rate, 1.0),
            Self::KilobitPerSecond => (Dimension::Rate, 1e3),
            Self::MegabitPerSecond => (Dimension::Rate, 1e6),
            // The basic unit of rates is bit/s, of volumes the byte.
            Self::BytePerSecond => (Dimension::Rate, 8.0),
            Self::KilobytePerSecond => (Dimension::Rate, 8e3),
            Self::Millisecond => (Dimension::Time, 1e-3),
            Self::Second => (Dimension::Time, 1.0),
            Self::Minute => (Dimension::Time, 60.0),
            Self::Byte => (Dimension::Volume, 1.0),
            Self::Kilobyte => (Dimension::Volume, 1e3),
            Self::Megabyte => (Dimension::Volume, 1e6),
            Self::Gigabyte => (Dimension::Volume, 1e9),
            Self::Packet => (Dimension::Packets, 1.0),
            Self::Decibel => (Dimension::Decibels, 1.0),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "1",
            Self::Percent => "%",
            Self::BitPerSecond => "bit/s",
            Self::KilobitPerSecond => "kbit/s",
            Self::MegabitPerSecond => "Mbit/s",
            Self::BytePerSecond => "bytes/s",
            Self::KilobytePerSecond => "kbytes/s",
            Self::Millisecond => "ms",
            Self::Second => "s",
            Self::Minute => "min",
            Self::Byte => "bytes",
            Self::Kilobyte => "kbytes",
            Self::Megabyte => "Mbytes",
            Self::Gigabyte => "Gbytes",
            Self::Packet => "packets",
            Self::Decibel => "dB",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_convert_within_a_dimension_only() {
        let mbit = Unit::of_metric("goodput-mbit/s");
        let near = |got: Option<f64>, want: f64| (got.unwrap() / want - 1.0).abs() < 1e-12;
        assert!(near(Unit::KilobytePerSecond.in_unit(26.9, mbit), 0.2152));
        assert!(near(Unit::Minute.in_unit(2.0, Unit::Millisecond), 120_000.0));
        assert!(near(Unit::Percent.in_unit(65.57, Unit::of_metric("lost-share")), 0.6557));
        assert_eq!(Unit::Second.in_unit(1.0, mbit), None);
        assert_eq!(Unit::Packet.in_unit(1.0, Unit::Byte), None);
    }

    #[test]
    fn a_metric_s_name_ends_with_its_unit() {
        for (name, unit) in [
            ("time-median-s", Unit::Second),
            ("outstanding-max-bytes", Unit::Byte),
            ("peak-queue-packets", Unit::Packet),
            ("fairness", Unit::One),
            ("bytes", Unit::Byte),
        ] {
            assert_eq!(Unit::of_metric(name), unit, "{name}");
        }
    }
}
