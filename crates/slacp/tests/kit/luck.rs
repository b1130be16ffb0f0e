//! Cases whose outcome differs from seed to seed, on a link of 50 Mbit/s and 600 ms: what a session
//! gets of it when a report of the modem ends, and beside one that hides the queue.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;

use slacp::Rate;

use crate::carrier::Carrier;

const MBIT: f64 = 50.0;
const DELAY: Duration = Duration::from_millis(300);
const QUEUE: Duration = Duration::from_millis(600);

/// Downloads over one link, the rate of which is reported until 15 s.
#[derive(Debug, Clone, Copy)]
pub struct ReportEnds {
    pub count: usize,
    pub aggregate: bool,
}

/// How they shared.
#[derive(Debug)]
pub struct Ended {
    /// The least that one got before and after, of its equal share.
    pub before: f64,
    pub after: f64,
    /// The part of the link used from two round trips after the end.
    pub used: f64,
    /// The longest queue from the end on, in ms, and the packets dropped.
    pub queue: f64,
    pub dropped: u64,
}

impl ReportEnds {
    pub fn run(&self, seed: u64) -> Ended {
        let Self { count, aggregate } = *self;
        let from = Rate::ModemOrAuto { ceiling: None, probe: true };
        let mut carrier = Carrier::with(from, MBIT, DELAY, QUEUE, count, aggregate, seed);
        for _ in 0..count {
            carrier.add(Duration::ZERO, &[(2.0, 1e6)], seed);
        }
        carrier.run(3.0);
        carrier.report(Some(MBIT));
        carrier.run(15.0);
        let dropped = carrier.dropped();
        carrier.report(None);
        carrier.run(45.0);
        let equal = MBIT / count as f64;
        Ended {
            before: least(&carrier.rates(8.0, 15.0)) / equal,
            after: least(&carrier.rates(25.0, 45.0)) / equal,
            used: carrier.rates(16.2, 45.0).iter().sum::<f64>() / MBIT,
            queue: carrier.queue(100.0, 15.0, 45.0),
            dropped: carrier.dropped() - dropped,
        }
    }
}

/// So many members of an aggregate. From 10 s on one of them says that its packets meet no queue.
#[derive(Debug, Clone, Copy)]
pub struct Hidden {
    pub count: usize,
}

/// What they got in the 40 s after that, of their equal shares.
#[derive(Debug)]
pub struct Taken {
    /// By the one that hides the queue.
    pub hider: f64,
    /// The least of the others.
    pub least: f64,
    /// The median of queueing delays, in ms.
    pub queue: f64,
}

impl Hidden {
    pub fn run(&self, seed: u64) -> Taken {
        // 20 ms from the link to each terminal, the rest before it.
        let near = Duration::from_millis(20);
        let mut carrier = Carrier::new(MBIT, near, QUEUE, self.count, true, seed);
        for _ in 0..self.count {
            carrier.add((DELAY - near) * 2, &[(2.0, 1e6)], seed);
        }
        carrier.run(10.0);
        carrier.hide_queue(0);
        carrier.run(50.0);
        let (rates, equal) = (carrier.rates(10.0, 50.0), MBIT / self.count as f64);
        Taken {
            hider: rates[0] / equal,
            least: least(&rates[1..]) / equal,
            queue: carrier.queue(50.0, 10.0, 50.0),
        }
    }
}

fn least(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::INFINITY, f64::min)
}
