//! Loss models.
//!
//! Losses are independent, or come in bursts as caused by fades, interference and MODCOD limits. A
//! packet with a bit error is lost completely, because of the checksums of real link layers.
//!
//! Not modelled: FEC of the physical layer (the BER is that after decoding), and packets that
//! arrive corrupted.

mod burst;
mod channel;
mod error_model;
mod gilbert;

use core::num::NonZeroU64;

use units::Probability;

use crate::Trace;

pub use burst::{BurstError, BurstModel};
pub(crate) use channel::LossProcess;
pub use error_model::ErrorModel;
pub use gilbert::GilbertElliott;

/// The loss model of a link.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum LossModel {
    /// No packet is lost.
    None,
    /// Each packet with this probability, whatever its size.
    Per(Probability),
    /// Each bit is wrong with this probability `b`, so a packet of `len` bytes is lost with
    /// probability 1 − (1 − b)^(8·len).
    Ber(Probability),
    /// Every packet of which any part is received during a burst.
    Burst(BurstModel),
    /// Every n-th packet: the deterministic loss of TCP response functions (Mathis et al. 1997; RFC
    /// 9438 §5).
    Periodic(NonZeroU64),
    /// According to the state of a Markov chain that steps with each packet.
    GilbertElliott(GilbertElliott),
    /// Each packet with the probability that the trace has when it arrives. The trace starts with
    /// the link, or when it is set.
    Trace(Trace<Probability>),
}

/// Returns the probability that at least one of `n` independent events of probability `p` happens:
/// 1 − (1 − p)^n.
///
/// Computed by repeated doubling with additions and multiplications only. A small `p` keeps all its
/// digits, which 1 − p would lose, and the result is the same on every platform, which `powf` does
/// not guarantee.
fn any_of(p: f64, n: u64) -> f64 {
    let either = |a: f64, b: f64| a + b * (1.0 - a);
    let mut result = 0.0;
    let mut power = p;
    let mut rest = n;
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
        any_of(b, len as u64 * 8)
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
        assert_eq!(any_of(0.0, u64::MAX), 0.0);
        assert_eq!(ber(1.0, 1), 1.0);
        assert_eq!(ber(1.0, 0), 0.0);
    }
}
