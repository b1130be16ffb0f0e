//! Keys change within a session without any effect on its users.

use core::time::Duration;

use crate::hop::{HUB, Hop, Plan, TERMINAL, open_all, run_to_end};
use link::testkit::Mangle;
use slacp::SessionStats;
use units::{BitRate, Probability};

/// 60 MB down at 250 Mbit/s and 600 ms: the time in seconds, and the counters of terminal and hub.
fn bulk(rekey_packets: fn(&mut slacp::Config)) -> (f64, [SessionStats; 2]) {
    let mut hop = Hop::geo(0.0, 1);
    hop.forward = BitRate::from_mbit(250);
    hop.configure = rekey_packets;
    let mut net = hop.connected(&[Plan::new(100, 60_000_000)]);
    let start = net.now();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 60.0);
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    let seconds = flow.last_byte.unwrap().saturating_since(start).as_secs_f64();
    let stats = [TERMINAL, HUB].map(|side| {
        let host = &net.peers()[side];
        host.endpoint.stats(host.session.unwrap()).unwrap()
    });
    (seconds, stats)
}

#[test]
fn a_bulk_transfer_feels_nothing_of_a_change() {
    let (without, calm) = bulk(|_| {});
    let (with, stats) = bulk(|config| config.rekey_packets = 1);
    println!("{without:.4} s without, {with:.4} s with {} changes", stats[0].key_changes);
    assert_eq!(calm[0].key_changes, 0);
    // One after the other: an exchange, the packets it overtook, the next exchange.
    assert!(stats.iter().all(|stats| stats.key_changes >= 1), "{stats:?}");
    for stats in stats {
        assert_eq!((stats.packets_lost, stats.forged, stats.probes), (0, 0, 0));
    }
    assert!((with - without).abs() < 0.001, "{with} s instead of {without} s");
}

#[test]
fn keys_change_in_time_also_when_idle() {
    let mut hop = Hop::geo(0.0, 1);
    hop.configure = |config| config.rekey_after = Duration::from_secs(30);
    let mut net = hop.connected(&[]);
    net.run_for(Duration::from_secs(200)).unwrap();
    for host in net.peers() {
        let stats = host.endpoint.stats(host.session.unwrap()).unwrap();
        // 30 s, an exchange, 30 s, …
        assert_eq!((stats.key_changes, stats.forged), (6, 0));
    }
}

#[test]
fn changes_survive_loss_duplicates_and_reordering() {
    let mut changes = 0;
    for seed in 0..20 {
        let mut hop = Hop::geo(0.2, seed);
        hop.configure = |config| config.rekey_after = Duration::from_secs(1);
        let mut net = hop.connected(&[Plan::new(300_000, 300_000), Plan::new(20_000, 3_000_000)]);
        let fifth = Probability::new(0.2).unwrap();
        for (from, to) in [(HUB, TERMINAL), (TERMINAL, HUB)] {
            let reorder_by = Duration::from_millis(1500);
            let mangle =
                Mangle { duplicate: fifth, reorder: fifth, reorder_by, ..Mangle::default() };
            net.mangle(from, to, mangle);
        }
        open_all(&mut net, TERMINAL);
        run_to_end(&mut net, 120.0);
        net.run_for(Duration::from_secs(60)).unwrap();
        let done = net.peers().iter().map(|host| {
            assert_eq!(host.lost_flows, 0, "seed {seed}: {:?}", host.log);
            host.endpoint.stats(host.session.unwrap()).unwrap().key_changes
        });
        let done: Vec<u64> = done.collect();
        assert!(done[0].abs_diff(done[1]) <= 1 && done[0] >= 4, "seed {seed}: {done:?}");
        changes += done[0];
    }
    println!("{changes} changes");
}
