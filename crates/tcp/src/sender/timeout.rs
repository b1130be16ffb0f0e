//! Timers of the sender.

use units::{Instant, earliest_timer};

use super::{ForcedSegment, Frto, StreamSender};
use crate::SegmentPayload;
use crate::cc::{RepairPhase, TimeoutEvent};
use crate::config::LossDetector;
use crate::recovery::flight::SegmentState;
use crate::wake::TimerKind;

/// `WCDelAckT` of RFC 8985 §7.2: maximum delay of the acknowledgement of a single segment by the
/// peer, in nanoseconds.
const WORST_DELAYED_ACK: u64 = 200_000_000;

/// The error when data stayed unacknowledged for the user time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserTimeoutExpired;

impl<P: SegmentPayload> StreamSender<P> {
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        let timers = &self.timers;
        // The pacer's time only matters while a segment waits for it.
        let pacing = timers.waits_for_pacer.then(|| self.pacer.ready_at());
        earliest_timer([
            (timers.rto, TimerKind::Retransmission),
            (timers.probe, TimerKind::TailProbe),
            (timers.reorder, TimerKind::Reordering),
            (timers.persist, TimerKind::WindowProbe),
            (pacing, TimerKind::Pacing),
            (self.gives_up_at(), TimerKind::UserTimeout),
        ])
    }

    fn gives_up_at(&self) -> Option<Instant> {
        Some(self.timers.stalled_since? + self.config.user_timeout?)
    }

    /// Handles all timers that are due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), UserTimeoutExpired> {
        let due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        // The caller polls for segments next, which sets this again.
        self.timers.waits_for_pacer = false;
        if due(self.gives_up_at()) {
            return Err(UserTimeoutExpired);
        }
        if due(self.timers.reorder) {
            self.timers.reorder = None;
            if self.detect_by_time(now) && self.repair.phase == RepairPhase::Open {
                self.begin_recovery(now);
            }
        }
        if due(self.timers.probe) {
            self.timers.probe = None;
            self.probe_tail();
            // RFC 8985 §7.3: the probe restarts the retransmission timer.
            self.timers.rto = Some(self.rtt.deadline(now));
        } else if due(self.timers.rto) {
            self.on_retransmission_timeout(now);
        }
        if due(self.timers.persist) {
            self.timers.persist = None;
            // RFC 9293 §3.8.6.1: the intervals between window probes grow exponentially.
            self.rtt.back_off();
            self.probe_window();
        }
        Ok(())
    }

    /// Handles a retransmission time-out: RFC 6298 §5 (5.4) to (5.7), RFC 5681 §3.1.
    #[cold]
    fn on_retransmission_timeout(&mut self, now: Instant) {
        self.timers.rto = None;
        self.timers.probe = None;
        let Some(front) = self.flight.front().copied() else { return };
        self.rtt.back_off();
        self.forced = self.flight.front_id().map(ForcedSegment::Retransmit);
        if front.start == 0 {
            // RFC 5681 §3.1: a lost SYN reduces the initial window instead, after the handshake.
            self.syn_was_lost = true;
        } else if !self.is_window_closed() {
            // A closed window discards data, which is no sign of congestion.
            self.assume_all_lost(now, front.state);
        }
        self.timers.rto = Some(self.rtt.deadline(now));
    }

    #[cold]
    fn assume_all_lost(&mut self, now: Instant, front: SegmentState) {
        // RFC 2018 §8: if the receiver still had the selectively acknowledged data, it would have
        // acknowledged it cumulatively.
        if front == SegmentState::Sacked {
            self.flight.forget_sacks();
            self.reported.clear();
        }
        let is_repeated = self.repair.timeouts > 0;
        if !is_repeated {
            self.remember_for_undo();
        }
        self.stats.timeouts += 1;
        let flight_size = self.flight_size();
        self.cc.on_timeout(&TimeoutEvent { now, flight_size, is_repeated });
        self.owes_cwr = self.agreed.ecn;
        self.cwr_until = self.nxt;
        // RFC 5682 §2.1 step 1: not while another loss is being repaired.
        let first = self.repair.phase == RepairPhase::Open && !is_repeated;
        self.flight.mark_all_lost();
        let repair = &mut self.repair;
        repair.timeouts += 1;
        repair.phase = RepairPhase::Loss;
        repair.recover = self.nxt;
        repair.prr = None;
        repair.tail_probe = None;
        (repair.dup_acks, repair.dup_bytes) = (0, 0);
        repair.frto = (self.config.frto && first).then_some(Frto::Retransmitted);
        self.timers.reorder = None;
    }

    /// Arms the tail loss probe: two round trips after the last segment, or in place of the
    /// time-out if that comes earlier (RFC 8985 §7.2).
    pub(super) fn schedule_tail_probe(&mut self, now: Instant) {
        self.timers.probe = None;
        let Some(rto) = self.timers.rto else { return };
        let applies = self.detection() == LossDetector::Rack { tlp: true }
            && self.repair.phase == RepairPhase::Open
            && self.repair.tail_probe.is_none()
            && self.flight.sacked_count() == 0
            && self.flight.front().is_some_and(|front| front.start > 0)
            && !self.is_window_closed();
        if !applies {
            return;
        }
        let mut wait = self.rtt.smoothed_nanos().map_or(1_000_000_000, |rtt| 2 * rtt);
        // A lone segment may be acknowledged late.
        if self.flight.len() == 1 {
            wait += WORST_DELAYED_ACK;
        }
        let at = Instant::from_nanos(now.as_nanos().saturating_add(wait));
        self.timers.probe = Some(at.min(rto));
    }
}
