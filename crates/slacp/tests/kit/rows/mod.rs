//! What SLACP promises on a satellite hop, row by row, in virtual time. The
//! benchmark `acceptance` prints the rows at full size, the test `acceptance`
//! asserts them with fewer bytes and seeds.

#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod bulk;
pub mod faults;
pub mod fec;
pub mod interactive;

use core::time::Duration;

use link::testkit::Net;
use link::{ErrorModel, LossModel, PacketCounters};
use slacp::SessionStats;
use units::{BitRate, Probability};

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, open_all, run_to_end};

/// The round trip of every link here, unless a row says otherwise.
pub const RTT: f64 = 0.6;

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Of the large transfers.
    pub bytes: u64,
    pub seeds: u64,
    pub requests: usize,
    /// Of those, beside a download.
    pub loaded: usize,
}

impl Scale {
    /// What the benchmark prints.
    pub const FULL: Self = Self { bytes: 100_000_000, seeds: 9, requests: 10_000, loaded: 10_000 };
    /// What the tests assert.
    pub const QUICK: Self = Self { bytes: 25_000_000, seeds: 2, requests: 3000, loaded: 600 };

    /// A time that is allowed for 100 MB, for [`Self::bytes`]: a round trip is
    /// part of both.
    pub fn time(&self, seconds: f64) -> f64 {
        RTT + (seconds - RTT) * self.bytes as f64 / 100e6
    }
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    pub case: String,
    pub asked: String,
    pub reached: String,
    pub ok: bool,
}

impl Row {
    pub fn new(
        case: impl Into<String>,
        asked: impl Into<String>,
        reached: impl Into<String>,
        ok: bool,
    ) -> Self {
        Self { case: case.into(), asked: asked.into(), reached: reached.into(), ok }
    }

    pub fn print(&self) {
        let verdict = if self.ok { "reached" } else { "MISSED" };
        println!("{:<44} {:<34} {:<46} {verdict}", self.case, self.asked, self.reached);
    }
}

/// What a link loses, and how much that is in the long run.
#[derive(Debug, Clone)]
pub struct LossCase {
    pub name: String,
    pub loss: LossModel,
    pub mean: f64,
}

impl LossCase {
    pub fn per(per: f64) -> Self {
        let probability = Probability::new(per).unwrap();
        Self { name: format!("PER {}%", per * 100.0), loss: LossModel::Per(probability), mean: per }
    }

    pub fn model(model: ErrorModel) -> Self {
        let mean = model.burst().map_or(0.0, link::BurstModel::bad_share);
        Self { name: format!("bursts {:?}", model.name()), loss: model.into(), mean }
    }

    /// Bursts of `bad` every `bad + good` milliseconds.
    pub fn regular(good: u64, bad: u64) -> Self {
        let ms = |ms| Duration::from_millis(ms)..=Duration::from_millis(ms);
        let burst = link::BurstModel::new(ms(good), ms(bad)).unwrap();
        let name = format!("{bad} ms lost every {} ms", good + bad);
        Self { name, loss: LossModel::Burst(burst), mean: burst.bad_share() }
    }
}

/// A hop of 600 ms with rates in Mbit/s.
pub fn hop(forward: f64, ret: f64, loss: &LossCase, seed: u64) -> Hop {
    let mbit = |mbit: f64| BitRate::from_bits_per_second((mbit * 1e6) as u64);
    let geo = Hop::geo(0.0, seed);
    Hop { forward: mbit(forward), ret: mbit(ret), loss: loss.loss.clone(), ..geo }
}

/// One download that has ended.
pub struct Run {
    /// From the opening of the stream to the last byte.
    pub seconds: f64,
    pub hub: SessionStats,
    pub terminal: SessionStats,
    /// From hub to terminal.
    pub forward: PacketCounters,
    pub ret: PacketCounters,
}

pub fn stats(net: &Net<Host>, peer: usize) -> SessionStats {
    let host = &net.peers()[peer];
    host.session.and_then(|id| host.endpoint.stats(id)).expect("a session")
}

/// Downloads `bytes` in a fresh session.
pub fn download(hop: &Hop, bytes: u64) -> Run {
    let mut net = hop.connected(&[Plan::new(100, bytes)]);
    let start = net.now();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 4000.0);
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    Run {
        seconds: flow.last_byte.unwrap().saturating_since(start).as_secs_f64(),
        hub: stats(&net, HUB),
        terminal: stats(&net, TERMINAL),
        forward: *net.counters(HUB, TERMINAL),
        ret: *net.counters(TERMINAL, HUB),
    }
}

/// The shortest time for `bytes` that is possible: a round trip, and the bytes
/// at the rate of IP packets less what the link loses.
pub fn limit(bytes: u64, mbit: f64, per: f64) -> f64 {
    RTT + bytes as f64 * 8.0 / (mbit * 1e6 * (1.0 - per))
}

/// The `percent`th percentile of some times.
pub fn percentile(times: &[f64], percent: f64) -> f64 {
    stats::percentile(times, percent).expect("there are times")
}
