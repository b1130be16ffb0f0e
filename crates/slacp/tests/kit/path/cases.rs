//! Downloads over links of all kinds, each with one number for what matters.

use core::time::Duration;

use link::{Jitter, LinkConfig, LossModel, Opportunities, Trace};
use slacp::{Config, PathMemory, Rate};
use units::{BitRate, Probability};

use super::{Path, Transfer, at, ms, queue_of};

/// When the terminal asks, in seconds: the session has long been set up.
pub const START: f64 = 4.0;

/// A link, and what is known about it.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    /// Mbit/s forward and return.
    pub mbit: (f64, f64),
    /// One way.
    pub delay: Duration,
    pub per: f64,
    /// Packets in the forward queue; one BDP if 0.
    pub queue: u64,
    pub jitter: Jitter,
    /// The time between bursts on a link with time slots.
    pub slot: Option<u64>,
    /// The same of the return link.
    pub return_slot: Option<u64>,
    /// The delay rises and falls as satellites pass.
    pub leo: bool,
    pub rate: Rate,
    /// What the hub remembers of the path.
    pub memory: Option<PathMemory>,
    pub bytes: u64,
}

/// What became of a download.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub seconds: f64,
    /// Of the goodput that is possible: IP rate × (1 − PER).
    pub of_limit: f64,
    /// The share lost of what was sent in the first three round trips of
    /// having data, beyond what the link loses by itself.
    pub start_loss: f64,
    /// The share lost of all that was sent, beyond the same.
    pub lost: f64,
    /// The 95th percentile of queueing delay after these.
    pub queue: Duration,
    /// The bytes of the return link beside those of the forward link.
    pub returned: f64,
}

impl Case {
    /// 100 MB over a GEO hop, the rate to be found out.
    pub fn geo(name: &'static str, forward: f64, ret: f64) -> Self {
        Self {
            name,
            mbit: (forward, ret),
            delay: ms(300),
            per: 0.0,
            queue: 0,
            jitter: Jitter::None,
            slot: None,
            return_slot: None,
            leo: false,
            rate: Rate::auto(),
            memory: None,
            bytes: 100_000_000,
        }
    }

    pub fn fixed(self) -> Self {
        Self { rate: rate(self.mbit.0).into(), ..self }
    }

    /// With the memory of a path of so many Mbit/s.
    pub fn resumed(self, mbit: f64) -> Self {
        let (capacity, min_rtt) = (rate(mbit), self.delay * 2);
        let memory = PathMemory { capacity, min_rtt, age: Duration::from_secs(600) };
        Self { memory: Some(memory), ..self }
    }

    fn link(&self, mbit: f64, queue: u64) -> LinkConfig {
        let bdp = rate(mbit).bytes_in(self.delay * 2).get().max(30_000);
        let loss = LossModel::Per(Probability::new(self.per).unwrap());
        let bytes = if queue > 0 { queue * 1500 } else { bdp };
        LinkConfig::new(rate(mbit), self.delay, loss, queue_of(bytes))
    }

    pub fn forward(&self) -> LinkConfig {
        let mut link = self.link(self.mbit.0, self.queue);
        link.jitter = self.jitter;
        if let Some(slot) = self.slot {
            link.rate = slots(self.mbit.0, slot).into();
        }
        if self.leo {
            // 20 ms, in 15 s a few ms nearer and farther, and a hand-over.
            let steps = (0..60).map(|n: u64| (ms(n * 250), ms(8 + n.abs_diff(30) / 8)));
            link.delay = Trace::new(steps.collect(), Some(ms(15_000))).unwrap().into();
        }
        link
    }

    pub fn run(&self, seed: u64) -> Outcome {
        let mut ret = self.link(self.mbit.1, 0);
        ret.loss = LossModel::None;
        if let Some(slot) = self.return_slot {
            ret.rate = slots(self.mbit.1, slot).into();
        }
        let mut path = Path::new(self.forward(), ret, seed);
        let hub = Config::new(self.rate.clone());
        let terminal = Config::new(rate(self.mbit.1));
        let mut transfer = Transfer::new([hub, terminal], self.bytes, at(START), seed);
        if let Some(memory) = self.memory {
            transfer.remember(memory);
        }
        let flow = path.add(transfer.skewed(Duration::from_secs(70), 50.0));
        path.run(at(START + 1000.0));
        let transfer = path.transfer(flow);
        let seconds = match (transfer.opened, transfer.done) {
            (Some(opened), Some(done)) => done.saturating_since(opened).as_secs_f64(),
            _ => panic!("{} did not end: {} bytes came", self.name, transfer.received),
        };
        self.outcome(&path, flow, seconds)
    }

    fn outcome(&self, path: &Path, flow: usize, seconds: f64) -> Outcome {
        let rtt = self.delay.as_secs_f64() * 2.0;
        let limit = rtt + self.bytes as f64 * 8e-6 / self.mbit.0 / (1.0 - self.per);
        // The hub has data when the request has come.
        let (begin, end) = (at(START + rtt / 2.0), at(START + rtt * 3.5));
        let sent: usize = path.records.iter().map(|record| record.size).sum();
        Outcome {
            seconds,
            of_limit: limit / seconds,
            start_loss: (path.loss(flow, begin, end) - self.per).max(0.0),
            lost: (path.loss(flow, begin, at(1e6)) - self.per).max(0.0),
            queue: path.queue(flow, self.delay, 0.95, end, at(1e6)),
            returned: path.returned as f64 / sent as f64,
        }
    }

    /// The median of every number, over some seeds.
    pub fn median(&self, seeds: u64) -> Outcome {
        let runs: Vec<Outcome> = (1..=seeds).map(|seed| self.run(seed)).collect();
        let middle = |of: fn(&Outcome) -> f64| {
            stats::median(&runs.iter().map(of).collect::<Vec<_>>()).expect("there are seeds")
        };
        Outcome {
            seconds: middle(|run| run.seconds),
            of_limit: middle(|run| run.of_limit),
            start_loss: middle(|run| run.start_loss),
            lost: middle(|run| run.lost),
            queue: Duration::from_secs_f64(middle(|run| run.queue.as_secs_f64())),
            returned: middle(|run| run.returned),
        }
    }
}

/// All packets of so many milliseconds at their end, at a rate in Mbit/s.
pub fn slots(mbit: f64, slot: u64) -> Opportunities {
    let each = (mbit * 1e3 * slot as f64 / 12_000.0).round() as usize;
    Opportunities::parse(&format!("{slot}\n").repeat(each)).unwrap()
}

/// The first round trips of a session on 250/3 Mbit/s with so many packets of
/// queue (one BDP if 0): the share of the link that is used when three are over,
/// and the share lost of what is sent in them.
pub fn first_round_trips(queue: u64, seed: u64) -> (f64, f64) {
    let case = Case { queue, ..Case::geo("start", 250.0, 3.0) };
    let mut path = Path::new(case.forward(), case.link(3.0, 0), seed);
    let start = START + seed as f64 * 0.0137;
    let config = [Config::new(Rate::auto()), Config::new(rate(3.0))];
    path.add(Transfer::new(config, 1 << 40, at(start), seed));
    path.run(at(start + 2.8));
    // The hub has data 0.3 s later; what leaves 1.8 s after that arrives from
    // 2.4 s on.
    let used = path.arrived(0, at(start + 2.4), at(start + 2.7)) / 250.0;
    (used, path.loss(0, at(start + 0.3), at(start + 2.1)))
}

pub fn rate(mbit: f64) -> BitRate {
    BitRate::from_bits_per_second((mbit * 1e6) as u64)
}
