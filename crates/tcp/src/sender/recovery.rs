//! Detects and repairs losses, and undoes the reaction if there were none.

use core::ops::Range;

use units::{ByteCount, Instant, RangeSet};

use super::ack::AckEffects;
use super::{AckInfo, FirstValue, ForcedSegment, Frto, StreamSender, Undo};
use crate::SegmentPayload;
use crate::cc::{CongestionEvent, CongestionSignal, FastRecovery, RepairPhase};
use crate::config::LossDetector;
use crate::recovery::prr::Prr;

/// `DupThresh` of RFC 6675.
const DUP_THRESH: u32 = 3;

impl<P: SegmentPayload> StreamSender<P> {
    pub(super) fn repair_losses(
        &mut self,
        now: Instant,
        news: &AckEffects,
        hole: Option<Range<u64>>,
    ) {
        if self.una == 0 || self.flight.is_empty() && self.repair.phase == RepairPhase::Open {
            self.repair.dup_acks = 0;
            self.repair.dup_bytes = 0;
            return;
        }
        let delivered = self.count_duplicates(news);
        let was_recovering = self.repair.phase == RepairPhase::Recovery;
        let was_repairing = self.repair.phase != RepairPhase::Open;
        match self.repair.phase {
            RepairPhase::Open => {}
            RepairPhase::Recovery => self.continue_recovery(now, news),
            RepairPhase::Loss => self.continue_after_timeout(now, news),
        }
        let lost = self.detect(now, news) | hole.is_some_and(|hole| self.take_hole(now, hole));
        // Data that was sent during a recovery and lost is a new congestion event (RFC 6675 §5: a
        // loss above RecoveryPoint is not part of the recovery).
        let is_over = was_repairing && self.una >= self.repair.recover;
        let is_lost = lost || is_over && self.flight.has_unrepaired();
        if is_lost && self.repair.phase == RepairPhase::Open {
            self.begin_recovery(now);
        }
        if self.repair.phase == RepairPhase::Recovery {
            self.update_prr(delivered, was_recovering);
        }
    }

    /// Counts duplicate acknowledgements. Returns the bytes delivered; without SACK, a duplicate
    /// counts as one segment.
    fn count_duplicates(&mut self, news: &AckEffects) -> u64 {
        let repair = &mut self.repair;
        if news.is_duplicate {
            repair.dup_acks += 1;
        } else if news.advanced > 0 {
            repair.dup_acks = 0;
        }
        if self.agreed.sack {
            return news.delivered;
        }
        if news.is_duplicate && repair.phase != RepairPhase::Loss {
            let room = (self.nxt - self.una).saturating_sub(self.mss);
            let fresh = self.mss.min(room.saturating_sub(repair.dup_bytes));
            repair.dup_bytes += fresh;
            return fresh;
        }
        // Everything acknowledged now has already been counted, except the hole.
        let counted = repair.dup_bytes.min(news.advanced.saturating_sub(self.mss));
        repair.dup_bytes -= counted;
        if repair.phase == RepairPhase::Open && news.advanced > 0 {
            repair.dup_bytes = 0;
        }
        news.advanced - counted
    }

    #[inline(never)]
    fn continue_recovery(&mut self, now: Instant, news: &AckEffects) {
        if news.advanced == 0 {
            return;
        }
        if self.una >= self.repair.recover || self.recovery_style() == FastRecovery::Reno {
            self.end_recovery(now);
            return;
        }
        self.repair.partial_acks += 1;
        // RFC 6582 §3.2 step 3: a partial acknowledgement reveals the next hole. SNACK reports it
        // otherwise.
        let told = self.agreed.snack && self.flight.front().is_some_and(|f| f.was_retransmitted());
        if self.detection() == LossDetector::DupAcks
            && !told
            && let Some(id) = self.flight.front_id()
        {
            self.flight.mark_lost(id);
            if self.flight.first_lost() == Some(id) {
                self.forced = Some(ForcedSegment::Retransmit(id));
            }
        }
    }

    /// Declares a hole lost that the peer has reported; a retransmission in it must have had time
    /// to arrive (CCSDS 714.0-B-2).
    #[cold]
    fn take_hole(&mut self, now: Instant, hole: Range<u64>) -> bool {
        let Some(rtt) = self.rtt.smoothed_nanos() else { return false };
        let before = Instant::from_nanos(now.as_nanos().saturating_sub(rtt));
        self.repair.frto.is_none() && self.flight.mark_lost_within(hole, before)
    }

    #[cold]
    fn continue_after_timeout(&mut self, now: Instant, news: &AckEffects) {
        if news.advanced > 0 {
            self.repair.timeouts = 0;
        }
        if self.repair.frto.is_some() {
            self.continue_frto(now, news);
        }
        if self.repair.phase == RepairPhase::Loss && self.una >= self.repair.recover {
            self.end_recovery(now);
        }
    }

    /// Continues F-RTO: RFC 5682 §2.1, and with SACK §3.1.
    #[cold]
    fn continue_frto(&mut self, now: Instant, news: &AckEffects) {
        let Some(state) = self.repair.frto else { return };
        let is_past = self.una >= self.repair.recover;
        if is_past {
            self.repair.frto = None;
            return;
        }
        let spurious = match (self.agreed.sack, state) {
            (true, _) => news.original,
            (false, Frto::Probing(_)) => news.advanced > 0,
            (false, Frto::Retransmitted) => false,
        };
        if spurious {
            self.undo(now);
        } else if state == Frto::Retransmitted && news.advanced > 0 {
            // Step 2 b: new data, if there is any.
            let has_new = self.sendable().is_some();
            self.repair.frto = has_new.then_some(Frto::Probing(2));
        } else if news.is_duplicate {
            // Step 2 a or 3 a: the loss was real. Without SACK it is unknown whether the two new
            // segments have arrived, so they must not fill the window.
            self.repair.frto = None;
            if !self.agreed.sack {
                self.flight.mark_all_lost();
                self.repair.recover = self.nxt;
            }
        }
    }

    /// Declares segments lost; returns true if there were any.
    fn detect(&mut self, now: Instant, news: &AckEffects) -> bool {
        // F-RTO decides first whether the time-out was spurious (RFC 5682 §2.1).
        if self.repair.frto.is_some() {
            return false;
        }
        let by_count = self.repair.dup_acks >= DUP_THRESH && news.is_duplicate;
        let threshold = u64::from(DUP_THRESH);
        match self.detection() {
            LossDetector::DupAcks => by_count && self.fast_retransmit_front(),
            LossDetector::Sack => {
                let below = self.flight.lost_below(threshold, self.mss);
                let lost = below.is_some_and(|below| self.flight.mark_lost_below(below));
                // RFC 6675 §5: three duplicates suffice, even if IsLost() is not yet true.
                lost || by_count && self.fast_retransmit_front()
            }
            LossDetector::Fack => {
                // A hole this far below the highest byte counts like three duplicates.
                let highest = self.flight.highest_sacked().unwrap_or(0);
                let below = highest.saturating_sub(threshold * self.mss);
                let lost = self.flight.mark_lost_below(below);
                lost || by_count && self.fast_retransmit_front()
            }
            LossDetector::Rack { .. } => self.detect_by_time(now),
        }
    }

    pub(super) fn detect_by_time(&mut self, now: Instant) -> bool {
        let min = self.rtt.min_nanos();
        let smoothed = self.rtt.smoothed_nanos();
        let recovering = self.repair.phase != RepairPhase::Open;
        let (lost, next) = self.rack.detect(now, &mut self.flight, recovering, min, smoothed);
        self.timers.reorder = next;
        lost
    }

    /// Declares the first segment lost, unless the duplicates may stem from earlier
    /// retransmissions: with SACK, if the segment itself was resent; without, according to RFC 6582
    /// §3.2 step 2. Reno lacked this check.
    #[cold]
    fn fast_retransmit_front(&mut self) -> bool {
        let Some(front) = self.flight.front() else { return false };
        let fresh = if self.agreed.sack {
            !front.was_retransmitted()
        } else {
            let recover = self.repair.recover;
            recover == 0 || self.una > recover || self.recovery_style() == FastRecovery::Reno
        };
        let open = self.repair.phase == RepairPhase::Open;
        open && fresh && self.flight.front_id().is_some_and(|id| self.flight.mark_lost(id))
    }

    #[cold]
    pub(super) fn begin_recovery(&mut self, now: Instant) {
        let outstanding = self.nxt - self.una;
        let flight_size = self.flight_size();
        self.remember_for_undo();
        self.stats.recoveries += 1;
        let in_flight = self.flight.in_flight();
        if !self.config.assume_corruption {
            let signal = CongestionSignal::Loss;
            self.cc.on_congestion(&CongestionEvent { now, signal, flight_size, in_flight });
            self.owes_cwr = self.agreed.ecn;
            // RFC 3168 §6.1.2: marks of the same window of data call for no second reduction.
            self.cwr_until = self.nxt;
        }
        let go_back = self.recovery_style() == FastRecovery::GoBackN;
        if go_back {
            self.flight.mark_all_lost();
            self.repair.dup_bytes = 0;
        }
        let repair = &mut self.repair;
        repair.phase = if go_back { RepairPhase::Loss } else { RepairPhase::Recovery };
        repair.recover = self.nxt;
        repair.partial_acks = 0;
        repair.rescued = false;
        repair.next_hole = self.flight.front_id().unwrap_or(0);
        repair.tail_probe = None;
        self.timers.probe = None;
        let reduces = !go_back && !self.cc.rules_recovery() && !self.config.assume_corruption;
        repair.prr = self.config.prr.filter(|_| reduces).map(|bound| Prr::new(bound, outstanding));
        // The first retransmission is sent whatever the window (RFC 5681 §3.2 step 3, RFC 6675 §5
        // step 4.3).
        self.forced = self.flight.first_lost().map(ForcedSegment::Retransmit);
    }

    fn update_prr(&mut self, delivered: u64, was_recovering: bool) {
        let pipe = self.pipe();
        let ssthresh = self.cc.ssthresh().get();
        if let Some(prr) = &mut self.repair.prr {
            // The retransmission that is forced at the start counts as in the pipe, before it is
            // sent.
            let pipe = if was_recovering { pipe } else { pipe + self.mss };
            prr.on_ack(delivered, pipe, ssthresh, self.mss);
        }
    }

    #[cold]
    fn end_recovery(&mut self, now: Instant) {
        let was_fast = self.repair.phase == RepairPhase::Recovery;
        self.repair.phase = RepairPhase::Open;
        self.repair.prr = None;
        self.repair.frto = None;
        self.repair.dup_acks = 0;
        self.repair.dup_bytes = 0;
        if was_fast {
            self.rack.on_recovered();
        }
        self.cc.on_recovered(now, ByteCount::new(self.flight.in_flight()));
    }

    pub(super) fn remember_for_undo(&mut self) {
        // The echo of a later retransmission would not tell the original from the first one.
        let fresh = self.flight.front().is_some_and(|front| !front.was_retransmitted());
        self.repair.undo = Some(Undo {
            controller: self.cc.clone(),
            una: self.una,
            retransmitted: RangeSet::default(),
            first_value: if fresh { FirstValue::Awaited } else { FirstValue::Unknowable },
        });
    }

    /// Restores the state from before a spurious reaction. RFC 4015 restores the window in steps;
    /// here it returns at once.
    #[cold]
    fn undo(&mut self, now: Instant) {
        let Some(undo) = self.repair.undo.take() else { return };
        self.cc = undo.controller;
        self.cc.on_undo(now);
        self.stats.undone += 1;
        self.flight.unmark_lost();
        // A retransmission that was chosen is not needed any more.
        self.forced = None;
        self.rtt.forget_backoff();
        self.repair.timeouts = 0;
        self.end_recovery(now);
    }

    /// Eifel detection (RFC 3522 §3.2): the first acknowledgement of new data
    /// echoes a timestamp from before the retransmission.
    pub(super) fn check_eifel(&mut self, now: Instant, ack: &AckInfo, news: &AckEffects) {
        if self.repair.phase == RepairPhase::Open || news.advanced == 0 || !self.config.eifel {
            return;
        }
        let Some(undo) = &self.repair.undo else { return };
        let is_first = self.una - news.advanced == undo.una;
        let Some((_, echo)) = ack.echo else { return };
        let FirstValue::Is(first) = undo.first_value else { return };
        if is_first && (echo.wrapping_sub(first) as i32) < 0 {
            self.undo(now);
        }
    }

    /// Handles the report of a duplicate: RACK waits longer (RFC 8985 §6.2), and if every
    /// retransmission was unnecessary, nothing was lost (RFC 3708).
    #[cold]
    pub(super) fn on_duplicate_report(&mut self, now: Instant, range: &Range<u64>) {
        self.rack.on_dsack(self.una, self.nxt);
        if let Some((end, true)) = self.repair.tail_probe
            && range.end == end
        {
            // RFC 8985 §7.4.2: the original has arrived, too, so the probe has not repaired a loss.
            self.repair.tail_probe = None;
        }
        let Some(undo) = self.repair.undo.as_mut().filter(|_| self.config.dsack_undo) else {
            return;
        };
        if undo.retransmitted.is_empty() {
            return;
        }
        undo.retransmitted.remove(range.clone());
        if undo.retransmitted.is_empty() && self.flight.lost_count() == 0 {
            self.undo(now);
        }
    }

    /// A tail loss probe may have repaired a loss that nothing else revealed (RFC 8985 §7.4.2): the
    /// window is then reduced once.
    pub(super) fn check_tail_probe(&mut self, now: Instant, ack: &AckInfo, news: &AckEffects) {
        let Some((end, was_repeat)) = self.repair.tail_probe else { return };
        // RFC 8985 §7.4.2: a repeated acknowledgement shows that both the original and the probe
        // have arrived.
        let twice = news.advanced == 0 && ack.is_bare && ack.sack.is_empty();
        if self.una < end || was_repeat && self.una == end && !twice {
            return;
        }
        self.repair.tail_probe = None;
        if was_repeat && self.una > end && self.repair.phase == RepairPhase::Open {
            let flight_size = self.flight_size().max(news.advanced);
            let signal = CongestionSignal::Loss;
            let in_flight = self.flight.in_flight();
            self.cc.on_congestion(&CongestionEvent { now, signal, flight_size, in_flight });
            self.owes_cwr = self.agreed.ecn;
            self.cwr_until = self.nxt;
        }
    }
}
