//! Binary exponential back-off, in blocks.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::text::{SettingKind, values};
use crate::{Dice, SettingError};

const KIND: SettingKind = SettingKind {
    what: "back-off",
    expected: "\"[first=2] [greatest=64] [attempts=10]\": windows in blocks, the first not above \
               the greatest, and at least 1 attempt",
};

/// Limits of a terminal's [`Backoff`]. Text: `"first=2 greatest=64 attempts=10"`, each with this
/// default; a first window above 64 is the greatest, too, if the text gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffLimits {
    /// Window after the first collision, in blocks. The pause is uniform in `0..window`, so that 1
    /// tries again in the next block.
    pub first: u32,
    /// Greatest window, in blocks. Large ones keep an overloaded channel stable; small ones bound
    /// the delay.
    pub greatest: u32,
    /// Attempts, with the first, before a burst is given up. Each costs the time until the answer
    /// would have come, and the pause.
    pub attempts: u32,
}

/// The reason why limits of a back-off are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BackoffError {
    /// A window without blocks, or limits in the wrong order.
    #[error("a window from {first} to {greatest} blocks: expected 1 <= first <= greatest")]
    Window {
        /// The first window, in blocks.
        first: u32,
        /// The greatest window, in blocks.
        greatest: u32,
    },
    /// There are no attempts, so nothing would ever be sent.
    #[error("0 attempts: expected at least 1")]
    Attempts,
}

impl Default for BackoffLimits {
    /// Windows from 2 to 64 blocks, 10 attempts: with frames of 53 ms and an answer after 0.6 s, at
    /// most 22 s.
    fn default() -> Self {
        Self { first: 2, greatest: 64, attempts: 10 }
    }
}

impl BackoffLimits {
    fn read(text: &str) -> Option<Self> {
        let usual = Self::default();
        let [first, greatest, attempts] = values(text, ["first", "greatest", "attempts"])?;
        let number = |text: Option<&str>, usual| text.map_or(Some(usual), |text| text.parse().ok());
        let first = number(first, usual.first)?;
        // A larger first window raises the default of the greatest one.
        let greatest = number(greatest, usual.greatest.max(first))?;
        let limits = Self { first, greatest, attempts: number(attempts, usual.attempts)? };
        Backoff::new(limits).ok().map(|_| limits)
    }
}

impl FromStr for BackoffLimits {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        KIND.read(text, Self::read)
    }
}

impl fmt::Display for BackoffLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, greatest, attempts } = self;
        write!(f, "first={first} greatest={greatest} attempts={attempts}")
    }
}

/// The pause of a terminal after a collision: uniform in a window that doubles with each further
/// one, up to a limit (R. M. Metcalfe, D. R. Boggs, "Ethernet", CACM 19(7), 1976).
///
/// After the last attempt it returns [`RetryDecision::GiveUp`], and its owner decides what becomes of the
/// burst.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    limits: BackoffLimits,
    /// Collisions since the last success.
    collisions: u32,
    window: u32,
}

/// The action after a collision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RetryDecision {
    /// Let this many blocks pass, then try again.
    After(u32),
    /// Give the burst up: there is no further attempt.
    GiveUp {
        /// The attempts made, all without success.
        attempts: u32,
    },
}

impl Backoff {
    /// A back-off within `limits`.
    ///
    /// # Errors
    /// If there are no attempts, or a window is 0, or the first exceeds the greatest.
    pub const fn new(limits: BackoffLimits) -> Result<Self, BackoffError> {
        let BackoffLimits { first, greatest, attempts } = limits;
        if first == 0 || first > greatest {
            return Err(BackoffError::Window { first, greatest });
        }
        if attempts == 0 {
            return Err(BackoffError::Attempts);
        }
        Ok(Self { limits, collisions: 0, window: first })
    }

    /// Records that the burst was decoded: the next one starts with the first window.
    pub fn succeeded(&mut self) {
        self.collisions = 0;
        self.window = self.limits.first;
    }

    /// Records that the burst was not decoded. Draws one number if there is another attempt;
    /// otherwise the next burst starts with the first window.
    pub fn collided(&mut self, dice: &mut Dice) -> RetryDecision {
        self.collisions += 1;
        if self.collisions >= self.limits.attempts {
            let attempts = self.collisions;
            self.succeeded();
            return RetryDecision::GiveUp { attempts };
        }
        let pause = dice.below(u64::from(self.window)) as u32;
        self.window = self.window.saturating_mul(2).min(self.limits.greatest);
        RetryDecision::After(pause)
    }

    /// Returns the limits that it was created with.
    pub const fn limits(&self) -> BackoffLimits {
        self.limits
    }

    /// Returns the number of collisions of the current burst.
    pub const fn collisions(&self) -> u32 {
        self.collisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(first: u32, greatest: u32, attempts: u32) -> Backoff {
        Backoff::new(BackoffLimits { first, greatest, attempts }).unwrap()
    }

    /// The greatest of many pauses after each collision of a burst.
    fn greatest_pauses(backoff: &Backoff, dice: &mut Dice) -> Vec<u32> {
        let mut greatest = vec![0; backoff.limits.attempts as usize - 1];
        for _ in 0..1000 {
            let mut backoff = *backoff;
            for greatest in &mut greatest {
                let RetryDecision::After(pause) = backoff.collided(dice) else {
                    panic!("gave up early")
                };
                *greatest = pause.max(*greatest);
            }
        }
        greatest
    }

    #[test]
    fn the_window_doubles_up_to_its_limit() {
        let pauses = greatest_pauses(&backoff(2, 12, 6), &mut Dice::new(1));
        assert_eq!(pauses, [1, 3, 7, 11, 11]);
        let huge = backoff(u32::MAX, u32::MAX, 3);
        assert!(greatest_pauses(&huge, &mut Dice::new(1)).iter().all(|pause| *pause > 1 << 31));
    }

    #[test]
    fn it_gives_up_after_the_last_attempt_and_starts_afresh() {
        let mut backoff = backoff(1, 1, 3);
        let dice = &mut Dice::new(1);
        for _ in 0..2 {
            assert_eq!(backoff.collided(dice), RetryDecision::After(0));
            assert_eq!(backoff.collided(dice), RetryDecision::After(0));
            assert_eq!(backoff.collided(dice), RetryDecision::GiveUp { attempts: 3 });
        }
    }

    #[test]
    fn a_success_makes_the_window_small_again() {
        let dice = &mut Dice::new(1);
        let fresh = backoff(2, 64, 7);
        let mut used = fresh;
        for _ in 0..5 {
            let _ = used.collided(dice);
        }
        used.succeeded();
        assert_eq!(used.collisions(), 0);
        assert_eq!(greatest_pauses(&used, dice)[0], 1);
    }

    #[test]
    fn text_is_read_back_or_refused() {
        let text = "first=1 greatest=4 attempts=3";
        let limits: BackoffLimits = text.parse().unwrap();
        assert_eq!(limits, BackoffLimits { first: 1, greatest: 4, attempts: 3 });
        assert_eq!(limits.to_string(), text);
        assert_eq!("".parse(), Ok(BackoffLimits::default()));
        let wide = BackoffLimits { first: 100, greatest: 100, attempts: 10 };
        assert_eq!("first=100".parse(), Ok(wide));
        for wrong in ["first=0", "first=3 greatest=2", "attempts=0", "first=-1", "2", "last=3"] {
            let error = wrong.parse::<BackoffLimits>().unwrap_err().to_string();
            assert!(error.contains("is not a valid back-off: expected"), "{error}");
        }
    }

    #[test]
    fn impossible_limits_are_refused() {
        let error = |first, greatest, attempts| {
            Backoff::new(BackoffLimits { first, greatest, attempts }).unwrap_err().to_string()
        };
        assert_eq!(error(0, 4, 1), "a window from 0 to 4 blocks: expected 1 <= first <= greatest");
        assert_eq!(error(5, 4, 1), "a window from 5 to 4 blocks: expected 1 <= first <= greatest");
        assert_eq!(error(1, 4, 0), "0 attempts: expected at least 1");
    }
}
