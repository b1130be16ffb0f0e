//! `HyStart++` (RFC 9406): leaves slow start when the RTT grows, before losses
//! do it.
//!
//! Per round trip, with the smallest RTT of the last and of the current one:
//!
//! ```text
//! after N_RTT_SAMPLE samples:
//!   threshold = clamp(lastRoundMinRTT / 8, 4 ms, 16 ms)
//!   slow start: currentRoundMinRTT ≥ lastRoundMinRTT + threshold → CSS
//!   CSS:        currentRoundMinRTT < cssBaselineMinRtt → slow start
//!               five rounds, of which the one it began in is the first → congestion avoidance
//! CSS grows the window by a quarter of slow start.
//! ```

use core::time::Duration;

use super::AckEvent;

const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const RTT_SAMPLES: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;
/// The limit L of RFC 9406 §4.2 for senders that do not pace, in segments.
const LIMIT: u64 = 8;

/// Advice to the controller about an acknowledgement in slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowStartAdvice {
    /// Grow the window by this many bytes.
    Grow(u64),
    /// Leave slow start for congestion avoidance.
    Leave,
}

#[derive(Debug, Clone)]
pub(crate) struct HyStart {
    mss: u64,
    round_end: u64,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    /// The baseline of conservative slow start, and the number of rounds in it that have ended.
    css: Option<(Duration, u32)>,
}

impl HyStart {
    pub(crate) fn new(mss: u64) -> Self {
        Self { mss, round_end: 0, last_min: None, current_min: None, samples: 0, css: None }
    }

    /// Returns true in conservative slow start (CSS).
    pub(crate) fn is_conservative(&self) -> bool {
        self.css.is_some()
    }

    /// Handles an acknowledgement in slow start; returns the growth, or the advice to leave.
    pub(crate) fn on_ack(&mut self, ack: &AckEvent) -> SlowStartAdvice {
        if ack.una > self.round_end {
            self.round_end = ack.nxt;
            self.last_min = self.current_min.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.css {
                // §4.2: the partial round in which CSS began counts.
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    return SlowStartAdvice::Leave;
                }
            }
        }
        if let Some(rtt) = ack.rtt {
            self.current_min = Some(self.current_min.map_or(rtt, |min| min.min(rtt)));
            self.samples += 1;
        }
        self.check_delay();
        let credit = ack.credit.slow_start.min(LIMIT * self.mss);
        SlowStartAdvice::Grow(if self.css.is_some() { credit / CSS_GROWTH_DIVISOR } else { credit })
    }

    fn check_delay(&mut self) {
        let Some(current) = self.current_min.filter(|_| self.samples >= RTT_SAMPLES) else {
            return;
        };
        match (self.css, self.last_min) {
            // The RTT has fallen again: the delay increase was spurious, so slow start resumes.
            (Some((baseline, _)), _) if current < baseline => self.css = None,
            (None, Some(last)) => {
                let threshold =
                    (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD);
                if current >= last + threshold {
                    self.css = Some((current, 0));
                }
            }
            _ => {}
        }
    }
}
