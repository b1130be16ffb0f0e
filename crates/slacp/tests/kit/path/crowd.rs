//! Many sessions on one link that do not know of each other and begin at different times.

use core::time::Duration;

use slacp::Law;

use super::sharing::{MBIT, START, lawful, path};
use super::{at, ms};

/// They begin within so many seconds; what counts is the end of the time after that.
const BEGIN: f64 = 20.0;
const LASTS: f64 = 60.0;
const COUNTS: f64 = 30.0;

#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    pub count: usize,
    /// Whether round trips are 600, 300 and 40 ms by turns; 600 ms for all if not.
    pub unequal: bool,
    /// What all of them keep to.
    pub law: Law,
}

/// How they shared.
#[derive(Debug, Clone, Copy)]
pub struct Shared {
    /// The share of the link that all used.
    pub used: f64,
    /// The least that one got, of its equal share.
    pub least: f64,
    /// The median of queueing delays.
    pub median: Duration,
    /// The 95th percentile of queueing delays.
    pub queue: Duration,
    /// The share of packets lost.
    pub lost: f64,
}

impl Crowd {
    pub fn run(&self, seed: u64) -> Shared {
        let delay = ms(if self.unequal { 20 } else { 300 });
        let mut path = path(delay, seed);
        for n in 0..self.count {
            // Spread evenly, and otherwise with each seed (by the golden ratio).
            let part = ((n as f64 + 0.1) * 0.618_034 + seed as f64 * 0.137).fract();
            let flow = lawful(&mut path, self.law, START + BEGIN * part, seed * 1000 + n as u64);
            let more = [560, 260, 0][n % 3];
            if self.unequal && more > 0 {
                path.set_farther(flow, ms(more));
            }
        }
        let end = START + BEGIN + LASTS;
        let (from, until) = (at(end - COUNTS), at(end));
        path.run(until);
        let got: Vec<f64> = (0..self.count).map(|flow| path.arrived(flow, from, until)).collect();
        let of_all = path.records.iter().filter(|record| (from..until).contains(&record.sent));
        let queued: Vec<f64> = of_all
            .filter_map(|record| record.queued(delay).map(|queued| queued.as_secs_f64()))
            .collect();
        let queue = |p: f64| Duration::from_secs_f64(stats::percentile(&queued, p).unwrap_or(0.0));
        let lost = (0..self.count).map(|flow| path.loss(flow, from, until - delay * 2));
        Shared {
            used: got.iter().sum::<f64>() / MBIT,
            least: got.iter().copied().fold(f64::INFINITY, f64::min) * self.count as f64 / MBIT,
            median: queue(50.0),
            queue: queue(95.0),
            lost: lost.sum::<f64>() / self.count as f64,
        }
    }
}
