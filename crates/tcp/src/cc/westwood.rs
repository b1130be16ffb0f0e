//! Westwood and Westwood+: after a loss, the window follows the measured bandwidth.
//!
//! ```text
//! loss:     ssthresh = max(BWE · RTT_min, 2·MSS); cwnd = min(cwnd, ssthresh)
//! time-out: the same threshold; cwnd = MSS
//! ```
//!
//! and otherwise like Reno. They differ in the estimate BWE.
//!
//! `tcpw` is TCP Westwood, also called TCPW: S. Mascolo, C. Casetti, M. Gerla, M. Y. Sanadidi and
//! R. Wang, "TCP Westwood: bandwidth estimation for enhanced transport over wireless links", MobiCom
//! 2001; C. Casetti et al., Wireless Networks 8(5), 2002. With every acknowledgement of d_k bytes, Δ_k
//! after the one before,
//!
//! ```text
//! b_k   = d_k / Δ_k                     (0 if none arrives for τ/2)
//! α_k   = (2τ − Δ_k) / (2τ + Δ_k)
//! BWE_k = α_k·BWE_(k−1) + (1 − α_k)·(b_k + b_(k−1))/2
//! ```
//!
//! Acknowledgements that queues have compressed look like a high bandwidth, so it overestimates its
//! share. Option: `tau` (500 ms, as in the paper).
//!
//! `westwood` is Westwood+: L. A. Grieco and S. Mascolo, "Performance evaluation and comparison of
//! Westwood+, New Reno, and Vegas TCP congestion control", ACM CCR 34(2), 2004. Once per round trip,
//! from the bytes acknowledged in it, which compression does not change,
//!
//! ```text
//! b_k   = bytes / RTT
//! BWE   = 0.9·BWE + 0.1·b_k             (the first sample as it is)
//! ```
//!
//! A round is at least 50 ms, as in the authors' code. Option: `filter` (0.9).

mod bandwidth;

use super::{
    AckEvent, CongestionEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent,
    WindowController,
};

pub(crate) use bandwidth::BandwidthEstimator;

#[derive(Debug, Clone)]
pub(crate) struct Westwood {
    window: CongestionWindow,
    estimate: BandwidthEstimator,
    /// Minimum RTT of the connection, in seconds.
    min_rtt: f64,
}

impl Westwood {
    pub(crate) fn new(start: &ControllerParameters, estimate: BandwidthEstimator) -> Self {
        Self { window: CongestionWindow::new(start), estimate, min_rtt: 0.0 }
    }

    /// The estimated bandwidth-delay product in bytes, or half the flight without an estimate; at least
    /// two segments.
    fn share(&self, flight_size: u64) -> f64 {
        let share =
            self.estimate.bandwidth().map_or(flight_size as f64 / 2.0, |rate| rate * self.min_rtt);
        share.max(2.0 * self.window.mss)
    }
}

impl WindowController for Westwood {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        self.min_rtt = ack.min_rtt.as_secs_f64();
        self.estimate.measure(ack);
        if ack.phase == RepairPhase::Recovery || !ack.is_cwnd_limited {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(ack.credit.slow_start);
        } else {
            self.window.avoid(1.0, ack.credit.avoidance as f64);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        self.window.ssthresh = self.share(event.flight_size);
        self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        if !event.is_repeated {
            // RFC 5681 §3.1: the threshold stays if nothing was acknowledged since the last
            // time-out.
            self.window.ssthresh = self.share(event.flight_size);
        }
        self.window.cwnd = self.window.mss;
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("bandwidth", self.estimate.bandwidth().unwrap_or(0.0) * 8.0)]
    }
}
