//! Tracks why connections pass unaccelerated, and for how long.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Instant;

/// Why new connections pass unaccelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BypassReason {
    /// There is no session, or the peer does not answer.
    PeerUnreachable,
    /// The peer is draining, and accepts no new connections.
    PeerDraining,
    /// This gateway is draining, and exits after its last connection.
    Draining,
    /// The process or the system has no descriptor left.
    Descriptors,
    /// `max_connections` is reached.
    Connections,
    /// The connections hold as much as `total_memory` allows.
    Memory,
    /// The peer reports that it has no room for another connection.
    PeerFull,
    /// The session's connections leave too little of its `memory` for another.
    SessionMemory,
    /// SYNs of several clients were redirected and never answered.
    Unanswered,
}

impl BypassReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::PeerUnreachable,
        Self::PeerDraining,
        Self::Draining,
        Self::Descriptors,
        Self::Connections,
        Self::Memory,
        Self::PeerFull,
        Self::SessionMemory,
        Self::Unanswered,
    ];

    /// One-word name of the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PeerUnreachable => "peer-unreachable",
            Self::PeerDraining => "peer-draining",
            Self::Draining => "draining",
            Self::Descriptors => "descriptors",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::PeerFull => "peer-full",
            Self::SessionMemory => "session-memory",
            Self::Unanswered => "unanswered",
        }
    }
}

/// Current bypass and pause, with duration and number of bypasses by reason.
#[derive(Debug)]
pub struct BypassClock {
    why: Option<BypassReason>,
    since: Instant,
    past: BTreeMap<BypassReason, (Duration, u64)>,
    /// End of the current pause, and its reason.
    paused: Option<(Instant, BypassReason)>,
}

impl BypassClock {
    /// Starts in bypass for this reason.
    pub fn new(now: Instant, why: BypassReason) -> Self {
        Self { why: Some(why), since: now, past: [(why, (Duration::ZERO, 1))].into(), paused: None }
    }

    /// Enters a bypass for a limited time, in addition to the one given to [`Self::set`].
    pub fn pause(&mut self, now: Instant, pause: Duration, why: BypassReason) {
        self.paused = Some((now + pause, why));
    }

    /// Ends the current pause if it has this reason.
    pub fn resume(&mut self, why: BypassReason) {
        self.paused = self.paused.filter(|(_, paused)| *paused != why);
    }

    /// End of the current pause; [`Self::set`] is due then.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused.map(|(until, _)| until)
    }

    /// Enters a bypass for this reason, or ends it. Returns the reason why connections pass from now on:
    /// the given one, or else that of a pause.
    pub fn set(&mut self, now: Instant, why: Option<BypassReason>) -> Option<BypassReason> {
        self.paused = self.paused.filter(|(until, _)| *until > now);
        // A reason that holds now says more than a pause that still runs.
        let why = why.or_else(|| self.paused.map(|(_, why)| why));
        self.change(now, why);
        why
    }

    fn change(&mut self, now: Instant, why: Option<BypassReason>) {
        if why == self.why {
            return;
        }
        if let Some(old) = self.why {
            self.past.entry(old).or_default().0 += now.saturating_since(self.since);
        }
        if let Some(new) = why {
            self.past.entry(new).or_default().1 += 1;
        }
        (self.why, self.since) = (why, now);
    }

    /// Durations and numbers of bypasses until now.
    pub fn history(&self, now: Instant) -> BypassHistory {
        let since = now.saturating_since(self.since);
        let mut bypasses = self.past.clone();
        if let Some(why) = self.why {
            bypasses.entry(why).or_default().0 += since;
        }
        BypassHistory { why: self.why, since, bypasses }
    }
}

/// History of bypasses since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BypassHistory {
    /// Reason of the current bypass; `None` if connections are accelerated.
    pub why: Option<BypassReason>,
    /// Time since the reason last changed.
    pub since: Duration,
    /// Total duration and number of bypasses, by reason.
    pub bypasses: BTreeMap<BypassReason, (Duration, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_clock() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut clock = BypassClock::new(at(0), BypassReason::PeerUnreachable);
        clock.set(at(10), None);
        clock.set(at(11), None);
        clock.set(at(20), Some(BypassReason::Memory));
        clock.set(at(21), Some(BypassReason::PeerUnreachable));
        let history = clock.history(at(25));
        assert_eq!(history.why, Some(BypassReason::PeerUnreachable));
        assert_eq!(history.since, Duration::from_secs(4));
        let expected = [
            (BypassReason::PeerUnreachable, (Duration::from_secs(14), 2)),
            (BypassReason::Memory, (Duration::from_secs(1), 1)),
        ];
        assert_eq!(history.bypasses, expected.into());
    }

    #[test]
    fn a_pause_holds_until_its_end_and_any_other_reason_goes_first() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut clock = BypassClock::new(at(0), BypassReason::PeerUnreachable);
        assert_eq!(clock.set(at(1), None), None);
        clock.pause(at(2), Duration::from_secs(5), BypassReason::PeerFull);
        assert_eq!(clock.set(at(2), None), Some(BypassReason::PeerFull));
        assert_eq!(clock.set(at(6), Some(BypassReason::Draining)), Some(BypassReason::Draining));
        assert_eq!(clock.paused_until(), Some(at(7)));
        assert_eq!((clock.set(at(7), None), clock.paused_until()), (None, None));
        clock.pause(at(8), Duration::from_secs(5), BypassReason::Unanswered);
        clock.resume(BypassReason::PeerFull);
        assert_eq!(clock.set(at(8), None), Some(BypassReason::Unanswered));
        clock.resume(BypassReason::Unanswered);
        assert_eq!(clock.set(at(8), None), None);
    }
}
