//! Fades of one direction: the other still works, which proves nothing.

use core::ops::Range;
use core::time::Duration;

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, at, open_all, run_to_end};
use link::testkit::{Mangle, Net};
use slacp::Event;
use units::Instant;

const RTT: Duration = Duration::from_millis(600);
/// How long a session waits for an acknowledgement before it probes, after some seconds of traffic:
/// a round trip, four times its variation, and an acknowledgement delay.
const PROBE_DELAY: Duration = Duration::from_millis(700);
/// How much later it reports the peer as unreachable.
const SILENCE: Duration = Duration::from_secs(1);
/// The probe interval at the end of a fade of this many seconds.
fn probe(seconds: u64) -> Duration {
    Duration::from_millis((seconds * 125).clamp(150, 2000))
}

/// Rounding, and the serialisation time of packets.
const SLACK: Duration = Duration::from_millis(30);

fn fade(net: &mut Net<Host>, from: usize, times: Vec<Range<Instant>>) {
    net.mangle(from, 1 - from, Mangle { outages: times, ..Mangle::default() });
}

/// A download that outlasts all of these fades, 3 s after its start. Only fades lose packets: a
/// randomly lost probe would cost another interval.
fn downloading(seed: u64) -> Net<Host> {
    let mut net = Hop::geo(0.0, seed).connected(&[Plan::new(100, 60_000_000)]);
    open_all(&mut net, TERMINAL);
    net.run_for(Duration::from_secs(3)).unwrap();
    net
}

fn bytes_sent(host: &Host) -> u64 {
    host.endpoint.stats(host.session.unwrap()).unwrap().bytes_sent
}

fn received(net: &Net<Host>) -> u64 {
    net.peers()[TERMINAL].flows.values().next().unwrap().received
}

/// When a host last reported the event.
fn last(net: &Net<Host>, who: usize, which: &Event) -> Instant {
    let log = &net.peers()[who].log;
    let found = log.iter().rev().find(|(_, event)| event == which);
    found.unwrap_or_else(|| panic!("no {which:?} in {log:?}")).0
}

fn is_frozen(host: &Host) -> bool {
    matches!(host.log.last(), Some((_, Event::Unreachable)))
}

/// Everything in flight when the direction fades is lost, and what is sent for another round trip,
/// and what follows until the silence is noticed.
#[test]
fn a_forward_fade_stops_the_hub_before_its_credit_is_spent() {
    for (seed, seconds) in [(1, 5), (2, 30), (3, 600)] {
        let mut net = downloading(seed);
        let (start, end) = (net.now(), net.now() + Duration::from_secs(seconds));
        fade(&mut net, HUB, vec![start..end]);
        let before = bytes_sent(&net.peers()[HUB]);
        net.run_for(Duration::from_secs(seconds)).unwrap();
        let sent = bytes_sent(&net.peers()[HUB]) - before;
        let noticed = last(&net, HUB, &Event::Unreachable).saturating_since(start);
        assert!(noticed < RTT + PROBE_DELAY + SILENCE, "seed {seed}: {noticed:?}");
        // 50 Mbit/s until then; probes and acknowledgements stay below 1 % of that.
        let most =
            50e6 / 8.0 * ((RTT + PROBE_DELAY + SILENCE).as_secs_f64() + 0.01 * seconds as f64);
        assert!((sent as f64) < most, "seed {seed}: {sent} bytes of {most}");
        let so_far = received(&net);
        let flows =
            |hosts: &mut [Host]| hosts[TERMINAL].flows.values().any(|f| f.received > so_far);
        let resumed = net.run_until(flows, end + Duration::from_secs(20)).unwrap();
        let hub = last(&net, HUB, &Event::Reachable).saturating_since(end);
        assert!(hub < probe(seconds) + RTT + SLACK, "seed {seed}: {hub:?}");
        assert!(
            resumed < end + probe(seconds) + RTT + RTT / 2 + SLACK * 2,
            "seed {seed}: {resumed}"
        );
        run_to_end(&mut net, 100.0);
    }
}

#[test]
fn a_return_fade_is_noticed_by_a_terminal_that_only_receives() {
    for seed in 0..10 {
        let mut net = downloading(seed);
        let (start, end) = (net.now(), net.now() + Duration::from_secs(20));
        fade(&mut net, TERMINAL, vec![start..end]);
        let known = |hosts: &mut [Host]| is_frozen(&hosts[TERMINAL]);
        let time = net.run_until(known, at(60.0)).unwrap().saturating_since(start);
        assert!(time < RTT + Duration::from_millis(1500), "seed {seed}: {time:?}");
        let back = |hosts: &mut [Host]| !hosts.iter().any(is_frozen);
        net.run_for(end.saturating_since(net.now())).unwrap();
        assert!(net.peers().iter().all(is_frozen), "seed {seed}: both know");
        net.run_until(back, at(60.0)).unwrap();
        for who in [TERMINAL, HUB] {
            let time = last(&net, who, &Event::Reachable).saturating_since(end);
            assert!(time < probe(20) + RTT + RTT / 2 + SLACK, "seed {seed}: {time:?}");
        }
    }
}

/// From then on the gateway intercepts no new connection.
#[test]
fn an_opening_into_a_return_fade_is_known_to_fail_within_two_seconds() {
    for seed in 0..20 {
        let mut net = Hop::geo(0.01, seed).connected(&[Plan::new(100, 1000)]);
        net.run_for(Duration::from_millis(2000 + 50 * seed)).unwrap();
        let start = net.now();
        fade(&mut net, TERMINAL, vec![start..at(60.0)]);
        open_all(&mut net, TERMINAL);
        let known = |hosts: &mut [Host]| is_frozen(&hosts[TERMINAL]);
        let time = net.run_until(known, at(60.0)).unwrap().saturating_since(start);
        assert!(time < Duration::from_secs(2), "seed {seed}: {time:?}");
    }
}

/// Both directions fade, and only the return link comes back. The hub tries for as long as an
/// acknowledgement takes; the terminal's later packets prove nothing.
#[test]
fn a_return_link_that_comes_back_alone_costs_the_bytes_of_one_trial() {
    let mut net = downloading(5);
    let start = net.now();
    let second = |s: u64| start + Duration::from_secs(s);
    fade(&mut net, HUB, vec![start..second(60)]);
    fade(&mut net, TERMINAL, vec![start..second(20)]);
    net.run_for(Duration::from_secs(20)).unwrap();
    let before = bytes_sent(&net.peers()[HUB]);
    net.run_for(Duration::from_secs(40)).unwrap();
    let sent = (bytes_sent(&net.peers()[HUB]) - before) as f64;
    let most = 50e6 / 8.0 * (PROBE_DELAY.as_secs_f64() + 0.01 * 40.0);
    assert!(sent < most, "{sent} bytes of {most}");
    assert!(is_frozen(&net.peers()[HUB]), "nothing was acknowledged");
    run_to_end(&mut net, 100.0);
}

#[test]
fn fades_of_one_direction_and_then_the_other_lose_nothing() {
    for seed in 0..5 {
        let mut net = Hop::geo(0.01, seed).connected(&[Plan::new(5_000_000, 40_000_000)]);
        open_all(&mut net, TERMINAL);
        net.run_for(Duration::from_secs(2)).unwrap();
        let start = net.now();
        let second = |s: u64| start + Duration::from_secs(s);
        // Each lasts 4 s. They overlap by a second now and then, or not at all.
        let each = |from: u64| (from..120).step_by(9).map(|s| second(s)..second(s + 4)).collect();
        fade(&mut net, HUB, each(0));
        fade(&mut net, TERMINAL, each(3 + seed % 3));
        run_to_end(&mut net, 200.0);
        for host in net.peers() {
            assert!(host.lost_flows == 0, "seed {seed}: {:?}", host.log);
        }
    }
}

#[test]
fn ten_minutes_without_one_direction_end_no_stream() {
    for from in [TERMINAL, HUB] {
        for plan in [Plan::new(100, 60_000_000), Plan::new(15_000_000, 100)] {
            let mut net = Hop::geo(0.01, 4).connected(&[plan]);
            open_all(&mut net, TERMINAL);
            net.run_for(Duration::from_secs(2)).unwrap();
            let (start, end) = (net.now(), net.now() + Duration::from_secs(600));
            fade(&mut net, from, vec![start..end]);
            net.run_for(Duration::from_secs(600)).unwrap();
            assert!(net.peers().iter().all(is_frozen));
            run_to_end(&mut net, 30.0);
            assert!(net.peers().iter().all(|host| host.lost_flows == 0));
        }
    }
}
