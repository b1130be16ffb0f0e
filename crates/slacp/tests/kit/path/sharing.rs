//! Sessions that share a link of 50 Mbit/s with each other, and with senders
//! that do not give way.

use core::time::Duration;

use link::{LinkConfig, LossModel};
use slacp::{Config, Law, Rate};
use stats::jain_index;

use super::cases::rate;
use super::{Path, Transfer, at, ms, queue_of};

pub const MBIT: f64 = 50.0;
/// When the first begins, in seconds.
pub const START: f64 = 2.0;

/// Two sessions that find out their rates.
#[derive(Debug, Clone, Copy)]
pub struct Sharing {
    /// How much later the second begins, in seconds.
    pub later: f64,
    /// Whether the second has half of the other's round trip of 600 ms.
    pub nearer: bool,
}

/// How they shared.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Jain's index of each 3 s, from seven round trips after the second's begin on.
    pub jain: Vec<f64>,
    /// The least that one of them got in 3 s, of its half.
    pub least: f64,
    /// The share of the link that both used.
    pub used: f64,
    /// The median of queueing delays.
    pub queue: Duration,
}

pub fn path(delay: Duration, seed: u64) -> Path {
    let queue = queue_of(rate(MBIT).bytes_in(ms(600)).get());
    let link = LinkConfig::new(rate(MBIT), delay, LossModel::None, queue);
    let ret = LinkConfig::new(rate(10.0), delay, LossModel::None, queue_of(750_000));
    Path::new(link, ret, seed)
}

pub fn session(path: &mut Path, start: f64, seed: u64) -> usize {
    lawful(path, Law::default(), start, seed)
}

/// A session that keeps to this law.
pub fn lawful(path: &mut Path, law: Law, start: f64, seed: u64) -> usize {
    let mut hub = Config::new(Rate::auto());
    hub.law = law;
    path.add(Transfer::new([hub, Config::new(rate(10.0))], 1 << 40, at(start), seed))
}

impl Sharing {
    pub fn run(&self, seed: u64) -> Shared {
        let delay = ms(if self.nearer { 150 } else { 300 });
        let mut path = path(delay, seed);
        // Seeds differ in when the second begins within the first one's rounds.
        let second = START + self.later + seed as f64 * 0.077;
        session(&mut path, START, seed);
        session(&mut path, second, seed + 100);
        if self.nearer {
            path.set_farther(0, ms(300));
        }
        let (from, end) = (second + 7.0 * 0.6, second + 26.0);
        path.run(at(end));
        let parts = (0..((end - from) / 3.0) as u32).map(|n| from + f64::from(n) * 3.0);
        let got = |flow: usize, from: f64| path.arrived(flow, at(from), at(from + 3.0));
        let both: Vec<[f64; 2]> = parts.map(|from| [got(0, from), got(1, from)]).collect();
        let least = both.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        Shared {
            jain: both.iter().filter_map(|got| jain_index(got)).collect(),
            least: least / (MBIT / 2.0),
            used: both.iter().flatten().sum::<f64>() / both.len() as f64 / MBIT,
            queue: path.queue(0, delay, 0.5, at(from), at(end)),
        }
    }
}

/// Beside UDP of so many Mbit/s from the begin on: the share of the rest that a
/// session gets from 8 s after its begin on, and the median of its
/// queueing delay.
pub fn beside_udp(mbit: f64, seed: u64) -> (f64, Duration) {
    let mut path = path(ms(300), seed);
    path.add_udp(rate(mbit), at(1.0));
    let flow = session(&mut path, START + seed as f64 * 0.077, seed);
    path.run(at(21.0));
    let got = path.arrived(flow, at(START + 8.0), at(20.0));
    (got / (MBIT - mbit), path.queue(flow, ms(300), 0.5, at(START + 8.0), at(20.0)))
}
