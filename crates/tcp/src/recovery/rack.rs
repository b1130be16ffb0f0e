//! RACK (RFC 8985 §6): a segment is lost when one sent later has been delivered, and a round trip
//! plus a reordering window has passed.
//!
//! Two things differ from the RFC. "Sent later" is judged by the exact order of transmission
//! instead of by clock and sequence numbers. And the reordering timer expires when the first
//! segment is due instead of the last, so that none waits for another.

use units::Instant;

use super::flight::{SegmentScoreboard, SentSegment};

const DUP_THRESH: usize = 3;
/// `RACK.reo_wnd_persist`: number of recoveries for which a widened window lasts.
const PERSIST: u32 = 16;

#[derive(Debug, Clone)]
pub(crate) struct Rack {
    /// The latest transmission that was delivered.
    serial: u64,
    /// Round-trip time of that transmission, in nanoseconds.
    rtt: u64,
    /// The highest position delivered so far.
    fack: u64,
    reordering_seen: bool,
    /// `RACK.reo_wnd_mult`: factor of the reordering window.
    mult: u32,
    persist: u32,
    /// Duplicates reported before this is acknowledged are ignored.
    dsack_round: u64,
}

impl Rack {
    pub(crate) fn new() -> Self {
        Self {
            serial: 0,
            rtt: 0,
            fack: 0,
            reordering_seen: false,
            mult: 1,
            persist: 0,
            dsack_round: 0,
        }
    }

    /// §6.2 steps 2 and 3: a segment is delivered. A retransmission counts only
    /// if its acknowledgement cannot be that of the original.
    #[inline]
    pub(crate) fn on_delivered(&mut self, now: Instant, sent: &SentSegment, min_rtt: Option<u64>) {
        if sent.end > self.fack {
            self.fack = sent.end;
        } else if sent.end < self.fack && !sent.was_retransmitted() {
            self.reordering_seen = true;
        }
        let rtt = now.as_nanos().saturating_sub(sent.sent_at.as_nanos());
        // Sooner than a round trip: it is the original that was acknowledged.
        if sent.was_retransmitted() && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        if sent.serial > self.serial {
            (self.serial, self.rtt) = (sent.serial, rtt);
        }
    }

    /// §6.2 step 4: an unnecessary retransmission widens the reordering window, once per round
    /// trip.
    pub(crate) fn on_dsack(&mut self, una: u64, nxt: u64) {
        if una >= self.dsack_round {
            self.dsack_round = nxt;
            self.mult += 1;
            self.persist = PERSIST;
        }
    }

    /// Handles the end of a recovery: after 16 without a needless retransmission the reordering
    /// window is no longer widened.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.mult = 1;
        }
    }

    fn reordering_window(
        &self,
        flight: &SegmentScoreboard,
        recovering: bool,
        min_rtt: Option<u64>,
        smoothed: Option<u64>,
    ) -> u64 {
        if !self.reordering_seen && (recovering || flight.sacked_count() >= DUP_THRESH) {
            // §6.2 step 4: without reordering so far, as fast as with three duplicate
            // acknowledgements.
            return 0;
        }
        let window = (min_rtt.unwrap_or_default() / 4).saturating_mul(self.mult.into());
        window.min(smoothed.unwrap_or_default())
    }

    /// §6.2 step 5: declares overdue segments lost. Round-trip times are in nanoseconds. Returns
    /// whether anything was lost, and when to check again.
    pub(crate) fn detect(
        &self,
        now: Instant,
        flight: &mut SegmentScoreboard,
        recovering: bool,
        min_rtt: Option<u64>,
        smoothed: Option<u64>,
    ) -> (bool, Option<Instant>) {
        let window = self.reordering_window(flight, recovering, min_rtt, smoothed);
        let wait = self.rtt.saturating_add(window);
        let due =
            |sent: &SentSegment| Instant::from_nanos(sent.sent_at.as_nanos().saturating_add(wait));
        let (any, next) = flight.expire(self.serial, |sent| due(sent) <= now);
        (any, next.map(|sent| due(&sent)))
    }
}
