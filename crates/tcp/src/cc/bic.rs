//! BIC: a binary search for the window.
//!
//! L. Xu, K. Harfoush and I. Rhee, "Binary Increase Congestion Control (BIC) for
//! Fast Long-Distance Networks", INFOCOM 2004. Windows in segments; per round
//! trip the window grows by
//!
//! ```text
//! below low_window     1, as Reno
//! below W_max          clamp((W_max − cwnd) / b, S_min, S_max)
//! above W_max          clamp((cwnd − W_max) / (b − 1), S_min, S_max)
//! loss:  W_max = cwnd, or cwnd·(1 + β)/2 when below the last W_max;
//!        cwnd = max(β·FlightSize, 2);  below low_window as Reno
//! ```
//!
//! The paper has b = 2 below `W_max`; the defaults are those of Linux.
//!
//! Options: `b` (4), `smin` (0.2), `smax` (16), `beta` (0.8), `low-window` (14),
//! `fast-convergence` (on).

use super::option::{OptionError, OptionReader};
use super::{
    AckEvent, CongestionEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent,
    WindowController,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct BicOptions {
    b: f64,
    smin: f64,
    smax: f64,
    beta: f64,
    low_window: f64,
    fast_convergence: bool,
}

impl BicOptions {
    pub(crate) fn read(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        let smin = options.number("smin", 0.2, 0.001, 1000.0)?;
        Ok(Self {
            b: options.number("b", 4.0, 1.5, 100.0)?,
            smin,
            smax: options.number("smax", smin.max(16.0), smin, 1e6)?,
            beta: options.number("beta", 0.8, 0.1, 0.99)?,
            low_window: options.number("low-window", 14.0, 0.0, 1e6)?,
            fast_convergence: options.switch("fast-convergence", true)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Bic {
    options: BicOptions,
    window: CongestionWindow,
    /// Window at the last loss in segments (`W_max`); 0 before the first loss.
    w_max: f64,
}

impl Bic {
    pub(crate) fn new(start: &ControllerParameters, options: BicOptions) -> Self {
        Self { options, window: CongestionWindow::new(start), w_max: 0.0 }
    }

    /// Returns the growth per round trip, in segments.
    fn increment(&self) -> f64 {
        let BicOptions { b, smin, smax, low_window, .. } = self.options;
        let cwnd = self.window.cwnd / self.window.mss;
        if cwnd <= low_window {
            1.0
        } else if cwnd < self.w_max {
            ((self.w_max - cwnd) / b).clamp(smin, smax)
        } else {
            ((cwnd - self.w_max) / (b - 1.0)).clamp(smin, smax)
        }
    }

    /// Records the window at a loss; returns the factor by which to reduce it.
    fn record_loss(&mut self) -> f64 {
        let cwnd = self.window.cwnd / self.window.mss;
        let beta = self.options.beta;
        // Fast convergence: a flow whose window still falls gives room to newer ones.
        let converge = self.options.fast_convergence && cwnd < self.w_max;
        self.w_max = if converge { cwnd * (1.0 + beta) / 2.0 } else { cwnd };
        if cwnd <= self.options.low_window { 0.5 } else { beta }
    }
}

impl WindowController for Bic {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        // A window that was not used says nothing about the path.
        if ack.phase == RepairPhase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(ack.credit.slow_start);
        } else {
            self.window.avoid(self.increment(), ack.credit.avoidance as f64);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        let factor = self.record_loss();
        self.window.reduce(event.flight_size, factor);
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        // The window of a repeated time-out is one segment, which says nothing about `W_max`.
        let factor = if event.is_repeated { 0.5 } else { self.record_loss() };
        self.window.time_out(event, factor);
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("w_max", self.w_max), ("increment", self.increment())]
    }
}
