//! TCP Hybla: windows that grow as if the RTT were short.
//!
//! C. Caini and R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous
//! networks", Int. J. Satellite Communications and Networking 22, 2004. With
//! ρ = max(RTT / RTT₀, 1), per acknowledged segment
//!
//! ```text
//! slow start             cwnd += 2^ρ − 1          (equation 7)
//! congestion avoidance   cwnd += ρ² / cwnd        (equation 7)
//! loss                   as Reno
//! ```
//!
//! The RTT is the minimum so far, so that a queue does not speed up the growth. The paper's pacing
//! is [`crate::Config::pacing`]; its estimate of the initial threshold is not modelled.
//!
//! Options: `rtt0` (25 ms), `rho-max` (16, as in Linux: 2^ρ is unbounded).

use core::time::Duration;

use super::math::power_of_two;
use super::option::{OptionError, OptionReader};
use super::{AckEvent, CongestionWindow, ControllerParameters, RepairPhase, WindowController};

#[derive(Debug, Clone, Copy)]
pub(crate) struct HyblaOptions {
    rtt0: Duration,
    rho_max: f64,
}

impl HyblaOptions {
    pub(crate) fn read(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        Ok(Self {
            rtt0: options.duration("rtt0", Duration::from_millis(25))?,
            rho_max: options.number("rho-max", 16.0, 1.0, 100.0)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Hybla {
    options: HyblaOptions,
    window: CongestionWindow,
    rho: f64,
}

impl Hybla {
    pub(crate) fn new(start: &ControllerParameters, options: HyblaOptions) -> Self {
        Self { options, window: CongestionWindow::new(start), rho: 1.0 }
    }
}

impl WindowController for Hybla {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        let ratio = ack.min_rtt.as_secs_f64() / self.options.rtt0.as_secs_f64();
        self.rho = ratio.clamp(1.0, self.options.rho_max);
        if ack.phase == RepairPhase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        // 2^ρ − 1 segments per acknowledgement, and ρ² per round trip: the growth of a connection
        // with the round-trip time `rtt0`.
        if self.window.in_slow_start() {
            let gain = power_of_two(self.rho) - 1.0;
            self.window.slow_start((ack.credit.slow_start as f64 * gain) as u64);
        } else {
            self.window.avoid(self.rho * self.rho, ack.credit.avoidance as f64);
        }
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("rho", self.rho)]
    }
}
