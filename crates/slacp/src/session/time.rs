//! Timers of a path: losses, probes, repairs, silence.

use units::{Instant, earliest};

use super::{SessionPath, SharedState, Wake};
use crate::recovery::planner::PlanInputs;

impl SessionPath {
    /// The time of the next [`Self::handle_timeout`]. Sending has its own timer,
    /// [`Self::send_time`].
    pub(super) fn poll_timeout(&self, shared: &SharedState) -> Option<(Instant, Wake)> {
        let at = |time: Option<Instant>, wake| time.map(|time| (time, wake));
        [
            at(self.sender.sent.loss_time(self.rtt.loss_delay()), Wake::Loss),
            at(self.probe_timeout(), Wake::Probe),
            at(self.repair_timeout(shared), Wake::Repair),
            at(self.sender.copies.front().map(|(time, _)| *time), Wake::Repair),
            at(shared.inbound.poll_timeout(), Wake::Delivery),
            at(self.keepalive_timeout(shared), Wake::Keepalive),
            at(self.silence_timeout(shared), Wake::Silence),
            at(self.rate.poll_timeout(), Wake::Rate),
            at(self.rekey_timeout(), Wake::Rekey),
            at(shared.streams.reset_timeout(), Wake::Delivery),
            at(shared.streams.rest_timeout(), Wake::Delivery),
            at(self.path_timeout(), Wake::Path),
            at(self.small_probe_timeout(), Wake::Path),
            at(self.link_doubt_timeout(), Wake::Loss),
            at(self.rest_timeout(), Wake::Rest),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    pub(super) fn handle_timeout(&mut self, shared: &mut SharedState, now: Instant) {
        shared.streams.end_resets(now, self.is_reachable());
        shared.streams.return_windows(now);
        if self.sender.sent.loss_time(self.rtt.loss_delay()).is_some_and(|time| time <= now) {
            self.detect_losses(shared, now);
        }
        if self.probe_timeout().is_some_and(|time| time <= now) {
            self.probe(shared, now);
        }
        if self.repair_timeout(shared).is_some_and(|time| time <= now) {
            let (idle, resends) = (self.is_idle(shared), self.has_urgent(shared));
            let (sent, loss, rtt) = (&self.sender.sent, &self.loss, self.rtt.smoothed());
            self.sender
                .planner
                .plan(now, &PlanInputs { sent, loss, rtt, idle, has_retransmissions: resends });
        }
        while let Some((_, cargo)) = self.sender.copies.pop_front_if(|(time, _)| *time <= now) {
            self.resend(shared, now, cargo);
        }
        shared.inbound.handle_timeout(now, &mut self.log);
        if self.keepalive_timeout(shared).is_some_and(|time| time <= now) {
            self.on_keepalive_timeout(now);
        }
        if self.silence_timeout(shared).is_some_and(|time| time <= now) {
            self.on_silence(shared, now);
        }
        if self.path_timeout().is_some_and(|time| time <= now) {
            self.on_path_timeout(shared, now);
        }
        if self.small_probe_timeout().is_some_and(|time| time <= now) {
            self.on_small_probe_timeout(now);
        }
        if self.link_doubt_timeout().is_some_and(|time| time <= now) {
            self.on_link_doubt(shared, now);
        }
        if self.rest_timeout().is_some_and(|time| time <= now) {
            self.rest(shared, now);
        }
        if self.rekey_timeout().is_some_and(|time| time <= now) {
            self.on_rekey_timeout(shared);
        }
        if self.rate.poll_timeout().is_some_and(|time| time <= now) {
            self.rate.handle_timeout(now, self.sender.sent.next_number(), self.rtt.smoothed());
            self.update_ecn_use();
            self.rate_changed(shared, now);
        }
    }

    fn repair_timeout(&self, shared: &SharedState) -> Option<Instant> {
        let (idle, resends) = (self.is_idle(shared), self.has_urgent(shared));
        self.sender.planner.due(idle, resends).filter(|_| self.is_reachable())
    }

    /// Returns whether no payload is waiting.
    fn is_idle(&self, shared: &SharedState) -> bool {
        // On one of several links, waiting data may belong to the others.
        if self.link().is_some() {
            return !self.has_urgent(shared) && self.new_at(shared).is_none();
        }
        !shared.streams.wants_to_send() && !shared.outbound.wants_to_send()
    }
}
