//! Two machines with the same key (`docs/slacp.md`, Lost sessions). Each takes the other's session
//! for its own from before a restart, and would keep replacing it.

use core::time::Duration;

use units::Instant;

/// A session may be replaced at once if no session of its key was replaced within this time: a
/// machine does not restart every minute.
const QUIET: Duration = Duration::from_secs(60);
/// Minimum and maximum time for which a newcomer is held off; it doubles each time.
const HOLD_LEAST: Duration = Duration::from_secs(5);
const HOLD_MOST: Duration = Duration::from_secs(300);
/// Maximum age of a question whose answer still says something about now. Longer than a newcomer's
/// retry interval.
const OUTDATED: Duration = Duration::from_secs(10);

/// What is known about the machines that use one key.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    /// A newcomer is suspected until then.
    suspect_until: Instant,
    /// When the current session was asked whether it is alive.
    asked: Option<Instant>,
    hold: Duration,
    held_until: Instant,
}

/// The session that a newcomer wants to replace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present {
    /// When a packet of it last came.
    pub(crate) heard: Instant,
    /// Maximum time it takes to answer.
    pub(crate) patience: Duration,
}

/// The decision about a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It replaces the current session.
    Admit,
    /// Ask the current session whether it is alive; the newcomer waits.
    Ask,
    /// The current session is alive. `news` if the owner is to be notified.
    Refuse { news: bool },
}

impl Replacement {
    /// Whether a newcomer is held off unless the current session is dead.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        now < self.held_until
    }

    /// Decides about a newcomer that wants to replace the current session.
    pub(crate) fn judge(&mut self, now: Instant, present: Present) -> Verdict {
        if now >= self.suspect_until {
            return Verdict::Admit;
        }
        match self.asked {
            Some(asked) if present.heard <= asked && now >= asked + present.patience => {
                Verdict::Admit
            }
            Some(asked) if present.heard > asked && now < asked + OUTDATED => self.refuse(now),
            Some(asked) if present.heard <= asked => Verdict::Ask,
            _ => {
                self.asked = Some(now);
                Verdict::Ask
            }
        }
    }

    fn refuse(&mut self, now: Instant) -> Verdict {
        self.asked = None;
        let news = !self.holds(now);
        if news {
            self.hold = (self.hold * 2).clamp(HOLD_LEAST, HOLD_MOST);
            self.held_until = now + self.hold;
            self.suspect_until = self.held_until + QUIET;
        }
        Verdict::Refuse { news }
    }

    /// Records that a session was replaced.
    pub(crate) fn replaced(&mut self, now: Instant) {
        *self = Self { suspect_until: now + QUIET, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    fn judge(replacement: &mut Replacement, now: f64, heard: f64) -> Verdict {
        replacement.judge(at(now), Present { heard: at(heard), patience: PATIENCE })
    }

    #[test]
    fn the_first_newcomer_in_a_minute_is_admitted_and_the_next_when_nothing_answers() {
        let mut replacement = Replacement::default();
        assert_eq!(judge(&mut replacement, 100.0, 99.9), Verdict::Admit);
        replacement.replaced(at(100.0));
        assert_eq!(judge(&mut replacement, 110.0, 109.0), Verdict::Ask);
        assert_eq!(judge(&mut replacement, 111.9, 109.0), Verdict::Ask);
        assert_eq!(judge(&mut replacement, 112.0, 109.0), Verdict::Admit);
        replacement.replaced(at(112.0));
        assert_eq!(judge(&mut replacement, 172.0, 171.9), Verdict::Admit);
    }

    #[test]
    fn a_session_that_answers_stays_and_the_pauses_grow() {
        let (mut replacement, mut now, mut news) = (Replacement::default(), 100.0, 0);
        replacement.replaced(at(now));
        while now < 3700.0 {
            now += 1.0;
            let verdict = judge(&mut replacement, now, now - 0.1);
            assert_ne!(verdict, Verdict::Admit, "at {now}");
            news += usize::from(verdict == Verdict::Refuse { news: true });
        }
        // 5, 10, 20, 40, 80, 160 s, then every 300 s.
        assert!((14..=18).contains(&news), "{news}");
        assert!(replacement.holds(at(now)));
        // It dies while the other is held off.
        assert_eq!(judge(&mut replacement, now + 20.0, now), Verdict::Ask);
        assert_eq!(judge(&mut replacement, now + 22.0, now), Verdict::Admit);
    }

    #[test]
    fn an_old_answer_is_asked_for_again() {
        let mut replacement = Replacement::default();
        replacement.replaced(at(100.0));
        assert_eq!(judge(&mut replacement, 101.0, 100.5), Verdict::Ask);
        // It answered, and no newcomer came again. Then it died.
        assert_eq!(judge(&mut replacement, 120.0, 101.5), Verdict::Ask);
        assert_eq!(judge(&mut replacement, 122.0, 101.5), Verdict::Admit);
    }
}
