//! Liveness of the peer: recent activity, keepalives, and probes, which make it acknowledge
//! something.

use core::time::Duration;

use rand_core::Rng;
use units::Instant;

use super::{SessionPath, SharedState};
use crate::event::log::LogEvent;
use crate::recovery::jitter::{self, ProbeBackoff};
use crate::recovery::path::fade::{RECEIVER_PING_INTERVAL, SILENT_SENDER_TIMEOUT};
use crate::recovery::received::ACK_DELAY;

/// Times of the last packets in each direction, by kind.
#[derive(Debug)]
pub(in crate::session) struct ActivityTimes {
    /// Arrival of the last authentic packet.
    pub(in crate::session) heard: Instant,
    /// Arrival of the last packet with more than a PING.
    pub(super) carried: Instant,
    /// Arrival of the last acknowledgement of new packets.
    pub(super) progress: Instant,
    /// Sending time of the newest acknowledged packet.
    pub(in crate::session) acknowledged: Instant,
    /// Sending time of the last packet of any kind.
    pub(super) sent: Instant,
    /// Sending time of the last ack-eliciting packet.
    pub(super) eliciting: Instant,
    /// Sending time of the last packet whose contents must arrive.
    pub(super) loaded: Instant,
    /// The time when memory was last freed.
    pub(super) rested: Instant,
}

impl ActivityTimes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard: now,
            carried: now,
            progress: now,
            acknowledged: Instant::ZERO,
            sent: now,
            eliciting: now,
            loaded: now,
            rested: Instant::ZERO,
        }
    }
}

/// The keepalive timer.
#[derive(Debug)]
pub(in crate::session) struct KeepaliveTimer {
    pub(super) interval: Duration,
    /// Idle time after which a keepalive is sent: the interval plus jitter, so that sessions that
    /// became idle together do not send theirs together.
    idle_for: Duration,
    /// The time when the last keepalive was due.
    restarted_at: Instant,
}

impl KeepaliveTimer {
    pub(super) fn new(now: Instant, interval: Duration, rng: &mut impl Rng) -> Self {
        let mut keepalive = Self { interval, idle_for: interval, restarted_at: now };
        keepalive.restart(now, rng);
        keepalive
    }

    /// Restarts the timer with new jitter.
    fn restart(&mut self, now: Instant, rng: &mut impl Rng) {
        self.restarted_at = now;
        self.idle_for = self.interval + jitter::part_of(self.interval / 8, rng);
    }

    /// The due time of the next keepalive. While streams are `in_use`, it comes soon after the peer
    /// falls silent.
    fn due(&self, activity: &ActivityTimes, in_use: bool) -> Instant {
        let idle = activity.sent + self.idle_for;
        let asks = in_use && self.restarted_at <= activity.carried;
        if asks { idle.min(activity.carried + SILENT_SENDER_TIMEOUT) } else { idle }
    }
}

/// The probe timer. A probe is a packet with a PING.
#[derive(Debug)]
pub(in crate::session) struct ProbeTimer {
    /// The next packet is to be a probe.
    pending: bool,
    /// The probe is to be small and to carry an acknowledgement: a path that drops large packets
    /// also drops the acknowledgements in them.
    is_small: bool,
    /// Due time of the next probe while packets await acknowledgement.
    pub(super) next: Instant,
    backoff: ProbeBackoff,
    /// The time of the last small probe that tested the packet size.
    size_tested_at: Instant,
}

impl ProbeTimer {
    pub(super) fn new(now: Instant) -> Self {
        let backoff = ProbeBackoff::default();
        Self { pending: false, is_small: false, next: now, backoff, size_tested_at: now }
    }

    pub(in crate::session) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Returns whether the pending probe is to be small.
    pub(super) fn is_pending_small(&self) -> bool {
        self.is_small
    }

    pub(super) fn request(&mut self) {
        self.pending = true;
    }

    fn request_small(&mut self) {
        self.pending = true;
        self.is_small = true;
    }

    /// Returns whether the packet being built is a probe, and whether it is to be small. Resets
    /// both.
    pub(super) fn take(&mut self) -> (bool, bool) {
        (core::mem::take(&mut self.pending), core::mem::take(&mut self.is_small))
    }

    /// Makes the next probe due at `at` if it would be later.
    pub(in crate::session) fn hasten(&mut self, at: Instant) {
        self.next = self.next.min(at);
    }
}

impl SessionPath {
    /// Makes the next packet a PING, which the peer must acknowledge.
    pub(in crate::session) fn ping(&mut self) {
        self.probes.request();
    }

    pub(super) fn keepalive_timeout(&self, shared: &SharedState) -> Option<Instant> {
        // Without streams nothing waits for the peer, and in an outage it is probed anyway.
        let in_use = shared.streams.len() > 0 && self.is_reachable();
        (!self.probes.pending).then(|| self.keepalive.due(&self.activity, in_use))
    }

    pub(super) fn on_keepalive_timeout(&mut self, now: Instant) {
        self.ping();
        self.keepalive.restart(now, &mut self.rng);
    }

    pub(super) fn probe_timeout(&self) -> Option<Instant> {
        let asks = !self.is_reachable() || !self.sender.sent.is_empty();
        (asks && !self.probes.pending).then_some(self.probes.next)
    }

    /// Restarts the probe timer of a reachable peer. During an outage its own schedule applies
    /// ([`Self::schedule_outage_probe`]).
    pub(super) fn schedule_probe(&mut self) {
        debug_assert!(self.is_reachable());
        self.probes.next = self.activity.eliciting + self.probe_pause();
    }

    /// Time to wait for the acknowledgement of a probe.
    fn probe_pause(&self) -> Duration {
        self.probes.backoff.pause(self.rtt.probe_delay(ACK_DELAY))
    }

    /// Restarts the probe timer when packets were acknowledged.
    pub(super) fn acknowledged_something(&mut self) {
        self.probes.backoff.reset();
        // During an outage the probe time was already set when the packet was heard.
        if self.is_reachable() {
            self.schedule_probe();
        }
    }

    /// Sends a PING and the oldest outstanding cargo with it (RFC 9002 §6.2.4). In an outage only
    /// the PING.
    pub(super) fn probe(&mut self, shared: &mut SharedState, now: Instant) {
        self.ping();
        if !self.is_reachable() {
            return self.schedule_outage_probe(now);
        }
        // A path that has not carried this size yet may drop it every time.
        self.probes.is_small = !self.discovery.pmtu.is_proven();
        self.probes.backoff.record_probe(&mut self.rng);
        self.probes.next = now + self.probe_pause();
        self.counters.probes += 1;
        self.log.record(now, || LogEvent::Probe);
        self.resend_oldest(shared, now);
    }

    /// Returns whether to add a PING to the acknowledgement that is due. A side that only receives
    /// would otherwise not notice that its own packets no longer arrive.
    pub(super) fn adds_ping_to_ack(&self, shared: &SharedState, now: Instant) -> bool {
        let asks = self.activity.carried > self.activity.eliciting && self.is_reachable();
        asks && now >= self.activity.eliciting + RECEIVER_PING_INTERVAL
            && self.ack_is_due(shared, now)
    }

    /// The time at which a small probe tests the path although more data is being sent: a path that
    /// starts to drop large packets drops everything that a busy session sends.
    pub(super) fn small_probe_timeout(&self) -> Option<Instant> {
        let rtt = self.rtt.smoothed();
        // Beyond its budget the peer sends one ACK per quarter RTT.
        let delay = self.rtt.probe_delay(ACK_DELAY.max(rtt / 4));
        let oldest = self.sender.sent.oldest()?;
        let large = self.is_reachable()
            && !self.probes.pending
            && self.discovery.pmtu.size() > self.discovery.pmtu.least();
        large.then(|| oldest.max(self.probes.size_tested_at) + delay)
    }

    /// Requests the small probe.
    pub(super) fn on_small_probe_timeout(&mut self, now: Instant) {
        self.probes.size_tested_at = now;
        self.probes.request_small();
    }
}
