//! Requests and replies while a download fills the link for 40 s.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;

use slacp::{Config, Rate, StreamId};
use units::{BitRate, Instant};

use crate::hop::{Hop, Plan, TERMINAL};

const REPLY: u64 = 10_000;
const EVERY: Duration = Duration::from_millis(200);
const COUNT: usize = 200;

/// A link in Mbit/s and ms.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub name: &'static str,
    forward: f64,
    ret: f64,
    pub rtt: f64,
    per: f64,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Bytes of the download.
    pub bulk: f64,
    /// 95th percentile of the time to an answer, in seconds.
    pub p95: f64,
}

impl Link {
    pub fn all() -> Vec<Self> {
        let link = |name, forward, ret, rtt, per| Self { name, forward, ret, rtt, per };
        vec![
            link("50/10, 600 ms", 50.0, 10.0, 600.0, 0.0),
            link("50/10, 600 ms, PER 1 %", 50.0, 10.0, 600.0, 0.01),
            link("20/5, 600 ms", 20.0, 5.0, 600.0, 0.0),
            link("20/5, 600 ms, PER 1 %", 20.0, 5.0, 600.0, 0.01),
            link("150/20, 40 ms", 150.0, 20.0, 40.0, 0.0),
        ]
    }

    pub fn run(&self, told: bool, seed: u64) -> Answered {
        let mut plans = vec![Plan { reply: true, ..Plan::new(1000, REPLY) }; COUNT];
        plans.push(Plan::new(100, 1 << 40));
        let mbit = |mbit: f64| BitRate::from_bits_per_second((mbit * 1e6) as u64);
        let geo = Hop::geo(self.per, seed);
        let configure =
            if told { geo.configure } else { |config: &mut Config| config.rate = Rate::auto() };
        let delay = Duration::from_secs_f64(self.rtt / 2e3);
        let hop = Hop { forward: mbit(self.forward), ret: mbit(self.ret), delay, configure, ..geo };
        let mut net = hop.connected(&plans);
        let now = net.now();
        let bulk = net.peers_mut()[TERMINAL].open(now, COUNT).unwrap();
        let mut asked: Vec<(Instant, StreamId)> = Vec::new();
        for plan in 0..COUNT {
            let now = net.now();
            asked.push((now, net.peers_mut()[TERMINAL].open(now, plan).unwrap()));
            net.run_for(EVERY).unwrap();
        }
        let bulk = net.peers()[TERMINAL].flows[&bulk].received as f64;
        net.run_for(Duration::from_secs(5)).unwrap();
        let flows = &net.peers()[TERMINAL].flows;
        let took = |(start, id): &(Instant, StreamId)| {
            let flow = &flows[id];
            assert_eq!(flow.received, REPLY);
            flow.last_byte.unwrap().saturating_since(*start).as_secs_f64()
        };
        let took: Vec<f64> = asked.iter().map(took).collect();
        Answered { bulk, p95: stats::percentile(&took, 95.0).expect("answers") }
    }
}
