//! TCP Vegas: as many segments in the queue as wanted, no more.
//!
//! L. Brakmo and L. Peterson, "TCP Vegas: End to End Congestion Avoidance on a
//! Global Internet", IEEE JSAC 13(8), 1995. Once per round trip, with the
//! smallest RTT of the round and `BaseRTT`, the smallest of all, in segments:
//!
//! ```text
//! diff = cwnd · (RTT − BaseRTT) / RTT
//! slow start             doubles every other round; ends when diff > γ, with
//!                        cwnd = cwnd · BaseRTT / RTT + 1
//! congestion avoidance   cwnd += 1 if diff < α, −= 1 if diff > β
//! loss                   as Reno
//! ```
//!
//! A round with fewer than three samples counts as Reno's, as in Linux. The
//! paper's finer retransmission timers are not modelled: SACK and RACK do more.
//!
//! Options: `alpha` (2), `beta` (4), `gamma` (1), in segments.

use core::time::Duration;

use crate::cc::option::{OptionError, OptionReader};
use crate::cc::{
    AckEvent, CongestionEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent,
    WindowController,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct VegasOptions {
    alpha: f64,
    beta: f64,
    gamma: f64,
}

impl VegasOptions {
    pub(crate) fn read(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        let alpha = options.number("alpha", 2.0, 0.0, 1e6)?;
        Ok(Self {
            alpha,
            beta: options.number("beta", (2.0 * alpha).max(4.0), alpha, 1e6)?,
            gamma: options.number("gamma", 1.0, 0.0, 1e6)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Vegas {
    options: VegasOptions,
    window: CongestionWindow,
    round_end: u64,
    /// Minimum RTT of this round.
    min_rtt: Option<Duration>,
    samples: u32,
    /// True in every other round of slow start, in which the window grows; in between the RTT is
    /// measured.
    grows: bool,
    diff: f64,
}

impl Vegas {
    pub(crate) fn new(start: &ControllerParameters, options: VegasOptions) -> Self {
        Self {
            options,
            window: CongestionWindow::new(start),
            round_end: 0,
            min_rtt: None,
            samples: 0,
            grows: true,
            diff: 0.0,
        }
    }

    fn on_round(&mut self, ack: &AckEvent) {
        self.round_end = ack.nxt;
        let samples = core::mem::take(&mut self.samples);
        let Some(rtt) = self.min_rtt.take().filter(|_| samples > 2) else {
            // As in Linux: with fewer samples all may come from delayed acknowledgements.
            if !self.window.in_slow_start() && ack.is_cwnd_limited {
                self.window.cwnd += self.window.mss;
            }
            return;
        };
        let ratio = ack.min_rtt.as_secs_f64() / rtt.as_secs_f64();
        let cwnd = self.window.cwnd / self.window.mss;
        self.diff = cwnd * (1.0 - ratio);
        let mss = self.window.mss;
        if self.window.in_slow_start() {
            self.grows = !self.grows;
            if self.diff > self.options.gamma {
                self.window.cwnd = self.window.cwnd.min(self.window.cwnd * ratio + mss);
                self.window.ssthresh = self.window.cwnd;
            }
        } else if self.diff > self.options.beta {
            self.window.cwnd -= mss;
            // The threshold must not lead back into slow start.
            self.window.ssthresh = self.window.ssthresh.min(self.window.cwnd);
        } else if self.diff < self.options.alpha && ack.is_cwnd_limited {
            self.window.cwnd += mss;
        }
        self.window.cwnd = self.window.cwnd.max(2.0 * mss);
    }

    fn restart_round(&mut self) {
        self.min_rtt = None;
        self.samples = 0;
        self.grows = true;
    }
}

impl WindowController for Vegas {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
            self.samples += 1;
        }
        if ack.phase == RepairPhase::Recovery {
            return;
        }
        let grows = self.grows || ack.phase == RepairPhase::Loss;
        if self.window.in_slow_start() && grows && ack.is_cwnd_limited {
            self.window.slow_start(ack.credit.slow_start);
        }
        if ack.una >= self.round_end {
            self.on_round(ack);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        self.window.reduce(event.flight_size, 0.5);
        self.restart_round();
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        self.window.time_out(event, 0.5);
        self.restart_round();
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("diff", self.diff)]
    }
}
