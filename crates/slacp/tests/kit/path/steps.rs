//! Links whose rate falls and rises, at once, slowly, or because a policer drops what exceeds it.

use link::QueueLimit;

use super::varied::Varied;
use super::{Path, at, ms};

/// When the rate falls and when it rises again, in seconds.
const FALL: f64 = 20.0;
const RISE: f64 = 50.0;
const END: f64 = 70.0;
/// Both rates, in Mbit/s.
const HIGH: f64 = 10.0;
const LOW: f64 = 1.0;
const RTT: f64 = 0.6;
/// The link's rate behind token buckets, in Mbit/s.
const LINK: f64 = 100.0;
/// Rates are compared over so many seconds. At 1 Mbit/s half a second carries 42 packets, of which a
/// policer drops a quarter whenever a train of 11 asks whether there is more.
const SPAN: f64 = 1.0;

/// A link of 10 Mbit/s and 600 ms that falls to a tenth for half a minute.
#[derive(Debug, Clone)]
pub struct Steps {
    pub name: &'static str,
    link: Varied,
    /// How long a change takes, in seconds.
    lasts: f64,
}

/// How it was followed.
#[derive(Debug, Clone, Copy)]
pub struct Followed {
    /// Seconds after the end of the fall, and of the rise, until every second to come carries
    /// 90 % of the new rate.
    pub fall: f64,
    pub rise: f64,
    /// Bytes lost between fall and rise, in BDP of the higher rate.
    pub lost: f64,
}

impl Steps {
    fn new(name: &'static str, lasts: f64, queue: Option<usize>) -> Self {
        let mut link = Varied::constant(name, HIGH, ms(300));
        link.link.queue = queue.map_or(link.link.queue, QueueLimit::Packets);
        let parts = if lasts > 0.0 { 20 } else { 1 };
        let part = |n: i32| f64::from(n) / f64::from(parts);
        let rate = |part: f64| HIGH + (LOW - HIGH) * part;
        let down = (1..=parts).map(|n| (FALL + lasts * part(n), rate(part(n))));
        let up = (1..=parts).map(|n| (RISE + lasts * part(n), rate(1.0 - part(n))));
        link.changes = down.chain(up).map(|(time, mbit)| (time, mbit, ms(300))).collect();
        Self { name, link, lasts }
    }

    fn policed(name: &'static str, packets: u64) -> Self {
        let steps = Self::new(name, 0.0, None);
        Self { link: steps.link.policed(LINK, packets * 1500), ..steps }
    }

    /// Every case of the benchmark.
    pub fn all() -> Vec<Self> {
        vec![
            Self::new("at once, queue 1 BDP", 0.0, None),
            Self::new("in 10 s, queue 1 BDP", 10.0, None),
            Self::new("at once, queue of 50 packets", 0.0, Some(50)),
            Self::new("at once, queue of 10 packets", 0.0, Some(10)),
            Self::new("at once, queue of 2 packets", 0.0, Some(2)),
            Self::policed("at once, bucket of 50 packets", 50),
            Self::policed("at once, bucket of 10 packets", 10),
            Self::policed("at once, bucket of 2 packets", 2),
        ]
    }

    pub fn run(&self, seed: u64) -> Followed {
        let path = self.link.fill(false, END + self.lasts, seed);
        let fallen = FALL + self.lasts;
        let bdp = HIGH * 1e6 / 8.0 * RTT;
        let lost = path.between(0, at(FALL), at(RISE)).filter(|record| record.arrived.is_none());
        let lost: usize = lost.map(|record| record.size).sum();
        Followed {
            fall: followed(&path, fallen, RISE - SPAN, LOW),
            rise: followed(&path, RISE + self.lasts, END + self.lasts - 2.0 * SPAN, HIGH),
            lost: lost as f64 / bdp,
        }
    }
}

/// Seconds from `from` until the last span, before `until`, that carries less than 90 % of the
/// rate, at the far end.
fn followed(path: &Path, from: f64, until: f64, mbit: f64) -> f64 {
    const STEP: f64 = 0.05;
    let steps = ((until - from) / STEP) as usize;
    let mut bits = vec![0.0; steps + (SPAN / STEP) as usize];
    for record in &path.records {
        let Some(arrived) = record.arrived else { continue };
        let after = arrived.as_nanos() as f64 / 1e9 - RTT / 2.0 - from;
        if let Some(step) = (after >= 0.0).then(|| bits.get_mut((after / STEP) as usize)).flatten()
        {
            *step += record.size as f64 * 8.0;
        }
    }
    let spans = bits.windows((SPAN / STEP) as usize).map(|span| span.iter().sum::<f64>());
    let slow = spans.map(|bits| bits < 0.9 * mbit * 1e6 * SPAN).collect::<Vec<_>>();
    slow.iter().rposition(|slow| *slow).map_or(0.0, |last| (last + 1) as f64 * STEP)
}
