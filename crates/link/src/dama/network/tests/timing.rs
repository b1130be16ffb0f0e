//! When packets arrive.

use proptest::prelude::*;

use super::*;
use crate::Trace;

/// 31 cells in the slots of frames of 53 ms, from the next one on: 1450 bytes take nearly two
/// frames at 128 kbit/s.
#[test]
fn with_cra_a_packet_leaves_in_the_next_slots() {
    let mut network = network(vec![terminal(128_000, 0, 0)]);
    network.handle_packet(at(0), 0, 1450);
    network.handle_packet(at(0), 0, 40);
    // The slot that begins at 0 is missed: slots 1 to 31, then slot 32.
    let slot = |index: u64| at(53_000_000 * index / 16);
    let expected = [(slot(32) + DELAY, 0, 1450), (slot(33) + DELAY, 0, 40)];
    assert_eq!(arrivals(&mut network, millis(2_000)), expected);
}

/// Slots of an idle terminal are not kept until its next packet.
#[test]
fn slots_pass_without_traffic() {
    let mut network = network(vec![terminal(64_000, 0, 0)]);
    assert!(arrivals(&mut network, millis(106_000)).is_empty());
    // 16 in each of 1,000 superframes, of which the last few have just been decided.
    let SlotCounters { granted, used, .. } = network.slots(0);
    assert!((16 * 990..=16 * 1_000).contains(&granted) && used == 0, "{granted}");
}

/// From asking to arriving: the wait for an opportunity, two delays, the wait for a decision, and
/// the delay of the packet.
#[test]
fn with_vbdc_a_packet_waits_for_its_grant() {
    let mut network = network(vec![terminal(0, 0, 512)]);
    network.record_events();
    network.handle_packet(millis(100), 0, 400);
    let [(time, ..)] = arrivals(&mut network, millis(5_000))[..] else { panic!() };
    // Asks in frame 10, at 530 ms; the request is there at 783.3 ms. The decision about the
    // superframe that begins at 1060 ms is made at 810 ms. Nine cells: five and four.
    let slot = |frame: u64, index: u64| at(53_000_000 * frame + 53_000_000 * index / 16);
    assert_eq!(time, slot(21, 4) + DELAY);
    let mut granted = 0;
    while let Some(event) = network.poll_event() {
        if let DamaEvent::Allocated { grants, .. } = event {
            granted += grants.iter().map(|grant| grant.vbdc).sum::<u32>();
        }
    }
    assert_eq!(granted, 9);
}

/// The paper's "typically 1.3–2 seconds": a round trip is that of the allocation and the reply's
/// 250 ms.
#[test]
fn a_round_trip_with_vbdc_takes_1_3_to_2_seconds() {
    for start in (0..1_060).step_by(53) {
        let mut network = network(vec![terminal(0, 0, 512)]);
        let start = millis(2_000 + start);
        network.handle_packet(start, 0, 40);
        let [(time, ..)] = arrivals(&mut network, start + Duration::from_secs(5))[..] else {
            panic!()
        };
        let rtt = (time + DELAY).saturating_since(start).as_millis();
        assert!((1_000..=1_750).contains(&rtt), "{rtt} ms");
    }
}

#[test]
fn with_rbdc_a_constant_rate_is_allocated_and_kept() {
    let mut network = network(vec![terminal(0, 128_000, 0)]);
    let mut sent = Vec::new();
    for index in 0..200u64 {
        // 40 bytes are a cell: 4 cells per frame, 32 kbit/s.
        let now = at(53_000_000 / 4 * index);
        network.handle_packet(now, 0, 40);
        sent.push(now);
    }
    let arrived = arrivals(&mut network, millis(20_000));
    assert_eq!(arrived.len(), 200);
    let delay = |index: usize| arrived[index].0.saturating_since(sent[index]).as_millis();
    assert!(delay(0) > 700, "{}", delay(0));
    // The rate holds, but what waited until it came is never drained: the backlog stays what
    // arrives in two request periods of 530 ms, because the formula subtracts both the new cells
    // and those that the rate brings.
    assert!((1_060..1_260).contains(&delay(150)), "{}", delay(150));
    assert!(delay(190) <= delay(150) + 106, "{}", delay(190));
}

/// A little CRA takes the first packet off the way of requests (SLACP paper §4.3).
#[test]
fn a_little_cra_carries_the_first_packet_at_once() {
    let mut network = network(vec![terminal(8_000, 0, 512)]);
    network.handle_packet(millis(100), 0, 40);
    let [(time, ..)] = arrivals(&mut network, millis(3_000))[..] else { panic!() };
    assert!(time <= millis(100) + FRAME * 2 + DELAY, "{time}");
}

/// Mistake: delays in whole milliseconds.
#[test]
fn delays_are_exact() {
    let mut config = config(vec![terminal(128_000, 0, 0)]);
    config.delay = Duration::from_nanos(123_456_789).into();
    let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
    network.handle_packet(at(0), 0, 40);
    let slot = 53_000_000 / 16;
    assert_eq!(arrivals(&mut network, millis(500)), [(at(2 * slot + 123_456_789), 0, 40)]);
}

/// Mistake: of two packets with the same time, one is lost.
#[test]
fn packets_that_arrive_at_the_same_moment_all_arrive() {
    let mut config = config(vec![terminal(128_000, 0, 0); 3]);
    config.frames.carriers = 3;
    let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
    (0..3).for_each(|index| network.handle_packet(at(0), index, 40));
    let all = arrivals(&mut network, millis(500));
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|arrival| arrival.0 == all[0].0));
}

/// Mistake: a delay that falls lets packets overtake each other.
#[test]
fn packets_keep_their_order_when_the_delay_falls() {
    let mut config = config(vec![terminal(128_000, 0, 0)]);
    config.delay = Trace::parse("0s 250ms\n200ms 10ms").unwrap().into();
    let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
    (0..100).for_each(|index| network.handle_packet(at(0), 0, index));
    let all = arrivals(&mut network, millis(3_000));
    let order: Vec<_> = all.iter().map(|arrival| arrival.2).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

proptest! {
    /// However late and however often the driver comes, the same happens.
    #[test]
    fn a_late_driver_changes_nothing(
        packets in prop::collection::vec((0u64..3_000, 0usize..3, 1usize..1500), 1..60),
        steps in prop::collection::vec(1u64..700, 1..40), seed: u64,
        chosen in contention::any_transport(),
    ) {
        let mut packets = packets;
        packets.sort();
        let terminals = vec![
            terminal(8_000, 0, 512), terminal(0, 64_000, 0), terminal(0, 0, 100),
        ];
        let run = |late: bool| {
            let mut config = config(terminals.clone());
            contention::apply(&mut config, chosen);
            let mut network: Dama<usize> = Dama::new(config, seed).unwrap();
            network.record_events();
            let mut all = Vec::new();
            for (millis_, index, len) in &packets {
                if !late {
                    all.extend(arrivals(&mut network, millis(*millis_)));
                }
                network.handle_packet(millis(*millis_), *index, *len);
            }
            if late {
                let mut now = millis(3_000);
                for step in &steps {
                    now += Duration::from_millis(*step);
                    while let Some(arrival) = network.poll_arrival(now) {
                        all.push(arrival);
                    }
                }
            }
            all.extend(arrivals(&mut network, millis(60_000)));
            let events: Vec<_> = core::iter::from_fn(|| network.poll_event()).collect();
            (all, events)
        };
        prop_assert_eq!(run(false), run(true));
    }
}
