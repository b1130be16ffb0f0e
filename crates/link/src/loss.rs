//! Which packets a link loses.
//!
//! Losses are independent of each other. A packet with a bit error is lost
//! whole, as the checksums of every real link layer make it.
//!
//! Not modelled: bursts, fades and outages (real errors come in groups), FEC of
//! the physical layer (the BER is the one after decoding), and packets that
//! arrive damaged.

use units::Probability;

/// What is lost on the way.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Nothing.
    None,
    /// Each packet with this probability, whatever its length.
    Per(Probability),
    /// Each bit is wrong with this probability `b`, so a packet of `len` bytes
    /// is lost with 1 − (1 − b)^(8·len).
    Ber(Probability),
}

impl Loss {
    /// The probability that a packet of `len` bytes is lost, in `0.0..=1.0`.
    pub(crate) fn probability(self, len: usize) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Per(per) => per.get(),
            Self::Ber(ber) => any_of(ber.get(), (len as u64).saturating_mul(8)),
        }
    }
}

/// The probability that at least one of `n` independent events of probability
/// `p` happens: 1 − (1 − p)^n.
///
/// By repeated doubling with additions and multiplications only: a small `p`
/// keeps all its digits, which 1 − p would lose, and the result is the same on
/// every platform, which `powf` does not promise.
fn any_of(p: f64, n: u64) -> f64 {
    let either = |a: f64, b: f64| a + b * (1.0 - a);
    let (mut result, mut power, mut rest) = (0.0, p, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result = either(result, power);
        }
        power = either(power, power);
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ber(b: f64, len: usize) -> f64 {
        Loss::Ber(Probability::new(b).unwrap()).probability(len)
    }

    #[test]
    fn bit_errors_follow_the_formula() {
        for (b, len) in [(1e-6_f64, 1500), (1e-5, 40), (1e-3, 1500), (0.5, 2), (1e-12, 9000)] {
            let exact = -(8.0 * len as f64 * (-b).ln_1p()).exp_m1();
            let ours = ber(b, len);
            assert!((ours / exact - 1.0).abs() < 1e-12, "{b} {len}: {ours} {exact}");
        }
    }

    #[test]
    fn the_ends_are_exact() {
        assert_eq!(ber(0.0, usize::MAX), 0.0);
        assert_eq!(ber(1.0, 1), 1.0);
        assert_eq!(ber(1.0, 0), 0.0);
        assert_eq!(Loss::Per(Probability::ONE).probability(0), 1.0);
        assert_eq!(Loss::None.probability(1500), 0.0);
    }
}
