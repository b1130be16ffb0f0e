//! Tahoe, Reno and `NewReno`.
//!
//! V. Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988; RFC 5681;
//! RFC 6582. Per acknowledgement of c countable bytes
//!
//! ```text
//! slow start             cwnd += c
//! congestion avoidance   cwnd += MSS · c / cwnd
//! loss                   ssthresh = max(FlightSize / 2, 2·MSS)
//!     Tahoe              cwnd = MSS
//!     Reno, NewReno      cwnd = ssthresh
//! time-out               cwnd = MSS
//! ```
//!
//! The three differ in how they repair losses: [`FastRecovery`].

use super::{Ack, Congestion, FastRecovery, Phase, Signal, Start, Window, Windowed};

#[derive(Debug, Clone)]
pub(crate) struct Reno {
    window: Window,
    recovery: FastRecovery,
}

impl Reno {
    pub(crate) fn new(start: &Start, recovery: FastRecovery) -> Self {
        Self { window: Window::new(start), recovery }
    }
}

impl Windowed for Reno {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        if ack.phase == Phase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        let mut share = 1.0;
        if self.window.in_slow_start() {
            share = self.window.slow_start(ack.credit.slow_start);
        }
        self.window.avoid(1.0, ack.credit.avoidance as f64 * share);
    }

    fn shrink(&mut self, event: &Congestion) {
        self.window.reduce(event.flight_size, 0.5);
        // Only a loss restarts Tahoe at one segment; a mark halves the window (RFC 3168 §6.1.2).
        if self.recovery == FastRecovery::GoBackN && event.signal == Signal::Loss {
            self.window.cwnd = self.window.mss;
        }
    }

    fn recovery(&self) -> FastRecovery {
        self.recovery
    }
}
