//! Timers of a session: losses, probes, repairs, silence.

use core::time::Duration;

use rand_core::Rng;
use units::{Instant, earliest};

use super::{Session, Wake};
use crate::event_log::LogEvent;
use crate::fade::{ASK, Fade, ProbeRate, SILENCE};
use crate::planner::Outlook;
use crate::received::ACK_DELAY;
use crate::sent::Acked;
use crate::{DownReason, Event, jitter};

impl Session {
    /// When [`Self::handle_timeout`] has something to do. Sending has its own timer,
    /// [`Self::send_time`].
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        if let Some(closing) = &self.closing {
            return Some(Self::closing_timeout(closing));
        }
        let at = |time: Option<Instant>, wake| time.map(|time| (time, wake));
        [
            at(self.sent.loss_time(self.rtt.loss_delay()), Wake::Loss),
            at(self.probe_timeout(), Wake::Probe),
            at(self.repair_timeout(), Wake::Repair),
            at(self.copies.front().map(|(time, _)| *time), Wake::Repair),
            at(self.inbound.poll_timeout(), Wake::Delivery),
            at(self.keepalive_timeout(), Wake::Keepalive),
            at(self.silence_timeout(), Wake::Silence),
            at(self.rate.poll_timeout(), Wake::Rate),
            at(self.rekey_timeout(), Wake::Rekey),
            at(self.streams.drain_timeout(), Wake::Delivery),
            at(self.streams.rest_timeout(), Wake::Delivery),
            at(self.path_timeout(), Wake::Path),
            at(self.doubt_timeout(), Wake::Path),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.closing.is_some() {
            return self.on_closing_timeout(now);
        }
        self.streams.end_drains(now);
        self.streams.return_windows(now);
        if self.sent.loss_time(self.rtt.loss_delay()).is_some_and(|time| time <= now) {
            self.take_lost(now);
        }
        if self.probe_timeout().is_some_and(|time| time <= now) {
            self.probe(now);
        }
        if self.repair_timeout().is_some_and(|time| time <= now) {
            let idle = self.is_idle();
            let (sent, loss, rtt) = (&self.sent, &self.loss, self.rtt.smoothed());
            self.planner.plan(now, &Outlook { sent, loss, rtt, idle });
        }
        while let Some((_, cargo)) = self.copies.pop_front_if(|(time, _)| *time <= now) {
            self.resend(now, cargo);
        }
        self.inbound.handle_timeout(now, &mut self.log);
        if self.keepalive_timeout().is_some_and(|time| time <= now) {
            self.probe_pending = true;
            self.asked = now;
            self.idle_for = idle_for(self.keepalive, &mut self.rng);
        }
        if self.silence_timeout().is_some_and(|time| time <= now) {
            self.on_silence(now);
        }
        if self.path_timeout().is_some_and(|time| time <= now) {
            self.on_path_timeout(now);
        }
        if self.doubt_timeout().is_some_and(|time| time <= now) {
            self.on_doubt(now);
        }
        if self.rekey_timeout().is_some_and(|time| time <= now) {
            self.on_rekey_timeout();
        }
        if self.rate.poll_timeout().is_some_and(|time| time <= now) {
            self.rate.handle_timeout(now);
            self.rate_changed(now);
        }
    }
}

impl Session {
    fn keepalive_timeout(&self) -> Option<Instant> {
        let idle = self.last_sent + self.idle_for;
        let wants = self.asked <= self.last_carried && self.streams.len() > 0;
        let asks = wants && self.is_reachable();
        let due = if asks { idle.min(self.last_carried + ASK) } else { idle };
        (!self.probe_pending).then_some(due)
    }

    pub(super) fn probe_at(&self) -> Instant {
        self.last_eliciting + self.backoff.pause(self.rtt.probe_delay(ACK_DELAY))
    }

    fn probe_timeout(&self) -> Option<Instant> {
        let asks = !self.is_reachable() || !self.sent.is_empty();
        (asks && !self.probe_pending).then_some(self.next_probe)
    }

    /// Asks for an acknowledgement and resends the oldest cargo along with it (RFC 9002 §6.2.4),
    /// unless the link is down.
    fn probe(&mut self, now: Instant) {
        self.probe_pending = true;
        let (rate, most) = (self.probe_rate(), self.keepalive);
        if let Some(fade) = &mut self.fade {
            self.next_probe = fade.asks(now, rate, most, &mut self.rng);
            return;
        }
        self.careful = !self.pmtu.is_proven();
        self.backoff.ask(&mut self.rng);
        self.next_probe = now + self.backoff.pause(self.rtt.probe_delay(ACK_DELAY));
        self.stats.probes += 1;
        self.log.record(now, || LogEvent::Probe);
        for cargo in self.sent.oldest_cargo() {
            self.resend(now, cargo);
        }
    }

    fn repair_timeout(&self) -> Option<Instant> {
        self.planner.due(self.is_idle()).filter(|_| self.is_reachable())
    }

    /// Whether no payload is waiting.
    fn is_idle(&self) -> bool {
        !self.streams.wants_to_send() && !self.outbound.wants_to_send()
    }

    fn silence_timeout(&self) -> Option<Instant> {
        if let Some(fade) = &self.fade {
            let end = fade.since() + self.give_up;
            return Some(fade.trial_until().map_or(end, |trial| trial.min(end)));
        }
        // Hearing the peer only proves that its direction works.
        let asked = self.sent.oldest()?.max(self.last_progress);
        Some(asked + self.rtt.probe_delay(ACK_DELAY) + SILENCE)
    }

    fn on_silence(&mut self, now: Instant) {
        let Some(fade) = &mut self.fade else {
            let fade = Fade::new(now, &self.faded);
            self.next_probe = fade.first_probe(self.probe_rate(), self.keepalive, &mut self.rng);
            self.fade = Some(fade);
            self.events.push_back(Event::Unreachable);
            self.log.record(now, || LogEvent::OutageBegins);
            return;
        };
        if fade.trial_until().is_some_and(|until| until <= now) {
            fade.end_trial();
        }
        if fade.since() + self.give_up <= now {
            self.end(DownReason::GivenUp);
            self.over = true;
        }
    }

    /// Handles the arrival of an authentic packet.
    pub(super) fn heard(&mut self, now: Instant) {
        let silent = now.saturating_since(self.last_heard);
        self.last_heard = now;
        let rate = self.probe_rate();
        let Some(fade) = &mut self.fade else { return };
        let was_trial = fade.trial_until().is_some();
        let answer = fade.heard(now, silent, self.rtt.probe_delay(ACK_DELAY), rate);
        let is_trial = fade.trial_until().is_some();
        self.next_probe = self.next_probe.min(answer);
        if is_trial && !was_trial {
            // The peer's credit may allow no new data, and the oldest cargo is what it lacks first.
            for cargo in self.sent.oldest_cargo() {
                self.resend(now, cargo);
            }
        }
    }

    /// The rate that the probe budget of a fade is a share of.
    fn probe_rate(&self) -> ProbeRate {
        match self.rate.shared() {
            Some(rate) => ProbeRate::Shared(rate),
            None => ProbeRate::Own(self.rate.rate()),
        }
    }

    /// Judges from an acknowledgement whether both directions work.
    pub(super) fn follow_progress(&mut self, now: Instant, acked: &Acked) {
        if acked.packets.is_empty() && acked.late.is_empty() {
            return;
        }
        self.last_progress = now;
        let mut sent = acked.packets.iter().map(|(_, packet)| packet.time);
        if self.fade.take_if(|fade| sent.any(|time| fade.is_over(time))).is_some() {
            self.thawed_at = now;
            // Acknowledge at once, so that the peer also learns that its packets arrive.
            self.received.hurry();
            self.events.push_back(Event::Reachable);
            self.log.record(now, || LogEvent::OutageEnds);
        }
    }
}

/// Draws the idle time before a keepalive, so that sessions that fell idle together do not send
/// theirs together.
pub(super) fn idle_for(keepalive: Duration, rng: &mut impl Rng) -> Duration {
    keepalive + jitter::part_of(keepalive / 8, rng)
}
