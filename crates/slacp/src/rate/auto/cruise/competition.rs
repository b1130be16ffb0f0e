//! Senders on the link that fill its queue until it overflows, and what is not given up to them.
//!
//! A queue that stands although this session gives way belongs to others, as loss-based TCP keeps
//! it. Beside them the session keeps a floor: it grows by the same amount each round
//! and falls by the same factor when the queue overflows (AIMD, Chiu and Jain 1989), so the
//! floors of several sessions become equal and never cause an overflow that lasts.

/// For how many rounds others are expected after they were noticed: more than a saw-tooth of CUBIC
/// on a GEO link takes (RFC 9438 §4.1: K = ∛(0.3 W / 0.4) s, 15 s for W of 5,000 packets).
const ROUNDS: u32 = 24;
/// Maximum growth of the floor per round, relative to the link. Each overflow halves the growth, and
/// each round without one lets it recover by this factor: the more often a crowd overflows, the more
/// carefully each of it grows.
const STEP: f64 = 1.0 / 48.0;
const RECOVERY: f64 = 1.25;
/// Maximum of the floor, relative to the link: a sender that takes its half of the link gives way to
/// the other half.
const MOST: f64 = 0.25;
/// What is left of the floor after an overflow (CUBIC's β, RFC 9438 §4.6).
const LEFT: f64 = 0.7;

#[derive(Debug)]
pub(super) struct Competition {
    /// Rounds until they are forgotten.
    left: u32,
    /// In bit/s.
    floor: f64,
    /// Growth per round, relative to the link.
    step: f64,
    /// For how many rounds nothing is kept.
    barred: u32,
}

impl Default for Competition {
    fn default() -> Self {
        Self { left: 0, floor: 0.0, step: STEP, barred: 0 }
    }
}

impl Competition {
    /// Others fill the queue.
    pub(super) fn notice(&mut self) {
        if self.barred == 0 {
            self.left = ROUNDS;
        }
    }

    /// So much is lost that too many compete: nothing is kept for as long as it takes the others to
    /// give way, if they do.
    pub(super) fn give_up(&mut self) {
        (self.left, self.floor, self.barred) = (0, 0.0, ROUNDS);
    }

    pub(super) fn is_there(&self) -> bool {
        self.left > 0
    }

    /// The rate that is not given up, in bit/s.
    pub(super) fn floor(&self) -> f64 {
        self.floor
    }

    /// Ends a round in which the queue stood, or overflowed, on a link of this rate in bit/s.
    pub(super) fn end_round(&mut self, stood: bool, overflowed: bool, link: f64) {
        self.left = self.left.saturating_sub(1);
        self.barred = self.barred.saturating_sub(1);
        self.step = if overflowed { self.step / 2.0 } else { (self.step * RECOVERY).min(STEP) };
        self.floor = match (self.left, overflowed) {
            (0, _) => 0.0,
            (_, true) => self.floor * LEFT,
            _ if stood => (self.floor + self.step * link).min(MOST * link),
            _ => self.floor,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_become_equal() {
        let [mut small, mut large] =
            [0.0, 20e6].map(|floor| Competition { floor, ..Competition::default() });
        for round in 0..200 {
            for one in [&mut small, &mut large] {
                one.notice();
                one.end_round(true, round % 5 == 4, 50e6);
            }
        }
        assert!((small.floor() / large.floor() - 1.0).abs() < 0.05, "{small:?} {large:?}");
    }

    #[test]
    fn nothing_is_kept_in_an_overload() {
        let mut competition = Competition::default();
        competition.notice();
        competition.end_round(true, false, 50e6);
        competition.give_up();
        for _ in 0..ROUNDS {
            competition.notice();
            assert!(!competition.is_there() && competition.floor() == 0.0);
            competition.end_round(true, false, 50e6);
        }
        competition.notice();
        assert!(competition.is_there());
    }

    #[test]
    fn they_are_forgotten() {
        let mut competition = Competition::default();
        competition.notice();
        (0..ROUNDS - 1).for_each(|_| competition.end_round(true, false, 50e6));
        assert!(competition.is_there() && competition.floor() > 0.0);
        competition.end_round(true, false, 50e6);
        assert!(!competition.is_there() && competition.floor() == 0.0);
    }
}
