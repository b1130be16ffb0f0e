//! Compound TCP (CTCP): Reno's window and a second one that grows while there is no queue.
//!
//! K. Tan, J. Song, Q. Zhang and M. Sridharan, "A Compound TCP Approach for High-speed and Long
//! Distance Networks", IEEE INFOCOM 2006. With win = cwnd + dwnd, in segments, once per round trip
//! in congestion avoidance, with the mean RTT of the round and `baseRTT`, the smallest of all:
//!
//! ```text
//! diff = win · (1 − baseRTT/RTT)                       segments in the queue
//! dwnd = dwnd + (α·win^k − 1)⁺      diff < γ
//!        (dwnd − ζ·diff)⁺           diff ≥ γ
//!        (win·(1 − β) − cwnd/2)⁺    loss
//!        0                          time-out, slow start
//! cwnd += 1 / win per segment; halves on a loss
//! ```
//!
//! with k = 3/4, so that win grows by α·win^k segments per round trip, and falls by β on a loss. A round without
//! RTT samples leaves dwnd alone. Not modelled: the γ that later versions adapt to the bottleneck.
//!
//! Options: `alpha` (0.125), `beta` (0.5), `gamma` (30 segments), `zeta` (1).

use core::time::Duration;

use crate::cc::option::{OptionError, OptionReader};
use crate::cc::{
    AckEvent, CongestionEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent,
    WindowController,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct CompoundOptions {
    alpha: f64,
    beta: f64,
    gamma: f64,
    zeta: f64,
}

impl CompoundOptions {
    pub(crate) fn read(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        Ok(Self {
            alpha: options.number("alpha", 0.125, 0.0, 10.0)?,
            beta: options.number("beta", 0.5, 0.01, 0.99)?,
            gamma: options.number("gamma", 30.0, 0.0, 1e6)?,
            zeta: options.number("zeta", 1.0, 0.0, 100.0)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Compound {
    options: CompoundOptions,
    /// Its `cwnd` is win, the sum of both windows.
    window: CongestionWindow,
    /// The part of it that follows the delay (dwnd), in bytes.
    delay_window: f64,
    round_end: u64,
    /// Sum of the RTT samples of this round, for their mean.
    sum: Duration,
    samples: u32,
}

impl Compound {
    pub(crate) fn new(start: &ControllerParameters, options: CompoundOptions) -> Self {
        let window = CongestionWindow::new(start);
        let sum = Duration::ZERO;
        Self { options, window, delay_window: 0.0, round_end: 0, sum, samples: 0 }
    }

    fn on_round(&mut self, ack: &AckEvent) {
        self.round_end = ack.nxt;
        let sum = core::mem::take(&mut self.sum);
        let samples = core::mem::take(&mut self.samples);
        if samples == 0 {
            return;
        }
        let CompoundOptions { alpha, gamma, zeta, .. } = self.options;
        let mean = (sum / samples).max(ack.min_rtt).as_secs_f64();
        if mean <= 0.0 {
            return;
        }
        let segments = self.window.cwnd / self.window.mss;
        let queued = segments * (1.0 - ack.min_rtt.as_secs_f64() / mean);
        // To the power of k; square roots are the same on all platforms.
        let power = segments.sqrt() * segments.sqrt().sqrt();
        if queued < gamma {
            if ack.is_cwnd_limited {
                self.add((alpha * power - 1.0).max(0.0) * self.window.mss);
            }
        } else {
            self.add(-(zeta * queued * self.window.mss).min(self.delay_window));
        }
    }

    /// Changes the delay window, and with it the sum of both windows.
    fn add(&mut self, bytes: f64) {
        self.delay_window += bytes;
        self.window.cwnd += bytes;
    }
}

impl WindowController for Compound {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.sum += rtt;
            self.samples += 1;
        }
        if ack.phase == RepairPhase::Recovery {
            return;
        }
        if self.window.in_slow_start() {
            // Slow start is Reno's, without a delay window.
            self.delay_window = 0.0;
            if ack.is_cwnd_limited {
                self.window.slow_start(ack.credit.slow_start);
            }
        } else if ack.is_cwnd_limited {
            self.window.avoid(1.0, ack.credit.avoidance as f64);
        }
        if ack.una >= self.round_end {
            if self.window.in_slow_start() {
                (self.round_end, self.sum, self.samples) = (ack.nxt, Duration::ZERO, 0);
            } else {
                self.on_round(ack);
            }
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        let loss_window = self.window.cwnd - self.delay_window;
        // The sum falls by β while the loss window halves; the delay window is the difference.
        self.window.reduce(event.flight_size, 1.0 - self.options.beta);
        self.delay_window = (self.window.cwnd - loss_window / 2.0).max(0.0);
        (self.sum, self.samples) = (Duration::ZERO, 0);
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        self.window.time_out(event, 0.5);
        self.delay_window = 0.0;
        (self.sum, self.samples) = (Duration::ZERO, 0);
    }

    fn restart(&mut self, window: units::ByteCount) {
        self.window.restart(window);
        self.delay_window = self.delay_window.min(self.window.cwnd);
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("delay-window", self.delay_window)]
    }
}
