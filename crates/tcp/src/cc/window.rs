//! Common parts of window-based controllers.

use core::fmt;

use units::{ByteCount, Instant};

use super::{
    AckEvent, CongestionEvent, Controller, ControllerParameters, FastRecovery, TimeoutEvent,
};

/// A controller based on a [`CongestionWindow`] and rules to change it. The defaults are those of RFC 5681.
pub(crate) trait WindowController: fmt::Debug + Clone + Send + 'static {
    fn window(&self) -> &CongestionWindow;

    fn window_mut(&mut self) -> &mut CongestionWindow;

    /// Changes the window on an acknowledgement: [`Controller::on_ack`].
    fn grow(&mut self, ack: &AckEvent);

    /// Reduces the window on congestion: [`Controller::on_congestion`].
    fn shrink(&mut self, event: &CongestionEvent) {
        self.window_mut().reduce(event.flight_size, 0.5);
    }

    /// Reduces the window on a time-out: [`Controller::on_timeout`].
    fn collapse(&mut self, event: &TimeoutEvent) {
        self.window_mut().time_out(event, 0.5);
    }

    /// Limits the window after an idle time: [`Controller::on_idle`].
    fn restart(&mut self, window: ByteCount) {
        self.window_mut().restart(window);
    }

    /// The style of recovery: [`Controller::recovery`].
    fn recovery(&self) -> FastRecovery {
        FastRecovery::NewReno
    }

    /// Values for probes and plots: [`Controller::metrics`].
    fn metrics(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

impl<T: WindowController> Controller for T {
    fn on_ack(&mut self, ack: &AckEvent) {
        self.grow(ack);
    }

    fn on_congestion(&mut self, event: &CongestionEvent) {
        self.shrink(event);
    }

    fn on_timeout(&mut self, event: &TimeoutEvent) {
        self.collapse(event);
    }

    fn on_idle(&mut self, _now: Instant, restart: ByteCount) {
        self.restart(restart);
    }

    fn limit_slow_start(&mut self, ssthresh: ByteCount) {
        self.window_mut().limit_slow_start(ssthresh);
    }

    fn cwnd(&self) -> ByteCount {
        self.window().cwnd()
    }

    fn ssthresh(&self) -> ByteCount {
        self.window().ssthresh()
    }

    fn recovery(&self) -> FastRecovery {
        WindowController::recovery(self)
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        WindowController::metrics(self)
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// Window and threshold, with the arithmetic of RFC 5681 that most controllers share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CongestionWindow {
    pub(crate) mss: f64,
    /// In bytes. Fractions matter in congestion avoidance.
    pub(crate) cwnd: f64,
    pub(crate) ssthresh: f64,
}

impl CongestionWindow {
    pub(crate) fn new(start: &ControllerParameters) -> Self {
        Self { mss: start.mss as f64, cwnd: start.window as f64, ssthresh: start.ssthresh as f64 }
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start, up to the threshold. Returns the fraction of the credit that is left for
    /// congestion avoidance, in 0..=1.
    pub(crate) fn slow_start(&mut self, credit: u64) -> f64 {
        let credit = credit as f64;
        let room = self.ssthresh - self.cwnd;
        // Without credit (an echoed mark) nothing is left over either, and 0 / 0 is avoided.
        if credit <= 0.0 || credit < room {
            self.cwnd += credit;
            return 0.0;
        }
        self.cwnd = self.ssthresh;
        (credit - room) / credit
    }

    /// Grows the window by `segments` per round trip, of which `credit` bytes have been
    /// acknowledged: RFC 5681 §3.1 equation 3, with byte counting (RFC 3465).
    pub(crate) fn avoid(&mut self, segments: f64, credit: f64) {
        // An acknowledgement of more than a window still ends only one round trip.
        self.cwnd += segments * self.mss * (credit / self.cwnd).min(1.0);
    }

    /// Equation 4 of RFC 5681 with a general factor instead of one half: threshold and window
    /// become `factor` of what was in flight, but at least two segments.
    pub(crate) fn reduce(&mut self, flight_size: u64, factor: f64) {
        self.ssthresh = (flight_size as f64 * factor).max(2.0 * self.mss);
        self.cwnd = self.ssthresh;
    }

    /// Sets the window to one segment after a time-out (RFC 5681 §3.1).
    pub(crate) fn time_out(&mut self, event: &TimeoutEvent, factor: f64) {
        if !event.is_repeated {
            self.reduce(event.flight_size, factor);
        }
        self.cwnd = self.mss;
    }

    pub(crate) fn limit_slow_start(&mut self, ssthresh: ByteCount) {
        self.ssthresh = self.ssthresh.min(ssthresh.get() as f64);
    }

    pub(crate) fn restart(&mut self, window: ByteCount) {
        self.cwnd = self.cwnd.min(window.get() as f64);
    }

    pub(crate) fn cwnd(&self) -> ByteCount {
        ByteCount::new(self.cwnd as u64)
    }

    pub(crate) fn ssthresh(&self) -> ByteCount {
        ByteCount::new(self.ssthresh as u64)
    }
}
