//! The sending half: what to send, and when to resend it.

mod ack;
mod estimate;
mod pacer;
mod recovery;
mod send_buffer;
mod timeout;
mod transmit;

use core::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;
use units::{ByteCount, Instant, RangeSet};

use crate::SegmentPayload;
use crate::cc::{Controller, ControllerParameters, FastRecovery, RepairPhase};
use crate::config::{Config, LossDetector};
use crate::estimate::rate::RateMeter;
use crate::estimate::rtt::RtoEstimator;
use crate::recovery::flight::{SegmentId, SegmentScoreboard};
use crate::recovery::prr::Prr;
use crate::recovery::rack::Rack;
use crate::sharing::tcb::ControlBlock;
use crate::stats::ConnectionStats;
use estimate::ThresholdEstimate;
use pacer::Pacer;
use send_buffer::SendBuffer;

/// The contents of an acknowledgement, in stream positions.
#[derive(Debug, Clone)]
pub(crate) struct AckInfo<'a> {
    /// Everything below is acknowledged.
    pub(crate) position: u64,
    /// Selectively acknowledged ranges, within what is outstanding.
    pub(crate) sack: &'a [Range<u64>],
    /// Range reported missing (SNACK).
    pub(crate) hole: Option<Range<u64>>,
    /// Range reported as a duplicate (RFC 2883).
    pub(crate) duplicate: Option<Range<u64>>,
    /// The peer's advertised window, in bytes.
    pub(crate) window: u64,
    /// True if the window is newer than the known one (RFC 9293 §3.10.7.4: SND.WL1 and SND.WL2).
    pub(crate) updates_window: bool,
    /// True for a segment without data, SYN or FIN.
    pub(crate) is_bare: bool,
    /// Age in nanoseconds of the segment whose timestamp is echoed, and the echoed value.
    pub(crate) echo: Option<(u64, u32)>,
    /// The flag ECE: the peer has seen a congestion mark (RFC 3168 §6.1).
    pub(crate) ece: bool,
}

/// The negotiated options of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NegotiatedOptions {
    pub(crate) sack: bool,
    pub(crate) snack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// The sending half of a connection. Positions count from the SYN at 0; the first byte of data has
/// 1.
#[derive(Debug, Clone)]
pub(crate) struct StreamSender<P> {
    config: Arc<Config>,
    pub(crate) agreed: NegotiatedOptions,
    buffer: SendBuffer<P>,
    flight: SegmentScoreboard,
    /// SND.UNA and SND.NXT (never set back but for data that a SYN carried).
    una: u64,
    nxt: u64,
    /// The end of the last new segment that was smaller than the MSS.
    small_end: u64,
    /// Position of the FIN, once the stream is closed.
    fin: Option<u64>,
    /// Maximum payload of a segment, in bytes.
    mss: u64,
    /// The right edge of the peer's window, and the largest window so far.
    edge: u64,
    window: u64,
    max_window: u64,
    pub(crate) cc: Box<dyn Controller>,
    pub(crate) rtt: RtoEstimator,
    rate: RateMeter,
    estimate: ThresholdEstimate,
    rack: Rack,
    pacer: Pacer,
    repair: RecoveryState,
    /// The last selective acknowledgements processed.
    reported: ArrayVec<Range<u64>, 4>,
    /// A segment to be sent regardless of the windows.
    forced: Option<ForcedSegment>,
    /// The congestion window was the limit when data below this position was sent.
    limited_until: u64,
    /// ECE is ignored until this position is acknowledged.
    cwr_until: u64,
    /// True if the next new segment announces that the window was reduced (CWR).
    pub(crate) owes_cwr: bool,
    /// True if the SYN had to be resent.
    syn_was_lost: bool,
    /// True if data may be sent before the handshake completes: with the SYN, or in answer to data
    /// on a SYN.
    pub(crate) may_send_early: bool,
    timers: SenderTimers,
    pub(crate) stats: ConnectionStats,
}

#[derive(Debug, Clone, Copy)]
enum ForcedSegment {
    Retransmit(SegmentId),
    /// A segment with this many new bytes.
    New(u64),
}

#[derive(Debug, Clone, Default)]
struct SenderTimers {
    rto: Option<Instant>,
    /// A tail loss probe (RFC 8985 §7).
    probe: Option<Instant>,
    /// RACK's reordering timer.
    reorder: Option<Instant>,
    /// A window probe (RFC 9293 §3.8.6.1).
    persist: Option<Instant>,
    /// Time since which outstanding data has made no progress.
    stalled_since: Option<Instant>,
    last_sent: Option<Instant>,
    /// True while a segment is waiting for the pacer.
    waits_for_pacer: bool,
}

/// The state of loss recovery.
#[derive(Debug, Clone)]
struct RecoveryState {
    phase: RepairPhase,
    /// Recovery lasts until this is acknowledged; also kept after its end (RFC 6582 §3.2 step 1).
    recover: u64,
    dup_acks: u32,
    /// Bytes that have left the network according to duplicate acknowledgements, without SACK.
    dup_bytes: u64,
    prr: Option<Prr>,
    /// Partial acknowledgements in this recovery.
    partial_acks: u32,
    frto: Option<Frto>,
    undo: Option<Undo>,
    /// Time-outs since data was last acknowledged.
    timeouts: u32,
    /// The end of a tail loss probe, and whether it was a retransmission.
    tail_probe: Option<(u64, bool)>,
    /// Segment at which `NextSeg()` rule 3 of RFC 6675 continues.
    next_hole: SegmentId,
    /// True if `NextSeg()` rule 4 was used in this recovery.
    rescued: bool,
}

/// The state of F-RTO (RFC 5682).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frto {
    /// The first segment was resent; its acknowledgement is awaited.
    Retransmitted,
    /// It was acknowledged; this many new segments may be sent.
    Probing(u32),
}

/// The state to restore if nothing was lost after all.
#[derive(Debug, Clone)]
struct Undo {
    controller: Box<dyn Controller>,
    una: u64,
    /// Resent since then and not reported as a duplicate.
    retransmitted: RangeSet,
    /// The timestamp clock when the segment at `una` was resent. Unset if it had been resent
    /// before, because its acknowledgement is then ambiguous (RFC 3522 §3.2 looks at the first
    /// retransmission).
    first_value: FirstValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstValue {
    Unknowable,
    Awaited,
    Is(u32),
}

impl<P: SegmentPayload> StreamSender<P> {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let mss = u64::from(config.mss.max(1));
        let mut sender = Self {
            cc: config.controller.make(&start(&config, mss)),
            rtt: RtoEstimator::new(config.rto),
            agreed: NegotiatedOptions::default(),
            buffer: SendBuffer::new(1),
            flight: SegmentScoreboard::default(),
            una: 0,
            nxt: 0,
            small_end: 0,
            fin: None,
            mss,
            edge: 1,
            window: 0,
            max_window: 0,
            rate: RateMeter::default(),
            estimate: ThresholdEstimate::default(),
            rack: Rack::new(),
            pacer: Pacer::default(),
            repair: RecoveryState::new(),
            reported: ArrayVec::new(),
            forced: None,
            limited_until: 0,
            cwr_until: 0,
            owes_cwr: false,
            syn_was_lost: false,
            may_send_early: false,
            timers: SenderTimers::default(),
            stats: ConnectionStats::default(),
            config,
        };
        // Known from an earlier connection to this host (RFC 9040).
        if let Some((smoothed, variation)) = sender.config.shared.and_then(|shared| shared.rtt) {
            sender.rtt.adopt(smoothed, variation);
        }
        sender.stats.cwnd = sender.cc.cwnd();
        sender
    }

    /// Adopts what the handshake negotiated: the options, and `mss`, the maximum payload of a
    /// segment in bytes.
    pub(crate) fn establish(&mut self, now: Instant, mss: u64, agreed: NegotiatedOptions) {
        self.agreed = agreed;
        self.mss = mss.max(1);
        self.cc = self.config.controller.make(&start(&self.config, self.mss));
        if self.syn_was_lost {
            // RFC 5681 §3.1: after a lost SYN the initial window is one segment; RFC 6298 (5.7):
            // the time-out is 3 s.
            self.cc.on_idle(now, ByteCount::new(self.mss));
            self.rtt.syn_was_retransmitted();
        }
    }

    /// Sets the peer's window from its SYN, where it is never scaled (RFC 7323 §2.2).
    pub(crate) fn set_window(&mut self, window: u16) {
        self.window = window.into();
        self.max_window = self.window;
        self.edge = 1 + self.window;
    }

    /// Handles the acceptance of our SYN. Any of its data that was not accepted is resent at once
    /// in segments of the negotiated size (RFC 7413 §4.2.1: this is not a sign of congestion).
    pub(crate) fn forget_syn_data(&mut self) {
        if !core::mem::take(&mut self.may_send_early) || self.flight.is_empty() {
            return;
        }
        self.flight.clear();
        self.reported.clear();
        self.nxt = self.una;
        self.timers = SenderTimers::default();
    }

    pub(crate) fn mss(&self) -> u64 {
        self.mss
    }

    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// The largest window that the peer has advertised: MAX.SND.WND of
    /// RFC 5961.
    pub(crate) fn max_window(&self) -> u64 {
        self.max_window
    }

    /// Returns the number of bytes written that were never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.buffer.end().saturating_sub(self.nxt.max(1))
    }

    /// Returns the number of bytes that may be written.
    pub(crate) fn space(&self) -> u64 {
        self.config.send_buffer.get().saturating_sub(self.buffer.len())
    }

    /// Returns the number of bytes written and not acknowledged.
    pub(crate) fn held(&self) -> u64 {
        self.buffer.len()
    }

    /// Appends data. The caller has checked [`Self::space`].
    pub(crate) fn write(&mut self, data: P) {
        debug_assert!(self.fin.is_none());
        self.buffer.push(data);
    }

    /// Ends the stream after the data written so far.
    pub(crate) fn finish(&mut self) {
        self.fin = self.fin.or_else(|| Some(self.buffer.end()));
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some()
    }

    /// Returns true if the FIN was sent at least once.
    pub(crate) fn is_fin_sent(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Returns true if the FIN is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.fin.is_some_and(|fin| self.una > fin)
    }

    /// Returns true if nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight.is_empty()
    }

    /// Resends our SYN with an acknowledgement: the peer has repeated its own, or both opened at
    /// once.
    pub(crate) fn repeat_syn(&mut self) {
        self.forced = self.flight.front_id().map(ForcedSegment::Retransmit);
    }

    /// Returns the data at `range`, which may include SYN and FIN.
    pub(crate) fn data(&self, range: &Range<u64>) -> P {
        let end = range.end.min(self.buffer.end());
        let start = range.start.max(1);
        if start < end { self.buffer.get(start..end) } else { P::default() }
    }

    /// Returns true if `range` ends with the FIN.
    pub(crate) fn has_fin(&self, range: &Range<u64>) -> bool {
        self.fin.is_some_and(|fin| range.end > fin)
    }

    /// Returns true if `range` ends with the last byte written so far.
    pub(crate) fn ends_push(&self, range: &Range<u64>) -> bool {
        range.end >= self.buffer.end()
    }

    /// Returns true if SACK determines which segments are lost and in flight.
    fn uses_sack(&self) -> bool {
        self.agreed.sack
    }

    /// Returns the rule for detecting losses, given the negotiated options.
    fn detection(&self) -> LossDetector {
        if self.agreed.sack { self.config.detection } else { LossDetector::DupAcks }
    }

    fn recovery_style(&self) -> FastRecovery {
        self.config.recovery.unwrap_or_else(|| self.cc.recovery())
    }

    /// Returns true if the window grows by slow start, at the beginning or after a time-out.
    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.repair.phase != RepairPhase::Recovery && self.cc.cwnd() < self.cc.ssthresh()
    }

    /// Returns the number of bytes in flight, for all that is known.
    fn pipe(&self) -> u64 {
        if self.repair.phase == RepairPhase::Open && !self.config.limited_transmit {
            // RFC 3042: without it, duplicate acknowledgements make no room for new data.
            return self.nxt - self.una;
        }
        self.flight.in_flight().saturating_sub(self.repair.dup_bytes)
    }

    /// Returns the `FlightSize` of RFC 5681, without the part that the window does not account for:
    /// segments from limited transmit (RFC 5681 §3.2 step 2), and those sent during a recovery that
    /// led into the next.
    fn flight_size(&self) -> u64 {
        (self.nxt - self.una).min(self.cc.cwnd().get())
    }

    /// Returns what other connections may use. A threshold that was never set is left out.
    pub(crate) fn control_block(&self) -> ControlBlock {
        let ssthresh = self.cc.ssthresh();
        let was_set = ssthresh.get() < u64::from(u32::MAX);
        ControlBlock {
            rtt: self.rtt.smoothed().map(|smoothed| (smoothed, self.rtt.variation())),
            ssthresh: was_set.then_some(ssthresh),
            // Before the first acknowledged data the window is only the configured one.
            cwnd: (self.una > 1).then(|| self.cc.cwnd()),
        }
    }

    /// Returns the counters with the current values.
    pub(crate) fn snapshot(&self) -> ConnectionStats {
        let mut stats = self.stats.clone();
        stats.cwnd = self.cc.cwnd();
        stats.ssthresh = self.cc.ssthresh();
        stats.outstanding = ByteCount::new(self.nxt - self.una);
        stats.in_flight = ByteCount::new(self.pipe());
        stats.smoothed_rtt = self.rtt.smoothed();
        stats.min_rtt = self.rtt.min();
        stats.rto = self.rtt.rto();
        stats.phase = self.repair.phase;
        stats.controller = self.cc.metrics();
        stats
    }
}

fn start(config: &Config, mss: u64) -> ControllerParameters {
    let shared = config.shared.unwrap_or_default();
    let ssthresh = config.initial_ssthresh.or(shared.ssthresh);
    let initial = mss * u64::from(config.initial_window.max(1));
    ControllerParameters {
        mss,
        window: shared.cwnd.map_or(initial, |cwnd| cwnd.get().max(mss)),
        // RFC 5681 §3.1, equation 4: no loss sets the threshold below two segments.
        ssthresh: ssthresh.map_or(u64::MAX, |bytes| bytes.get().max(2 * mss)),
        seed: config.seed,
    }
}

impl RecoveryState {
    fn new() -> Self {
        Self {
            phase: RepairPhase::Open,
            recover: 0,
            dup_acks: 0,
            dup_bytes: 0,
            prr: None,
            partial_acks: 0,
            frto: None,
            undo: None,
            timeouts: 0,
            tail_probe: None,
            next_hole: 0,
            rescued: false,
        }
    }
}
