//! The random access schemes, with their theoretical throughput.

use core::fmt;
use core::str::FromStr;

use super::burst::MAX_REPLICAS;
use crate::SettingError;
use crate::text::{SettingKind, values};

const KIND: SettingKind = SettingKind {
    what: "random access scheme",
    expected: "slotted-aloha, \"dsa REPLICAS\" or \"crdsa REPLICAS [iterations=16]\", with 2 to 8 \
               replicas and at least 1 iteration",
};

/// Iterations of CRDSA if the text gives none. More gain little: most blocks are resolved or stuck
/// after ten.
const ITERATIONS: u16 = 16;

/// The scheme by which terminals share the slots of a contention block. Text: `"slotted-aloha"`,
/// `"dsa 2"`, `"crdsa 3 iterations=16"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessScheme {
    /// Each burst in one slot; two in a slot destroy each other (L. G. Roberts, "ALOHA packet
    /// system with and without slots and capture", 1972/75).
    SlottedAloha,
    /// Diversity slotted ALOHA: each burst in several slots of the block, of which one must be free
    /// of others (G. L. Choudhury, S. S. Rappaport, "Diversity ALOHA", IEEE Trans. Commun. 31(3),
    /// 1983).
    Dsa {
        /// Slots per burst, 2 to [`MAX_REPLICAS`].
        replicas: u8,
    },
    /// Contention resolution diversity slotted ALOHA: like DSA, and the receiver removes a decoded
    /// burst from all its slots, which may free others (E. Casini, R. De Gaudenzi, O. del Rio
    /// Herrero, IEEE Trans. Wireless Commun. 6(4), 2007).
    Crdsa {
        /// Slots per burst, 2 to [`MAX_REPLICAS`].
        replicas: u8,
        /// Limit of the receiver's passes over the block, at least 1. The first decodes what
        /// stands alone in a slot, so one pass is DSA. More passes cost the hub computing time and
        /// delay.
        iterations: u16,
    },
}

impl AccessScheme {
    /// Returns the number of slots per burst.
    pub const fn replicas(self) -> u8 {
        match self {
            Self::SlottedAloha => 1,
            Self::Dsa { replicas } | Self::Crdsa { replicas, .. } => replicas,
        }
    }

    /// Returns the limit of the receiver's passes over a block.
    pub const fn passes(self) -> u16 {
        match self {
            Self::SlottedAloha | Self::Dsa { .. } => 1,
            Self::Crdsa { iterations, .. } => iterations,
        }
    }

    /// Returns the throughput at an offered `load`, both in bursts per slot (replicas of a burst
    /// count once), for blocks of very many slots.
    ///
    /// A replica is unreadable with probability *p* if another burst in its slot has not been
    /// removed, that is, if none of that burst's d − 1 other replicas has been read. Per pass
    /// p ← 1 − exp(−d·G·p^(d−1)) from p = 1, and S = G·(1 − p^d) (density evolution: G. Liva,
    /// "Graph-based analysis and optimization of contention resolution diversity slotted ALOHA", IEEE
    /// Trans. Commun. 59(2), 2011, for equal numbers of replicas). After one pass these are
    /// S = G·exp(−G) of slotted ALOHA and S = G·(1 − (1 − exp(−d·G))^d) of DSA.
    pub fn throughput(self, load: f64) -> f64 {
        let replicas = self.replicas();
        let power = |p: f64, n: u8| (0..n).fold(1.0, |product, _| product * p);
        let mut unreadable = 1.0;
        for _ in 0..self.passes() {
            let present = power(unreadable, replicas.saturating_sub(1));
            let before = unreadable;
            unreadable = 1.0 - exp_minus(load * f64::from(replicas) * present);
            // Converged: the remaining passes change nothing that could be seen.
            if before - unreadable < 1e-12 {
                break;
            }
        }
        load * (1.0 - power(unreadable, replicas))
    }

    /// Returns the load of the highest [`Self::throughput`], in bursts per slot, to 0.01. Above it
    /// the throughput falls as the load rises: slowly with slotted ALOHA (from 1.00), within a few
    /// hundredths with CRDSA and 3 replicas (from about 0.75).
    pub fn peak_load(self) -> f64 {
        // No scheme has its peak above that of slotted ALOHA, at 1.
        let loads = (1..=150).map(|hundredths| f64::from(hundredths) / 100.0);
        let best = |a: (f64, f64), load| {
            let throughput = self.throughput(load);
            if throughput > a.1 { (load, throughput) } else { a }
        };
        loads.fold((0.0, 0.0), best).0
    }

    fn read(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim_start();
        let (count, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let replicas = || count.parse().ok().filter(|n| (2..=MAX_REPLICAS as u8).contains(n));
        match (name, rest) {
            ("slotted-aloha", "") if count.is_empty() => Some(Self::SlottedAloha),
            ("dsa", "") => Some(Self::Dsa { replicas: replicas()? }),
            ("crdsa", rest) => {
                let [iterations] = values(rest, ["iterations"])?;
                let iterations = iterations.map_or(Some(ITERATIONS), |n| n.parse().ok())?;
                (iterations > 0).then_some(Self::Crdsa { replicas: replicas()?, iterations })
            }
            _ => None,
        }
    }
}

impl FromStr for AccessScheme {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        KIND.read(text, Self::read)
    }
}

impl fmt::Display for AccessScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlottedAloha => f.write_str("slotted-aloha"),
            Self::Dsa { replicas } => write!(f, "dsa {replicas}"),
            Self::Crdsa { replicas, iterations } => {
                write!(f, "crdsa {replicas} iterations={iterations}")
            }
        }
    }
}

/// Returns exp(−x) for x ≥ 0, with additions and multiplications only: the same on every platform,
/// which `exp` does not guarantee.
pub(super) fn exp_minus(x: f64) -> f64 {
    /// Terms of the series: the next is below 2⁻⁵³ for arguments up to ½.
    const TERMS: u32 = 14;
    let mut small = x.clamp(0.0, 1e4);
    let mut halvings = 0;
    while small > 0.5 {
        small *= 0.5;
        halvings += 1;
    }
    let series = (1..=TERMS).rev().fold(1.0, |sum, n| 1.0 - small / f64::from(n) * sum);
    // exp(−x) = exp(−x/2ⁿ) squared n times.
    (0..halvings).fold(series, |power, _| power * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back_or_refused() {
        for text in ["slotted-aloha", "dsa 2", "crdsa 2 iterations=1", "crdsa 8 iterations=15"] {
            assert_eq!(text.parse::<AccessScheme>().unwrap().to_string(), text);
        }
        let usual = AccessScheme::Crdsa { replicas: 3, iterations: 16 };
        assert_eq!(" crdsa  3 ".parse(), Ok(usual));
        for wrong in [
            "",
            "aloha",
            "slotted-aloha 2",
            "dsa",
            "dsa 1",
            "dsa 9",
            "dsa 2 iterations=3",
            "crdsa",
            "crdsa iterations=3",
            "crdsa 2 iterations=0",
            "crdsa 2 3",
        ] {
            let error = wrong.parse::<AccessScheme>().unwrap_err().to_string();
            assert!(error.contains("is not a valid random access scheme: expected"), "{error}");
        }
    }

    #[test]
    fn the_exponential_is_exact_to_twelve_digits() {
        for x in [0.0, 1e-9, 0.3, 0.5, 0.51, 1.0, 3.7, 100.0, 600.0_f64] {
            let ratio = exp_minus(x) / (-x).exp();
            assert!((ratio - 1.0).abs() < 1e-12, "{x}: {ratio}");
        }
    }

    #[test]
    fn one_pass_is_the_textbook_formula() {
        for load in [0.1, 0.5, 1.0, 2.0_f64] {
            let aloha = load * (-load).exp();
            assert!((AccessScheme::SlottedAloha.throughput(load) - aloha).abs() < 1e-12);
            let dsa = load * (1.0 - (1.0 - (-2.0 * load).exp()).powi(2));
            for scheme in [
                AccessScheme::Dsa { replicas: 2 },
                AccessScheme::Crdsa { replicas: 2, iterations: 1 },
            ] {
                assert!((scheme.throughput(load) - dsa).abs() < 1e-12, "{scheme} {load}");
            }
        }
    }

    /// With unlimited passes every burst is decoded up to G* = 0.5, 0.818, 0.772 and 0.701 for 2 to
    /// 5 replicas (Liva 2011; for 3 and more these are the thresholds of low-density parity-check
    /// codes).
    #[test]
    fn the_thresholds_of_crdsa_are_those_of_the_literature() {
        for (replicas, threshold) in [(2, 0.5), (3, 0.818), (4, 0.772), (5, 0.701)] {
            let scheme = AccessScheme::Crdsa { replicas, iterations: u16::MAX };
            let lost = |load: f64| 1.0 - scheme.throughput(load) / load;
            assert!(lost(threshold - 0.003) < 1e-6, "{replicas}: {}", lost(threshold - 0.003));
            assert!(lost(threshold + 0.003) > 1e-5, "{replicas}: {}", lost(threshold + 0.003));
        }
    }

    /// With x = exp(−2·G), DSA's derivative 1 − (1 − x)² − 4·G·x·(1 − x) is 0 at G = 0.607. For CRDSA
    /// with 2 replicas G = −ln(1 − p)/2p and S = G·(1 − p²), greatest at p = 0.307, G = 0.597; with 3
    /// the peak is the threshold, 0.818.
    #[test]
    fn peaks_are_where_calculus_finds_them() {
        let peak = |text: &str| text.parse::<AccessScheme>().unwrap().peak_load();
        assert_eq!(peak("slotted-aloha"), 1.0);
        assert_eq!(peak("dsa 2"), 0.61);
        assert_eq!(peak("crdsa 2 iterations=65535"), 0.60);
        assert_eq!(peak("crdsa 3 iterations=65535"), 0.81);
        assert!(peak("crdsa 3 iterations=3") < peak("crdsa 3"));
    }
}
