//! Two machines with the same key (`docs/slacp.md`, Two machines with one key). A newcomer may be
//! the same machine after a restart, or another one. The session that it would replace is asked:
//! only a machine that is still there can acknowledge a packet that left after the newcomer came.

use core::time::Duration;

use units::Instant;

use crate::session::IncumbentSession;

/// Minimum and maximum time for which a newcomer is held off; it doubles each time.
const HOLD_LEAST: Duration = Duration::from_secs(5);
const HOLD_MOST: Duration = Duration::from_secs(300);
/// The next hold is as long as the first if no newcomer came for this long after the last one.
const QUIET: Duration = Duration::from_secs(60);
/// Number of times that a session is asked. With three questions and independent losses of 1 %, one
/// answer is lost in 100,000.
const QUESTIONS: u8 = 3;
/// The least time for an answer if the newcomer comes from another network: hand-overs and short fades
/// end within it. A machine that moves while it is off takes longer to come back.
const MIN_WAIT_ELSEWHERE: Duration = Duration::from_secs(5);

/// The time between two questions.
pub(crate) fn question_interval(patience: Duration) -> Duration {
    patience / 8
}

/// The questions that are left after the first.
pub(crate) const FURTHER_QUESTIONS: u8 = QUESTIONS - 1;

/// The newcomers that were refused in favour of one key's session.
#[derive(Debug, Default)]
pub(crate) struct ReplacementPolicy {
    hold: Duration,
    held_until: Instant,
    /// Time at which the session was last asked because of an initiation that is held off.
    asked: Option<Instant>,
}

impl IncumbentSession {
    /// Returns `true` if it has shown life after it was asked at `since`. Packets that a machine
    /// sent before it stopped may arrive later than the question left, but not after the time for
    /// an answer.
    fn is_alive(&self, since: Instant) -> bool {
        self.acknowledged >= since || self.heard > since + self.patience
    }

    /// Time at which it counts as dead if it shows no life after `since`.
    fn deadline(&self, since: Instant) -> Instant {
        let last_question = question_interval(self.patience) * FURTHER_QUESTIONS.into();
        let answer = since + last_question + self.patience;
        if self.is_near { answer } else { answer.max(since + MIN_WAIT_ELSEWHERE) }
    }
}

/// The decision about a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplacementVerdict {
    /// It replaces the current session.
    Admit,
    /// The current session has until then to answer; the newcomer waits.
    Wait(Instant),
    /// The current session is alive. `news` if the owner is to be notified.
    Refuse { news: bool },
}

impl ReplacementPolicy {
    /// Decides about a newcomer, for which the current session was asked at `since`.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        since: Instant,
        present: &IncumbentSession,
    ) -> ReplacementVerdict {
        if present.is_alive(since) {
            return self.refuse(now);
        }
        let deadline = present.deadline(since);
        if now >= deadline { ReplacementVerdict::Admit } else { ReplacementVerdict::Wait(deadline) }
    }

    /// Decides about an initiation, before it is answered. While newcomers are held off, it is
    /// answered only if the current session does not answer either. `Wait`: ask the session.
    pub(crate) fn screen(
        &mut self,
        now: Instant,
        present: &IncumbentSession,
    ) -> ReplacementVerdict {
        if now >= self.held_until {
            return ReplacementVerdict::Admit;
        }
        // An answer to an earlier question says nothing about now.
        let asked = *self.asked.get_or_insert(now);
        let since = if present.is_alive(asked) { now } else { asked };
        self.asked = Some(since);
        let deadline = present.deadline(since);
        if now >= deadline { ReplacementVerdict::Admit } else { ReplacementVerdict::Wait(deadline) }
    }

    fn refuse(&mut self, now: Instant) -> ReplacementVerdict {
        let news = now >= self.held_until;
        if news {
            let is_quiet = now >= self.held_until + QUIET;
            let next = if is_quiet { HOLD_LEAST } else { self.hold * 2 };
            self.hold = next.clamp(HOLD_LEAST, HOLD_MOST);
            self.held_until = now + self.hold;
        }
        ReplacementVerdict::Refuse { news }
    }

    /// Records that a session was replaced.
    pub(crate) fn replaced(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    fn present(acknowledged: f64, heard: f64, is_near: bool) -> IncumbentSession {
        let (acknowledged, heard) = (at(acknowledged), at(heard));
        IncumbentSession { heard, acknowledged, patience: PATIENCE, is_near }
    }

    fn judge(now: f64, since: f64, present: IncumbentSession) -> ReplacementVerdict {
        ReplacementPolicy::default().judge(at(now), at(since), &present)
    }

    #[test]
    fn a_session_that_has_acknowledged_a_packet_sent_since_is_never_replaced() {
        for near in [true, false] {
            let alive = present(100.0, 100.6, near);
            assert_eq!(judge(100.7, 100.0, alive), ReplacementVerdict::Refuse { news: true });
            assert_eq!(judge(200.0, 100.0, alive), ReplacementVerdict::Refuse { news: true });
        }
    }

    #[test]
    fn what_was_on_its_way_when_a_machine_stopped_is_no_sign_of_life() {
        let stopped = present(99.9, 101.9, true);
        assert_eq!(judge(102.5, 100.0, stopped), ReplacementVerdict::Admit);
        let speaks = present(99.9, 102.1, true);
        assert_eq!(judge(102.5, 100.0, speaks), ReplacementVerdict::Refuse { news: true });
    }

    #[test]
    fn a_silent_session_has_time_to_answer_three_questions() {
        let silent = present(99.0, 99.5, true);
        assert_eq!(judge(100.0, 100.0, silent), ReplacementVerdict::Wait(at(102.5)));
        assert_eq!(judge(102.4, 100.0, silent), ReplacementVerdict::Wait(at(102.5)));
        assert_eq!(judge(102.5, 100.0, silent), ReplacementVerdict::Admit);
    }

    #[test]
    fn a_newcomer_from_another_network_waits_for_five_seconds() {
        assert_eq!(
            judge(102.5, 100.0, present(99.0, 99.5, false)),
            ReplacementVerdict::Wait(at(105.0))
        );
        assert_eq!(judge(105.0, 100.0, present(60.0, 60.5, false)), ReplacementVerdict::Admit);
        let quick =
            IncumbentSession { patience: Duration::from_millis(80), ..present(60.0, 60.5, false) };
        assert_eq!(judge(104.9, 100.0, quick), ReplacementVerdict::Wait(at(105.0)));
    }

    #[test]
    fn the_pauses_grow_while_newcomers_come_and_start_over_after_a_quiet_time() {
        let (mut replacement, mut now, mut news) = (ReplacementPolicy::default(), 100.0, 0);
        let refused = |replacement: &mut ReplacementPolicy, now: f64| {
            let alive = present(now - 0.5, now - 0.1, true);
            let verdict = replacement.judge(at(now), at(now - 1.0), &alive);
            assert!(matches!(verdict, ReplacementVerdict::Refuse { .. }), "at {now}: {verdict:?}");
            verdict == ReplacementVerdict::Refuse { news: true }
        };
        while now < 3700.0 {
            now += 1.0;
            news += usize::from(refused(&mut replacement, now));
        }
        // 5, 10, 20, 40, 80, 160 s, then every 300 s.
        assert!((14..=18).contains(&news), "{news}");
        let held = |replacement: &mut ReplacementPolicy, now: f64| {
            replacement.screen(at(now), &present(now - 0.5, now, true)) != ReplacementVerdict::Admit
        };
        assert!(held(&mut replacement, now));
        now += 361.0;
        assert!(refused(&mut replacement, now));
        assert!(held(&mut replacement, now + 4.9) && !held(&mut replacement, now + 5.0));
    }

    #[test]
    fn a_session_that_dies_while_newcomers_are_held_off_is_replaced() {
        let mut replacement = ReplacementPolicy::default();
        assert_eq!(
            replacement.judge(at(100.0), at(99.0), &present(99.5, 99.9, true)),
            ReplacementVerdict::Refuse { news: true }
        );
        let mut screen =
            |now: f64, alive: f64| replacement.screen(at(now), &present(alive, alive, true));
        assert_eq!(screen(101.0, 100.9), ReplacementVerdict::Wait(at(103.5)));
        // It has answered the first question, and died.
        assert_eq!(screen(102.0, 101.5), ReplacementVerdict::Wait(at(104.5)));
        assert_eq!(screen(103.0, 101.5), ReplacementVerdict::Wait(at(104.5)));
        assert_eq!(screen(104.5, 101.5), ReplacementVerdict::Admit);
    }
}
