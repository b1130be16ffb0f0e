//! When a session has something to do: losses, probes, repairs, silence.

use core::time::Duration;

use units::{Instant, earliest};

use super::{Session, Wake};
use crate::Event;
use crate::received::ACK_DELAY;

/// How long after it should have been heard the peer counts as unreachable.
const SILENCE: Duration = Duration::from_secs(1);
/// How often an unreachable peer is probed: small enough to resume at once.
const FADE_PROBE: Duration = Duration::from_millis(200);

impl Session {
    /// When [`Self::handle_timeout`] has something to do. Sending is apart:
    /// [`Self::send_time`].
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let at = |time: Option<Instant>, wake| time.map(|time| (time, wake));
        [
            at(self.sent.loss_time(self.rtt.loss_delay()), Wake::Loss),
            at(self.probe_timeout(), Wake::Probe),
            at(self.repair_timeout(), Wake::Repair),
            at(self.keepalive_timeout(), Wake::Keepalive),
            at(self.silence_timeout(), Wake::Silence),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.sent.loss_time(self.rtt.loss_delay()).is_some_and(|time| time <= now) {
            let lost = self.take_lost(now);
            self.loss.update(0, lost, 0);
        }
        if self.probe_timeout().is_some_and(|time| time <= now) {
            self.probe(now);
        }
        if self.repair_timeout().is_some_and(|time| time <= now) {
            self.planner.plan(now, &self.sent, &self.loss);
        }
        if self.keepalive_timeout().is_some_and(|time| time <= now) {
            self.probe_pending = true;
        }
        if self.silence_timeout().is_some_and(|time| time <= now) {
            self.on_silence(now);
        }
    }
}

impl Session {
    fn keepalive_timeout(&self) -> Option<Instant> {
        (!self.probe_pending).then(|| self.last_sent + self.keepalive)
    }

    pub(super) fn probe_at(&self) -> Instant {
        self.last_eliciting + self.rtt.probe_delay(ACK_DELAY)
    }

    fn probe_timeout(&self) -> Option<Instant> {
        (!self.sent.is_empty() && !self.probe_pending).then_some(self.next_probe)
    }

    /// Asks for an acknowledgement, and sends the oldest cargo again with the
    /// question (RFC 9002 §6.2.4), unless the link is down.
    fn probe(&mut self, now: Instant) {
        self.probe_pending = true;
        if !self.reachable {
            self.next_probe = now + FADE_PROBE;
            return;
        }
        self.next_probe = now + self.rtt.probe_delay(ACK_DELAY);
        self.stats.probes += 1;
        for cargo in self.sent.oldest_cargo() {
            self.resend(cargo);
        }
    }

    /// The tail is protected once nothing has followed it for a moment.
    fn repair_timeout(&self) -> Option<Instant> {
        if self.streams.wants_to_send() || !self.reachable { None } else { self.planner.due() }
    }

    fn silence_timeout(&self) -> Option<Instant> {
        if !self.reachable {
            return Some(self.last_heard + self.give_up);
        }
        let asked = self.sent.oldest()?.max(self.last_heard);
        Some(asked + self.rtt.probe_delay(ACK_DELAY) + SILENCE)
    }

    fn on_silence(&mut self, now: Instant) {
        if self.reachable {
            self.reachable = false;
            self.next_probe = now;
            self.events.push_back(Event::Unreachable);
        } else {
            self.over = true;
        }
    }
}
