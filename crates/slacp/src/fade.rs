//! When the link counts as cut off, and how both sides find out
//! (`docs/slacp.md`, Fades).

use core::time::Duration;

use units::Instant;

/// How long after it should have been acknowledged something counts as not arrived.
/// With a GEO round trip a fade is known within 2 s; random losses hit four questions
/// in a row, and their probes, too rarely to matter.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// How often an unreachable peer is probed: small enough to resume at once.
pub(crate) const FADE_PROBE: Duration = Duration::from_millis(150);
/// After traffic has stopped for so long the receiver asks whether the sender is
/// still there, so that both sides know of a fade.
pub(crate) const ASK: Duration = Duration::from_secs(1);
/// A side that only receives asks this often, with an acknowledgement. With
/// [`SILENCE`] it knows within 1.5 s more than a round trip that its own direction is
/// cut off; one byte each time, and an acknowledgement.
pub(crate) const ASK_ALONG: Duration = Duration::from_millis(250);

/// After so long a silence a peer that had been heard in this fade counts as not heard:
/// several of its probes are missing.
const SILENT_AGAIN: Duration = Duration::from_secs(10);

/// Nothing of what is sent is acknowledged: one direction is silent, or both.
#[derive(Debug)]
pub(crate) struct Fade {
    since: Instant,
    /// Something has come meanwhile.
    heard: bool,
    /// Until when data are sent though nothing is acknowledged yet.
    trial_until: Option<Instant>,
}

impl Fade {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, heard: false, trial_until: None }
    }

    /// When it was noticed.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Something came, after the peer had been `silent`; an acknowledgement takes `delay`.
    ///
    /// If both directions were silent, both are probably back: data are sent for that
    /// long, which saves half a round trip. If none is acknowledged, that was all.
    pub(crate) fn heard(&mut self, now: Instant, silent: Duration, delay: Duration) {
        let both = silent >= if self.heard { SILENT_AGAIN } else { delay + SILENCE };
        self.heard = true;
        if both {
            self.trial_until = Some(now + delay);
        }
    }

    /// Until when data are sent as a trial, if they are.
    pub(crate) fn trial_until(&self) -> Option<Instant> {
        self.trial_until
    }

    /// Nothing of the trial was acknowledged.
    pub(crate) fn end_trial(&mut self) {
        self.trial_until = None;
    }

    /// Whether the acknowledgement of something that was `sent` then ends it: what was
    /// sent before may have arrived before.
    pub(crate) fn is_over(&self, sent: Instant) -> bool {
        sent >= self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(650);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_a_peer_that_was_silent_too_is_trusted_for_a_while() {
        let mut fade = Fade::new(at(0));
        fade.heard(at(500), Duration::from_millis(900), DELAY);
        assert_eq!(fade.trial_until(), None, "the other direction worked all the time");
        fade.heard(at(5000), Duration::from_millis(4500), DELAY);
        assert_eq!(fade.trial_until(), None, "a few of its probes were lost");
        fade.heard(at(15_000), Duration::from_secs(10), DELAY);
        assert_eq!(fade.trial_until(), Some(at(15_650)));
        fade.end_trial();
        fade.heard(at(17_000), Duration::from_secs(2), DELAY);
        assert_eq!(fade.trial_until(), None);
        let mut fade = Fade::new(at(0));
        fade.heard(at(500), Duration::from_millis(1650), DELAY);
        assert_eq!(fade.trial_until(), Some(at(1150)));
    }

    #[test]
    fn what_was_sent_before_the_fade_does_not_end_it() {
        let fade = Fade::new(at(1000));
        assert!(!fade.is_over(at(999)) && fade.is_over(at(1000)));
    }
}
