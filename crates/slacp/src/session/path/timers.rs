//! Timers of a path: losses, probes, repairs, silence, idleness.

use core::time::Duration;

use units::{Instant, earliest};

use super::{SessionPath, SharedState};
use crate::recovery::planner::PlanInputs;
use crate::session::Wake;

/// Idle time until a path frees memory: a hub has thousands of sessions, few of which are in use at
/// a time. Collections grow again when needed, which costs less than sending a packet.
const REST_AFTER: Duration = Duration::from_secs(5);

impl SessionPath {
    /// The time of the next [`Self::handle_timeout`]. Sending has its own timer,
    /// [`Self::send_time`].
    pub(in crate::session) fn poll_timeout(&self, shared: &SharedState) -> Option<(Instant, Wake)> {
        let at = |time: Option<Instant>, wake| time.map(|time| (time, wake));
        [
            at(self.sender.sent.loss_time(self.rtt.loss_delay()), Wake::Loss),
            at(self.probe_timeout(), Wake::Probe),
            at(self.repair_timeout(shared), Wake::Repair),
            at(self.sender.copies.front().map(|(time, _)| *time), Wake::Repair),
            at(self.keepalive_timeout(shared), Wake::Keepalive),
            at(self.silence_timeout(shared), Wake::Silence),
            at(self.rate.poll_timeout(), Wake::Rate),
            at(self.rekey_timeout(), Wake::Rekey),
            at(self.path_timeout(), Wake::Path),
            at(self.small_probe_timeout(), Wake::Path),
            at(self.link_doubt_timeout(), Wake::Loss),
            at(self.rest_timeout(), Wake::Rest),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    pub(in crate::session) fn handle_timeout(&mut self, shared: &mut SharedState, now: Instant) {
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        self.recover(shared, now);
        if is_due(self.keepalive_timeout(shared)) {
            self.on_keepalive_timeout(now);
        }
        if is_due(self.silence_timeout(shared)) {
            self.on_silence(shared, now);
        }
        if is_due(self.path_timeout()) {
            self.on_path_timeout(shared, now);
        }
        if is_due(self.small_probe_timeout()) {
            self.on_small_probe_timeout(now);
        }
        if is_due(self.link_doubt_timeout()) {
            self.on_link_doubt(shared, now);
        }
        if is_due(self.rest_timeout()) {
            self.rest(shared, now);
        }
        if is_due(self.rekey_timeout()) {
            self.on_rekey_timeout(shared);
        }
        if is_due(self.rate.poll_timeout()) {
            self.rate.handle_timeout(now, self.sender.sent.next_number(), self.rtt.smoothed());
            self.update_ecn_use();
            self.rate_changed(shared, now);
        }
    }

    /// Detects losses, and sends probes, repairs and second copies that are due.
    fn recover(&mut self, shared: &mut SharedState, now: Instant) {
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        if is_due(self.sender.sent.loss_time(self.rtt.loss_delay())) {
            self.detect_losses(shared, now);
        }
        if is_due(self.probe_timeout()) {
            self.probe(shared, now);
        }
        if is_due(self.repair_timeout(shared)) {
            let (idle, has_retransmissions) = (self.is_idle(shared), self.has_urgent(shared));
            let (sent, loss, rtt) = (&self.sender.sent, &self.loss, self.rtt.smoothed());
            let inputs = PlanInputs { sent, loss, rtt, idle, has_retransmissions };
            self.sender.planner.plan(now, &inputs);
        }
        while let Some((_, cargo)) = self.sender.copies.pop_front_if(|(time, _)| *time <= now) {
            self.resend(shared, now, cargo);
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

    /// The time at which to free memory; `None` if the path has carried nothing since that was
    /// done.
    fn rest_timeout(&self) -> Option<Instant> {
        let used = self.activity.carried.max(self.activity.loaded);
        (used > self.activity.rested).then_some(used + REST_AFTER)
    }

    /// Frees the memory of all collections beyond their contents.
    fn rest(&mut self, shared: &mut SharedState, now: Instant) {
        self.activity.rested = now;
        shared.free_spare();
        self.sender.free_spare();
        self.receiver.free_spare();
        self.loss.free_spare();
        if let Some(auto) = self.rate.measuring_mut() {
            auto.free_spare();
        }
    }
}
