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

use super::{
    AckEvent, CongestionEvent, CongestionSignal, CongestionWindow, ControllerParameters,
    FastRecovery, RepairPhase, WindowController,
};

#[derive(Debug, Clone)]
pub(crate) struct Reno {
    window: CongestionWindow,
    recovery: FastRecovery,
}

impl Reno {
    pub(crate) fn new(start: &ControllerParameters, recovery: FastRecovery) -> Self {
        Self { window: CongestionWindow::new(start), recovery }
    }
}

impl WindowController for Reno {
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
        // The part of the acknowledgement beyond the threshold is left for congestion avoidance.
        let mut share = 1.0;
        if self.window.in_slow_start() {
            share = self.window.slow_start(ack.credit.slow_start);
        }
        self.window.avoid(1.0, ack.credit.avoidance as f64 * share);
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        self.window.reduce(event.flight_size, 0.5);
        // Only a loss restarts Tahoe at one segment; a mark halves the window (RFC 3168 §6.1.2).
        if self.recovery == FastRecovery::GoBackN && event.signal == CongestionSignal::Loss {
            self.window.cwnd = self.window.mss;
        }
    }

    fn recovery(&self) -> FastRecovery {
        self.recovery
    }
}
