//! Outages of the link: detection, and the session's behaviour until the peer is back
//! (`docs/slacp.md`, Fades).

use core::time::Duration;

use units::Instant;

use super::{SessionPath, SharedState};
use crate::Event;
use crate::event::log::LogEvent;
use crate::recovery::path::fade::{
    FadeState, FadedSessions, LINK_LAYER_SILENCE, ProbeRate, SILENCE,
};
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::AckedPackets;

/// The reachability of the peer, judged by acknowledgements of this side's packets.
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
pub(in crate::session) struct OutageState {
    /// Set while one or both directions of the link are silent.
    fade: Option<FadeState>,
    /// End of the last outage.
    ended_at: Instant,
    /// Counts the endpoint's sessions in an outage, which share one budget of probes.
    faded: FadedSessions,
    give_up: Duration,
}

impl OutageState {
    pub(super) fn new(now: Instant, give_up: Duration) -> Self {
        Self { fade: None, ended_at: now, faded: FadedSessions::default(), give_up }
    }

    /// Sets the maximum length of an outage; returns the previous one.
    pub(super) fn set_give_up(&mut self, give_up: Duration) -> Duration {
        core::mem::replace(&mut self.give_up, give_up)
    }

    /// Returns whether only probes may be sent.
    pub(in crate::session) fn is_frozen(&self) -> bool {
        self.fade.as_ref().is_some_and(|fade| fade.trial_until().is_none())
    }

    /// The outage in progress, if there is one.
    pub(super) fn current(&mut self) -> Option<&mut FadeState> {
        self.fade.as_mut()
    }

    /// Returns whether the last outage was over at that time. Losses of earlier packets say nothing
    /// about packet sizes or codepoints.
    pub(super) fn is_past(&self, sent: Instant) -> bool {
        sent >= self.ended_at
    }

    /// Ends the outage if one of the acknowledged packets, sent at these times, was sent during it.
    /// Returns whether it ended.
    fn end(&mut self, now: Instant, mut acked: impl Iterator<Item = Instant>) -> bool {
        let over = self.fade.take_if(|fade| acked.any(|time| fade.is_over(time))).is_some();
        if over {
            self.ended_at = now;
        }
        over
    }
}

impl SessionPath {
    /// Returns whether packets of this side arrive and their acknowledgements return.
    pub(in crate::session) fn is_reachable(&self) -> bool {
        self.outage.fade.is_none()
    }

    /// Adds the path to the endpoint's shared probe budget.
    pub(crate) fn share_probes(&mut self, faded: &FadedSessions) {
        debug_assert!(self.is_reachable(), "a path is shared when it is established");
        self.outage.faded = faded.clone();
    }

    pub(super) fn silence_timeout(&self, shared: &SharedState) -> Option<Instant> {
        if let Some(fade) = &self.outage.fade {
            let end = fade.since() + self.outage.give_up;
            return Some(fade.trial_until().map_or(end, |trial| trial.min(end)));
        }
        // Packets received do not count: they prove only that the other direction works.
        let asked = self.sender.sent.oldest()?.max(self.activity.progress);
        let silence = if shared.link_layer { LINK_LAYER_SILENCE } else { SILENCE };
        Some(asked + self.rtt.probe_delay(ACK_DELAY) + silence)
    }

    /// Begins an outage, or ends a trial without acknowledgement, or gives the peer up.
    pub(super) fn on_silence(&mut self, shared: &mut SharedState, now: Instant) {
        let Some(fade) = &mut self.outage.fade else {
            return self.begin_outage(shared, now);
        };
        if fade.trial_until().is_some_and(|until| until <= now) {
            fade.end_trial();
        }
        if fade.since() + self.outage.give_up <= now {
            shared.life.give_up();
        }
    }

    fn begin_outage(&mut self, shared: &mut SharedState, now: Instant) {
        let fade = FadeState::new(now, &self.outage.faded);
        // An unreachable session probes at least as often as an idle one sends keepalives.
        let most = self.keepalive.interval;
        self.probes.next = fade.first_probe(self.probe_rate(), most, &mut self.rng);
        self.outage.fade = Some(fade);
        self.report_reachability(shared, Event::Unreachable);
        self.log.record(now, || LogEvent::OutageBegins);
    }

    /// Schedules the probe after the one that is due now.
    pub(super) fn schedule_outage_probe(&mut self, now: Instant) {
        let (rate, most) = (self.probe_rate(), self.keepalive.interval);
        if let Some(fade) = &mut self.outage.fade {
            self.probes.next = fade.record_probe(now, rate, most, &mut self.rng);
        }
    }

    /// Handles the arrival of an authentic packet, which may begin a trial.
    pub(super) fn on_packet_heard(&mut self, shared: &mut SharedState, now: Instant) {
        let silent = now.saturating_since(self.activity.heard);
        self.activity.heard = now;
        let rate = self.probe_rate();
        let Some(fade) = &mut self.outage.fade else { return };
        let was_trial = fade.trial_until().is_some();
        let answer = fade.on_heard(now, silent, self.rtt.probe_delay(ACK_DELAY), rate);
        let is_trial = fade.trial_until().is_some();
        self.probes.hasten(answer);
        if is_trial && !was_trial {
            // The peer's credit may allow no new data, and it lacks the oldest cargo first.
            self.resend_oldest(shared, now);
        }
    }

    /// The rate of which probes in an outage take 1 %.
    fn probe_rate(&self) -> ProbeRate {
        match self.rate.shared() {
            Some(rate) => ProbeRate::Shared(rate),
            None => ProbeRate::Own(self.rate.rate()),
        }
    }

    /// Handles an acknowledgement of new packets, which may end an outage.
    pub(super) fn follow_progress(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        acked: &AckedPackets,
    ) {
        if acked.packets.is_empty() && acked.late_data.is_empty() {
            return;
        }
        self.activity.progress = now;
        self.clear_link_doubt();
        if self.outage.end(now, acked.packets.iter().map(|(_, packet)| packet.time)) {
            // Acknowledge at once, so that the peer's outage ends, too.
            self.receiver.received.report_now();
            // The path may have changed meanwhile, so ECN is tested anew.
            self.marking.restart(self.sender.sent.next_number());
            self.report_reachability(shared, Event::Reachable);
            self.log.record(now, || LogEvent::OutageEnds);
        }
    }
}
