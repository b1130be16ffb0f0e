//! Links whose rate falls and rises while a session uses all of it.

use core::time::Duration;

use link::{LinkConfig, LossModel};
use slacp::{Config, Rate};
use units::{ByteCount, Instant};

use super::cases::rate;
use super::{Path, Record, Transfer, at, ms, queue_of};

/// One way.
pub const DELAY: Duration = Duration::from_millis(300);
const RTT: f64 = 0.6;
/// Queueing delay below which a queue is negligible.
pub const CALM: Duration = Duration::from_millis(50);
/// When the transfer starts, and when the rate first changes, in seconds.
const START: f64 = 2.0;
pub const FALL: f64 = 12.0;

/// The changes of a link of 50 Mbit/s and 600 ms.
#[derive(Debug, Clone)]
pub struct Fade {
    pub name: &'static str,
    /// How long the queue takes to empty at 50 Mbit/s.
    pub queue: Duration,
    /// The rate in Mbit/s from each time in seconds.
    pub steps: Vec<(f64, f64)>,
    pub end: f64,
}

/// How well it was followed.
#[derive(Debug, Clone, Copy)]
pub struct Followed {
    /// How long after the last fall the link needs for what was in flight by then, and for one more
    /// round trip: the sender cannot know earlier.
    pub earliest: f64,
    /// Time from the last fall until the queue stays calm, up to the rate's rise.
    pub calm: f64,
    /// Time from the last rise until the link stays full, at its near end.
    pub full: f64,
    /// The fraction of the link's capacity used, from the first fall to the last rise.
    pub used: f64,
    /// The fraction of packets sent during that time that were lost.
    pub lost: f64,
}

impl Fade {
    /// 50 → 5 → 50 Mbit/s at once.
    pub fn step(name: &'static str, queue: Duration) -> Self {
        Self { name, queue, steps: vec![(FALL, 5.0), (FALL + 20.0, 50.0)], end: FALL + 26.0 }
    }

    /// Down in ten steps over so many seconds, and up again.
    pub fn ramp(name: &'static str, seconds: f64) -> Self {
        let step = |n: f64| 50.0 * 0.1_f64.powf(n / 10.0);
        let down = (1..=10).map(|n| (FALL + seconds * f64::from(n) / 10.0, step(n.into())));
        let rise = FALL + seconds + 20.0;
        let up = (0..10).rev().map(|n| (rise + seconds * f64::from(9 - n) / 10.0, step(n.into())));
        let steps = down.chain(up).collect();
        Self { name, queue: ms(600), steps, end: rise + seconds + 6.0 }
    }

    pub fn run(&self, seed: u64) -> Followed {
        let mut path = self.path(seed);
        path.run(at(self.end));
        self.judge(&path)
    }

    /// The link with its session and its changes, before they begin.
    pub fn path(&self, seed: u64) -> Path {
        let queue = queue_of(rate(50.0).bytes_in(self.queue).get());
        let link = LinkConfig::new(rate(50.0), DELAY, LossModel::None, queue);
        let ret = LinkConfig::new(rate(10.0), DELAY, LossModel::None, queue_of(750_000));
        let mut path = Path::new(link, ret, seed);
        let config = [Config::new(Rate::auto()), Config::new(rate(10.0))];
        // Seeds differ in when the rate changes within the sender's rounds.
        let start = at(START + seed as f64 * 0.037);
        path.add(Transfer::new(config, 1 << 40, start, seed));
        for (time, mbit) in self.steps.iter().copied() {
            path.change(at(time), move |path| path.set_rate(rate(mbit)));
        }
        path
    }

    fn judge(&self, path: &Path) -> Followed {
        let lowest = self.steps.iter().map(|step| step.1).fold(f64::INFINITY, f64::min);
        let bottom = self.steps.iter().position(|step| step.1 == lowest).unwrap();
        let (fall, rise) = (self.steps[bottom].0, self.steps[bottom + 1].0);
        let (top, _) = *self.steps.last().unwrap();
        let carried = self.carried(path, FALL + RTT / 2.0, rise + RTT / 2.0);
        Followed {
            earliest: earliest(path, fall, lowest),
            calm: calm(path, fall, rise - RTT),
            full: full(path, top, self.end),
            used: carried,
            lost: path.loss(0, at(FALL), at(rise)),
        }
    }

    /// The share of what the link could carry until the receiver's time `to`
    /// that came.
    fn carried(&self, path: &Path, from: f64, to: f64) -> f64 {
        let before = [(FALL, 50.0)];
        let parts = before.iter().chain(&self.steps).zip(self.steps.iter().map(|step| step.0));
        let span = |begin: f64, end: f64| (end.min(to - RTT / 2.0) - begin).max(0.0);
        let bits: f64 = parts.map(|((begin, mbit), end)| mbit * span(*begin, end)).sum();
        path.arrived(0, at(from), at(to)) * (to - from) / bits
    }
}

/// When a packet that arrived left the link's queue.
fn left(record: &Record) -> Option<Instant> {
    Some(record.arrived? - DELAY)
}

/// How long after `fall` the link is through with what it had then and what
/// came until the sender could know, in seconds.
fn earliest(path: &Path, fall: f64, mbit: f64) -> f64 {
    let pending =
        |r: &&Record| r.sent < at(fall + RTT) && left(r).is_some_and(|left| left > at(fall));
    let bytes: usize = path.records.iter().filter(pending).map(|record| record.size).sum();
    rate(mbit).time_to_send(ByteCount::new(bytes as u64)).as_secs_f64().max(RTT)
}

/// How long after `fall` the last 100 ms begin, until `until`, in which every
/// packet sent waits longer than [`CALM`] or is lost: the queue stands (as CoDel
/// sees it, RFC 8289 §3.2).
fn calm(path: &Path, fall: f64, until: f64) -> f64 {
    let mut last = fall;
    let mut from = fall;
    while from < until {
        let sent = || path.between(0, at(from), at(from + 0.1));
        let waits = |r: &Record| r.queued(DELAY).is_none_or(|queued| queued > CALM);
        if sent().count() > 0 && sent().all(waits) {
            last = from + 0.1;
        }
        from += 0.1;
    }
    last - fall
}

/// How long after `rise` it takes until every half second to come carries 95 %
/// of 50 Mbit/s.
fn full(path: &Path, rise: f64, end: f64) -> f64 {
    let slow = |from: f64| path.arrived(0, at(from) + DELAY, at(from + 0.5) + DELAY) < 0.95 * 50.0;
    let steps = ((end - 1.0 - rise) / 0.05) as u32;
    let last = (0..steps).rev().find(|n| slow(rise + f64::from(*n) * 0.05));
    last.map_or(0.0, |n| f64::from(n + 1) * 0.05)
}
