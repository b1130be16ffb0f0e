//! TCP-Illinois: growth and reduction that depend on the queueing delay.
//!
//! S. Liu, T. Başar and R. Srikant, "TCP-Illinois: A loss and delay-based
//! congestion control algorithm for high-speed networks", VALUETOOLS 2006 and
//! Performance Evaluation 65, 2008. With the average queueing delay d_a of the
//! last round trip and the largest one d_m,
//!
//! ```text
//! α = α_max                       d_a ≤ d_1 = 0.01·d_m
//!     κ₁ / (κ₂ + d_a)             otherwise
//! β = β_min                       d_a ≤ d_2 = 0.1·d_m
//!     κ₃ + κ₄·d_a                 between
//!     β_max                       d_a ≥ d_3 = 0.8·d_m
//! congestion avoidance   cwnd += α / cwnd per segment
//! loss                   cwnd = (1 − β)·FlightSize
//! ```
//!
//! with the κ that make both functions continuous and α(d_m) = α_min. Below 15
//! segments α = 1 and β = 1/2. Once the delay was above d₁, α_max comes back
//! only after five round trips below it.
//!
//! Options: `alpha-min` (0.3), `alpha-max` (10), `beta-min` (0.125), `beta-max`
//! (0.5), `threshold` (15 segments).

use core::time::Duration;

use crate::cc::option::{OptionError, OptionReader};
use crate::cc::{
    AckEvent, CongestionEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent,
    WindowController,
};

/// θ: round trips below d₁ after which α returns to its maximum.
const PATIENCE: u32 = 5;

#[derive(Debug, Clone, Copy)]
pub(crate) struct IllinoisOptions {
    alpha: (f64, f64),
    beta: (f64, f64),
    threshold: f64,
}

impl IllinoisOptions {
    pub(crate) fn read(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        let alpha_min = options.number("alpha-min", 0.3, 0.01, 1.0)?;
        let beta_min = options.number("beta-min", 0.125, 0.01, 0.5)?;
        Ok(Self {
            alpha: (alpha_min, options.number("alpha-max", 10.0, 1.01, 1000.0)?),
            beta: (beta_min, options.number("beta-max", 0.5, beta_min, 0.9)?),
            threshold: options.number("threshold", 15.0, 0.0, 1e6)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Illinois {
    options: IllinoisOptions,
    window: CongestionWindow,
    round_end: u64,
    sum: Duration,
    samples: u32,
    max_rtt: Duration,
    /// Number of consecutive round trips with a delay below d₁.
    calm: u32,
    was_above: bool,
    alpha: f64,
    beta: f64,
}

impl Illinois {
    pub(crate) fn new(start: &ControllerParameters, options: IllinoisOptions) -> Self {
        Self {
            options,
            window: CongestionWindow::new(start),
            round_end: 0,
            sum: Duration::ZERO,
            samples: 0,
            max_rtt: Duration::ZERO,
            calm: 0,
            was_above: false,
            alpha: 1.0,
            beta: 0.5,
        }
    }

    fn on_round(&mut self, ack: &AckEvent) {
        self.round_end = ack.nxt;
        let samples = core::mem::take(&mut self.samples);
        let sum = core::mem::take(&mut self.sum);
        // Below the threshold of the window, as Reno.
        if self.window.cwnd < self.options.threshold * self.window.mss {
            (self.alpha, self.beta) = (1.0, 0.5);
        } else if samples > 0 {
            let average = (sum / samples).saturating_sub(ack.min_rtt).as_secs_f64();
            let largest = self.max_rtt.saturating_sub(ack.min_rtt).as_secs_f64();
            self.alpha = self.alpha_at(average, largest);
            self.beta = self.beta_at(average, largest);
        }
    }

    fn alpha_at(&mut self, average: f64, largest: f64) -> f64 {
        let (min, max) = self.options.alpha;
        let d1 = largest / 100.0;
        if average <= d1 {
            self.calm += 1;
            // As in Linux: a single calm round must not cause a sudden increase.
            if self.was_above && self.calm < PATIENCE {
                return self.alpha;
            }
            self.was_above = false;
            return max;
        }
        (self.calm, self.was_above) = (0, true);
        // κ₁ and κ₂ such that α(d₁) = α_max and α(d_m) = α_min.
        let spread = (largest - d1) * min / (max - min);
        let k1 = spread * max;
        let k2 = spread - d1;
        k1 / (k2 + average)
    }

    fn beta_at(&self, average: f64, largest: f64) -> f64 {
        let (min, max) = self.options.beta;
        let d2 = largest / 10.0;
        let d3 = largest * 0.8;
        if average <= d2 {
            min
        } else if average >= d3 {
            max
        } else {
            (min * d3 - max * d2 + (max - min) * average) / (d3 - d2)
        }
    }

    /// Discards the delays measured so far (the authors: after a loss the average starts afresh).
    fn restart_average(&mut self) {
        self.sum = Duration::ZERO;
        self.samples = 0;
    }
}

impl WindowController for Illinois {
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
            self.max_rtt = self.max_rtt.max(rtt);
        }
        if ack.una >= self.round_end {
            self.on_round(ack);
        }
        if ack.phase == RepairPhase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(ack.credit.slow_start);
        } else {
            self.window.avoid(self.alpha, ack.credit.avoidance as f64);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        self.window.reduce(event.flight_size, 1.0 - self.beta);
        self.restart_average();
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        self.window.time_out(event, 1.0 - self.beta);
        (self.alpha, self.beta) = (1.0, 0.5);
        self.restart_average();
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("alpha", self.alpha), ("beta", self.beta)]
    }
}
