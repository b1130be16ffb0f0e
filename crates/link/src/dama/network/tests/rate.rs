//! Fades: the rate of the carriers changes while the link runs.

use proptest::prelude::*;

use super::*;
use crate::{Rate, Trace};

/// Slots of each superframe's plan, with the time of its decision.
fn planned(network: &mut Dama<usize>) -> Vec<(Instant, u32)> {
    let mut all = Vec::new();
    while let Some(event) = network.poll_event() {
        if let DamaEvent::Allocated { begins, grants, plan, .. } = event {
            let slots: u32 = grants.iter().map(SlotGrant::slots).sum();
            assert_eq!(plan.iter().flatten().map(|run| run.count).sum::<u32>(), slots);
            all.push((at(begins.as_nanos().saturating_sub(DELAY.as_nanos() as u64)), slots));
        }
    }
    all
}

/// A terminal that always has something to send.
fn busy() -> Dama<usize> {
    let mut network = network(vec![terminal(0, 0, 512)]);
    network.record_events();
    network
}

fn fill(network: &mut Dama<usize>, until: u64) {
    for ms in (0..until).step_by(20) {
        arrivals(network, millis(ms));
        network.set_backlog(millis(ms), 0, ByteCount::new(100_000));
        if network.mac_cells(0) < 100 {
            network.handle_packet(millis(ms), 0, 1_450);
        }
    }
}

#[test]
fn a_fade_holds_for_the_superframes_that_are_decided_in_it() {
    let mut network = busy();
    fill(&mut network, 5_000);
    arrivals(&mut network, millis(5_000));
    network.set_rate(millis(5_000), bits(12_800).into());
    let planned_before = planned(&mut network);
    assert_eq!(planned_before.last().map(|(_, slots)| *slots), Some(32), "a full link");
    let rest = network.granted(millis(5_000), 0, Duration::from_millis(200));
    assert!(rest > bits(100_000), "what was planned before stays: {rest}");
    arrivals(&mut network, millis(10_000));
    network.set_rate(millis(10_000), bits(128_000).into());
    arrivals(&mut network, millis(15_000));
    let planned = planned(&mut network);
    let slots = |from, until| {
        let within =
            |(decided, _): &&(Instant, u32)| (millis(from)..millis(until)).contains(decided);
        planned.iter().filter(within).map(|(_, slots)| *slots).max()
    };
    // A tenth of 16 slots is one in each frame.
    assert_eq!([slots(5_000, 10_000), slots(10_000, 15_000)], [Some(2), Some(32)]);
}

#[test]
fn a_rate_of_zero_grants_nothing_and_loses_nothing() {
    let mut network = busy();
    network.set_rate(millis(0), bits(0).into());
    (0..10).for_each(|_| network.handle_packet(millis(600), 0, 1_450));
    assert!(arrivals(&mut network, millis(9_000)).is_empty());
    network.set_rate(millis(9_000), bits(1_000_000).into());
    assert_eq!(arrivals(&mut network, millis(30_000)).len(), 10);
    assert!(planned(&mut network).iter().all(|(_, slots)| *slots <= 32), "as many as there are");
}

#[test]
fn a_trace_is_followed_from_the_start_of_the_link() {
    let trace = Trace::parse("0s 128 kbit/s\n5s 64 kbit/s\n10s 128 kbit/s").unwrap();
    let config = DamaConfig { rate: Some(Rate::Trace(trace)), ..config(vec![terminal(0, 0, 512)]) };
    let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
    network.record_events();
    fill(&mut network, 15_000);
    for (decided, slots) in planned(&mut network) {
        // The rate of a superframe's time from the decision on.
        if (millis(5_000)..millis(9_894)).contains(&decided) {
            assert_eq!(slots, 16, "{decided:?}");
        }
    }
    assert_eq!(network.counters(0).lost, Tally::default());
}

proptest! {
    /// Whatever the rates, no more is planned than the carriers have at the time of the decision,
    /// every packet arrives once and in order, and nothing is granted twice.
    #[test]
    fn capacity_is_conserved(
        rates in prop::collection::vec((0u64..200_000, 1u64..2_000), 1..12),
        packets in prop::collection::vec((1usize..1_450, 0u64..200), 1..36),
        carriers in 1u32..4,
        cra in 0u64..3,
    ) {
        let mut config = config(vec![terminal(8_000 * cra, 0, 512), terminal(0, 64_000, 512)]);
        config.frames.carriers = carriers;
        let mut network: Dama<usize> = Dama::new(config, 7).unwrap();
        network.record_events();
        let mut now = 0;
        let mut limits = vec![(millis(0), 16)];
        let mut packets = packets.into_iter().enumerate();
        let mut sent = [Vec::new(), Vec::new()];
        let mut got = [Vec::new(), Vec::new()];
        for (rate, length) in rates {
            limits.push((millis(now), (rate * 106 / 1_000 / (53 * 8) / 2).min(16) as u32));
            network.set_rate(millis(now), bits(rate).into());
            let end = now + length;
            for (index, (bytes, pause)) in packets.by_ref().take(4) {
                now = (now + pause).min(end);
                for (_, terminal, bytes) in arrivals(&mut network, millis(now)) {
                    got[terminal].push(bytes);
                }
                network.handle_packet(millis(now), index % 2, bytes);
                sent[index % 2].push(bytes);
            }
            now = end;
        }
        for (_, terminal, bytes) in arrivals(&mut network, millis(now)) {
            got[terminal].push(bytes);
        }
        limits.push((millis(now), 16));
        network.set_rate(millis(now), bits(128_000).into());
        for (_, terminal, bytes) in arrivals(&mut network, millis(now + 120_000)) {
            got[terminal].push(bytes);
        }
        prop_assert_eq!(sent, got);
        for (decided, slots) in planned(&mut network) {
            let limit = limits.iter().rev().find(|(from, _)| *from < decided);
            let limit = limit.map_or(16, |(_, limit)| *limit);
            prop_assert!(slots <= 2 * carriers * limit, "{slots} at {decided:?}, limit {limit}");
        }
    }
}
