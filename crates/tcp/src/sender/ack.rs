//! Processing of acknowledgements: window, round-trip times, losses and the controller.

use core::time::Duration;

use units::{ByteCount, Instant};

use super::{AckInfo, ForcedSegment, StreamSender};
use crate::SegmentPayload;
use crate::cc::{AckEvent, CongestionEvent, CongestionSignal, Credit, RepairPhase};
use crate::config::AckCounting;
use crate::recovery::flight::SentSegment;

/// The effects of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AckEffects {
    /// Bytes by which SND.UNA moved.
    pub(super) advanced: u64,
    /// Bytes newly delivered, cumulatively or selectively.
    pub(super) delivered: u64,
    /// The selectively acknowledged part of these.
    pub(super) sacked: u64,
    /// Time at which the segment was sent that yields the RTT.
    timed: Option<Instant>,
    /// True if a retransmitted segment is among those cumulatively acknowledged.
    ambiguous: bool,
    /// True if a segment arrived that was sent only once, before the last time-out.
    pub(super) original: bool,
    /// True for a duplicate acknowledgement (RFC 5681 §2; with SACK, RFC 6675 §2).
    pub(super) is_duplicate: bool,
}

impl AckEffects {
    fn take(&mut self, sent: &SentSegment, recover: u64) {
        self.delivered += sent.len();
        self.original |= !sent.was_retransmitted() && sent.end <= recover;
        if !sent.was_retransmitted() {
            self.timed = self.timed.max(Some(sent.sent_at));
        }
    }
}

/// The sender's state before an acknowledgement.
struct PriorState {
    /// True if the window kept the acknowledged data from being sent earlier.
    is_cwnd_limited: bool,
    phase: RepairPhase,
    /// Bytes in flight, as [`AckEvent::prior_in_flight`].
    in_flight: u64,
}

impl<P: SegmentPayload> StreamSender<P> {
    /// Handles an acknowledgement between SND.UNA and SND.NXT.
    #[inline(never)]
    pub(crate) fn handle_ack(&mut self, now: Instant, ack: &AckInfo) {
        let opened = self.update_window(ack.position, ack.window, ack.updates_window);
        // Answers to probes of a closed window repeat the number, too, but are not duplicates.
        let is_bare_repeat = !self.uses_sack()
            && ack.is_bare
            && !opened
            && ack.position == self.una
            && !self.flight.is_empty()
            && !self.is_window_closed();
        let prior = PriorState {
            is_cwnd_limited: self.una < self.limited_until,
            phase: self.repair.phase,
            in_flight: self.flight.in_flight(),
        };
        let prior_flight = self.nxt - self.una;
        let mut news = self.take_news(now, ack);
        news.is_duplicate = is_bare_repeat || self.uses_sack() && news.sacked > 0;
        let rtt = self.measure(now, ack, &news, prior_flight);
        if let Some(range) = &ack.duplicate {
            self.on_duplicate_report(now, range);
        }
        self.check_eifel(now, ack, &news);
        self.check_tail_probe(now, ack, &news);
        self.repair_losses(now, &news, ack.hole.clone());
        if ack.ece {
            self.on_ece(now);
        }
        if news.delivered > 0 && self.una > 1 {
            if self.config.estimate_ssthresh {
                self.estimate_ssthresh(now);
            }
            self.inform_controller(now, ack.ece, &news, rtt, &prior);
        }
        self.settle_timers(now, &news);
    }

    /// Passes newly delivered data on to the congestion controller. `prior` is the state before the
    /// acknowledgement, `rtt` its sample.
    #[inline]
    fn inform_controller(
        &mut self,
        now: Instant,
        ece: bool,
        news: &AckEffects,
        rtt: Option<Duration>,
        prior: &PriorState,
    ) {
        let rate = self.rate.sample(self.rtt.min_nanos());
        self.cc.on_ack(&AckEvent {
            now,
            acked: news.advanced,
            delivered: news.delivered,
            total_delivered: self.rate.delivered(),
            // RFC 3168 §6.1.2: no growth on an echoed mark.
            credit: if ece { Credit::default() } else { self.credit(news.advanced) },
            rtt,
            smoothed_rtt: self.rtt.smoothed().unwrap_or_default(),
            min_rtt: self.rtt.min().unwrap_or_default(),
            rate,
            prior_in_flight: prior.in_flight,
            in_flight: self.flight.in_flight(),
            is_cwnd_limited: prior.is_cwnd_limited,
            // The acknowledgement that ends a recovery still belongs to it: it must not grow the
            // window.
            phase: if prior.phase == RepairPhase::Recovery {
                prior.phase
            } else {
                self.repair.phase
            },
            una: self.una,
            nxt: self.nxt,
        });
    }

    /// Returns true if nothing is outstanding or being repaired. An acknowledgement of `position`
    /// without options and marks then carries no information except perhaps a window. A side that
    /// only receives gets one with every segment.
    pub(crate) fn is_at_rest(&self, position: u64) -> bool {
        self.flight.is_empty()
            && self.una > 0
            && position == self.una
            && self.repair.phase == RepairPhase::Open
            && self.repair.tail_probe.is_none()
    }

    /// [`Self::handle_ack`] while [`Self::is_at_rest`], for an acknowledgement that carries at most
    /// a new window.
    pub(crate) fn handle_ack_at_rest(&mut self, window: u64, updates_window: bool) {
        self.update_window(self.una, window, updates_window);
        self.repair.dup_acks = 0;
        self.repair.dup_bytes = 0;
        self.timers.rto = None;
        self.timers.stalled_since = None;
        self.timers.reorder = None;
        self.timers.probe = None;
    }

    #[cold]
    fn estimate_ssthresh(&mut self, now: Instant) {
        let Some(rtt) = self.rtt.min() else { return };
        if self.repair.phase != RepairPhase::Open {
            self.estimate.give_up();
        }
        if let Some(bytes) = self.estimate.on_ack(now, self.rate.delivered(), rtt) {
            let least = self.cc.cwnd().get().min(2 * self.mss);
            self.cc.limit_slow_start(ByteCount::new(bytes.max(least)));
        }
    }

    /// Updates the advertised window (RFC 9293 §3.10.7.4); returns whether it has changed.
    fn update_window(&mut self, position: u64, window: u64, is_news: bool) -> bool {
        if !is_news {
            return false;
        }
        let changed = window != self.window;
        let was_shut = position <= self.una && self.is_window_closed();
        self.window = window;
        self.max_window = self.max_window.max(window);
        self.edge = position + window;
        // The receiver discarded the probe of its closed window, so the data is resent now.
        if was_shut
            && !self.is_window_closed()
            && let Some(id) = self.flight.front_id()
        {
            self.flight.mark_lost(id);
            self.forced = Some(ForcedSegment::Retransmit(id));
        }
        changed
    }

    /// Returns true if the peer's window is too small even for what is outstanding.
    pub(super) fn is_window_closed(&self) -> bool {
        self.flight.front().is_some_and(|front| front.start > 0 && self.edge <= front.start)
    }

    fn take_news(&mut self, now: Instant, ack: &AckInfo) -> AckEffects {
        let mut news = AckEffects { advanced: ack.position - self.una, ..AckEffects::default() };
        let recover = self.repair.recover;
        let min_rtt = self.rtt.min_nanos();
        let rate = &mut self.rate;
        let rack = &mut self.rack;
        self.flight.acknowledge(ack.position, |sent| {
            news.ambiguous |= sent.was_retransmitted();
            if sent.state != crate::recovery::flight::SegmentState::Sacked {
                rack.on_delivered(now, sent, min_rtt);
                rate.on_delivered(now, sent);
                news.take(sent, recover);
            }
        });
        // Karn: either the original or the retransmission may have arrived, and later segments may
        // have waited for it.
        if news.ambiguous {
            news.timed = None;
        }
        let before = news.delivered;
        // RFC 2018 §4: blocks are repeated in later acknowledgements.
        let fresh = ack.sack.iter().filter(|range| !self.reported.contains(range));
        for range in fresh {
            self.flight.sack(range.clone(), |sent| {
                rack.on_delivered(now, sent, min_rtt);
                rate.on_delivered(now, sent);
                news.take(sent, recover);
            });
        }
        self.reported = ack.sack.iter().take(4).cloned().collect();
        news.sacked = news.delivered - before;
        self.una = ack.position;
        self.buffer.release(ack.position);
        self.stats.acked = ByteCount::new(self.stats.acked.get() + news.advanced);
        news
    }

    /// Measures the RTT, from a segment sent only once or else from an echoed timestamp (RFC 7323
    /// §4).
    fn measure(
        &mut self,
        now: Instant,
        ack: &AckInfo,
        news: &AckEffects,
        flight: u64,
    ) -> Option<Duration> {
        let sample = match (news.timed, ack.echo) {
            (Some(sent_at), _) => now.as_nanos().saturating_sub(sent_at.as_nanos()),
            // RFC 7323 §4.1: a timestamp yields a sample only if new data is acknowledged.
            (None, Some((rtt, _))) if news.advanced > 0 => rtt,
            _ => return None,
        };
        let per_round = flight / (2 * self.mss);
        // RFC 7323 appendix G: with an acknowledgement for every second segment.
        self.rtt.sample(sample, self.una, self.nxt, per_round);
        Some(Duration::from_nanos(sample))
    }

    /// The bytes that count for window growth (RFC 3465; §2.3: after a time-out, one segment per
    /// acknowledgement).
    fn credit(&self, advanced: u64) -> Credit {
        if advanced == 0 {
            return Credit::default();
        }
        match self.config.counting {
            AckCounting::Acks => Credit { slow_start: self.mss, avoidance: self.mss },
            AckCounting::Bytes { limit } => {
                let limit = if self.repair.phase == RepairPhase::Loss { Some(1) } else { limit };
                let most = limit.map_or(u64::MAX, |segments| u64::from(segments) * self.mss);
                Credit { slow_start: advanced.min(most), avoidance: advanced }
            }
        }
    }

    /// RFC 3168 §6.1.2: once per window of data, until the segment with CWR has arrived.
    #[cold]
    fn on_ece(&mut self, now: Instant) {
        if !self.agreed.ecn || self.una <= self.cwr_until || self.repair.phase != RepairPhase::Open
        {
            return;
        }
        // Marks of data sent until now are of the same congestion.
        self.cwr_until = self.nxt;
        self.owes_cwr = true;
        self.stats.ecn_reductions += 1;
        let flight_size = self.flight_size();
        let in_flight = self.flight.in_flight();
        self.cc.on_congestion(&CongestionEvent {
            now,
            signal: CongestionSignal::Ecn,
            flight_size,
            in_flight,
        });
    }

    fn settle_timers(&mut self, now: Instant, news: &AckEffects) {
        if self.flight.is_empty() {
            self.timers.rto = None;
            self.timers.stalled_since = None;
            self.timers.reorder = None;
        } else {
            // RFC 6582 §3.2 step 3: only the first partial acknowledgement restarts the timer.
            let impatient = self.repair.phase == RepairPhase::Recovery
                && self.detection() == crate::config::LossDetector::DupAcks
                && self.repair.partial_acks > 1;
            if news.advanced > 0 && !impatient {
                self.timers.rto = Some(self.rtt.deadline(now));
            }
            if news.advanced > 0 || self.is_window_closed() {
                // RFC 9293 §3.8.6.1: a connection stays open while a closed window is acknowledged.
                self.timers.stalled_since = Some(now);
            }
        }
        self.schedule_tail_probe(now);
    }
}
