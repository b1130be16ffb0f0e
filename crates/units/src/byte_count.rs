//! Sizes in bytes, with decimal units in texts.

use core::fmt;
use core::str::FromStr;

use crate::quantity::{ParseError, QuantityKind, text_serde};

const KIND: QuantityKind = QuantityKind {
    what: "size",
    units: &[
        ("B", 1.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("", 1.0),
    ],
    example: "20 MB",
};

/// A number of bytes. `"20 MB"` is 20,000,000 bytes, `"64 KiB"` is 65,536.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteCount(u64);

impl ByteCount {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Creates a size of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of bits, saturating.
    pub const fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
}

impl FromStr for ByteCount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        KIND.parse(text).map(Self)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&KIND.format(self.0, &["GB", "MB", "kB", "B"]))
    }
}

text_serde!(ByteCount);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!("20 MB".parse(), Ok(ByteCount::new(20_000_000)));
        assert_eq!("20MiB".parse(), Ok(ByteCount::new(20_971_520)));
        assert_eq!("1500".parse(), Ok(ByteCount::new(1500)));
    }

    #[test]
    fn prints_in_the_largest_fitting_unit() {
        assert_eq!(ByteCount::new(20_000_000).to_string(), "20 MB");
        assert_eq!(ByteCount::new(1500).to_string(), "1.5 kB");
        assert_eq!(ByteCount::ZERO.to_string(), "0 B");
    }
}
