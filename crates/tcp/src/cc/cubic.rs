//! CUBIC (RFC 9438).
//!
//! In congestion avoidance, t seconds after the epoch began, with windows in
//! segments:
//!
//! ```text
//! W_cubic(t) = C·(t − K)³ + W_max                                 (equation 1)
//! K          = ∛((W_max − cwnd_epoch) / C)                        (equation 2)
//! target     = clamp(W_cubic(t + RTT), cwnd, 1.5·cwnd)
//! W_est     += α · acked / cwnd,  α = 3(1 − β)/(1 + β)            (equation 4)
//!              (α = 1 once W_est has reached the window before the loss)
//! cwnd       = W_est                  if W_cubic(t) < W_est
//! cwnd      += (target − cwnd) / cwnd per acknowledged segment    otherwise
//! loss:        W_max = cwnd, or cwnd·(1 + β)/2 when below the last W_max
//!              (fast convergence, §4.7)
//!              ssthresh = max(FlightSize·β, 2); cwnd = ssthresh
//! ```
//!
//! Slow start is that of RFC 5681 with `HyStart++` (RFC 9406), or with `HyStart`
//! as it was first, which Linux has (`hystart=2011`).
//!
//! Options: `hystart` (on), `beta` (0.7), `c` (0.4), `fast-convergence` (on),
//! `reno-friendly` (on).

use core::time::Duration;

use units::{ByteCount, Instant};

use super::hystart::{HyStart, SlowStartAdvice};
use super::hystart_2011::HyStart2011;
use super::math::cube_root;
use super::option::{OptionError, OptionReader};
use super::{
    AckEvent, CongestionEvent, CongestionWindow, ControllerParameters, RepairPhase, TimeoutEvent,
    WindowController,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct CubicOptions {
    hystart: HyStartVariant,
    beta: f64,
    c: f64,
    fast_convergence: bool,
    reno_friendly: bool,
}

/// The variant of `HyStart` that ends slow start early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HyStartVariant {
    Off,
    /// `HyStart++` of RFC 9406.
    PlusPlus,
    /// Ha and Rhee's of 2011, which Linux has.
    Original,
}

const VERSIONS: [(&str, HyStartVariant); 3] = [
    ("on", HyStartVariant::PlusPlus),
    ("off", HyStartVariant::Off),
    ("2011", HyStartVariant::Original),
];

/// The state of the early exit from slow start.
#[derive(Debug, Clone)]
enum HyStartState {
    PlusPlus(HyStart),
    Original(HyStart2011),
}

impl HyStartState {
    fn new(version: HyStartVariant, mss: u64) -> Option<Self> {
        match version {
            HyStartVariant::Off => None,
            HyStartVariant::PlusPlus => Some(Self::PlusPlus(HyStart::new(mss))),
            HyStartVariant::Original => Some(Self::Original(HyStart2011::new(mss))),
        }
    }

    fn on_ack(&mut self, ack: &AckEvent, window: &CongestionWindow) -> SlowStartAdvice {
        match self {
            Self::PlusPlus(hystart) => hystart.on_ack(ack),
            Self::Original(hystart) => hystart.on_ack(ack, window.cwnd().get()),
        }
    }

    fn is_conservative(&self) -> bool {
        matches!(self, Self::PlusPlus(hystart) if hystart.is_conservative())
    }
}

impl Default for CubicOptions {
    fn default() -> Self {
        Self {
            hystart: HyStartVariant::PlusPlus,
            beta: 0.7,
            c: 0.4,
            fast_convergence: true,
            reno_friendly: true,
        }
    }
}

impl CubicOptions {
    pub(crate) fn read(options: &mut OptionReader<'_>) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            hystart: options.one_of("hystart", default.hystart, &VERSIONS)?,
            beta: options.number("beta", default.beta, 0.1, 0.99)?,
            c: options.number("c", default.c, 0.001, 100.0)?,
            fast_convergence: options.switch("fast-convergence", default.fast_convergence)?,
            reno_friendly: options.switch("reno-friendly", default.reno_friendly)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    options: CubicOptions,
    window: CongestionWindow,
    /// `None` after slow start was left for the first time.
    hystart: Option<HyStartState>,
    /// Plateau of the cubic curve, in segments.
    w_max: f64,
    /// The window before the last reduction, in segments.
    prior: f64,
    epoch: Option<Epoch>,
    /// Time since which the window has not been the limit.
    idle_since: Option<Instant>,
}

/// An epoch of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Instant,
    /// K: time from the start to the plateau, in seconds.
    k: f64,
    /// Window at the plateau of the curve, in segments.
    origin: f64,
    /// The window Reno would have, in segments.
    w_est: f64,
}

impl Cubic {
    pub(crate) fn new(start: &ControllerParameters, options: CubicOptions) -> Self {
        Self {
            options,
            window: CongestionWindow::new(start),
            hystart: HyStartState::new(options.hystart, start.mss),
            w_max: 0.0,
            prior: 0.0,
            epoch: None,
            idle_since: None,
        }
    }

    /// Grows the window in slow start; returns the fraction of the acknowledgement that is left for
    /// congestion avoidance.
    fn slow_start(&mut self, ack: &AckEvent) -> f64 {
        let Some(hystart) = &mut self.hystart else {
            return self.window.slow_start(ack.credit.slow_start);
        };
        match hystart.on_ack(ack, &self.window) {
            SlowStartAdvice::Grow(bytes) => self.window.slow_start(bytes),
            SlowStartAdvice::Leave => {
                self.window.ssthresh = self.window.cwnd;
                self.hystart = None;
                0.0
            }
        }
    }

    fn segments(&self) -> f64 {
        self.window.cwnd / self.window.mss
    }

    /// §4.2: after slow start without loss, K is 0 and `W_max` the window.
    fn begin_epoch(&self, now: Instant) -> Epoch {
        let cwnd = self.segments();
        let (k, origin) = if cwnd < self.w_max {
            (cube_root((self.w_max - cwnd) / self.options.c), self.w_max)
        } else {
            (0.0, cwnd)
        };
        Epoch { start: now, k, origin, w_est: cwnd }
    }

    fn cubic(&self, epoch: &Epoch, elapsed: Duration) -> f64 {
        let t = elapsed.as_secs_f64() - epoch.k;
        self.options.c * t * t * t + epoch.origin
    }

    fn avoid(&mut self, ack: &AckEvent, acked: f64) {
        let cwnd = self.segments();
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin_epoch(ack.now));
        let elapsed = ack.now.saturating_since(epoch.start);
        let beta = self.options.beta;
        // §4.3: α is 1 once the estimate has reached the window of the last reduction, as Reno's.
        let alpha = if epoch.w_est >= self.prior { 1.0 } else { 3.0 * (1.0 - beta) / (1.0 + beta) };
        let acked = acked / self.window.mss;
        epoch.w_est += alpha * acked / cwnd;
        let grown = if self.options.reno_friendly && self.cubic(&epoch, elapsed) < epoch.w_est {
            epoch.w_est.max(cwnd)
        } else {
            let target = self.cubic(&epoch, elapsed + ack.smoothed_rtt).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) / cwnd * acked
        };
        self.epoch = Some(epoch);
        self.window.cwnd = grown * self.window.mss;
    }

    fn reduce(&mut self) {
        let cwnd = self.segments();
        let beta = self.options.beta;
        // §4.7: a flow whose window still falls gives room to newer ones.
        let converge = self.options.fast_convergence && cwnd < self.w_max;
        self.w_max = if converge { cwnd * (1.0 + beta) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.epoch = None;
        // RFC 9406 §4.3: only the initial slow start is left early.
        self.hystart = None;
    }
}

impl WindowController for Cubic {
    fn window(&self) -> &CongestionWindow {
        &self.window
    }

    fn window_mut(&mut self) -> &mut CongestionWindow {
        &mut self.window
    }

    fn grow(&mut self, ack: &AckEvent) {
        if ack.phase == RepairPhase::Recovery {
            return;
        }
        if !ack.is_cwnd_limited {
            self.idle_since = self.idle_since.or(Some(ack.now));
            return;
        }
        // §5.8: time during which the window was not the limit does not count.
        if let (Some(since), Some(epoch)) = (self.idle_since.take(), &mut self.epoch) {
            epoch.start += ack.now.saturating_since(since.max(epoch.start));
        }
        let mut share = 1.0;
        if self.window.in_slow_start() {
            share = self.slow_start(ack);
        }
        let acked = ack.credit.avoidance as f64 * share;
        if acked > 0.0 {
            self.avoid(ack, acked);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        self.reduce();
        self.window.reduce(event.flight_size, self.options.beta);
    }

    fn collapse(&mut self, event: &TimeoutEvent) {
        if !event.is_repeated {
            self.reduce();
            // §4.8: the next epoch starts at its own plateau.
            self.w_max = 0.0;
        }
        self.window.time_out(event, self.options.beta);
    }

    fn restart(&mut self, window: ByteCount) {
        self.window.restart(window);
        self.epoch = None;
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        let epoch = self.epoch.as_ref();
        let conservative = self.hystart.as_ref().is_some_and(HyStartState::is_conservative);
        vec![
            ("w_max", self.w_max),
            ("k", epoch.map_or(0.0, |epoch| epoch.k)),
            ("w_est", epoch.map_or(0.0, |epoch| epoch.w_est)),
            ("css", f64::from(u8::from(conservative))),
        ]
    }
}
