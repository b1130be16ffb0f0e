//! Measurement of the link's packet loss: its rate, and its bursts.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use crate::spare::FreeSpare as _;

/// Averaging horizon of the loss rate, in packets.
const HORIZON: f64 = 4000.0;
/// Until this many packets have been observed …
const UNMEASURED: f64 = 300.0;
/// … the link is assumed to lose at least this fraction: the first request of a session should not
/// wait two round trips just for being the first.
const ASSUMED: f64 = 0.01;
/// Below one loss in this many horizons the link counts as clean.
const CLEAN: f64 = 20.0;
/// Minimum number of consecutive losses that form a burst; fewer are isolated losses.
const BURST: u32 = 3;
/// Averaging horizon of the burst frequency, in seconds of traffic.
const BURST_HORIZON: f64 = 60.0;
/// Number of recent bursts, of which FEC covers the longest.
const BURSTS_KEPT: usize = 16;
/// Averaging horizon of the loss of retransmissions, in retransmissions.
const RETRANSMISSION_HORIZON: f64 = 128.0;
/// Maximum gap between packets for which the link counts as observed.
const MAX_OBSERVED_GAP: Duration = Duration::from_millis(100);

/// The fate of a packet on the link. One restored by FEC counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketFate {
    /// Sending time of the packet.
    pub(crate) time: Instant,
    /// Size of the IP packet in bytes.
    pub(crate) size: u16,
    pub(crate) lost: bool,
}

/// Measures loss from the fates of packets, in sending order. Packets that the peer restored by FEC
/// count as lost, because the link did lose them.
///
/// Losses by congestion are not told apart; they are the rate control's concern.
#[derive(Debug, Default)]
pub(crate) struct LossMeter {
    /// Number of packets, of lost ones, and of isolated losses, with weights that decay over
    /// [`HORIZON`].
    sent: f64,
    lost: f64,
    lone: f64,
    /// The consecutive losses that end with the last packet seen.
    run: Option<LossRun>,
    seen_last: Option<Instant>,
    /// Seconds of traffic and bursts in them, decaying over [`BURST_HORIZON`].
    observed: f64,
    bursts: f64,
    lengths: VecDeque<Duration>,
    /// Packets in each of the last [`BURSTS_KEPT`] runs, however short.
    runs: VecDeque<u32>,
    /// Retransmissions of packets, and those of them that were lost or restored, decaying over
    /// [`RETRANSMISSION_HORIZON`].
    again: f64,
    again_lost: f64,
}

/// Consecutive losses, by the sending times of the first and the last.
#[derive(Debug)]
struct LossRun {
    begin: Instant,
    end: Instant,
    count: u32,
}

/// Length and frequency of the link's bursts of losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BurstStats {
    /// Length of the longest recent burst.
    pub(crate) length: Duration,
    /// Bursts per second of traffic.
    pub(crate) per_second: f64,
}

impl LossMeter {
    /// Records the fate of the next packet, in the order of sending.
    pub(crate) fn record(&mut self, time: Instant, lost: bool) {
        self.sent = self.sent * (1.0 - 1.0 / HORIZON) + 1.0;
        self.lost *= 1.0 - 1.0 / HORIZON;
        self.lone *= 1.0 - 1.0 / HORIZON;
        self.observe(time);
        if lost {
            self.lost += 1.0;
            let run = self.run.get_or_insert(LossRun { begin: time, end: time, count: 0 });
            run.end = time;
            run.count += 1;
        } else if let Some(run) = self.run.take() {
            self.end_run(&run);
        }
    }

    /// Records the fate of a retransmission. Conditions that destroyed the original are usually
    /// over by then, so retransmissions fare better than packets in general.
    pub(crate) fn record_retransmission(&mut self, lost: bool) {
        let keep = 1.0 - 1.0 / RETRANSMISSION_HORIZON;
        self.again = self.again * keep + 1.0;
        self.again_lost = self.again_lost * keep + f64::from(u8::from(lost));
    }

    /// Loss probability of retransmissions for which repairs are provided: one standard deviation
    /// above the measured one; 0 if none was lost lately.
    pub(crate) fn retransmission_loss(&self) -> f64 {
        if self.again_lost < 1.0 / CLEAN {
            return 0.0;
        }
        ((self.again_lost + self.again_lost.sqrt()) / self.again).min(0.5)
    }

    /// Frees allocated memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.lengths.free_spare();
        self.runs.free_spare();
    }

    /// Revokes a loss, because the packet has arrived after all.
    pub(crate) fn revoke_loss(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
        self.lone = self.lone.min(self.lost);
    }

    fn observe(&mut self, time: Instant) {
        let last = self.seen_last.replace(time).unwrap_or(time);
        // Pauses without traffic show no bursts and must not lower their frequency.
        let passed = time.saturating_since(last).min(MAX_OBSERVED_GAP).as_secs_f64();
        let keep = 1.0 - passed / BURST_HORIZON;
        self.observed = self.observed * keep + passed;
        self.bursts *= keep;
        // About three minutes of traffic after the last burst.
        if self.bursts < 1.0 / CLEAN {
            self.lengths.clear();
        }
    }

    fn end_run(&mut self, run: &LossRun) {
        self.runs.push_back(run.count);
        if self.runs.len() > BURSTS_KEPT {
            self.runs.pop_front();
        }
        if run.count < BURST {
            self.lone += f64::from(run.count);
            return;
        }
        self.bursts += 1.0;
        self.lengths.push_back(run.end.saturating_since(run.begin));
        if self.lengths.len() > BURSTS_KEPT {
            self.lengths.pop_front();
        }
    }

    /// Measured loss probability of a packet.
    pub(crate) fn rate(&self) -> f64 {
        if self.sent == 0.0 { 0.0 } else { (self.lost / self.sent).min(1.0) }
    }

    /// Recent bursts of at least three packets; `None` without any.
    pub(crate) fn bursts(&self) -> Option<BurstStats> {
        let length = self.lengths.iter().max().copied()?;
        Some(BurstStats { length, per_second: self.bursts / self.observed.max(1.0) })
    }

    /// Number of packets in the longest recent run of losses, the present one included; at least 1.
    pub(crate) fn longest_run(&self) -> u32 {
        let present = self.run.as_ref().map_or(1, |run| run.count);
        self.runs.iter().copied().max().unwrap_or(1).max(present)
    }

    /// Returns whether the link loses too little for repairs.
    pub(crate) fn is_clean(&self) -> bool {
        // The weight of the last isolated loss falls below this after 12,000 packets.
        self.sent >= UNMEASURED && self.lone < 1.0 / CLEAN && self.lengths.is_empty()
    }

    /// Probability of an isolated loss for which repairs are provided: one standard deviation above
    /// the measured one; 0 on a clean link.
    pub(crate) fn isolated_rate(&self) -> f64 {
        let least = if self.sent < UNMEASURED { ASSUMED } else { 0.0 };
        if self.lone < 1.0 / CLEAN {
            return least;
        }
        let provided = (self.lone + self.lone.sqrt()) / self.sent;
        provided.clamp(least, 0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_are_provided_for_once_one_was_lost_and_then_less_and_less() {
        let mut meter = LossMeter::default();
        (0..100).for_each(|_| meter.record_retransmission(false));
        assert_eq!(meter.retransmission_loss(), 0.0);
        meter.record_retransmission(true);
        let fresh = meter.retransmission_loss();
        assert!((0.02..0.04).contains(&fresh), "{fresh}");
        (0..100).for_each(|_| meter.record_retransmission(false));
        assert!((1e-9..fresh).contains(&meter.retransmission_loss()));
        (0..400).for_each(|_| meter.record_retransmission(false));
        assert_eq!(meter.retransmission_loss(), 0.0);
    }

    #[test]
    fn the_longest_run_of_losses_counts_however_short_and_while_it_lasts() {
        let mut meter = after(100, |i| i == 50 || i == 51);
        assert_eq!(meter.longest_run(), 2);
        let begin = Instant::from_nanos(1_000_000_000);
        (0..3).for_each(|_| meter.record(begin, true));
        assert_eq!((meter.longest_run(), LossMeter::default().longest_run()), (3, 1));
    }

    /// Packets a millisecond apart, each lost if `lost` says so.
    fn after(count: u64, lost: impl Fn(u64) -> bool) -> LossMeter {
        let mut meter = LossMeter::default();
        for i in 0..count {
            meter.record(Instant::from_nanos(i * 1_000_000), lost(i));
        }
        meter
    }

    #[test]
    fn lone_losses_are_a_rate() {
        let meter = after(20_000, |i| i % 50 == 7);
        assert!((meter.rate() - 0.02).abs() < 1e-3, "{}", meter.rate());
        let deviation = (0.02 / HORIZON).sqrt();
        let provided = 0.02 + deviation;
        assert!((meter.isolated_rate() - provided).abs() < 1e-3, "{}", meter.isolated_rate());
        assert_eq!(meter.bursts(), None);
    }

    #[test]
    fn bursts_have_a_length_and_a_frequency() {
        let meter = after(100_000, |i| i % 2000 < 100);
        let bursts = meter.bursts().unwrap();
        assert_eq!(bursts.length, Duration::from_millis(99));
        assert!((bursts.per_second - 0.5).abs() < 0.05, "{bursts:?}");
        assert_eq!(meter.isolated_rate(), 0.0);
        assert!(meter.rate() > 0.02);
    }

    #[test]
    fn a_link_is_clean_only_once_it_is_measured() {
        assert_eq!(after(0, |_| false).isolated_rate(), ASSUMED);
        assert_eq!(after(290, |_| false).isolated_rate(), ASSUMED);
        assert_eq!(after(320, |_| false).isolated_rate(), 0.0);
        assert!(!after(290, |_| false).is_clean() && after(320, |_| false).is_clean());
    }

    #[test]
    fn a_link_becomes_clean_again() {
        assert!(after(11_000, |i| i == 100).isolated_rate() > 0.0);
        assert_eq!(after(13_000, |i| i == 100).isolated_rate(), 0.0);
        assert!(after(100_000, |i| i < 50).bursts().is_some());
        assert_eq!(after(300_000, |i| i < 50).bursts(), None);
    }

    #[test]
    fn what_came_late_was_not_lost() {
        let mut meter = after(1000, |i| i == 500);
        meter.revoke_loss();
        assert_eq!((meter.rate(), meter.isolated_rate()), (0.0, 0.0));
    }

    #[test]
    fn silence_is_not_observed() {
        let mut meter = LossMeter::default();
        for i in 0..100 {
            meter.record(Instant::from_nanos(i * 1_000_000_000), (40..45).contains(&i));
        }
        let bursts = meter.bursts().unwrap();
        assert!(bursts.per_second > 0.09, "{bursts:?}");
    }
}
