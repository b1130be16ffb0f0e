//! Streams arrive whole, whatever the link does, and as fast as it allows.

mod hop;

use core::time::Duration;

use hop::{HUB, Hop, Plan, TERMINAL, at, open_all, run_to_end};
use link::testkit::Mangle;
use slacp::ResetReason;
use units::Probability;

#[test]
fn a_request_and_its_reply_take_one_round_trip() {
    let mut plan = Plan::new(1000, 10_000);
    plan.reply = true;
    let mut net = Hop::geo(0.0, 1).connected(&[plan]);
    let start = net.now();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 10.0);
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    assert!(flow.accepted);
    let time = flow.last_byte.unwrap().saturating_since(start);
    assert!(time < Duration::from_millis(605), "{time:?}");
}

#[test]
fn a_download_fills_the_link() {
    let mut net = Hop::geo(0.0, 1).connected(&[Plan::new(100, 20_000_000)]);
    let start = net.now();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 30.0);
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    let time = flow.last_byte.unwrap().saturating_since(start).as_secs_f64();
    println!(
        "time {time}, {:?}",
        net.peers()[HUB].endpoint.stats(net.peers()[HUB].session.unwrap())
    );
    let limit = 0.6 + 20e6 * 8.0 / 50e6;
    assert!(limit / time > 0.95, "{time}");
}

#[test]
fn a_download_fills_a_lossy_link() {
    let mut times: Vec<f64> = (0..9)
        .map(|seed| {
            let mut net = Hop::geo(0.01, seed).connected(&[Plan::new(100, 20_000_000)]);
            let start = net.now();
            open_all(&mut net, TERMINAL);
            run_to_end(&mut net, 30.0);
            let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
            println!("{:?}", net.peers()[HUB].endpoint.stats(net.peers()[HUB].session.unwrap()));
            println!(
                "{:?}",
                net.peers()[TERMINAL].endpoint.stats(net.peers()[TERMINAL].session.unwrap())
            );
            flow.last_byte.unwrap().saturating_since(start).as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{times:?}");
    let limit = 0.6 + 20e6 * 8.0 / 49.5e6;
    assert!(limit / times[4] > 0.92, "{times:?}");
}

#[test]
fn thousands_of_seeds_of_trouble_lose_no_byte() {
    let seeds: u64 = std::env::var("SLACP_SEEDS").map_or(300, |n| n.parse().unwrap());
    for seed in 0..seeds {
        trouble(seed);
    }
}

fn trouble(seed: u64) {
    let mix = |n: u64| (seed.wrapping_mul(0x9e37_79b9).wrapping_add(n * 0x85eb_ca6b) >> 7) % 1000;
    let size = |n| mix(n) * mix(n + 1) * mix(n + 2) / 10_000;
    let mut plans: Vec<Plan> = (0..1 + mix(90) as usize % 12)
        .map(|i| Plan::new(size(i as u64), size(i as u64 + 30)))
        .collect();
    for (i, plan) in plans.iter_mut().enumerate() {
        match mix(60 + i as u64) % 8 {
            0 => plan.reset_after = Some(plan.bytes[1] / 2),
            1 => plan.refuse = Some(ResetReason::Refused),
            2 => plan.reply = true,
            3 => plan.slow = Some((1000, Duration::from_millis(40))),
            _ => {}
        }
    }
    let hop = Hop::geo(mix(91) as f64 / 10_000.0, seed);
    let mut net = hop.net(&plans);
    let p = |n| Probability::new(mix(n) as f64 / 10_000.0).unwrap();
    for (from, to, n) in [(HUB, TERMINAL, 100), (TERMINAL, HUB, 110)] {
        let mangle = Mangle {
            duplicate: p(n),
            reorder: p(n + 1),
            reorder_by: Duration::from_millis(mix(n + 2) / 5),
            corrupt: p(n + 3),
            outages: vec![at(3.0)..at(3.0 + mix(n + 4) as f64 / 500.0)],
        };
        net.mangle(from, to, mangle);
    }
    let up = net.run_until(|hosts| hosts.iter().all(|host| host.session.is_some()), at(60.0));
    up.unwrap_or_else(|stalled| panic!("seed {seed}: {stalled}"));
    let opener = usize::from(seed % 3 == 0);
    open_all(&mut net, opener);
    if std::env::var_os("SLACP_VERBOSE").is_some() {
        println!("seed {seed}");
    }
    run_to_end(&mut net, 120.0);
    for host in net.peers() {
        let stats = host.endpoint.stats(host.session.unwrap()).unwrap();
        assert_eq!(stats.streams, 0, "seed {seed}");
        assert_eq!((stats.held_to_send.get(), stats.held_to_read.get()), (0, 0), "seed {seed}");
        assert_eq!(host.lost_flows, 0, "seed {seed}");
    }
}
