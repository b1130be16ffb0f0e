//! Links with any round-trip time up to 5 s, from the first packet on.

use core::time::Duration;

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, at, open_all, run_to_end};
use link::testkit::{Mangle, Net};
use slacp::{Event, SessionStats};
use units::Instant;

/// Round-trip times in seconds, around the retry intervals of initiations (1, 2, 4, 5 s, each up to
/// a quarter longer).
const RTTS: [f64; 12] = [0.01, 0.6, 0.99, 1.1, 1.2, 1.26, 1.3, 3.0, 3.2, 3.4, 4.0, 5.0];
/// Maximum length of the first retry interval, and of the first two together.
const FIRST_PAUSE: f64 = 1.25;
const TWO_PAUSES: f64 = 1.25 + 2.5;

fn net(rtt: f64, seed: u64, plans: &[Plan]) -> Net<Host> {
    Hop { delay: Duration::from_secs_f64(rtt / 2.0), ..Hop::geo(0.0, seed) }.net(plans)
}

/// Drops what leaves the link from `from` in this time, in seconds.
fn lose(net: &mut Net<Host>, from: usize, time: core::ops::Range<f64>) {
    let outages = vec![at(time.start)..at(time.end)];
    net.mangle(from, 1 - from, Mangle { outages, ..Mangle::default() });
}

/// Runs until both sides have the session; returns the time in seconds.
fn set_up(net: &mut Net<Host>) -> f64 {
    let up = |hosts: &mut [Host]| hosts.iter().all(|host| host.session.is_some());
    net.run_until(up, at(40.0)).unwrap().saturating_since(Instant::ZERO).as_secs_f64()
}

fn stats(host: &Host) -> SessionStats {
    host.endpoint.stats(host.session.unwrap()).unwrap()
}

/// Runs the hosts' plans and checks them 20 s later.
fn transfers_calmly(net: &mut Net<Host>, rtt: f64, case: &str) {
    open_all(net, TERMINAL);
    run_to_end(net, 60.0);
    net.run_for(Duration::from_secs(20)).unwrap();
    is_calm(net, rtt, case);
}

/// Drops what leaves the link from `from` until then, in seconds: the first message of the
/// handshake, or its answer.
fn loses_a_message(rtt: f64, seed: u64, from: usize, until: f64) {
    let case = format!("RTT {rtt} s, seed {seed}");
    let mut net = net(rtt, seed, &[Plan::new(20_000, 20_000)]);
    lose(&mut net, from, 0.0..until);
    let up = set_up(&mut net);
    // The answer to the second transmission is the first to arrive.
    assert!(up < 1.5 * rtt + FIRST_PAUSE + 0.01, "{case}: up after {up} s");
    transfers_calmly(&mut net, rtt, &case);
}

/// Checks that nothing but `Up` happened, few probes were sent, and the RTT is known.
fn is_calm(net: &Net<Host>, rtt: f64, case: &str) {
    for host in net.peers() {
        assert!(matches!(host.log[..], [(_, Event::Up { .. })]), "{case}: {:?}", host.log);
        let stats = stats(host);
        assert!(stats.probes <= 1, "{case}: {} probes", stats.probes);
        let off = (stats.rtt.as_secs_f64() - rtt).abs();
        assert!(off < 0.1 * rtt + 0.025, "{case}: {:?}", stats.rtt);
    }
}

#[test]
fn the_first_round_trip_time_is_right_on_both_sides() {
    for rtt in RTTS {
        for seed in 0..8 {
            let case = format!("RTT {rtt} s, seed {seed}");
            let mut net = net(rtt, seed, &[Plan::new(20_000, 20_000)]);
            let up = set_up(&mut net);
            assert!((up - 1.5 * rtt).abs() < 0.01, "{case}: up after {up} s");
            transfers_calmly(&mut net, rtt, &case);
        }
    }
}

#[test]
fn a_lost_response_costs_a_resend_and_no_storm_follows() {
    for rtt in RTTS {
        (0..4).for_each(|seed| loses_a_message(rtt, seed, HUB, rtt + 0.005));
    }
}

#[test]
fn a_lost_initiation_costs_a_resend_and_no_storm_follows() {
    for rtt in RTTS {
        loses_a_message(rtt, 1, TERMINAL, rtt / 2.0 + 0.005);
    }
}

/// The terminal then overestimates the round trip by the two retry intervals until the first
/// acknowledgement.
#[test]
fn two_lost_responses_are_forgotten_with_the_first_acknowledgement() {
    for rtt in RTTS {
        let case = format!("RTT {rtt} s");
        let mut net = net(rtt, 1, &[]);
        lose(&mut net, HUB, 0.0..rtt + FIRST_PAUSE + 0.005);
        let up = set_up(&mut net);
        assert!(up < 1.5 * rtt + TWO_PAUSES + 0.01, "{case}: up after {up} s");
        net.run_for(Duration::from_secs_f64(rtt + 0.1)).unwrap();
        is_calm(&net, rtt, &case);
    }
}
