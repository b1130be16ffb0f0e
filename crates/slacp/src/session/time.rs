//! Timers of a session: losses, probes, repairs, silence.

use units::{Instant, earliest};

use super::{Session, Wake};
use crate::recovery::planner::PlanInputs;

impl Session {
    /// The time of the next [`Self::handle_own_timeout`]. Sending has its own timer,
    /// [`Self::own_send_time`].
    pub(super) fn own_timeout(&self) -> Option<(Instant, Wake)> {
        if !self.is_usable() {
            return self.life.poll_timeout();
        }
        let at = |time: Option<Instant>, wake| time.map(|time| (time, wake));
        [
            at(self.sender.sent.loss_time(self.rtt.loss_delay()), Wake::Loss),
            at(self.probe_timeout(), Wake::Probe),
            at(self.repair_timeout(), Wake::Repair),
            at(self.sender.copies.front().map(|(time, _)| *time), Wake::Repair),
            at(self.receiver.inbound.poll_timeout(), Wake::Delivery),
            at(self.keepalive_timeout(), Wake::Keepalive),
            at(self.silence_timeout(), Wake::Silence),
            at(self.rate.poll_timeout(), Wake::Rate),
            at(self.rekey_timeout(), Wake::Rekey),
            at(self.streams.reset_timeout(), Wake::Delivery),
            at(self.streams.rest_timeout(), Wake::Delivery),
            at(self.path_timeout(), Wake::Path),
            at(self.small_probe_timeout(), Wake::Path),
            at(self.link_doubt_timeout(), Wake::Loss),
            at(self.rest_timeout(), Wake::Rest),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    pub(super) fn handle_own_timeout(&mut self, now: Instant) {
        if !self.is_usable() {
            return self.life.handle_timeout(now);
        }
        self.streams.end_resets(now, self.is_reachable());
        self.streams.return_windows(now);
        if self.sender.sent.loss_time(self.rtt.loss_delay()).is_some_and(|time| time <= now) {
            self.detect_losses(now);
        }
        if self.probe_timeout().is_some_and(|time| time <= now) {
            self.probe(now);
        }
        if self.repair_timeout().is_some_and(|time| time <= now) {
            let (idle, resends) = (self.is_idle(), self.has_urgent());
            let (sent, loss, rtt) = (&self.sender.sent, &self.loss, self.rtt.smoothed());
            self.sender
                .planner
                .plan(now, &PlanInputs { sent, loss, rtt, idle, has_retransmissions: resends });
        }
        while let Some((_, cargo)) = self.sender.copies.pop_front_if(|(time, _)| *time <= now) {
            self.resend(now, cargo);
        }
        self.receiver.inbound.handle_timeout(now, &mut self.log);
        if self.keepalive_timeout().is_some_and(|time| time <= now) {
            self.on_keepalive_timeout(now);
        }
        if self.silence_timeout().is_some_and(|time| time <= now) {
            self.on_silence(now);
        }
        if self.path_timeout().is_some_and(|time| time <= now) {
            self.on_path_timeout(now);
        }
        if self.small_probe_timeout().is_some_and(|time| time <= now) {
            self.on_small_probe_timeout(now);
        }
        if self.link_doubt_timeout().is_some_and(|time| time <= now) {
            self.on_link_doubt(now);
        }
        if self.rest_timeout().is_some_and(|time| time <= now) {
            self.rest(now);
        }
        if self.rekey_timeout().is_some_and(|time| time <= now) {
            self.on_rekey_timeout();
        }
        if self.rate.poll_timeout().is_some_and(|time| time <= now) {
            self.rate.handle_timeout(now, self.sender.sent.next_number(), self.rtt.smoothed());
            self.update_ecn_use();
            self.rate_changed(now);
        }
    }

    fn repair_timeout(&self) -> Option<Instant> {
        let (idle, resends) = (self.is_idle(), self.has_urgent());
        self.sender.planner.due(idle, resends).filter(|_| self.is_reachable())
    }

    /// Returns whether no payload is waiting.
    fn is_idle(&self) -> bool {
        // On one of several links, waiting data may belong to the others.
        if self.link().is_some() {
            return !self.has_urgent() && self.new_at().is_none();
        }
        !self.streams.wants_to_send() && !self.sender.outbound.wants_to_send()
    }
}
