//! Reno with another additive increase: Constant-Rate and Increase-by-K.
//!
//! T. Henderson, E. Sahouria, S. McCanne and R. Katz, "On Improving the Fairness
//! of TCP Congestion Avoidance", GLOBECOM 1998; RFC 2760 §3.3. Per round trip in
//! congestion avoidance, in segments:
//!
//! ```text
//! constant-rate    cwnd += c · RTT²     every flow's rate grows by c segments
//!                                       per second and second
//! increase-by-k    cwnd += K
//! ```
//!
//! Options: `c` (100 per s²: Reno's growth at an RTT of 100 ms), `k` (4).

use super::option::{OptionError, OptionReader};
use super::{
    AckEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent, WindowController,
};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Increase {
    /// Growth of the sending rate, in segments per second each second.
    ConstantRate(f64),
    /// Segments per round trip.
    ByK(f64),
}

impl Increase {
    pub(crate) fn read_rate(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        options.number("c", 100.0, 0.001, 1e6).map(Self::ConstantRate)
    }

    pub(crate) fn read_k(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        options.number("k", 4.0, 0.001, 1e6).map(Self::ByK)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Additive {
    increase: Increase,
    window: CongestionWindow,
}

impl Additive {
    pub(crate) fn new(start: &ControllerParameters, increase: Increase) -> Self {
        Self { increase, window: CongestionWindow::new(start) }
    }
}

impl WindowController for Additive {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        if ack.phase == RepairPhase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(ack.credit.slow_start);
            return;
        }
        let segments = match self.increase {
            Increase::ByK(k) => k,
            Increase::ConstantRate(c) => {
                let rtt = ack.smoothed_rtt.as_secs_f64();
                // Per round trip the rate grows by c · RTT, and the window is the rate times the
                // RTT.
                c * rtt * rtt
            }
        };
        self.window.avoid(segments, ack.credit.avoidance as f64);
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        self.window.time_out(event, 0.5);
    }
}
