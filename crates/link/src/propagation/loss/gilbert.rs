//! Bursts of errors with a length in packets.
//!
//! E. N. Gilbert, "Capacity of a burst-noise channel", and E. O. Elliott, "Estimates of error rates
//! for codes on burst-noise channels" (BSTJ 1960 and 1963): a Markov chain with a good and a bad
//! state, each with its own loss probability. The chain steps once per arriving packet, so bursts
//! are in packets and their duration depends on the traffic. For bursts in time use
//! [`crate::BurstModel`].

use core::fmt;
use core::str::FromStr;

use units::Probability;

use crate::text::{SettingKind, values};
use crate::{Dice, SettingError};

const KIND: SettingKind = SettingKind {
    what: "Gilbert-Elliott model",
    expected: "good-to-bad=P bad-to-good=P, optionally loss-good=P (default 0) and loss-bad=P \
               (default 1), like \"good-to-bad=1% bad-to-good=20%\"",
};

const NAMES: [&str; 4] = ["good-to-bad", "bad-to-good", "loss-good", "loss-bad"];

/// The Gilbert-Elliott model, or Gilbert's if `loss_good` is zero. It starts in the good state.
/// Text: `"good-to-bad=1% bad-to-good=20% loss-good=0 loss-bad=1"`; the last two are optional.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// Transition probability per packet from good to bad: Gilbert's P (netem: p).
    pub good_to_bad: Probability,
    /// Transition probability per packet from bad to good: Gilbert's p (netem: r).
    pub bad_to_good: Probability,
    /// Loss probability in the good state: 1 − k (netem: 1-k).
    pub loss_good: Probability,
    /// Loss probability in the bad state: 1 − h (netem: 1-h).
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// Returns the long-run fraction of lost packets, in `0.0..=1.0`. If the state never changes,
    /// that of the good state.
    pub fn mean_loss(self) -> f64 {
        let to_bad = self.good_to_bad.get();
        let to_good = self.bad_to_good.get();
        let bad = if to_bad > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 };
        self.loss_good.get() + bad * (self.loss_bad.get() - self.loss_good.get())
    }
}

impl FromStr for GilbertElliott {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        KIND.read(text, |text| {
            let [to_bad, to_good, good, bad] = values(text, NAMES)?;
            // The defaults are the simple Gilbert model: nothing is lost in the good state, all in
            // the bad one.
            Some(Self {
                good_to_bad: to_bad?.parse().ok()?,
                bad_to_good: to_good?.parse().ok()?,
                loss_good: good.unwrap_or("0").parse().ok()?,
                loss_bad: bad.unwrap_or("1").parse().ok()?,
            })
        })
    }
}

impl fmt::Display for GilbertElliott {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = [self.good_to_bad, self.bad_to_good, self.loss_good, self.loss_bad];
        let words: Vec<_> = NAMES.iter().zip(values).map(|(n, v)| format!("{n}={v}")).collect();
        f.write_str(&words.join(" "))
    }
}

/// The Markov chain of one link.
#[derive(Debug)]
pub(super) struct MarkovChain {
    model: GilbertElliott,
    dice: Dice,
    bad: bool,
}

impl MarkovChain {
    pub(super) fn new(model: GilbertElliott, seed: u64) -> Self {
        Self { model, dice: Dice::new(seed), bad: false }
    }

    /// Returns the loss probability of the next packet, then steps.
    pub(super) fn next_loss(&mut self) -> f64 {
        let GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } = self.model;
        let (loss, change) =
            if self.bad { (loss_bad, bad_to_good) } else { (loss_good, good_to_bad) };
        self.bad ^= self.dice.happens(change);
        loss.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    fn gilbert(good_to_bad: f64, bad_to_good: f64) -> GilbertElliott {
        GilbertElliott {
            good_to_bad: p(good_to_bad),
            bad_to_good: p(bad_to_good),
            loss_good: p(0.0),
            loss_bad: p(1.0),
        }
    }

    #[test]
    fn text_is_read_back_or_refused() {
        let short: GilbertElliott = "good-to-bad=1% bad-to-good=20%".parse().unwrap();
        assert_eq!(short, gilbert(0.01, 0.2));
        assert_eq!(short.to_string().parse(), Ok(short));
        for wrong in ["", "1%", "good-to-bad=1%", "good-to-bad=2 bad-to-good=0", "p=1% r=2%"] {
            let error = wrong.parse::<GilbertElliott>().unwrap_err().to_string();
            assert!(error.contains("expected good-to-bad=P bad-to-good=P"), "{error}");
        }
    }

    #[test]
    fn certain_changes_alternate() {
        let mut chain = MarkovChain::new(gilbert(1.0, 1.0), 1);
        let losses: Vec<_> = (0..4).map(|_| chain.next_loss()).collect();
        assert_eq!(losses, [0.0, 1.0, 0.0, 1.0]);
    }

    /// A burst ends with probability 0.2 after each packet, so its length is geometric with mean 5.
    #[test]
    fn bursts_are_as_long_and_as_frequent_as_asked() {
        let mut chain = MarkovChain::new(gilbert(0.01, 0.2), 3);
        let losses: Vec<_> = (0..1_000_000).map(|_| chain.next_loss() > 0.5).collect();
        let lost = losses.iter().filter(|lost| **lost).count() as f64;
        let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let share = gilbert(0.01, 0.2).mean_loss();
        assert!((share - 0.01 / 0.21).abs() < 1e-12);
        assert!((lost / 1e6 / share - 1.0).abs() < 0.05, "{lost}");
        assert!((lost / bursts / 5.0 - 1.0).abs() < 0.05, "{}", lost / bursts);
    }

    #[test]
    fn a_chain_that_stays_good_loses_as_the_good_state_does() {
        let model = GilbertElliott { loss_good: p(0.1), ..gilbert(0.0, 0.0) };
        assert!((model.mean_loss() - 0.1).abs() < 1e-15);
    }
}
