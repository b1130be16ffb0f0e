//! `HyStart` as it was first (Ha and Rhee, "Taming the Elephants: New TCP Slow
//! Start", Computer Networks 55, 2011), with the constants of Linux: leaves slow
//! start when the acknowledgements of a round trip come in a train half as long
//! as the shortest round trip, or when the round trip has grown.
//!
//! ```text
//! from 16 segments on, per round trip:
//!   train: no gap above 2 ms since its beginning, and length > minRTT / 2
//!   delay: after 8 samples, the least so far > minRTT + clamp(minRTT / 8, 4 ms, 16 ms)
//! ```
//!
//! Not modelled: the millisecond that Linux adds for what receivers collect.

use core::time::Duration;

use units::Instant;

use super::AckEvent;
use super::hystart::SlowStartAdvice;

const LOW_WINDOW: u64 = 16;
const ACK_GAP: Duration = Duration::from_millis(2);
const MIN_DELAY: Duration = Duration::from_millis(4);
const MAX_DELAY: Duration = Duration::from_millis(16);
const SAMPLES: u32 = 8;

#[derive(Debug, Clone)]
pub(crate) struct HyStart2011 {
    mss: u64,
    round: Option<HyStartRound>,
}

/// The current round trip.
#[derive(Debug, Clone, Copy)]
struct HyStartRound {
    /// The round ends when this position is acknowledged.
    end: u64,
    begin: Instant,
    /// The last acknowledgement of the train.
    last: Instant,
    least: Duration,
    samples: u32,
}

impl HyStart2011 {
    pub(crate) fn new(mss: u64) -> Self {
        Self { mss, round: None }
    }

    /// Handles an acknowledgement in slow start, with a window of `cwnd` bytes.
    pub(crate) fn on_ack(&mut self, ack: &AckEvent, cwnd: u64) -> SlowStartAdvice {
        let fresh = HyStartRound {
            end: ack.nxt,
            begin: ack.now,
            last: ack.now,
            least: Duration::MAX,
            samples: 0,
        };
        let round = match &mut self.round {
            Some(round) if ack.una <= round.end => round,
            old => old.insert(fresh),
        };
        if cwnd < LOW_WINDOW * self.mss || !round.should_leave(ack) {
            return SlowStartAdvice::Grow(ack.credit.slow_start);
        }
        SlowStartAdvice::Leave
    }
}

impl HyStartRound {
    fn should_leave(&mut self, ack: &AckEvent) -> bool {
        let min = ack.min_rtt;
        if ack.now.saturating_since(self.last) <= ACK_GAP {
            self.last = ack.now;
            if ack.now.saturating_since(self.begin) > min / 2 {
                return true;
            }
        }
        let Some(rtt) = ack.rtt else { return false };
        self.least = self.least.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        self.least > min + (min / 8).clamp(MIN_DELAY, MAX_DELAY)
    }
}
