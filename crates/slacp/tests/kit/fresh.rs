//! The first traffic of a session that remembers nothing of its path: a page, or a download, that
//! begins at once or when the session has had time to measure the path.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;

use link::testkit::Net;
use link::{BurstModel, LinkConfig, LossModel, QueueLimit};
use slacp::{Config, Endpoint, Rate, SessionStats};
use units::{BitRate, ByteCount, Probability};

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, at};

/// The page of the measurements in docs/performance.md: a document, then its 17 objects, six at a
/// time; 0.65 MB in all.
const DOCUMENT: u64 = 40_000;
const OBJECTS: [u64; 17] = [
    2_000, 4_000, 6_000, 9_000, 12_000, 16_000, 20_000, 25_000, 30_000, 36_000, 42_000, 48_000,
    55_000, 62_000, 70_000, 80_000, 93_000,
];
pub const AT_ONCE: usize = 6;
pub const REQUEST: u64 = 400;

/// Between the session's start and traffic that does not begin at once.
pub const LATER: Duration = Duration::from_secs(5);

/// A link, in Mbit/s and ms.
#[derive(Debug, Clone)]
pub struct Path {
    pub name: &'static str,
    pub forward: f64,
    pub ret: f64,
    /// Round-trip time in ms.
    pub rtt: u64,
    pub loss: LossModel,
    /// Of both directions, in BDP.
    pub queue: f64,
}

/// What the user does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Page,
    /// 20 MB, or 30 s of a slower link.
    Download,
}

/// Who knows the rates of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowing {
    Told,
    Auto,
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub seconds: f64,
    /// Bytes that the hub and the terminal had sent when the traffic began.
    pub before: [u64; 2],
}

impl Path {
    /// Every path that the benchmark tries.
    pub fn all() -> Vec<Self> {
        let per = |per: f64| LossModel::Per(Probability::new(per).unwrap());
        let path = |name, (forward, ret): (f64, f64), rtt, loss| Self {
            name,
            forward,
            ret,
            rtt,
            loss,
            queue: 1.0,
        };
        let millis = |range: core::ops::RangeInclusive<u64>| {
            Duration::from_millis(*range.start())..=Duration::from_millis(*range.end())
        };
        let bursts =
            LossModel::Burst(BurstModel::new(millis(300..=1500), millis(40..=120)).unwrap());
        let short = path("40/8, 540 ms, queue 0.05 BDP", (40.0, 8.0), 540, LossModel::None);
        vec![
            path("50/10, 600 ms", (50.0, 10.0), 600, LossModel::None),
            path("50/10, 600 ms, PER 0.1 %", (50.0, 10.0), 600, per(0.001)),
            path("50/10, 600 ms, PER 1 %", (50.0, 10.0), 600, per(0.01)),
            path("300/30, 600 ms", (300.0, 30.0), 600, LossModel::None),
            path("20/4, 560 ms, outages 40-120 ms", (20.0, 4.0), 560, bursts),
            Self { queue: 0.05, ..short },
            path("150/20, 40 ms", (150.0, 20.0), 40, LossModel::None),
            path("2/0.5, 700 ms", (2.0, 0.5), 700, LossModel::None),
            path("256/64 kbit/s, 700 ms", (0.256, 0.064), 700, LossModel::None),
            path("50 Mbit/s / 64 kbit/s, 600 ms", (50.0, 0.064), 600, LossModel::None),
        ]
    }

    fn rates(&self) -> [BitRate; 2] {
        [self.forward, self.ret].map(|mbit| BitRate::from_bits_per_second((mbit * 1e6) as u64))
    }

    fn link(&self, rate: BitRate) -> LinkConfig {
        let rtt = Duration::from_millis(self.rtt);
        let bdp = rate.bytes_in(rtt).get().max(30_000) as f64;
        let queue = QueueLimit::Bytes(ByteCount::new((bdp * self.queue).max(6000.0) as u64));
        LinkConfig::new(rate, rtt / 2, self.loss.clone(), queue)
    }

    fn hop(&self, knowing: Knowing, seed: u64) -> Hop {
        let [forward, ret] = self.rates();
        let configure: fn(&mut Config) = match knowing {
            Knowing::Told => |_| {},
            Knowing::Auto => |config| config.rate = Rate::auto(),
        };
        let delay = Duration::from_millis(self.rtt) / 2;
        Hop { forward, ret, delay, configure, loss: self.loss.clone(), ..Hop::geo(0.0, seed) }
    }

    /// Bytes of a download, so that a slow link needs 30 s.
    pub fn bytes(&self) -> u64 {
        20_000_000.min((self.forward * 1e6 / 8.0 * 30.0) as u64)
    }

    /// The round trip in seconds.
    pub fn round_trip(&self) -> f64 {
        self.rtt as f64 / 1e3
    }

    /// The links from hub and terminal.
    pub fn links(&self) -> [LinkConfig; 2] {
        self.rates().map(|rate| self.link(rate))
    }

    /// What the two ends are if they are told the rates.
    pub fn told(&self, seed: u64) -> Hop {
        self.hop(Knowing::Told, seed)
    }

    /// The bytes of each reply.
    pub fn sizes(&self, what: Use) -> Vec<u64> {
        match what {
            Use::Page => core::iter::once(DOCUMENT).chain(OBJECTS).collect(),
            Use::Download => vec![self.bytes()],
        }
    }

    /// Runs the traffic; `at_once` if it begins with the session.
    pub fn run(&self, knowing: Knowing, what: Use, at_once: bool, seed: u64) -> Outcome {
        let hop = self.hop(knowing, seed);
        let reply = |bytes| Plan { reply: true, ..Plan::new(REQUEST, bytes) };
        let plans: Vec<Plan> = self.sizes(what).into_iter().map(reply).collect();
        let mut net = hop.net(&plans);
        let [forward, ret] = self.links();
        net.connect(HUB, TERMINAL, forward);
        net.connect(TERMINAL, HUB, ret);
        let up = |hosts: &mut [Host]| hosts[TERMINAL].session.is_some();
        net.run_until(up, at(60.0)).unwrap();
        if !at_once {
            net.run_for(LATER).unwrap();
        }
        let start = net.now();
        let before = [HUB, TERMINAL].map(|host| sent(&net, host));
        load(&mut net);
        Outcome { seconds: net.now().saturating_since(start).as_secs_f64(), before }
    }
}

fn sent(net: &Net<Host>, host: usize) -> u64 {
    let host = &net.peers()[host];
    let stats = |endpoint: &Endpoint| host.session.and_then(|session| endpoint.stats(session));
    stats(&host.endpoint).map_or(0, |stats: SessionStats| stats.bytes_sent)
}

/// Requests the first plan's bytes, then those of the others, some at a time, until all have come.
fn load(net: &mut Net<Host>) {
    let count = net.peers()[TERMINAL].plans.len();
    let deadline = net.now() + Duration::from_secs(600);
    let mut next = 0;
    let all = |now, hosts: &mut [Host]| {
        let host = &mut hosts[TERMINAL];
        let ended = host.flows.values().filter(|flow| flow.ended).count();
        let open = if ended == 0 { 1 } else { AT_ONCE };
        while next < count && next - ended < open {
            host.open(now, next).unwrap();
            next += 1;
        }
        ended == count
    };
    net.drive_until(all, deadline).unwrap_or_else(|stalled| panic!("{stalled}"));
}
