//! Decides what to send next.

use core::ops::Range;

use units::{BitRate, ByteCount, Instant};

use super::{FirstValue, ForcedSegment, Frto, StreamSender, Undo};
use crate::SegmentPayload;
use crate::cc::RepairPhase;
use crate::config::LossDetector;
use crate::recovery::flight::{SegmentId, SegmentState};

/// Size of a segment that every peer accepts (RFC 7413 §4.2.1: without a remembered MSS).
const SYN_DATA_MAX: u64 = 536;

/// The segment to send next.
#[derive(Debug, Clone)]
enum NextSegment {
    Retransmit(SegmentId),
    New(Range<u64>),
}

/// A segment being sent.
#[derive(Debug, Clone)]
pub(crate) struct Transmission {
    /// Positions, including SYN and FIN.
    pub(crate) range: Range<u64>,
    pub(crate) is_new: bool,
}

impl<P: SegmentPayload> StreamSender<P> {
    /// Returns the next segment to send now. `value` reads the timestamp clock.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        value: impl FnOnce() -> u32,
    ) -> Option<Transmission> {
        self.timers.waits_for_pacer = false;
        let choice = self.choose(now)?;
        let transmission = match choice {
            NextSegment::Retransmit(id) => self.retransmit(now, id, value())?,
            NextSegment::New(range) => self.send_new(now, range),
        };
        let len = transmission.range.end - transmission.range.start;
        if let Some(prr) = &mut self.repair.prr {
            prr.on_sent(len);
        }
        self.pacer.sent(now, len, self.pacing_rate(), self.config.bucket);
        self.timers.last_sent = Some(now);
        self.timers.stalled_since = self.timers.stalled_since.or(Some(now));
        if self.timers.rto.is_none() {
            // RFC 6298 §5 (5.1).
            self.timers.rto = Some(self.rtt.deadline(now));
        }
        self.schedule_tail_probe(now);
        Some(transmission)
    }

    fn choose(&mut self, now: Instant) -> Option<NextSegment> {
        if self.nxt == 0 {
            return Some(NextSegment::New(0..1));
        }
        if let Some(forced) = self.forced.take()
            && let Some(choice) = self.choose_forced(&forced)
        {
            return Some(choice);
        }
        if self.una == 0 && !self.may_answer_early() {
            return None;
        }
        if self.has_nothing_to_send() {
            // F-RTO holds back, not the application.
            if self.repair.frto.is_none() {
                self.rate.app_limited(0);
            }
            return None;
        }
        self.restart_after_idle(now);
        let choice = self.choose_by_window()?;
        if self.pacer.ready_at() > now {
            self.timers.waits_for_pacer = true;
            return None;
        }
        Some(choice)
    }

    /// Returns true if everything is acknowledged and nothing is waiting, as on a side that only
    /// receives.
    fn has_nothing_to_send(&self) -> bool {
        self.flight.is_empty() && self.buffer.end() <= self.nxt && self.fin != Some(self.nxt)
    }

    /// Returns true if the data on the peer's SYN was accepted: it may be answered before the
    /// handshake completes (RFC 7413 §4.2.2).
    #[cold]
    fn may_answer_early(&self) -> bool {
        self.may_send_early && self.window > 0
    }

    /// Returns the number of bytes to send with the SYN.
    #[cold]
    fn syn_data_len(&self) -> u64 {
        if !self.may_send_early || self.window > 0 {
            return 0;
        }
        self.buffer.len().min(self.mss).min(SYN_DATA_MAX)
    }

    #[cold]
    fn choose_forced(&self, forced: &ForcedSegment) -> Option<NextSegment> {
        match *forced {
            ForcedSegment::Retransmit(id) => {
                // It may have been acknowledged in the meantime.
                let sent = self.flight.get(id)?;
                (sent.state != SegmentState::Sacked).then_some(NextSegment::Retransmit(id))
            }
            ForcedSegment::New(len) => {
                let end = (self.nxt + len).min(self.buffer.end());
                (self.nxt < end).then_some(NextSegment::New(self.with_fin(self.nxt..end)))
            }
        }
    }

    fn choose_by_window(&mut self) -> Option<NextSegment> {
        match self.repair.frto {
            Some(Frto::Probing(left)) => {
                // RFC 5682 §2.1 step 2 b: up to two new segments, whatever the congestion window.
                return self.sendable().filter(|_| left > 0).map(NextSegment::New);
            }
            // Step 2 waits for the acknowledgement of the retransmission.
            Some(Frto::Retransmitted) => return None,
            None => {}
        }
        if let Some(id) = self.flight.first_lost() {
            return self.choose_repair(id);
        }
        match self.sendable() {
            Some(range) if self.allows(range.end - range.start) => Some(NextSegment::New(range)),
            Some(_) => {
                self.limited_until = self.nxt;
                None
            }
            None => {
                self.note_lack_of_data();
                self.choose_rescue()
            }
        }
    }

    /// Chooses a lost segment if the window has room. If it has none, the window counts as the
    /// limit, whatever limited the first transmission; otherwise it could not grow after a
    /// time-out.
    fn choose_repair(&mut self, id: SegmentId) -> Option<NextSegment> {
        let sent = self.flight.get(id)?;
        let len = sent.len();
        let end = sent.end;
        if self.allows(len) {
            return Some(NextSegment::Retransmit(id));
        }
        self.limited_until = self.limited_until.max(end);
        None
    }

    /// Returns true if the congestion window has room for `len` bytes.
    fn allows(&self, len: u64) -> bool {
        let pipe = self.pipe();
        // An empty path takes at least one segment, however small the window.
        if pipe == 0 {
            return true;
        }
        match &self.repair.prr {
            Some(prr) if self.repair.phase == RepairPhase::Recovery => prr.allowance() >= len,
            _ => self.cc.cwnd().get() >= pipe + len,
        }
    }

    /// Returns the next new segment, if the peer's window, silly window avoidance (RFC 9293
    /// §3.8.6.2.1) and Nagle's algorithm allow one.
    pub(super) fn sendable(&self) -> Option<Range<u64>> {
        let available = self.buffer.end() - self.nxt.min(self.buffer.end());
        if available == 0 {
            return (self.fin == Some(self.nxt)).then(|| self.nxt..self.nxt + 1);
        }
        let usable = self.edge.saturating_sub(self.nxt);
        let len = available.min(usable).min(self.mss);
        let is_last = len == available;
        // Minshall's variant of Nagle's algorithm waits for small segments only.
        let outstanding = if self.config.minshall { self.small_end } else { self.nxt };
        let may_be_small = !self.config.nagle || outstanding <= self.una || self.fin.is_some();
        let fits =
            len == self.mss || is_last && may_be_small || !is_last && 2 * len >= self.max_window;
        (len > 0 && fits).then(|| self.with_fin(self.nxt..self.nxt + len))
    }

    fn with_fin(&self, range: Range<u64>) -> Range<u64> {
        if self.fin == Some(range.end) { range.start..range.end + 1 } else { range }
    }

    /// Records that there is room but no data, so that rate samples are not taken for the path's.
    fn note_lack_of_data(&mut self) {
        let pipe = self.pipe();
        if self.buffer.end() <= self.nxt && pipe < self.cc.cwnd().get() {
            self.rate.app_limited(pipe);
        }
    }

    /// Applies rules 3 and 4 of `NextSeg()` (RFC 6675 §4): with nothing else to send, resends what
    /// may be lost, and once what was sent last.
    fn choose_rescue(&mut self) -> Option<NextSegment> {
        if self.repair.phase != RepairPhase::Recovery || self.detection() != LossDetector::Sack {
            return None;
        }
        if let Some(id) = self.flight.hole(self.repair.next_hole) {
            let len = self.flight.get(id)?.len();
            if !self.allows(len) {
                return None;
            }
            self.repair.next_hole = id + 1;
            return Some(NextSegment::Retransmit(id));
        }
        let id = self.flight.back_id()?;
        let sent = self.flight.get(id)?;
        // RFC 6675 §4 (4): one rescue retransmission in each recovery.
        let due =
            sent.state == SegmentState::InFlight && !self.repair.rescued && self.allows(sent.len());
        self.repair.rescued |= due;
        due.then_some(NextSegment::Retransmit(id))
    }

    fn send_new(&mut self, now: Instant, range: Range<u64>) -> Transmission {
        let snapshot = self.rate.sent(now, self.flight.in_flight() == 0);
        self.flight.push(range.clone(), now, snapshot);
        let mut range = range;
        let with_syn = if range.start == 0 { self.syn_data_len() } else { 0 };
        if with_syn > 0 {
            // A separate entry, because the SYN is resent without it.
            self.flight.push(1..1 + with_syn, now, snapshot);
            range.end += with_syn;
        }
        if range.start > 0 && range.end - range.start < self.mss {
            self.small_end = range.end;
        }
        self.nxt = range.end;
        self.timers.persist = None;
        if let Some(Frto::Probing(left)) = &mut self.repair.frto {
            *left = left.saturating_sub(1);
        }
        self.stats.segments += 1;
        Transmission { range, is_new: true }
    }

    #[inline(never)]
    fn retransmit(&mut self, now: Instant, id: SegmentId, value: u32) -> Option<Transmission> {
        let snapshot = self.rate.sent(now, self.flight.in_flight() == 0);
        self.flight.resend(id, now, snapshot);
        let sent = self.flight.get(id)?;
        let range = sent.start..sent.end;
        self.stats.retransmissions += 1;
        self.stats.retransmitted =
            ByteCount::new(self.stats.retransmitted.get() + range.end - range.start);
        if let Some(Undo { una, retransmitted, first_value, .. }) = &mut self.repair.undo {
            retransmitted.insert(range.clone());
            if *first_value == FirstValue::Awaited && range.start <= *una {
                *first_value = FirstValue::Is(value);
            }
        }
        // Everything waits for the repair of the first segment, so its timer restarts now.
        if self.flight.front_id() == Some(id) {
            self.timers.rto = Some(self.rtt.deadline(now));
        }
        Some(Transmission { range, is_new: false })
    }

    fn restart_after_idle(&mut self, now: Instant) {
        let Some(last) = self.timers.last_sent else { return };
        let idle = self.flight.is_empty() && now.saturating_since(last) > self.rtt.rto();
        if idle && self.config.restart_after_idle && self.sendable().is_some() {
            let initial = u64::from(self.config.initial_window.max(1)) * self.mss;
            self.cc.on_idle(now, ByteCount::new(initial));
            // One restart for each idle time.
            self.timers.last_sent = Some(now);
        }
    }

    /// Returns the rate at which segments are paced; `None` without a limit.
    fn pacing_rate(&self) -> Option<BitRate> {
        let paced = self.config.pacing;
        let own = self.cc.pacing().or_else(|| if paced { self.window_rate() } else { None });
        match (own, self.config.max_rate) {
            (Some(own), Some(max)) => Some(own.min(max)),
            (own, max) => own.or(max),
        }
    }

    /// Returns two windows per RTT in slow start, 1.2 afterwards.
    fn window_rate(&self) -> Option<BitRate> {
        let rtt = self.rtt.smoothed()?;
        let cwnd = self.cc.cwnd().get();
        let ssthresh = self.cc.ssthresh().get();
        let tenths = if cwnd < ssthresh { 20 } else { 12 };
        BitRate::average(ByteCount::new(cwnd * tenths / 10), rtt)
    }

    /// Arms the persist timer if there is data, nothing is outstanding and still nothing may be
    /// sent: only a window probe can find out when that changes.
    pub(crate) fn schedule_persist(&mut self, now: Instant) {
        let stuck = self.flight.is_empty()
            && self.una > 0
            && self.buffer.end() > self.nxt
            && self.sendable().is_none();
        match (stuck, self.timers.persist) {
            (true, None) => self.timers.persist = Some(self.rtt.deadline(now)),
            (false, Some(_)) => self.timers.persist = None,
            _ => {}
        }
    }

    /// Sends a window probe: as much as there is room for, but at least one byte.
    pub(super) fn probe_window(&mut self) {
        let usable = self.edge.saturating_sub(self.nxt);
        self.forced = Some(ForcedSegment::New(usable.clamp(1, self.mss)));
    }

    /// Sends a tail loss probe (RFC 8985 §7.3): new data if there is any and the peer's window
    /// allows it, otherwise what was sent last.
    pub(super) fn probe_tail(&mut self) {
        let fresh = self.sendable();
        self.forced = match &fresh {
            Some(range) => Some(ForcedSegment::New((range.end - range.start).min(self.mss))),
            None => self.flight.back_id().map(ForcedSegment::Retransmit),
        };
        let end = fresh.as_ref().map_or(self.nxt, |range| range.end);
        self.repair.tail_probe = Some((end, fresh.is_none()));
        self.stats.tail_probes += 1;
    }
}
