//! Whether the peer is there: recent activity, keepalives, and probes, which make it acknowledge
//! something.

use core::time::Duration;

use rand_core::Rng;
use units::Instant;

use super::Session;
use crate::event_log::LogEvent;
use crate::jitter::{self, Backoff};
use crate::path::fade::{ASK, ASK_ALONG};
use crate::recovery::received::ACK_DELAY;

/// When the peer was last heard, and packets were last sent to it.
#[derive(Debug)]
pub(super) struct Activity {
    /// When the last authentic packet came.
    pub(super) heard: Instant,
    /// When a packet with more than a PING last came.
    pub(super) carried: Instant,
    /// When an acknowledgement last reported new packets.
    pub(super) progress: Instant,
    /// When the newest packet left that was acknowledged.
    pub(super) acknowledged: Instant,
    pub(super) sent: Instant,
    /// When the last ack-eliciting packet left.
    pub(super) eliciting: Instant,
    /// When the last packet left that carried anything that must arrive.
    pub(super) loaded: Instant,
    /// When memory was last freed (`session/rest.rs`).
    pub(super) rested: Instant,
}

impl Activity {
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

/// The timer of keepalives.
#[derive(Debug)]
pub(super) struct Keepalive {
    pub(super) interval: Duration,
    /// How long the session may be idle before it sends a keepalive: the interval plus jitter, so
    /// that sessions that fell idle together do not send theirs together.
    idle_for: Duration,
    /// When the last keepalive was due.
    asked: Instant,
}

impl Keepalive {
    pub(super) fn new(now: Instant, interval: Duration, rng: &mut impl Rng) -> Self {
        let mut keepalive = Self { interval, idle_for: interval, asked: now };
        keepalive.ask(now, rng);
        keepalive
    }

    /// Records that a keepalive was due, and draws when the next one is.
    fn ask(&mut self, now: Instant, rng: &mut impl Rng) {
        self.asked = now;
        self.idle_for = self.interval + jitter::part_of(self.interval / 8, rng);
    }

    /// When the next keepalive is due. If `in_use`, the peer is asked soon after it falls silent.
    fn due(&self, activity: &Activity, in_use: bool) -> Instant {
        let idle = activity.sent + self.idle_for;
        let asks = in_use && self.asked <= activity.carried;
        if asks { idle.min(activity.carried + ASK) } else { idle }
    }
}

/// The timer of probes. A probe is a packet with a PING.
#[derive(Debug)]
pub(super) struct Probes {
    /// Whether the next packet is to be a probe.
    pending: bool,
    /// Send it small, and with an acknowledgement: a path that drops large packets also drops the
    /// acknowledgements in them.
    careful: bool,
    /// When the next one is due while packets await their acknowledgement.
    pub(super) next: Instant,
    backoff: Backoff,
    /// When the peer was last asked whether packets still arrive.
    doubted_at: Instant,
}

impl Probes {
    pub(super) fn new(now: Instant) -> Self {
        let backoff = Backoff::default();
        Self { pending: false, careful: false, next: now, backoff, doubted_at: now }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether the pending probe is to be small.
    pub(super) fn is_careful(&self) -> bool {
        self.careful
    }

    pub(super) fn request(&mut self) {
        self.pending = true;
    }

    fn request_careful(&mut self) {
        self.pending = true;
        self.careful = true;
    }

    /// Whether the packet being built is a probe, and a careful one.
    pub(super) fn take(&mut self) -> (bool, bool) {
        (core::mem::take(&mut self.pending), core::mem::take(&mut self.careful))
    }

    /// Makes the next probe due at once if it was due later.
    pub(super) fn hasten(&mut self, at: Instant) {
        self.next = self.next.min(at);
    }
}

impl Session {
    /// Makes the peer acknowledge something soon.
    pub(crate) fn ping(&mut self) {
        self.probes.request();
    }

    pub(super) fn keepalive_timeout(&self) -> Option<Instant> {
        let in_use = self.streams.len() > 0 && self.is_reachable();
        (!self.probes.pending).then(|| self.keepalive.due(&self.activity, in_use))
    }

    pub(super) fn on_keepalive_timeout(&mut self, now: Instant) {
        self.ping();
        self.keepalive.ask(now, &mut self.rng);
    }

    pub(super) fn probe_timeout(&self) -> Option<Instant> {
        let asks = !self.is_reachable() || !self.sender.sent.is_empty();
        (asks && !self.probes.pending).then_some(self.probes.next)
    }

    /// Restarts the probe timer of a reachable peer. During an outage it is the outage that spaces
    /// probes.
    pub(super) fn schedule_probe(&mut self) {
        debug_assert!(self.is_reachable());
        self.probes.next = self.activity.eliciting + self.probe_pause();
    }

    /// How long to wait for the acknowledgement of a probe.
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

    /// Asks for an acknowledgement and resends the oldest cargo along with it (RFC 9002 §6.2.4),
    /// unless the link is down.
    pub(super) fn probe(&mut self, now: Instant) {
        self.ping();
        if !self.is_reachable() {
            return self.schedule_outage_probe(now);
        }
        self.probes.careful = !self.path.pmtu.is_proven();
        self.probes.backoff.ask(&mut self.rng);
        self.probes.next = now + self.probe_pause();
        self.stats.probes += 1;
        self.log.record(now, || LogEvent::Probe);
        self.resend_oldest(now);
    }

    /// Whether to send a PING with the acknowledgement that is due. Otherwise a side that only
    /// receives would not notice that its own packets no longer arrive.
    pub(super) fn asks_along(&self, now: Instant) -> bool {
        let asks = self.activity.carried > self.activity.eliciting && self.is_reachable();
        asks && now >= self.activity.eliciting + ASK_ALONG && self.ack_is_due(now)
    }

    /// When to check that packets still arrive although more is being sent: if the path starts to
    /// drop large packets, it drops everything that a busy session sends.
    pub(super) fn doubt_timeout(&self) -> Option<Instant> {
        let rtt = self.rtt.smoothed();
        let delay = self.rtt.probe_delay(ACK_DELAY.max(rtt / 4));
        let oldest = self.sender.sent.oldest()?;
        let large = self.is_reachable()
            && !self.probes.pending
            && self.path.pmtu.size() > self.path.pmtu.least();
        large.then(|| oldest.max(self.probes.doubted_at) + delay)
    }

    pub(super) fn on_doubt(&mut self, now: Instant) {
        self.probes.doubted_at = now;
        self.probes.request_careful();
    }
}
