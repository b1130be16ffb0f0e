//! Outages of the link: when the peer counts as unreachable, and what the session does until it is
//! back (`docs/slacp.md`, Fades).

use core::time::Duration;

use units::Instant;

use super::Session;
use crate::Event;
use crate::event_log::LogEvent;
use crate::path::fade::{Fade, Faded, LINK_LAYER_SILENCE, ProbeRate, SILENCE};
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::Acked;

/// Whether packets of this side arrive and their acknowledgements return.
///
/// ```text
///             an acknowledgement is                  the peer, silent until
///               1 s overdue                            now, is heard
///  ┌───────────┐         ┌─────────────────────────┐           ┌───────┐
///  │ reachable ├────────►│ unreachable: only probes├──────────►│ trial │
///  └─────▲─────┘         └───┬─────────────────▲───┘           └─┬───┬─┘
///        │ acknowledgement of│                 └─────────────────┘   │
///        └─a newer packet────┴──────────────── no acknowledgement ───┘
/// ```
///
/// In a trial data is sent again although nothing is acknowledged yet. An outage that lasts
/// [`Config::give_up`](crate::Config::give_up) ends the session.
#[derive(Debug)]
pub(super) struct Outage {
    /// Set while one or both directions of the link are silent.
    fade: Option<Fade>,
    /// When the last outage ended.
    ended_at: Instant,
    /// All sessions in an outage share one budget of probes.
    faded: Faded,
    give_up: Duration,
}

impl Outage {
    pub(super) fn new(now: Instant, give_up: Duration) -> Self {
        Self { fade: None, ended_at: now, faded: Faded::default(), give_up }
    }

    /// Changes how long an outage may last; returns what it was.
    pub(super) fn set_give_up(&mut self, give_up: Duration) -> Duration {
        core::mem::replace(&mut self.give_up, give_up)
    }

    /// Whether only probes may be sent.
    pub(super) fn is_frozen(&self) -> bool {
        self.fade.as_ref().is_some_and(|fade| fade.trial_until().is_none())
    }

    /// The outage in progress.
    pub(super) fn current(&mut self) -> Option<&mut Fade> {
        self.fade.as_mut()
    }

    /// Whether a loss of a packet sent at that time says something about packet sizes or
    /// codepoints.
    pub(super) fn is_past(&self, sent: Instant) -> bool {
        sent >= self.ended_at
    }

    /// Ends the outage if one of the acknowledged packets, sent at these times, was sent during it.
    fn end(&mut self, now: Instant, mut acked: impl Iterator<Item = Instant>) -> bool {
        let over = self.fade.take_if(|fade| acked.any(|time| fade.is_over(time))).is_some();
        if over {
            self.ended_at = now;
        }
        over
    }
}

impl Session {
    /// Whether packets of this side arrive and their acknowledgements return.
    pub(crate) fn is_reachable(&self) -> bool {
        self.outage.fade.is_none()
    }

    /// Makes the session share the probe budget of an outage with other sessions.
    pub(crate) fn share_probes(&mut self, faded: &Faded) {
        debug_assert!(self.is_reachable(), "a session is shared when it is established");
        self.outage.faded = faded.clone();
    }

    pub(super) fn silence_timeout(&self) -> Option<Instant> {
        if let Some(fade) = &self.outage.fade {
            let end = fade.since() + self.outage.give_up;
            return Some(fade.trial_until().map_or(end, |trial| trial.min(end)));
        }
        // Hearing the peer only proves that its direction works.
        let asked = self.sender.sent.oldest()?.max(self.activity.progress);
        let silence = if self.link_layer { LINK_LAYER_SILENCE } else { SILENCE };
        Some(asked + self.rtt.probe_delay(ACK_DELAY) + silence)
    }

    pub(super) fn on_silence(&mut self, now: Instant) {
        let Some(fade) = &mut self.outage.fade else {
            return self.begin_outage(now);
        };
        if fade.trial_until().is_some_and(|until| until <= now) {
            fade.end_trial();
        }
        if fade.since() + self.outage.give_up <= now {
            self.life.give_up();
        }
    }

    fn begin_outage(&mut self, now: Instant) {
        let fade = Fade::new(now, &self.outage.faded);
        let most = self.keepalive.interval;
        self.probes.next = fade.first_probe(self.probe_rate(), most, &mut self.rng);
        self.outage.fade = Some(fade);
        self.events.push_back(Event::Unreachable);
        self.log.record(now, || LogEvent::OutageBegins);
    }

    /// Sets the time of the probe after the one that is due now.
    pub(super) fn schedule_outage_probe(&mut self, now: Instant) {
        let (rate, most) = (self.probe_rate(), self.keepalive.interval);
        if let Some(fade) = &mut self.outage.fade {
            self.probes.next = fade.asks(now, rate, most, &mut self.rng);
        }
    }

    /// Handles the arrival of an authentic packet.
    pub(super) fn heard(&mut self, now: Instant) {
        let silent = now.saturating_since(self.activity.heard);
        self.activity.heard = now;
        let rate = self.probe_rate();
        let Some(fade) = &mut self.outage.fade else { return };
        let was_trial = fade.trial_until().is_some();
        let answer = fade.heard(now, silent, self.rtt.probe_delay(ACK_DELAY), rate);
        let is_trial = fade.trial_until().is_some();
        self.probes.hasten(answer);
        if is_trial && !was_trial {
            // The peer's credit may allow no new data, and the oldest cargo is what it lacks first.
            self.resend_oldest(now);
        }
    }

    /// The rate that the probe budget of an outage is a share of.
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
        self.activity.progress = now;
        self.trust_link();
        if self.outage.end(now, acked.packets.iter().map(|(_, packet)| packet.time)) {
            // Acknowledge at once, so that the peer also learns that its packets arrive.
            self.receiver.received.hurry();
            // The path may have changed meanwhile.
            self.marking.restart(self.sender.sent.next_number());
            self.events.push_back(Event::Reachable);
            self.log.record(now, || LogEvent::OutageEnds);
        }
    }
}
