//! Modulation and coding (MODCODs): the ratio of signal to noise that each needs, and the bits that
//! it carries; and how a carrier follows a fade with them ([`Acm`]).
//!
//! Thresholds are Es/N0, the energy of a symbol over the noise density. Eb/N0, the same for a bit,
//! becomes Es/N0 by adding 10 log10 of the bits per symbol that it counts ([`es_n0_of`]).
//!
//! Not modelled: errors near the threshold. Above it a MODCOD is quasi error free (the link's own
//! loss model still applies), below it everything is lost. Real decoders go from one to the other
//! within a few tenths of a decibel.

mod acm;
mod standard;

use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use units::{BitRate, Decibels, SymbolRate};

use crate::SettingError;
use crate::text::SettingKind;

pub use acm::{Acm, AcmController, Adaptation};
pub use standard::Standard;

const CODE_RATE: SettingKind =
    SettingKind { what: "code rate", expected: "K/N, such as 1/2: at least 1, at most N and 255" };

/// The rate of an error-correcting code: of `n` coded bits, `k` are data. Text: `"1/2"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeRate {
    k: u8,
    n: u8,
}

impl CodeRate {
    /// A code with `k` bits of data in `n` coded ones; `None` unless 0 < `k` ≤ `n`.
    pub const fn new(k: u8, n: u8) -> Option<Self> {
        if 0 < k && k <= n { Some(Self { k, n }) } else { None }
    }

    /// Returns the bits of data in [`Self::n`] coded ones.
    pub const fn k(self) -> u8 {
        self.k
    }

    /// Returns the coded bits that carry [`Self::k`] bits of data.
    pub const fn n(self) -> u8 {
        self.n
    }
}

impl FromStr for CodeRate {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        CODE_RATE.read(text, |text| {
            let (k, n) = text.split_once('/')?;
            Self::new(k.parse().ok()?, n.parse().ok()?)
        })
    }
}

impl fmt::Display for CodeRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.k, self.n)
    }
}

/// The points that a symbol may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Constellation {
    /// QPSK: four phases, two bits.
    Qpsk,
    /// 8PSK: eight phases, three bits.
    Psk8,
    /// Sixteen points on two rings.
    Apsk16,
    /// Thirty-two points on three rings.
    Apsk32,
}

impl Constellation {
    /// Returns the coded bits of a symbol.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Qpsk => 2,
            Self::Psk8 => 3,
            Self::Apsk16 => 4,
            Self::Apsk32 => 5,
        }
    }
}

impl fmt::Display for Constellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qpsk => "QPSK",
            Self::Psk8 => "8PSK",
            Self::Apsk16 => "16APSK",
            Self::Apsk32 => "32APSK",
        })
    }
}

/// A modulation with a code, as a [`Standard`] defines it. Prints its name: `8PSK 3/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modcod {
    constellation: Constellation,
    code: CodeRate,
    es_n0: Decibels,
    /// Bits left to the encapsulation in this many symbols.
    bits: u32,
    symbols: u32,
}

impl Modcod {
    /// Returns the modulation's constellation.
    pub const fn constellation(&self) -> Constellation {
        self.constellation
    }

    /// Returns the code; of DVB-S, the inner one.
    pub const fn code(&self) -> CodeRate {
        self.code
    }

    /// Returns the Es/N0 that it needs to be quasi error free.
    pub const fn es_n0(&self) -> Decibels {
        self.es_n0
    }

    /// Returns the spectral efficiency that framing leaves to the encapsulation, in bits per
    /// symbol.
    pub fn efficiency(&self) -> f64 {
        f64::from(self.bits) / f64::from(self.symbols)
    }

    /// Returns the rate of a carrier: symbol rate × spectral efficiency, rounded down.
    pub fn rate(&self, symbols: SymbolRate) -> BitRate {
        let bits = u128::from(symbols.baud()) * u128::from(self.bits) / u128::from(self.symbols);
        BitRate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Compares spectral efficiencies, in integers and so exactly.
    fn compare_efficiency(&self, other: &Self) -> Ordering {
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        product(self.bits, other.symbols).cmp(&product(other.bits, self.symbols))
    }
}

impl fmt::Display for Modcod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.constellation, self.code)
    }
}

/// Converts an Eb/N0 that counts `bits` bits in `symbols` symbols:
/// Es/N0 = Eb/N0 + 10 log10(`bits` / `symbols`). Neither may be 0.
pub fn es_n0_of(eb_n0: Decibels, bits: u32, symbols: u32) -> Decibels {
    let more = Decibels::of_ratio(f64::from(bits) / f64::from(symbols));
    debug_assert!(more.is_some(), "{bits} bits in {symbols} symbols");
    eb_n0 + more.unwrap_or_default()
}

/// MODCODs worth using, from the most robust to the most efficient: each needs a higher Es/N0 than
/// the one before and carries more. At least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modcods(Box<[Modcod]>);

impl Modcods {
    /// Selects the MODCODs of `all` that are not dominated by another one, which carries as much
    /// with a lower Es/N0; `None` if `all` is empty.
    pub fn new(all: impl IntoIterator<Item = Modcod>) -> Option<Self> {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|a, b| {
            a.es_n0.cmp(&b.es_n0).then_with(|| b.compare_efficiency(a)) // the better one first
        });
        let mut useful: Vec<Modcod> = Vec::with_capacity(all.len());
        for modcod in all {
            if useful.last().is_none_or(|last| modcod.compare_efficiency(last).is_gt()) {
                useful.push(modcod);
            }
        }
        (!useful.is_empty()).then(|| Self(useful.into()))
    }

    /// Returns the MODCODs, from the most robust to the most efficient.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Modcod> {
        self.0.iter()
    }

    /// Returns the index of the most efficient one for this Es/N0, or else 0, that of the most
    /// robust.
    fn best(&self, es_n0: Decibels) -> usize {
        self.0.partition_point(|modcod| modcod.es_n0 <= es_n0).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn modcod(es_n0: i64, bits: u32) -> Modcod {
        Modcod {
            constellation: Constellation::Qpsk,
            code: CodeRate::new(1, 2).unwrap(),
            es_n0: Decibels::from_thousandths(es_n0),
            bits,
            symbols: 10,
        }
    }

    #[test]
    fn code_rates_read_back() {
        for text in ["1/2", "7/8", "1/1", "200/255"] {
            assert_eq!(text.parse::<CodeRate>().unwrap().to_string(), text);
        }
        for wrong in ["", "1", "0/2", "3/2", "1/256", "half", "-1/2", "1/2/3"] {
            let error = wrong.parse::<CodeRate>().unwrap_err().to_string();
            assert!(error.contains("is not a valid code rate: expected K/N"), "{error}");
        }
    }

    /// One bit per symbol changes nothing; two, as of uncoded QPSK, are 3 dB.
    #[test]
    fn a_symbol_has_the_energy_of_its_bits() {
        let eb_n0 = Decibels::from_thousandths(4_500);
        assert_eq!(es_n0_of(eb_n0, 7, 7), eb_n0);
        assert_eq!(es_n0_of(eb_n0, 2, 1), Decibels::from_thousandths(7_510));
    }

    #[test]
    fn a_rate_is_symbols_by_efficiency() {
        assert_eq!(modcod(0, 25).rate(SymbolRate::from_baud(3)).bits_per_second(), 7);
        assert_eq!(modcod(0, 10).rate(SymbolRate::from_baud(u64::MAX)).bits_per_second(), u64::MAX);
        assert_eq!(modcod(0, 25).efficiency(), 2.5);
    }

    #[test]
    fn dominated_modcods_are_dropped() {
        let all = [modcod(5, 20), modcod(1, 10), modcod(3, 9), modcod(5, 21), modcod(4, 10)];
        assert_eq!(Modcods::new(all), Modcods::new([modcod(1, 10), modcod(5, 21)]));
        assert_eq!(Modcods::new([]), None);
    }

    proptest! {
        #[test]
        fn efficiencies_ascend_with_the_ratio_and_nothing_better_is_dropped(
            all in prop::collection::vec((-5_000i64..20_000, 1u32..60), 1..30),
            es_n0 in -6_000i64..21_000,
        ) {
            let all: Vec<_> = all.into_iter().map(|(es_n0, bits)| modcod(es_n0, bits)).collect();
            let useful = Modcods::new(all.clone()).unwrap();
            for pair in useful.0.windows(2) {
                prop_assert!(pair[0].es_n0 < pair[1].es_n0);
                prop_assert!(pair[0].efficiency() < pair[1].efficiency());
            }
            let es_n0 = Decibels::from_thousandths(es_n0);
            let best = all.iter().filter(|modcod| modcod.es_n0 <= es_n0).map(|best| best.bits).max();
            let least = useful.0[0].bits;
            prop_assert_eq!(useful.0[useful.best(es_n0)].bits, best.unwrap_or(least));
        }
    }
}
