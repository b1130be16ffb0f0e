//! Westwood+: after a loss, the window follows the measured bandwidth.
//!
//! L. A. Grieco and S. Mascolo, "Performance evaluation and comparison of
//! Westwood+, New Reno, and Vegas TCP congestion control", ACM CCR 34(2), 2004.
//! Once per round trip, from the bytes acknowledged in it,
//!
//! ```text
//! b_k   = bytes / RTT
//! BWE   = 0.9·BWE + 0.1·b_k             (the first sample as it is)
//! loss:     ssthresh = max(BWE · RTT_min, 2·MSS); cwnd = ssthresh
//! time-out: the same threshold; cwnd = MSS
//! ```
//!
//! and otherwise like Reno. A round is at least 50 ms, as in the authors' code.
//!
//! Options: `filter` (0.9).

use core::time::Duration;

use units::Instant;

use super::option::{OptionError, Options};
use super::{Ack, Congestion, Phase, Start, Timeout, Window, Windowed};

const SHORTEST_ROUND: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct Westwood {
    filter: f64,
    window: Window,
    /// Bandwidth estimate in bytes per second.
    bandwidth: Option<f64>,
    min_rtt: f64,
    round_start: Option<Instant>,
    delivered: u64,
}

impl Westwood {
    pub(crate) fn read(options: &mut Options<'_>) -> Result<f64, OptionError> {
        options.number("filter", 0.9, 0.0, 0.999)
    }

    pub(crate) fn new(start: &Start, filter: f64) -> Self {
        Self {
            filter,
            window: Window::new(start),
            bandwidth: None,
            min_rtt: 0.0,
            round_start: None,
            delivered: 0,
        }
    }

    fn measure(&mut self, ack: &Ack) {
        self.min_rtt = ack.min_rtt.as_secs_f64();
        self.delivered += ack.delivered;
        let start = *self.round_start.get_or_insert(ack.now);
        let time = ack.now.saturating_since(start);
        if time < ack.smoothed_rtt.max(SHORTEST_ROUND) {
            return;
        }
        let sample = self.delivered as f64 / time.as_secs_f64();
        let filter = self.filter;
        self.bandwidth =
            Some(self.bandwidth.map_or(sample, |old| filter * old + (1.0 - filter) * sample));
        self.round_start = Some(ack.now);
        self.delivered = 0;
    }

    /// The estimated bandwidth-delay product in bytes, or half the flight without an estimate; at least
    /// two segments.
    fn share(&self, flight_size: u64) -> f64 {
        let share = self.bandwidth.map_or(flight_size as f64 / 2.0, |rate| rate * self.min_rtt);
        share.max(2.0 * self.window.mss)
    }
}

impl Windowed for Westwood {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        self.measure(ack);
        if ack.phase == Phase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(ack.credit.slow_start);
        } else {
            self.window.avoid(1.0, ack.credit.avoidance as f64);
        }
    }

    fn shrink(&mut self, event: &Congestion) {
        self.window.ssthresh = self.share(event.flight_size);
        self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
    }

    fn collapse(&mut self, event: &Timeout) {
        if !event.is_repeated {
            self.window.ssthresh = self.share(event.flight_size);
        }
        self.window.cwnd = self.window.mss;
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("bandwidth", self.bandwidth.unwrap_or(0.0) * 8.0)]
    }
}
