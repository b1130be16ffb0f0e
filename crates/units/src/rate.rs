//! Rates in bits per second.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::ByteCount;
use crate::quantity::{ParseError, QuantityKind, text_serde};

const KIND: QuantityKind = QuantityKind {
    what: "rate",
    units: &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)],
    example: "50 Mbit/s",
};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A rate in bit/s; `"50 Mbit/s"` is 50,000,000 bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    /// Creates a rate of `bits` bits per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// Creates a rate of `mbit` million bits per second.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self(mbit * 1_000_000)
    }

    /// Returns the bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the mean rate of `bytes` in `time`; `None` for zero time.
    pub fn average(bytes: ByteCount, time: Duration) -> Option<Self> {
        let bits = u128::from(bytes.get()) * 8 * NANOS_PER_SECOND;
        let nanos = time.as_nanos();
        // Usually both fit in 64 bits, where a division is much cheaper.
        if let (Ok(bits), Ok(nanos)) = (u64::try_from(bits), u64::try_from(nanos)) {
            return bits.checked_div(nanos).map(Self);
        }
        let rate = bits.checked_div(nanos)?;
        Some(Self(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// Returns the time that `bytes` take at this rate, rounded up to the nanosecond;
    /// [`Duration::MAX`] at rate 0.
    pub fn time_to_send(self, bytes: ByteCount) -> Duration {
        if self.0 == 0 {
            return if bytes.get() == 0 { Duration::ZERO } else { Duration::MAX };
        }
        // A 64-bit division is much faster, and usually suffices.
        if let Some(nanos) = bytes.get().checked_mul(8 * NANOS_PER_SECOND as u64) {
            return Duration::from_nanos(nanos.div_ceil(self.0));
        }
        let nanos = (u128::from(bytes.get()) * 8 * NANOS_PER_SECOND).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of whole bytes in `time`; saturating.
    pub fn bytes_in(self, time: Duration) -> ByteCount {
        let nanos = time.as_nanos();
        // Most products fit into 64 bits, whose division is much faster.
        let small = u64::try_from(nanos).ok().and_then(|nanos| nanos.checked_mul(self.0));
        let bytes = match small {
            Some(product) => product / (8 * NANOS_PER_SECOND as u64),
            None => {
                let bytes = u128::from(self.0) * nanos / (8 * NANOS_PER_SECOND);
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        ByteCount::new(bytes)
    }
}

impl FromStr for BitRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        KIND.parse(text).map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&KIND.format(self.0, &["Gbit/s", "Mbit/s", "kbit/s", "bit/s"]))
    }
}

text_serde!(BitRate);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_at_50_mbit_takes_240_microseconds() {
        let time = BitRate::from_mbit(50).time_to_send(ByteCount::new(1500));
        assert_eq!(time, Duration::from_micros(240));
    }

    #[test]
    fn zero_rate_never_sends() {
        let zero = BitRate::from_bits_per_second(0);
        assert_eq!(zero.time_to_send(ByteCount::new(1)), Duration::MAX);
        assert_eq!(zero.time_to_send(ByteCount::ZERO), Duration::ZERO);
    }

    #[test]
    fn an_unknown_unit_names_the_accepted_ones() {
        let error = "50 Mbyte".parse::<BitRate>().unwrap_err().to_string();
        assert!(
            error.ends_with("\"Mbyte\" is not one of bit/s, kbit/s, Mbit/s, Gbit/s"),
            "{error}"
        );
        for (text, meant) in [
            ("50 Mbps", "Mbit/s"),
            ("50kbps", "kbit/s"),
            ("1 Gb/s", "Gbit/s"),
            ("5 mbit/s", "Mbit/s"),
        ] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean {meant}?")), "{error}");
        }
        // These are bytes.
        for text in ["50 MBps", "50 MB/s"] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(!error.contains("did you mean"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_rates_read_back(bits in 0..1u64 << 50) {
            let rate = BitRate(bits);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn bytes_in_undoes_time_to_send(bits in 1..1u64 << 40, bytes in 0..1u64 << 30) {
            let rate = BitRate(bits);
            let time = rate.time_to_send(ByteCount::new(bytes));
            prop_assert!(rate.bytes_in(time) >= ByteCount::new(bytes));
        }
    }
}
