//! Links that vary: packets come in order but late, in slots, or by another satellite every 15 s.
//! A download fills the link throughout; who is told the rate is told each of its changes.

use core::time::Duration;

use link::{CoDel, Discipline, Jitter, LinkConfig, LossModel, Policer, QueueLimit};
use slacp::{Config, Rate};

use super::cases::{rate, slots};
use units::ByteCount;

use super::{Path, Transfer, at, ms, queue_of};

/// When the download begins, and the time that counts, in seconds.
const START: f64 = 4.0;
const FROM: f64 = 10.0;
const UNTIL: f64 = 70.0;
const END: f64 = 71.0;

/// From a time in seconds on: the rate in Mbit/s and the delay one way.
pub type Change = (f64, f64, Duration);

/// A forward link that varies. The return link has a fifth of its rate and the same delay.
#[derive(Debug, Clone)]
pub struct Varied {
    pub name: &'static str,
    pub link: LinkConfig,
    /// In Mbit/s at first, on the link or, if there is one, of its policer.
    pub mbit: f64,
    pub delay: Duration,
    pub changes: Vec<Change>,
}

/// What came of a download.
#[derive(Debug, Clone, Copy)]
pub struct Came {
    /// In Mbit/s.
    pub goodput: f64,
    /// 95th percentile of the time on the way beyond the path's own delay.
    pub added: Duration,
    /// The share of packets that did not arrive.
    pub lost: f64,
}

impl Varied {
    /// A link that does not vary yet, with a queue of one BDP.
    pub fn constant(name: &'static str, mbit: f64, delay: Duration) -> Self {
        let queue = queue_of(rate(mbit).bytes_in(delay * 2).get());
        let link = LinkConfig::new(rate(mbit), delay, LossModel::None, queue);
        Self { name, link, mbit, delay, changes: Vec::new() }
    }

    /// The same rate behind a token bucket of `burst` bytes, on a link of `link` Mbit/s.
    pub fn policed(self, link: f64, burst: u64) -> Self {
        let policer = Policer { rate: rate(self.mbit), burst: ByteCount::new(burst) };
        let link = LinkConfig {
            rate: rate(link).into(),
            policer: Some(policer),
            queue: queue_of(rate(link).bytes_in(self.delay * 2).get()),
            ..self.link
        };
        Self { link, ..self }
    }

    fn geo(name: &'static str) -> Self {
        Self::constant(name, 50.0, ms(300))
    }

    fn jitter(name: &'static str, millis: u64) -> Self {
        let mut geo = Self::geo(name);
        geo.link.jitter = Jitter::InOrder(ms(millis));
        geo
    }

    fn slotted(name: &'static str, millis: u64) -> Self {
        let mut geo = Self::constant(name, 6.0, ms(300));
        geo.link.rate = slots(6.0, millis).into();
        geo
    }

    /// Another satellite every 15 s, 10 ms nearer or farther.
    fn handed_over(name: &'static str, rates: [f64; 3]) -> Self {
        let changes = (1..=4).map(|n: usize| {
            let delay = ms(if n.is_multiple_of(2) { 20 } else { 30 });
            (START + 15.0 * n as f64, rates[n % 3], delay)
        });
        let queue = queue_of(rate(70.0).bytes_in(ms(100)).get());
        let leo = Self::constant(name, rates[0], ms(20));
        let link = LinkConfig { queue, ..leo.link };
        Self { changes: changes.collect(), link, ..leo }
    }

    /// Every link of the benchmark.
    pub fn all() -> Vec<Self> {
        let mut codel = Self::geo("CoDel, drops at the front");
        codel.link.discipline = Discipline::CoDel(CoDel::for_rtt(ms(600)));
        let mut front = Self::geo("drops at the front, 0.1 BDP");
        front.link.queue = QueueLimit::Packets(250);
        front.link.discipline = Discipline::DropHead;
        vec![
            Self::jitter("50/10, 600 ms, jitter 5 ms", 5),
            Self::jitter("  jitter 15 ms", 15),
            Self::jitter("  jitter 30 ms", 30),
            Self { name: "  drops at the front, 0.1 BDP", ..front },
            Self { name: "  CoDel", ..codel },
            Self::slotted("6/1.2, 600 ms, slots of 20 ms", 20),
            Self::slotted("  slots of 50 ms", 50),
            Self::slotted("  slots of 125 ms", 125),
            Self::handed_over("70/14, 40 ms, hand-over each 15 s", [70.0; 3]),
            Self::handed_over("  70, 20, 110 Mbit/s by turns", [70.0, 20.0, 110.0]),
        ]
    }

    /// Links of the benchmark behind a token bucket.
    pub fn all_policed() -> Vec<Self> {
        let geo = |name, link, burst| Self::constant(name, 30.0, ms(250)).policed(link, burst);
        vec![
            geo("30/6 on 100 Mbit/s, 500 ms, 15 kB", 100.0, 15_000),
            geo("  150 kB", 100.0, 150_000),
            geo("  1.5 MB", 100.0, 1_500_000),
            geo("  15 kB on 33 Mbit/s", 33.0, 15_000),
            geo("  150 kB on 45 Mbit/s", 45.0, 150_000),
            geo("  30 kB on 1000 Mbit/s", 1000.0, 30_000),
            Self::constant("2/0.4 on 10 Mbit/s, 600 ms, 15 kB", 2.0, ms(300)).policed(10.0, 15_000),
            Self::constant("50/10 on 200 Mbit/s, 40 ms, 60 kB", 50.0, ms(20))
                .policed(200.0, 60_000),
        ]
    }

    /// Runs the download, `told` the rates or not.
    pub fn run(&self, told: bool, seed: u64) -> Came {
        let path = self.fill(told, END, seed);
        let (from, until) = (at(FROM), at(UNTIL));
        let mut added: Vec<f64> = Vec::new();
        for record in path.between(0, from, until) {
            let own = self.delay_at(record.sent.as_nanos() as f64 / 1e9);
            added.extend(record.queued(own).map(|added| added.as_secs_f64()));
        }
        Came {
            goodput: path.arrived(0, from, until),
            added: Duration::from_secs_f64(stats::percentile(&added, 95.0).unwrap_or(0.0)),
            lost: path.loss(0, from, until),
        }
    }

    /// The link filled until a time in seconds.
    pub fn fill(&self, told: bool, until: f64, seed: u64) -> Path {
        let ret =
            LinkConfig::new(rate(self.mbit / 5.0), self.delay, LossModel::None, queue_of(750_000));
        let mut path = Path::new(self.link.clone(), ret, seed);
        let hub = if told { Rate::Modem { initial: rate(self.mbit) } } else { Rate::auto() };
        let config = [Config::new(hub), Config::new(rate(self.mbit / 5.0))];
        let start = at(START + seed as f64 * 0.037);
        path.add(Transfer::new(config, 1 << 40, start, seed).skewed(Duration::from_secs(7), 30.0));
        let policer = self.link.policer;
        for (time, mbit, delay) in self.changes.iter().copied() {
            path.change(at(time), move |path| {
                match policer {
                    Some(policer) => path.set_policer(Policer { rate: rate(mbit), ..policer }),
                    None => path.set_rate(rate(mbit)),
                }
                path.set_delay(delay);
                if told {
                    path.tell(0, rate(mbit));
                }
            });
        }
        path.run(at(until));
        path
    }

    fn delay_at(&self, seconds: f64) -> Duration {
        let last = self.changes.iter().rev().find(|(time, ..)| *time <= seconds);
        last.map_or(self.delay, |(.., delay)| *delay)
    }
}
