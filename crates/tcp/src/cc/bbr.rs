//! BBR, version 1: the window and the rate that the measured bandwidth and
//! propagation delay need; loss is not a signal.
//!
//! N. Cardwell, Y. Cheng, C. S. Gunn, S. H. Yeganeh and V. Jacobson, "BBR:
//! Congestion-Based Congestion Control", ACM Queue 14(5), 2016;
//! draft-cardwell-iccrg-bbr-congestion-control-00.
//!
//! ```text
//! BtlBw  = max delivery rate of the last 10 round trips
//! RTprop = min RTT of the last 10 s
//! pacing = pacing_gain · BtlBw              (less 1 %, as in Linux)
//! cwnd   → cwnd_gain · BtlBw · RTprop + 3 segments, at least 4
//! Startup   gains 2/ln 2; until BtlBw has not grown by 25 % for 3 rounds
//! Drain     pacing gain ln 2/2; until one BDP is in flight
//! ProbeBW   pacing gains 5/4, 3/4, 1, 1, 1, 1, 1, 1 for an RTprop each; cwnd 2
//! ProbeRTT  4 segments for 200 ms and a round, when RTprop is 10 s old
//! recovery  begins a round, which conserves packets; after it the window comes back
//! time-out  one segment; the window comes back with the recovery
//! ```
//!
//! Not modelled: the long-term sampling that detects policers, and the
//! allowance for aggregated acknowledgements of later versions.

use core::time::Duration;
use std::collections::VecDeque;

use units::{BitRate, ByteCount, Instant};

use super::{
    AckEvent, CongestionEvent, CongestionSignal, Controller, ControllerParameters, RateSample,
    RepairPhase, TimeoutEvent,
};

/// 2/ln 2: the smallest gain with which the sending rate doubles in each round.
const HIGH_GAIN: f64 = 2.885_390_081_777_927;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Length of the bandwidth filter, in round trips.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Age at which `RTprop` must be measured again.
const RTPROP_AGE: Duration = Duration::from_secs(10);
/// Time for which `ProbeRTT` keeps the flight small.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Window of `ProbeRTT`, and minimum window otherwise: enough for delayed acknowledgements.
const MIN_SEGMENTS: f64 = 4.0;
/// Linux paces 1 % below the bandwidth, to keep the queue at the bottleneck small.
const MARGIN: f64 = 0.99;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

#[derive(Debug, Clone)]
pub(crate) struct Bbr {
    mss: f64,
    initial: f64,
    cwnd: f64,
    /// The window before recovery or `ProbeRTT`.
    prior: f64,
    mode: Mode,
    /// Rounds with their rates in bit/s, in decreasing order of the rates: the first is the
    /// maximum.
    bandwidths: VecDeque<(u64, f64)>,
    rtprop: Option<Duration>,
    rtprop_at: Instant,
    round: u64,
    /// The round ends when data is acknowledged that was sent after this many bytes had been
    /// delivered.
    round_end: u64,
    full_bandwidth: f64,
    full_rounds: u32,
    filled: bool,
    cycle: usize,
    cycle_at: Instant,
    /// The earliest end of `ProbeRTT`, set once the window is small, and its round.
    probe_done: Option<(Instant, u64)>,
    /// Recovery has begun, and the acknowledgement that revealed the loss is still to be handled.
    begins_recovery: bool,
    /// Packets are conserved for the first round of recovery.
    conserves: bool,
    in_recovery: bool,
    lost: bool,
    rate: f64,
}

impl Bbr {
    pub(crate) fn new(start: &ControllerParameters) -> Self {
        Self {
            mss: start.mss as f64,
            initial: start.window as f64,
            cwnd: start.window as f64,
            prior: 0.0,
            mode: Mode::Startup,
            bandwidths: VecDeque::new(),
            rtprop: None,
            rtprop_at: Instant::ZERO,
            round: 0,
            round_end: 0,
            full_bandwidth: 0.0,
            full_rounds: 0,
            filled: false,
            // Any phase except the second (draft §4.3.4.3), chosen by the seed.
            cycle: [0, 2, 3, 4, 5, 6, 7][(start.seed % 7) as usize],
            cycle_at: Instant::ZERO,
            probe_done: None,
            begins_recovery: false,
            conserves: false,
            in_recovery: false,
            lost: false,
            rate: 0.0,
        }
    }

    fn bandwidth(&self) -> f64 {
        self.bandwidths.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBw => (CYCLE[self.cycle], 2.0),
            Mode::ProbeRtt => (1.0, 1.0),
        }
    }

    /// Returns `gain` BDPs in bytes, plus three segments for the quanta in which end systems send
    /// and acknowledge; the initial window before there are samples.
    fn inflight(&self, gain: f64) -> f64 {
        match self.rtprop {
            Some(rtprop) if self.bandwidth() > 0.0 => {
                gain * self.bandwidth() / 8.0 * rtprop.as_secs_f64() + 3.0 * self.mss
            }
            _ => self.initial,
        }
    }

    /// Updates the bandwidth filter; returns true at the start of a round.
    fn update_bandwidth(&mut self, ack: &AckEvent, sample: &RateSample) -> bool {
        let begins = sample.prior_delivered.get() >= self.round_end;
        if begins {
            self.round_end = ack.total_delivered;
            self.round += 1;
            self.conserves = false;
        }
        let rate = sample.rate().bits_per_second() as f64;
        // A sample limited by the application only shows that the path carries at least its rate.
        if rate >= self.bandwidth() || !sample.is_app_limited {
            while self.bandwidths.back().is_some_and(|(_, old)| *old <= rate) {
                self.bandwidths.pop_back();
            }
            self.bandwidths.push_back((self.round, rate));
        }
        let oldest = self.round.saturating_sub(BANDWIDTH_ROUNDS);
        while self.bandwidths.len() > 1 && self.bandwidths[0].0 < oldest {
            self.bandwidths.pop_front();
        }
        begins
    }

    fn check_full_pipe(&mut self, sample: &RateSample) {
        if self.filled || sample.is_app_limited {
            return;
        }
        // Growth by less than a quarter for three rounds: the pipe is full (draft §4.3.2.2).
        if self.bandwidth() >= self.full_bandwidth * 1.25 {
            self.full_bandwidth = self.bandwidth();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= 3;
    }

    fn update_mode(&mut self, ack: &AckEvent) {
        if self.mode == Mode::Startup && self.filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight as f64 <= self.inflight(1.0) {
            self.mode = Mode::ProbeBw;
            self.cycle_at = ack.now;
        }
        if self.mode == Mode::ProbeBw && self.phase_is_over(ack) {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = ack.now;
            self.lost = false;
        }
    }

    fn phase_is_over(&self, ack: &AckEvent) -> bool {
        let full = ack.now.saturating_since(self.cycle_at) > self.rtprop.unwrap_or_default();
        match CYCLE[self.cycle] {
            // Probing needs a flight that large to show more bandwidth, unless losses already stop
            // it.
            gain if gain > 1.0 => {
                full && (self.lost || ack.prior_in_flight as f64 >= self.inflight(gain))
            }
            gain if gain < 1.0 => full || ack.prior_in_flight as f64 <= self.inflight(1.0),
            _ => full,
        }
    }

    fn update_rtprop(&mut self, ack: &AckEvent) {
        let expired = ack.now.saturating_since(self.rtprop_at) > RTPROP_AGE;
        if let Some(rtt) = ack.rtt
            && (expired || self.rtprop.is_none_or(|old| rtt <= old))
        {
            (self.rtprop, self.rtprop_at) = (Some(rtt), ack.now);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            // ProbeRTT cuts the window, which returns afterwards.
            self.save();
            self.probe_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            self.update_probe_rtt(ack);
        }
    }

    fn update_probe_rtt(&mut self, ack: &AckEvent) {
        match self.probe_done {
            None if ack.in_flight as f64 <= MIN_SEGMENTS * self.mss => {
                self.probe_done = Some((ack.now + PROBE_RTT_TIME, self.round + 1));
                // A round begins here that sees the small flight only.
                self.round_end = ack.total_delivered;
            }
            Some((at, round)) if ack.now >= at && self.round >= round => {
                self.rtprop_at = ack.now;
                self.cwnd = self.cwnd.max(self.prior);
                self.mode = if self.filled { Mode::ProbeBw } else { Mode::Startup };
                self.cycle_at = ack.now;
            }
            _ => {}
        }
    }

    fn save(&mut self) {
        // The window is already cut then, so the larger of the two values is the one to restore.
        let small = self.in_recovery || self.mode == Mode::ProbeRtt;
        self.prior = if small { self.prior.max(self.cwnd) } else { self.cwnd };
    }

    fn update_cwnd(&mut self, ack: &AckEvent) {
        let delivered = ack.delivered as f64;
        let in_flight = ack.in_flight as f64;
        let target = self.inflight(self.gains().1);
        if std::mem::take(&mut self.begins_recovery) {
            // The round restarts: Startup must not count rounds in which packets are conserved, or
            // it ends too early (docs/decisions.md).
            self.conserves = true;
            self.round_end = ack.total_delivered;
        }
        if self.conserves {
            self.cwnd = self.cwnd.max(in_flight + delivered);
            self.bound(ack);
            return;
        }
        if self.filled {
            self.cwnd = (self.cwnd + delivered).min(target);
        // As in Linux: Startup may exceed the target until an initial window was delivered.
        } else if self.cwnd < target || (ack.total_delivered as f64) < self.initial {
            self.cwnd += delivered;
        }
        self.bound(ack);
    }

    fn bound(&mut self, ack: &AckEvent) {
        // After a time-out the window grows from one segment (RFC 5681 §3.1).
        if ack.phase != RepairPhase::Loss {
            self.cwnd = self.cwnd.max(MIN_SEGMENTS * self.mss);
        }
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_SEGMENTS * self.mss);
        }
    }

    fn update_rate(&mut self, ack: &AckEvent) {
        let gain = self.gains().0;
        if self.bandwidth() > 0.0 {
            let rate = gain * self.bandwidth() * MARGIN;
            // As in Linux: until the pipe is full, a low sample must not slow Startup down.
            if self.filled || rate > self.rate {
                self.rate = rate;
            }
        } else if !ack.smoothed_rtt.is_zero() {
            self.rate = gain * self.initial * 8.0 / ack.smoothed_rtt.as_secs_f64();
        }
    }
}

impl Controller for Bbr {
    fn on_ack(&mut self, ack: &AckEvent) {
        self.in_recovery = ack.phase != RepairPhase::Open;
        if let Some(sample) = &ack.rate
            && self.update_bandwidth(ack, sample)
        {
            self.check_full_pipe(sample);
        }
        self.update_mode(ack);
        self.update_rtprop(ack);
        self.update_rate(ack);
        self.update_cwnd(ack);
    }

    fn on_congestion(&mut self, event: &CongestionEvent) {
        // Version 1 has no reaction to marks.
        if event.signal == CongestionSignal::Ecn {
            return;
        }
        self.lost = true;
        self.save();
        self.in_recovery = true;
        self.begins_recovery = true;
        // As in Linux, recovery begins with what is in flight.
        self.cwnd = (event.in_flight as f64).max(self.mss);
    }

    fn on_timeout(&mut self, event: &TimeoutEvent) {
        if !event.is_repeated {
            self.save();
        }
        self.lost = true;
        self.in_recovery = true;
        (self.begins_recovery, self.conserves) = (false, false);
        self.cwnd = self.mss;
    }

    /// Pacing at the known bandwidth bounds the burst, so the window need not restart.
    fn on_idle(&mut self, _now: Instant, _restart: ByteCount) {}

    fn on_recovered(&mut self, _now: Instant, _in_flight: ByteCount) {
        self.in_recovery = false;
        (self.begins_recovery, self.conserves) = (false, false);
        self.cwnd = self.cwnd.max(self.prior);
    }

    fn cwnd(&self) -> ByteCount {
        ByteCount::new(self.cwnd as u64)
    }

    fn ssthresh(&self) -> ByteCount {
        ByteCount::new(u64::MAX)
    }

    fn pacing(&self) -> Option<BitRate> {
        (self.rate > 0.0).then(|| BitRate::from_bits_per_second(self.rate as u64))
    }

    fn rules_recovery(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        let rtprop = self.rtprop.unwrap_or_default().as_secs_f64();
        vec![
            ("mode", f64::from(self.mode as u8)),
            ("btlbw", self.bandwidth()),
            ("rtprop", rtprop),
            ("pacing_gain", self.gains().0),
        ]
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
