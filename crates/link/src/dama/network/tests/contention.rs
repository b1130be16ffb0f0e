//! Requests and packets by contention.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::dama::random_access::{AccessLimits, AccessScheme, BackoffLimits};
use crate::dama::{ContentionChannel, ContentionError, RandomAccess, RequestPlace, RequestSlots};

const ALOHA: ContentionChannel = ContentionChannel {
    scheme: AccessScheme::SlottedAloha,
    backoff: BackoffLimits { first: 2, greatest: 64, attempts: 10 },
    load_control: true,
};

fn slots(slots: u16) -> RequestSlots {
    RequestSlots { place: RequestPlace::Slots(slots), channel: ALOHA }
}

fn access(carriers: u32) -> Option<RandomAccess> {
    Some(RandomAccess { carriers, channel: ALOHA, limits: AccessLimits::default() })
}

/// [`config`] with `carriers`, of which the last takes packets by contention if `access`.
fn shared(
    terminals: Vec<TerminalConfig>,
    transport: RequestTransport,
    access: Option<RandomAccess>,
) -> DamaConfig {
    let mut config = config(terminals);
    config.frames.carriers = 1 + access.map_or(0, |access| access.carriers);
    (config.requests.transport, config.random_access) = (transport, access);
    config
}

fn build(
    terminals: Vec<TerminalConfig>,
    transport: RequestTransport,
    access: Option<RandomAccess>,
) -> Dama<usize> {
    let mut network = Dama::new(shared(terminals, transport, access), 1).unwrap();
    network.record_events();
    network
}

fn slot(frame: u64, index: u64) -> Instant {
    at(53_000_000 * frame + 53_000_000 * index / 16)
}

fn events(network: &mut Dama<usize>) -> Vec<DamaEvent> {
    core::iter::from_fn(|| network.poll_event()).collect()
}

mod requests {
    use super::*;

    /// The first block after 100 ms begins in slot 12 of frame 2. It is at the hub at 409 ms, in
    /// time for the decision about superframe 7. In turns of ten frames the terminal would have
    /// waited until superframe 10 (`with_vbdc_a_packet_waits_for_its_grant`).
    #[test]
    fn a_request_by_contention_need_not_wait_for_its_turn() {
        let transport = RequestTransport::Contention(slots(4));
        let mut network = build(vec![terminal(0, 0, 512)], transport, None);
        network.handle_packet(millis(100), 0, 400);
        let [(time, ..)] = arrivals(&mut network, millis(5_000))[..] else { panic!() };
        assert_eq!(time, slot(15, 4) + DELAY);
        let events = events(&mut network);
        let Some(DamaEvent::Contended { at, frame: 2, carrier: 0, attempt: 1, slots, .. }) =
            events.iter().find(|event| matches!(event, DamaEvent::Contended { .. }))
        else {
            panic!("{events:?}")
        };
        assert_eq!(*at, slot(2, 12));
        assert!(matches!(slots[..], [ref burst] if matches!(burst[..], [12..16])), "{slots:?}");
        let received = |event: &DamaEvent| match event {
            DamaEvent::Received { at, senders, .. } => Some((*at, senders[0].decoded)),
            _ => None,
        };
        assert_eq!(events.iter().find_map(received), Some((slot(3, 0) + DELAY, 1)));
    }

    #[test]
    fn what_requests_take_cannot_be_granted() {
        let transport = RequestTransport::Contention(slots(4));
        let config = shared(vec![terminal(0, 0, 4_080)], transport, None);
        assert_eq!(config.capacity(), 24);
        let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
        network.record_events();
        (0..10).for_each(|_| network.handle_packet(at(1), 0, 1450));
        arrivals(&mut network, millis(5_000));
        for event in events(&mut network) {
            let DamaEvent::Allocated { grants, plan, .. } = event else { continue };
            assert!(grants.iter().map(SlotGrant::slots).sum::<u32>() <= 24);
            assert!(plan.iter().flatten().all(|run| run.slot + run.count <= 12), "{plan:?}");
        }
    }

    /// With CRA each frame has a slot of its own. That of frame 2 begins with the opportunity.
    #[test]
    fn a_request_rides_in_the_next_granted_slot() {
        let transport = RequestTransport::Piggyback(slots(4));
        let mut network = build(vec![terminal(8_000, 0, 512)], transport, None);
        network.handle_packet(millis(100), 0, 1450);
        arrivals(&mut network, millis(5_000));
        let requested = |event: &DamaEvent| match event {
            DamaEvent::Requested { at, request, lost: false, .. } => Some((*at, request.volume)),
            _ => None,
        };
        let first = events(&mut network).iter().find_map(requested).unwrap();
        assert_eq!(first, (slot(3, 0), Some(crate::dama::VolumeRequest::More(30))));
        let SlotCounters { requests: 1.., contention_bursts: 0, .. } = network.slots(0) else {
            panic!("{:?}", network.slots(0))
        };
    }

    #[test]
    fn without_a_granted_slot_a_request_uses_contention() {
        let transport = RequestTransport::Piggyback(slots(4));
        let mut network = build(vec![terminal(0, 0, 512)], transport, None);
        for index in 0..40 {
            network.handle_packet(millis(100 + 60 * index), 0, 400);
        }
        let all = arrivals(&mut network, millis(10_000));
        assert_eq!(all.len(), 40);
        let SlotCounters { requests, contention_bursts, .. } = network.slots(0);
        assert!(contention_bursts > 0 && requests > contention_bursts, "{:?}", network.slots(0));
    }

    /// Two terminals and one slot: the first attempts always collide, and the hub's silence is known
    /// with the plan that would have answered.
    #[test]
    fn requests_that_collide_are_made_again() {
        let transport = RequestTransport::Contention(slots(1));
        let mut network = build(vec![terminal(0, 0, 512); 2], transport, None);
        (0..2).for_each(|index| network.handle_packet(millis(100), index, 40));
        assert_eq!(arrivals(&mut network, millis(30_000)).len(), 2);
        let both = [network.slots(0), network.slots(1)];
        assert!(both.iter().all(|slots| slots.requests == 1 && slots.requests_given_up == 0));
        assert!(both.iter().all(|slots| slots.collisions >= 1), "{both:?}");
        let attempts = events(&mut network).into_iter().filter_map(|event| match event {
            DamaEvent::Contended { attempt, frame, .. } => Some((attempt, frame)),
            _ => None,
        });
        let attempts: Vec<_> = attempts.collect();
        assert_eq!(attempts[..2], [(1, 1), (1, 1)]);
        // Plans begin with even frames; the one of superframe 6 answers.
        assert!(attempts[2].0 == 2 && attempts[2].1 >= 12, "{attempts:?}");
    }

    /// Of 40 terminals that ask in the same frame, some reach the hub with the first attempt: on one
    /// carrier of 16 slots few, on eight carriers most, which are all used.
    #[test]
    fn requests_spread_over_all_their_carriers() {
        let first_time = |carriers| {
            let place = RequestPlace::Carriers(carriers);
            let transport = RequestTransport::Contention(RequestSlots { place, channel: ALOHA });
            let mut config = shared(vec![terminal(0, 0, 512); 40], transport, None);
            config.frames.carriers = 1 + carriers;
            let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
            network.record_events();
            (0..40).for_each(|index| network.handle_packet(millis(100), index, 40));
            arrivals(&mut network, millis(500));
            let received = events(&mut network).into_iter().find_map(|event| match event {
                DamaEvent::Received { senders, .. } => Some(senders),
                _ => None,
            });
            received.unwrap()
        };
        let decoded =
            |senders: &[ReceivedBursts]| senders.iter().map(|each| each.decoded).sum::<u32>();
        let one = first_time(1);
        let eight = first_time(8);
        assert_eq!((one.len(), eight.len()), (40, 40));
        // 40 e^(-40/16) is 3, 40 e^(-40/128) is 29.
        assert!(decoded(&one) <= 8 && decoded(&eight) >= 22, "{one:?} {eight:?}");
        let used: std::collections::BTreeSet<_> = eight.iter().map(|each| each.carrier).collect();
        assert_eq!(used, (1..9).collect());
    }

    #[test]
    fn what_is_given_up_is_counted_and_asked_for_again() {
        let channel = ContentionChannel {
            backoff: BackoffLimits { first: 1, greatest: 1, attempts: 2 },
            ..ALOHA
        };
        let transport =
            RequestTransport::Contention(RequestSlots { place: RequestPlace::Slots(1), channel });
        for (rbdc, vbdc) in [(0, 512), (64_000, 0)] {
            let mut network = build(vec![terminal(0, rbdc, vbdc)], transport, None);
            let outage =
                Outage { after: Duration::ZERO, lasting: Duration::from_secs(9), every: None };
            network.add_outage(at(0), 0, outage);
            network.handle_packet(millis(100), 0, 40);
            let all = arrivals(&mut network, millis(20_000));
            let slots = network.slots(0);
            assert!(all.len() == 1 && all[0].0 > millis(9_000), "{all:?}");
            assert!(slots.requests_given_up >= 2, "{slots:?}");
            assert!(slots.requests > slots.requests_given_up, "{slots:?}");
            assert_eq!(network.replaced_requests(0), 0);
        }
    }

    /// A terminal with a whole carrier of CRA is silent in no slot of the block.
    #[test]
    fn a_burst_never_overlaps_a_granted_slot() {
        let transport = RequestTransport::Contention(slots(4));
        let mut config = shared(
            vec![terminal(50_000, 0, 512), terminal(60_000, 64_000, 0), terminal(30_000, 0, 512)],
            transport,
            None,
        );
        config.frames.carriers = 2;
        let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
        network.record_events();
        for index in 0..600u64 {
            network.handle_packet(millis(25 * index), index as usize % 3, 400);
        }
        arrivals(&mut network, millis(30_000));
        let mut granted = BTreeMap::new();
        let mut contended = 0;
        for event in events(&mut network) {
            match event {
                DamaEvent::Allocated { grants, plan, .. } => {
                    for (grant, runs) in grants.iter().zip(plan) {
                        for run in runs {
                            granted.entry((grant.terminal, run.frame)).or_insert(vec![]).push(run);
                        }
                    }
                }
                DamaEvent::Contended { terminal, frame, slots, .. } => {
                    contended += 1;
                    let runs = granted.get(&(terminal, frame)).map_or(&[][..], Vec::as_slice);
                    let has = |slot: &u32| {
                        runs.iter().any(|run| (run.slot..run.slot + run.count).contains(slot))
                    };
                    assert!(!slots.iter().flatten().any(has), "{terminal} {frame} {slots:?}");
                }
                _ => {}
            }
        }
        assert!(contended > 10, "{contended}");
    }
}

mod packets {
    use super::*;

    const NO_REQUESTS: RequestTransport = RequestTransport::Assigned;

    /// One delay and the block, instead of a round trip of request and plan.
    #[test]
    fn the_first_packet_arrives_after_one_delay() {
        let mut network = build(vec![terminal(0, 0, 512)], NO_REQUESTS, access(1));
        network.handle_packet(millis(100), 0, 400);
        let all = arrivals(&mut network, millis(5_000));
        assert_eq!(all, [(slot(3, 0) + DELAY, 0, 400)]);
        let SlotCounters { contention_bursts: 9, collisions: 0, requests: 0, .. } =
            network.slots(0)
        else {
            panic!("{:?}", network.slots(0))
        };
        assert_eq!((network.mac_cells(0), network.counters(0).inside.packets), (0, 0));
    }

    /// Several packets go together, as far as they fit into a block; the rest is asked for at once.
    #[test]
    fn the_head_of_a_burst_goes_by_contention_and_the_rest_by_assignment() {
        let mut network = build(vec![terminal(0, 0, 512)], NO_REQUESTS, access(1));
        for len in [100, 400, 401, 402] {
            network.handle_packet(millis(500), 0, len);
        }
        let all = arrivals(&mut network, millis(5_000));
        // 3 and 9 cells of 16. Frame 10 begins at 530 ms.
        let together = slot(11, 0) + DELAY;
        assert_eq!(all[..2], [(together, 0, 100), (together, 0, 400)]);
        assert_eq!(all[2..].iter().map(|each| each.2).collect::<Vec<_>>(), [401, 402]);
        let slots = network.slots(0);
        // They leave in granted slots before the answer to the first ones is known.
        assert_eq!((slots.contention_bursts, slots.requests, slots.used), (12, 1, 18));
        let mut granted = 0;
        for event in events(&mut network) {
            if let DamaEvent::Allocated { grants, .. } = event {
                granted += grants.iter().map(|grant| grant.vbdc).sum::<u32>();
            }
        }
        assert_eq!(granted, 18);
    }

    #[test]
    fn a_terminal_with_granted_slots_does_not_contend() {
        let mut network = build(vec![terminal(8_000, 0, 512)], NO_REQUESTS, access(1));
        (0..20).for_each(|index| network.handle_packet(millis(100 * index), 0, 100));
        assert_eq!(arrivals(&mut network, millis(9_000)).len(), 20);
        assert_eq!(network.slots(0).contention_bursts, 0);
    }

    #[test]
    fn a_long_backlog_waits_for_its_assignment() {
        let mut network = build(vec![terminal(0, 0, 512)], NO_REQUESTS, access(1));
        (0..12).for_each(|_| network.handle_packet(millis(100), 0, 1450));
        arrivals(&mut network, millis(9_000));
        assert_eq!(network.slots(0).contention_bursts, 0);
    }

    /// Two terminals, one slot each of sixteen: with eight cells each they collide nearly always at
    /// first, and lose only what collided.
    #[test]
    fn only_what_collided_is_sent_again() {
        let mut network = build(vec![terminal(0, 0, 0); 2], NO_REQUESTS, access(1));
        (0..2).for_each(|index| network.handle_packet(millis(100), index, 376));
        assert_eq!(arrivals(&mut network, millis(60_000)).len(), 2);
        let [one, other] = [network.slots(0), network.slots(1)];
        assert!(one.collisions > 0 && one.collisions < 8, "{one:?}");
        assert_eq!(one.contention_bursts, 8 + one.collisions, "{one:?}");
        assert_eq!(other.contention_bursts, 8 + other.collisions, "{other:?}");
    }

    #[test]
    fn packets_given_up_are_counted_as_lost() {
        let mut network = build(vec![terminal(0, 0, 0)], NO_REQUESTS, access(1));
        let outage = Outage { after: Duration::ZERO, lasting: Duration::MAX, every: None };
        network.add_outage(at(0), 0, outage);
        (0..3).for_each(|_| network.handle_packet(millis(100), 0, 40));
        assert_eq!(arrivals(&mut network, millis(60_000)), []);
        let slots = network.slots(0);
        let counted = (slots.packets_given_up, slots.contention_bursts, slots.collisions);
        assert_eq!(counted, (3, 30, 30));
        assert_eq!(network.counters(0).lost.packets, 3);
        assert_eq!(network.counters(0).inside, Tally::default());
        let gave_up = |event: &DamaEvent| matches!(event, DamaEvent::GaveUp { .. });
        assert_eq!(events(&mut network).iter().filter(|event| gave_up(event)).count(), 1);
    }

    /// Losses of the channel are repaired like collisions.
    #[test]
    fn a_lost_burst_is_repaired() {
        let mut one = terminal(0, 0, 0);
        one.loss = LossModel::Per(units::Probability::new(0.5).unwrap());
        let mut network = build(vec![one], NO_REQUESTS, access(1));
        (0..30).for_each(|index| network.handle_packet(millis(2_000 * index), 0, 100));
        assert_eq!(arrivals(&mut network, millis(200_000)).len(), 30);
        assert!(network.slots(0).collisions > 30, "{:?}", network.slots(0));
    }
}

/// Terminals that always have a short packet to send, and the share of the slots in which one
/// arrives.
fn saturated(terminals: usize, load_control: bool) -> f64 {
    let mut config = shared(vec![terminal(0, 0, 0); terminals], RequestTransport::Assigned, None);
    (config.frames.carriers, config.frames.slots) = (2, 40);
    let backoff = BackoffLimits { first: 2, greatest: 4, attempts: 10 };
    let channel = ContentionChannel { load_control, backoff, ..ALOHA };
    let limits = AccessLimits { load: f64::INFINITY, ..AccessLimits::default() };
    config.random_access = Some(RandomAccess { carriers: 1, channel, limits });
    let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
    let mut time = at(0);
    let mut arrived = 0;
    for frame in 0..600 {
        for index in 0..terminals {
            if network.counters(index).inside.packets == 0 {
                network.handle_packet(time, index, 40);
            }
        }
        time += FRAME;
        let now = arrivals(&mut network, time).len();
        arrived += if frame < 200 { 0 } else { now };
    }
    arrived as f64 / (400.0 * 40.0)
}

/// Slotted ALOHA's peak is 0.37. Fifty terminals are below it, as each waits for its answer.
#[test]
fn load_control_keeps_the_throughput_of_many_terminals() {
    let sweep: Vec<_> = [50, 200, 600, 2_000].map(|count| saturated(count, true)).into();
    assert!(sweep[0] < sweep[1] && sweep[1] < sweep[2], "{sweep:?}");
    assert!(sweep[2..].iter().all(|throughput| *throughput > 0.33), "{sweep:?}");
    let without = [50, 200, 600, 2_000].map(|count| saturated(count, false));
    assert!(without[3] < 0.15, "{without:?}");
}

/// What waits in the agenda is what the few active ones of many terminals have to do.
#[test]
fn the_cost_of_a_frame_is_that_of_the_active_terminals() {
    let transport = RequestTransport::Piggyback(slots(4));
    let mut network = build(vec![terminal(0, 0, 512); 8_000], transport, access(1));
    for index in 0..200u64 {
        let now = millis(53 * index);
        arrivals(&mut network, now);
        network.handle_packet(now, (index % 5) as usize * 1_000, 400);
        assert!(network.agenda.len() <= 1 + 5 * 6, "{}", network.agenda.len());
    }
}

#[test]
fn impossible_channels_are_refused() {
    let build = |transport, access| {
        let config = shared(vec![terminal(0, 0, 512)], transport, access);
        Dama::<usize>::new(config, 1).err().map(|error| error.to_string())
    };
    let contention = RequestTransport::Contention;
    assert_eq!(build(contention(slots(15)), None), None);
    let error = |transport, access| build(transport, access).unwrap();
    assert_eq!(
        error(contention(slots(16)), None),
        "contention slots for requests: 16 slots of each frame leave nothing to grant"
    );
    let many = error(contention(slots(17)), None);
    assert!(many.ends_with("17 slots: expected 1 to 16"), "{many}");
    let few = error(contention(slots(0)), None);
    assert!(few.ends_with("slotted-aloha in 0 slots: expected at least 1 slots"), "{few}");
    let whole = |carriers| {
        let place = RequestPlace::Carriers(carriers);
        contention(RequestSlots { place, channel: ALOHA })
    };
    for (carriers, access, all) in [(0, None, 1), (1, None, 1), (2, access(2), 1)] {
        let wrong = ContentionError::Carriers { carriers, all };
        let wrong = format!("contention slots for requests: {wrong}");
        assert_eq!(error(whole(carriers), access), wrong);
    }
    let mut all = shared(vec![terminal(0, 0, 512)], RequestTransport::Assigned, access(1));
    all.frames.carriers = 1;
    let error = DamaError::RandomAccess(ContentionError::Carriers { carriers: 1, all: 1 });
    assert_eq!(Dama::<usize>::new(all, 1).err(), Some(error));
}

/// Settings of all kinds.
pub(super) fn any_transport() -> impl Strategy<Value = (RequestTransport, Option<RandomAccess>)> {
    let scheme = prop_oneof![
        Just(AccessScheme::SlottedAloha),
        Just(AccessScheme::Dsa { replicas: 2 }),
        Just(AccessScheme::Crdsa { replicas: 2, iterations: 16 }),
    ];
    let channel = (scheme, 1u32..4, 1u32..4, any::<bool>()).prop_map(
        |(scheme, first, attempts, load_control)| ContentionChannel {
            scheme,
            backoff: BackoffLimits { first, greatest: 8, attempts },
            load_control,
        },
    );
    let place = prop_oneof![
        (2u16..6).prop_map(RequestPlace::Slots),
        (1u32..4).prop_map(RequestPlace::Carriers)
    ];
    let transport = (0..3, channel.clone(), place).prop_map(|(kind, channel, place)| {
        let slots = RequestSlots { place, channel };
        match kind {
            0 => RequestTransport::Assigned,
            1 => RequestTransport::Piggyback(slots),
            _ => RequestTransport::Contention(slots),
        }
    });
    let access = prop::option::of((channel, 1u32..3)).prop_map(|access| {
        let limits = AccessLimits::default();
        access.map(|(channel, carriers)| RandomAccess { carriers, channel, limits })
    });
    (transport, access)
}

/// Applies what [`any_transport`] made, with one more carrier for each that contention takes.
pub(super) fn apply(config: &mut DamaConfig, chosen: (RequestTransport, Option<RandomAccess>)) {
    (config.requests.transport, config.random_access) = chosen;
    config.frames.carriers += chosen.1.map_or(0, |access| access.carriers);
    config.frames.carriers += request_carriers(chosen.0);
}

/// Whole carriers for requests.
fn request_carriers(transport: RequestTransport) -> u32 {
    match transport.slots().map(|request| request.place) {
        Some(RequestPlace::Carriers(carriers)) => carriers,
        _ => 0,
    }
}

proptest! {
    /// Grants, requests and packets by contention never meet: each carrier of a frame is for one of
    /// them, but for the block of requests at the end of a carrier with grants. A terminal sends one
    /// request in a frame, on one carrier.
    #[test]
    fn every_carrier_is_for_one_thing(
        packets in prop::collection::vec((0u64..5_000, 0usize..12, 1usize..1_400), 1..100),
        chosen in any_transport(), seed: u64,
    ) {
        let mut packets = packets;
        packets.sort();
        let mut config = config(vec![terminal(0, 0, 512); 12]);
        apply(&mut config, chosen);
        let for_packets = config.random_access.map_or(0, |access| access.carriers);
        let for_requests = request_carriers(config.requests.transport);
        let grants = config.frames.carriers - for_packets - for_requests;
        let last = match config.requests.transport.slots().map(|request| request.place) {
            Some(RequestPlace::Slots(slots)) => 16 - u32::from(slots),
            _ => 16,
        };
        prop_assert_eq!(config.capacity(), 2 * (16 * (grants - 1) + last));
        let mut network: Dama<usize> = Dama::new(config, seed).unwrap();
        network.record_events();
        for (after, index, len) in packets {
            network.handle_packet(millis(after), index, len);
        }
        arrivals(&mut network, millis(60_000));
        for event in events(&mut network) {
            match event {
                DamaEvent::Allocated { plan, .. } => {
                    for run in plan.iter().flatten() {
                        let end = if run.carrier == grants - 1 { last } else { 16 };
                        prop_assert!(run.carrier < grants && run.slot + run.count <= end);
                    }
                }
                DamaEvent::Contended { channel: ChannelKind::Packets, carrier, .. } => {
                    prop_assert!(carrier >= grants + for_requests);
                }
                DamaEvent::Contended { carrier, slots, .. } => {
                    prop_assert_eq!(slots.len(), 1);
                    let own = (grants..grants + for_requests).contains(&carrier);
                    let shared = carrier == grants - 1 && slots[0].iter().all(|slot| *slot >= last);
                    prop_assert!(own || (for_requests == 0 && shared), "{} {:?}", carrier, slots);
                }
                _ => {}
            }
        }
    }

    /// Every request is received, given up and counted, or being made; and packets of a terminal
    /// arrive in order, all of them if nothing is given up.
    #[test]
    fn nothing_is_lost_silently(
        packets in prop::collection::vec((0u64..20_000, 0usize..12, 1usize..400), 1..200),
        chosen in any_transport(), seed: u64,
    ) {
        let mut packets = packets;
        packets.sort();
        let terminals = (0..12).map(|index| {
            if index % 2 == 0 { terminal(0, 0, 512) } else { terminal(0, 64_000, 0) }
        });
        let mut config = config(terminals.collect());
        apply(&mut config, chosen);
        let mut network: Dama<usize> = Dama::new(config, seed).unwrap();
        network.record_events();
        let mut offered = vec![Vec::new(); 12];
        let mut got = vec![Vec::new(); 12];
        for (millis_, index, len) in packets {
            network.handle_packet(millis(millis_), index, len);
            offered[index].push(len);
        }
        for (_, from, len) in arrivals(&mut network, millis(500_000)) {
            got[from].push(len);
        }
        let events = events(&mut network);
        for index in 0..12usize {
            let slots = network.slots(index);
            let counters = network.counters(index);
            let mine = |event: &DamaEvent| match event {
                DamaEvent::Received { channel: ChannelKind::Requests, senders, .. } => senders
                    .iter()
                    .filter(|sender| sender.terminal as usize == index)
                    .map(|sender| u64::from(sender.decoded))
                    .sum(),
                DamaEvent::Requested { terminal, lost, .. } if *terminal as usize == index => {
                    u64::from(!lost)
                }
                _ => 0,
            };
            let received: u64 = events.iter().map(mine).sum();
            // Long after the last packet none is being made.
            prop_assert_eq!(slots.requests, received + slots.requests_given_up, "{:?}", slots);
            prop_assert_eq!(counters.inside, Tally::default(), "terminal {}", index);
            prop_assert_eq!(counters.lost.packets, slots.packets_given_up);
            let mut left = offered[index].iter();
            prop_assert!(got[index].iter().all(|len| left.any(|other| other == len)), "order");
        }
    }
}
