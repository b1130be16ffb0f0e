//! Requests of 1 kB, each with a reply of 10 kB, on streams of their own.

use core::time::Duration;

use link::testkit::Net;
use slacp::StreamId;
use units::Instant;

use super::{LossCase, RTT, Row, Scale, hop, percentile, stats};
use crate::hop::{HUB, Hop, Host, Plan, TERMINAL};

const REQUEST: u64 = 1000;
const REPLY: u64 = 10_000;

fn exchange() -> Plan {
    Plan { reply: true, ..Plan::new(REQUEST, REPLY) }
}

/// The time in which both leave, with their headers, in seconds.
fn serialisation(forward: f64, ret: f64) -> f64 {
    let (request, reply) = (1100.0, 10_000.0 + 8.0 * 75.0);
    request * 8.0 / (ret * 1e6) + reply * 8.0 / (forward * 1e6)
}

/// One after the other on an otherwise idle link. Response times.
pub fn alone(net: &mut Net<Host>, plans: core::ops::Range<usize>) -> Vec<f64> {
    let mut times = Vec::new();
    for plan in plans {
        let start = net.now();
        let id = net.peers_mut()[TERMINAL].open(start, plan).unwrap();
        let done = |hosts: &mut [Host]| hosts[TERMINAL].flows[&id].received == REPLY;
        let end = net.run_until(done, start + Duration::from_secs(60)).unwrap();
        times.push(end.saturating_since(start).as_secs_f64());
    }
    times
}

/// The response times of so many requests in a fresh session.
pub fn times(hop: &Hop, count: usize) -> Vec<f64> {
    alone(&mut hop.connected(&vec![exchange(); count]), 0..count)
}

pub fn idle(scale: Scale) -> Vec<Row> {
    let count = scale.requests;
    let times = times(&hop(50.0, 10.0, &LossCase::per(0.01), 7), count);
    let ser = serialisation(50.0, 10.0);
    let case = format!("{count} requests, replies, PER 1%");
    [(0.5, 1.01), (0.99, 1.05), (0.999, 2.1)]
        .map(|(p, factor)| {
            let (reached, asked) = (percentile(&times, p * 100.0), factor * RTT + ser);
            let case = format!("{case}: p{}", p * 100.0);
            let (asked_text, text) = (ms(asked), ms(reached));
            Row::new(case, format!("≤ {asked_text}"), text, reached <= asked)
        })
        .into()
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

/// Every 50 ms one, while a download fills the link. Response times.
fn beside_bulk(count: usize, per: f64) -> (Vec<f64>, Net<Host>) {
    let mut plans = vec![exchange(); count];
    plans.push(Plan::new(100, 40_000_000_000));
    let mut net = hop(20.0, 5.0, &LossCase::per(per), 7).connected(&plans);
    let now = net.now();
    net.peers_mut()[TERMINAL].open(now, count).unwrap();
    net.run_for(Duration::from_secs(3)).unwrap();
    let mut starts = Vec::new();
    for plan in 0..count {
        let now = net.now();
        starts.push((now, net.peers_mut()[TERMINAL].open(now, plan).unwrap()));
        net.run_for(Duration::from_millis(50)).unwrap();
    }
    net.run_for(Duration::from_secs(6)).unwrap();
    let flows = &net.peers()[TERMINAL].flows;
    let time = |start: Instant, id: &StreamId| {
        let flow = &flows[id];
        assert_eq!(flow.received, REPLY);
        flow.last_byte.unwrap().saturating_since(start).as_secs_f64()
    };
    (starts.iter().map(|(start, id)| time(*start, id)).collect(), net)
}

pub fn under_load(scale: Scale) -> Vec<Row> {
    let row = |per: f64| {
        let (times, net) = beside_bulk(scale.loaded, per);
        let p95 = percentile(&times, 95.0);
        let seconds = net.now().as_nanos() as f64 / 1e9;
        let bulk = net.peers()[TERMINAL].flows.values().map(|flow| flow.received).sum::<u64>();
        let hub = stats(&net, HUB);
        Row::new(
            format!("the same, bulk fills 20/5, PER {}%: p95", per * 100.0),
            format!("≤ {}", ms(RTT + 0.020)),
            format!(
                "{} (p99 {}); {:.1} Mbit/s in all, repairs {:.2} %",
                ms(p95),
                ms(percentile(&times, 99.0)),
                bulk as f64 * 8.0 / seconds / 1e6,
                100.0 * hub.repairs_sent as f64 / hub.packets_sent as f64
            ),
            p95 <= RTT + 0.020,
        )
    };
    vec![row(0.0), row(0.01)]
}
