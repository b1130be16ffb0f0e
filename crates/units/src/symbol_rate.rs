//! Rates in symbols per second.

use core::fmt;
use core::str::FromStr;

use crate::quantity::{ParseError, QuantityKind, text_serde};

const KIND: QuantityKind = QuantityKind {
    what: "symbol rate",
    units: &[("baud", 1.0), ("kbaud", 1e3), ("Mbaud", 1e6), ("Gbaud", 1e9)],
    example: "30 Mbaud",
};

/// A rate in symbols per second; `"30 Mbaud"` is 30,000,000 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SymbolRate(u64);

impl SymbolRate {
    /// Creates a rate of `symbols` symbols per second.
    pub const fn from_baud(symbols: u64) -> Self {
        Self(symbols)
    }

    /// Returns the symbols per second.
    pub const fn baud(self) -> u64 {
        self.0
    }
}

impl FromStr for SymbolRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        KIND.parse(text).map(Self)
    }
}

impl fmt::Display for SymbolRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&KIND.format(self.0, &["Gbaud", "Mbaud", "kbaud", "baud"]))
    }
}

text_serde!(SymbolRate);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_unknown_unit_names_the_accepted_ones() {
        assert_eq!("27.5 Mbaud".parse(), Ok(SymbolRate(27_500_000)));
        let error = "30 Mbit/s".parse::<SymbolRate>().unwrap_err().to_string();
        assert!(error.contains("Mbit/s") && error.contains("Mbaud"), "{error}");
    }

    proptest! {
        #[test]
        fn printed_rates_read_back(symbols in 0..1u64 << 50) {
            let rate = SymbolRate(symbols);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }
}
