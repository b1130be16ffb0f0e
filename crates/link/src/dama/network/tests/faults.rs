//! Buffers, losses and hostile input.

use proptest::prelude::*;

use super::*;
use crate::BurstModel;

fn with(change: impl FnOnce(&mut TerminalConfig)) -> Dama<usize> {
    let mut one = terminal(128_000, 0, 0);
    change(&mut one);
    network(vec![one])
}

/// 600 cells are 19 packets of 31, and the IP queue stays empty (SLACP paper §2).
#[test]
fn without_flow_control_the_mac_buffer_drops_what_does_not_fit() {
    let mut network = with(|_| {});
    (0..30).for_each(|_| network.handle_packet(at(1), 0, 1450));
    assert_eq!(network.mac_cells(0), 589);
    assert_eq!(network.queued(0), Tally::default());
    assert_eq!(network.counters(0).dropped_queue.packets, 11);
}

#[test]
fn with_flow_control_packets_wait_in_the_ip_queue() {
    let mut network = with(|one| (one.flow_control, one.mac) = (true, MacLimit::Cells(300)));
    (0..50).for_each(|_| network.handle_packet(at(1), 0, 1450));
    // Nine packets of 31 cells fit into 300, and 27 into 40,000 bytes.
    assert_eq!((network.mac_cells(0), network.queued(0).packets), (279, 27));
    assert_eq!(network.counters(0).dropped_queue.packets, 14);
    let all = arrivals(&mut network, millis(20_000));
    assert_eq!(all.len(), 36);
    assert_eq!(network.counters(0).inside, Tally::default());
}

#[test]
fn a_packet_enters_as_soon_as_its_last_cell_fits() {
    let mut network = with(|one| (one.flow_control, one.mac) = (true, MacLimit::Cells(40)));
    network.handle_packet(at(1), 0, 1450);
    network.handle_packet(at(1), 0, 1450);
    assert_eq!((network.mac_cells(0), network.queued(0).packets), (31, 1));
    // After 22 cells there are 31 places.
    let slot = |index: u64| at(53_000_000 * index / 16);
    network.handle_timeout(slot(22));
    network.handle_packet(slot(22), 0, 0);
    assert_eq!((network.mac_cells(0), network.queued(0).packets), (40, 1));
}

/// Mistake: bytes in the air count against the buffer.
#[test]
fn what_has_left_frees_its_place() {
    let mut network = with(|one| one.mac = MacLimit::Cells(31));
    let mut time = at(1);
    for _ in 0..5 {
        network.handle_packet(time, 0, 1450);
        time += FRAME * 2;
    }
    assert_eq!(network.counters(0).dropped_queue.packets, 0);
    assert!(network.counters(0).inside.packets >= 2);
}

/// Mistake: a packet of more than 1,504 bytes ends the emulator.
#[test]
fn packets_of_any_length_are_carried_or_dropped() {
    let mut network = with(|one| one.flow_control = true);
    for len in [0, 1, 1504, 1505, 9_000, 65_535] {
        network.handle_packet(at(1), 0, len);
    }
    let all = arrivals(&mut network, millis(60_000));
    // 40,000 bytes of queue do not hold 65,535.
    assert_eq!(all.iter().map(|arrival| arrival.2).collect::<Vec<_>>(), [0, 1, 1504, 1505, 9_000]);
    network.handle_packet(millis(60_000), 0, 65_535);
    assert_eq!(arrivals(&mut network, millis(90_000)).len(), 1);
}

/// Mistake: losses per packet where the standard's bursts are in time. A burst of 100 ms hits what
/// is sent in it, however little.
#[test]
fn bursts_are_in_time() {
    let millis_ = Duration::from_millis;
    let burst = BurstModel::new(millis_(900)..=millis_(900), millis_(100)..=millis_(100)).unwrap();
    let lost = |every: u64| {
        let loss = LossModel::Burst(burst);
        let mut network = with(|one| one.loss = loss);
        for index in 0..(100_000 / every) {
            network.handle_packet(millis(index * every), 0, 40);
        }
        arrivals(&mut network, millis(200_000));
        let counters = network.counters(0);
        counters.lost.packets as f64 / counters.offered.packets as f64
    };
    for every in [7, 50] {
        let share = lost(every);
        assert!((0.08..0.16).contains(&share), "{share} every {every} ms");
    }
}

#[test]
fn an_outage_hits_packets_and_requests() {
    let mut network = network(vec![terminal(0, 0, 512)]);
    let outage = Outage { after: Duration::ZERO, lasting: Duration::from_secs(2), every: None };
    network.add_outage(at(0), 0, outage);
    network.handle_packet(millis(100), 0, 40);
    let all = arrivals(&mut network, millis(30_000));
    assert!(network.slots(0).requests_lost > 0);
    // It was taken for lost, and asked for again.
    assert_eq!((all.len(), network.replaced_requests(0)), (1, 1));
}

/// Voice goes ahead of bulk, but does not break into a packet.
#[test]
fn a_higher_class_goes_first() {
    let config = config(vec![terminal(128_000, 0, 0)]);
    let mut network: Dama<Vec<u8>> = Dama::new(config, 1).unwrap();
    let packet = |dscp: u8, len: usize| {
        let mut packet = vec![0; len];
        (packet[0], packet[1]) = (0x45, dscp << 2);
        packet
    };
    (0..3).for_each(|_| network.handle_packet(at(1), 0, packet(0, 1450)));
    network.handle_packet(millis(20), 0, packet(46, 100));
    network.handle_packet(millis(20), 0, packet(48, 101));
    let mut lens = Vec::new();
    while let Some((_, _, packet)) = network.poll_arrival(millis(5_000)) {
        lens.push(packet.len());
    }
    assert_eq!(lens, [1450, 101, 100, 1450, 1450]);
}

/// What one terminal does changes nobody else's luck.
#[test]
fn terminals_have_their_own_losses() {
    let run = |others: usize| {
        let mut one = terminal(16_000, 0, 0);
        one.loss = LossModel::Per(units::Probability::new(0.3).unwrap());
        let mut network = network(vec![one; 3]);
        for index in 0..300 {
            network.handle_packet(millis(index * 60), 0, index as usize);
            (0..others).for_each(|_| network.handle_packet(millis(index * 60), 1, 40));
        }
        let all = arrivals(&mut network, millis(60_000));
        all.into_iter().filter(|arrival| arrival.1 == 0).map(|each| each.2).collect::<Vec<_>>()
    };
    let alone = run(0);
    assert!((150..270).contains(&alone.len()), "{}", alone.len());
    assert_eq!(alone, run(2));
}

#[test]
fn what_cannot_be_built_is_refused() {
    let build = |change: fn(&mut DamaConfig)| {
        let mut config = config(vec![terminal(64_000, 0, 0); 2]);
        change(&mut config);
        Dama::<usize>::new(config, 1).err()
    };
    assert_eq!(build(|_| {}), None);
    assert!(matches!(build(|c| c.terminals.clear()), Some(DamaError::Terminals { .. })));
    assert!(matches!(
        build(|c| c.terminals[0].cra = bits(65_000)),
        Some(DamaError::Overbooked { .. })
    ));
    let one = |c: &mut DamaConfig| c.terminals[0].cra = bits(129_000);
    assert!(matches!(build(one), Some(DamaError::OneOverbooked { .. })));
    assert!(matches!(build(|c| c.requests.period = 0), Some(DamaError::Zero { .. })));
    assert!(matches!(build(|c| c.frames.slots = 0), Some(DamaError::Frames(_))));
}

proptest! {
    /// Capacity is conserved to the byte: whatever is offered, all of it is delivered, lost, dropped
    /// or inside, and no more cells are used than were granted.
    #[test]
    fn every_byte_is_accounted_for(
        packets in prop::collection::vec((0u64..20_000, 0usize..8, 0usize..3_000), 0..400),
        flow_control: bool, aware: bool, seed: u64, per in 0.0..0.5f64,
        chosen in contention::any_transport(), in_bytes: bool,
    ) {
        let mut packets = packets;
        packets.sort();
        let mut terminals: Vec<_> = (0..8u64)
            .map(|index| terminal(4_000 * (index % 3), 32_000 * (index % 2), 300 * (index as u32 % 4)))
            .collect();
        for one in &mut terminals {
            one.flow_control = flow_control;
            if in_bytes {
                one.mac = MacLimit::Bytes(ByteCount::new(14_400));
            }
            one.loss = LossModel::Per(units::Probability::new(per).unwrap());
        }
        let mut config = config(terminals);
        config.requests.policy = if aware { CapacityPolicy::RttAware } else { CapacityPolicy::Classic };
        contention::apply(&mut config, chosen);
        let capacity = config.capacity();
        let mut network: Dama<usize> = Dama::new(config, seed).unwrap();
        network.record_events();
        let mut got = [0u64; 8];
        for (millis_, index, len) in packets {
            for (_, from, len) in arrivals(&mut network, millis(millis_)) {
                got[from] += len as u64;
            }
            network.handle_packet(millis(millis_), index, len);
        }
        for (_, from, len) in arrivals(&mut network, millis(500_000)) {
            got[from] += len as u64;
        }
        while let Some(event) = network.poll_event() {
            if let DamaEvent::Allocated { grants, plan, .. } = event {
                prop_assert!(grants.iter().map(SlotGrant::slots).sum::<u32>() <= capacity);
                for (grant, runs) in grants.iter().zip(&plan) {
                    prop_assert_eq!(runs.iter().map(|run| run.count).sum::<u32>(), grant.slots());
                }
            }
        }
        for (index, got) in got.iter().enumerate() {
            let counters = *network.counters(index);
            let bytes = |tally: Tally| tally.bytes.get();
            prop_assert_eq!(bytes(counters.delivered), *got);
            prop_assert_eq!(
                bytes(counters.offered),
                bytes(counters.delivered) + bytes(counters.lost)
                    + bytes(counters.dropped_queue) + bytes(counters.inside)
            );
            let slots = network.slots(index);
            prop_assert!(slots.used <= slots.granted);
            // Everything that can ask for capacity is empty in the end.
            if index != 0 && index != 4 {
                prop_assert_eq!(counters.inside, Tally::default(), "terminal {}", index);
            }
        }
    }
}
