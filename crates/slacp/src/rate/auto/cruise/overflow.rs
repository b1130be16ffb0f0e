//! Tells random loss from the overflow of a queue too short to see, by sending less for a moment
//! now and then: random loss stays, an overflow ends.

use core::time::Duration;

use units::Instant;

/// Minimum share of losses to test.
const SUSPICIOUS: f64 = 0.05;
/// A test is due at once if the share lost is this multiple of what the last test found, or of the
/// share below.
const HURRY: f64 = 2.0;
const ORDINARY: f64 = 0.1;
/// Rate of a test, relative to the arrival rate: below what passes, so that an overflow ends in it.
const SLOWER: f64 = 0.9;
/// A test shows an overflow if the share lost in it is at most this fraction of the share before,
/// and lower by this many standard deviations, in this many tests in a row.
const LESS: f64 = 0.5;
const SURE: f64 = 4.0;
const TIMES: u32 = 3;
/// Length of a test, in windows plus a margin: an acknowledgement must cover a window within the
/// test.
const WINDOWS: f64 = 1.25;
const MARGIN: Duration = Duration::from_millis(50);
/// Rounds until the first test, and after one that found random loss; initial and maximum.
const PAUSE: (u32, u32) = (8, 64);
/// For how many rounds losses above the rate that passes count as overflow; initial and maximum.
const ROUNDS: (u32, u32) = (32, 512);
/// Losses count as overflow above this multiple of the rate that passes.
const ABOVE: f64 = 1.02;

/// The share of a window that is missing, beside the share lost before and its standard deviation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    pub(super) missing: f64,
    pub(super) chance: f64,
    pub(super) deviation: f64,
}

impl Lost {
    fn is_less(self) -> bool {
        let Self { missing, chance, deviation } = self;
        missing <= LESS * chance && missing <= chance - SURE * deviation
    }
}

/// A period of reduced rate.
#[derive(Debug, Clone, Copy)]
struct Test {
    from: Instant,
    until: Instant,
    /// Arrival rate before the test, in bit/s.
    came: f64,
}

#[derive(Debug)]
pub(super) struct OverflowTest {
    /// Rounds until the next test.
    left: u32,
    /// The test whose result is pending.
    test: Option<Test>,
    /// Windows that end before this time contain part of a test.
    marked: Instant,
    /// Random loss found by the last test.
    found: f64,
    /// Rounds from a test that finds random loss to the next.
    pause: u32,
    /// Tests in a row with lower losses.
    less: u32,
    /// The rate above which losses are an overflow, and for how many more rounds.
    passes: Option<(f64, u32)>,
    /// The number of rounds when an overflow is next found.
    rounds: u32,
}

impl OverflowTest {
    pub(super) fn new() -> Self {
        Self {
            left: PAUSE.0,
            test: None,
            marked: Instant::ZERO,
            found: ORDINARY,
            pause: PAUSE.0,
            less: 0,
            passes: None,
            rounds: ROUNDS.0,
        }
    }

    /// Ends a round that used all of the rate and met no queue: the share `chance` was lost, and
    /// `came` bit/s arrived. `window` is the length of the observation window.
    pub(super) fn end_round(&mut self, now: Instant, window: Duration, chance: f64, came: f64) {
        self.left = self.left.saturating_sub(1);
        self.passes = self.passes.and_then(|(rate, left)| Some((rate, left.checked_sub(1)?)));
        let is_due = self.left == 0 || chance > HURRY * self.found;
        if chance < SUSPICIOUS {
            self.less = 0;
        } else if is_due && self.test.is_none() {
            let until = now + window.mul_f64(WINDOWS) + MARGIN;
            self.test = Some(Test { from: now, until, came });
            self.marked = until + window;
        }
    }

    /// Maximum rate now, in bit/s.
    pub(super) fn most(&self, now: Instant) -> f64 {
        let test = self.test.filter(|test| now < test.until);
        test.map_or(f64::INFINITY, |test| SLOWER * test.came)
    }

    /// Returns `true` if a window whose newest packet was sent at `newest` has packets of a test,
    /// and so does not represent losses outside tests.
    pub(super) fn marks(&self, newest: Instant) -> bool {
        newest < self.marked && self.test.is_none_or(|test| test.from <= newest)
    }

    /// Processes the losses of a window whose newest packet was sent at `newest`. If the supposed
    /// random loss is an overflow, returns the rate that passed during it.
    pub(super) fn overflow(
        &mut self,
        window: Duration,
        newest: Instant,
        lost: Lost,
    ) -> Option<f64> {
        // Only the first window that lies within the test.
        let test = self.test.filter(|test| newest >= test.from + window)?;
        self.test = None;
        // No acknowledgement came in time to cover the test.
        if newest > test.until {
            return None;
        }
        if !lost.is_less() {
            self.found = lost.chance.max(ORDINARY);
            (self.less, self.left, self.rounds) = (0, self.pause, ROUNDS.0);
            // Each test costs a tenth of the rate while it lasts.
            self.pause = (self.pause * 2).min(PAUSE.1);
            return None;
        }
        self.less += 1;
        self.left = 1;
        (self.less >= TIMES).then_some(test.came)
    }

    /// Records an overflow above this rate.
    pub(super) fn overflows_above(&mut self, rate: f64) {
        self.passes = Some((rate, self.rounds));
        self.rounds = (self.rounds * 2).min(ROUNDS.1);
        (self.less, self.pause, self.found) = (0, PAUSE.0, ORDINARY);
    }

    /// Returns `true` if the losses of a window sent at this rate, in bit/s, count as overflow.
    pub(super) fn is_above(&self, rate: f64) -> bool {
        self.passes.is_some_and(|(passes, _)| rate > ABOVE * passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);
    const CAME: f64 = 20e6;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Losses of a window of 1000 packets, a fifth of which were lost before.
    fn lost(missing: f64) -> Lost {
        Lost { missing, chance: 0.2, deviation: 0.014 }
    }

    /// The start of the next test, with rounds of 200 ms.
    fn next_test(test: &mut OverflowTest, mut now: u64) -> u64 {
        loop {
            now += 200;
            test.end_round(at(now), WINDOW, 0.2, CAME);
            if test.most(at(now)) < CAME {
                return now;
            }
        }
    }

    #[test]
    fn an_overflow_ends_when_less_is_sent() {
        let mut test = OverflowTest::new();
        let mut now = 0;
        for n in 0..TIMES {
            now = next_test(&mut test, now);
            assert!(test.marks(at(now)) && !test.marks(at(now - 1)));
            assert_eq!(test.overflow(WINDOW, at(now + 50), lost(0.1)), None, "too early");
            let found = test.overflow(WINDOW, at(now + 100), lost(0.0));
            assert_eq!(found, (n == TIMES - 1).then_some(CAME));
            assert!(test.marks(at(now + 200)) && !test.marks(at(now + 300)));
        }
        test.overflows_above(CAME);
        assert!(test.is_above(1.1 * CAME) && !test.is_above(CAME));
        for _ in 0..=ROUNDS.0 {
            test.end_round(at(now), WINDOW, 0.0, CAME);
        }
        assert!(!test.is_above(1.1 * CAME), "the link may have become faster");
    }

    #[test]
    fn chance_is_tested_ever_more_seldom() {
        let mut test = OverflowTest::new();
        let mut now = 0;
        let mut pause = PAUSE.0;
        for missing in [0.2, 0.15, 0.11, 0.25, 0.2] {
            let next = next_test(&mut test, now);
            assert_eq!(next - now, u64::from(pause) * 200);
            assert_eq!(test.overflow(WINDOW, at(next + 100), lost(missing)), None);
            pause = if now == 0 { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
            now = next;
        }
    }

    #[test]
    fn many_losses_are_tested_at_once() {
        let mut test = OverflowTest::new();
        test.end_round(at(0), WINDOW, 0.25, CAME);
        assert!(test.most(at(0)) < CAME);
        let lost = Lost { missing: 0.25, chance: 0.25, deviation: 0.014 };
        assert_eq!(test.overflow(WINDOW, at(100), lost), None);
        test.end_round(at(200), WINDOW, 0.3, CAME);
        assert!(test.most(at(200)).is_infinite(), "it is chance");
    }

    #[test]
    fn few_losses_are_no_matter() {
        let mut test = OverflowTest::new();
        for round in 0..1000 {
            test.end_round(at(round * 200), WINDOW, 0.04, CAME);
            assert!(test.most(at(round * 200)).is_infinite());
        }
    }

    #[test]
    fn a_test_without_an_acknowledgement_says_nothing() {
        let mut test = OverflowTest::new();
        let now = next_test(&mut test, 0);
        assert_eq!(test.overflow(WINDOW, at(now + 1000), lost(0.0)), None);
        assert_eq!((test.less, test.test.is_none()), (0, true));
        assert!(test.most(at(now)).is_infinite());
    }
}
