//! SLACP as a link layer: a slow link that keeps packets in order, and bursts that destroy a few of
//! them (SLACP paper, §4.1).

use core::time::Duration;

use link::testkit::Net;
use link::{BurstModel, Delay, LossModel, Trace};
use slacp::{ChannelConfig, Config, LogEntry, LogEvent, PayloadUnit};
use units::{BitRate, ByteCount, Instant};

use crate::hop::{HUB, Hop, TERMINAL, at};
use crate::packets::{ARQ, Arrivals, Contents, Flow, Node, id, net, run};

/// The paper's return link.
const RATE: BitRate = BitRate::from_bits_per_second(128_000);
/// Packets of 1,400 bytes take 87.5 ms; a fifth of the link stays free for repairs.
const SIZE: usize = 1400;
const COUNT: u64 = 600;

fn configure(config: &mut Config) {
    (config.link_layer, config.mtu, config.event_log) = (true, SIZE as u16 + 80, 1_000_000);
    config.add_channel(id(ARQ), ChannelConfig::link_layer(ByteCount::new(40_000))).unwrap();
}

fn hop(loss: LossModel, configure: fn(&mut Config)) -> Hop {
    let delay = Duration::from_millis(250);
    Hop { forward: RATE, ret: RATE, delay, loss, configure, ..Hop::geo(0.0, 7) }
}

/// The paper's bursts, `between` seconds apart, of `length` milliseconds.
fn bursts(between: [u64; 2], length: [u64; 2]) -> LossModel {
    let [good, bad] =
        [between.map(Duration::from_secs), length.map(Duration::from_millis)].map(|[a, b]| a..=b);
    LossModel::Burst(BurstModel::new(good, bad).unwrap())
}

/// Sends packets from the terminal to the hub; returns what arrived.
fn carried(loss: LossModel, configure: fn(&mut Config)) -> (Arrivals, Net<Node>) {
    let flow = Flow {
        contents: Contents::Noise,
        channel: ARQ,
        size: SIZE,
        every: Duration::from_millis(125),
        start: at(5.0),
        count: COUNT,
    };
    let mut net = net(&hop(loss, configure), &[], &[flow], &[]);
    run(&mut net);
    (net.peers_mut()[HUB].arrivals.remove(&0).unwrap_or_default(), net)
}

/// When an event happened for the first time.
fn first(log: &[LogEntry], is: impl Fn(&LogEvent) -> bool) -> Option<Instant> {
    log.iter().find(|entry| is(&entry.event)).map(|entry| entry.time)
}

fn sequence(unit: &PayloadUnit) -> u64 {
    let PayloadUnit::Packet { sequence, .. } = *unit else { panic!("no stream is open: {unit:?}") };
    sequence
}

/// Fig. 3: what a burst destroyed is sent again as soon as the first packet after it has been
/// acknowledged, and what came meanwhile is delivered after it.
#[test]
fn a_burst_is_repaired_a_round_trip_after_the_first_packet_behind_it() {
    let (arrivals, net) = carried(bursts([5, 15], [100, 300]), configure);
    assert!(arrivals.are_in_order());
    assert_eq!(arrivals.packets.len() as u64, COUNT);
    // The first of four packets waits 0.4 s and a packet's time for the gap to show, then for the
    // report and the repair there and back; all that after its own way. Three packets later, as
    // elsewhere, would be 0.1 s more.
    let most = arrivals.delay(1.0);
    assert!(most < Duration::from_millis(1_500), "{most:?}");
    let terminal = &net.peers()[TERMINAL];
    let again: Vec<u64> = terminal
        .log
        .iter()
        .filter_map(|entry| match &entry.event {
            LogEvent::Placed { unit, again: true, .. } => Some(sequence(unit)),
            _ => None,
        })
        .collect();
    assert!(again.len() > 10, "{again:?}");
    assert!(again.windows(2).all(|pair| pair[0] < pair[1]), "each once: {again:?}");
    // New packets are no FEC sources.
    let sources = terminal.log.iter().filter(|entry| matches!(entry.event, LogEvent::Sent { source: true, bytes, .. } if bytes > SIZE)).count();
    assert!(sources <= again.len(), "{sources} sources");
}

/// One packet in seven is lost, and its retransmission with it when that is a seventh too: the
/// sender says so, and nobody waits for the deadline of 10 s.
#[test]
fn what_is_lost_twice_is_given_up_as_soon_as_the_sender_knows() {
    let loss = LossModel::Per(units::Probability::new(0.15).unwrap());
    let (arrivals, net) = carried(loss, configure);
    assert!(arrivals.are_in_order());
    let [terminal, hub] = [TERMINAL, HUB].map(|side| &net.peers()[side]);
    let given_up: Vec<u64> = terminal
        .log
        .iter()
        .filter_map(|entry| match &entry.event {
            LogEvent::GivenUp { unit } => Some(sequence(unit)),
            _ => None,
        })
        .collect();
    assert!(!given_up.is_empty());
    assert_eq!(hub.stats(ARQ).missing, given_up.len() as u64);
    assert_eq!(arrivals.packets.len() as u64 + given_up.len() as u64, COUNT);
    for packet in given_up {
        let missing = first(
            &hub.log,
            |event| matches!(event, LogEvent::Missing { first, .. } if *first == packet),
        );
        let known = first(
            &terminal.log,
            |event| matches!(event, LogEvent::GivenUp { unit } if sequence(unit) == packet),
        );
        let told = missing.unwrap().saturating_since(known.unwrap());
        // One way, behind a packet or two; a report that is lost is repeated a round trip later.
        assert!(told < Duration::from_millis(2_500), "packet {packet}: {told:?}");
    }
}

/// If one side knows nothing of link layers, both do without.
#[test]
fn a_peer_that_is_no_link_layer_is_served_as_ever() {
    fn only_here(config: &mut Config) {
        configure(config);
        config.link_layer = false;
    }
    let flow = Flow {
        contents: Contents::Noise,
        channel: ARQ,
        size: SIZE,
        every: Duration::from_millis(150),
        start: at(5.0),
        count: 200,
    };
    let mut net = net(&hop(bursts([5, 15], [100, 300]), configure), &[], &[flow], &[]);
    let other = hop(LossModel::None, only_here).host(HUB, &[], 0);
    net.peers_mut()[HUB].host = other;
    run(&mut net);
    let arrivals = net.peers_mut()[HUB].arrivals.remove(&0).unwrap();
    assert!(arrivals.are_in_order());
    let gone = |side: usize| {
        net.peers()[side]
            .log
            .iter()
            .filter(|entry| matches!(entry.event, LogEvent::Missing { .. }))
            .count()
    };
    assert!(arrivals.packets.len() + gone(HUB) <= 200 && arrivals.packets.len() > 190);
}

/// A MAC without room gets no new packets, but retransmissions all the same.
#[test]
fn while_new_data_is_held_back_control_leaves() {
    let flow = Flow {
        contents: Contents::Noise,
        channel: ARQ,
        size: SIZE,
        every: Duration::from_millis(125),
        start: at(5.0),
        count: 40,
    };
    let mut net = net(&hop(bursts([1, 2], [200, 200]), configure), &[], &[flow], &[]);
    net.run_for(Duration::from_secs(8)).unwrap();
    let now = net.now();
    let terminal = &mut net.peers_mut()[TERMINAL];
    let session = terminal.session();
    terminal.host.endpoint.hold_back(now, session, 0, true).unwrap();
    let before = terminal.stats(ARQ);
    net.run_for(Duration::from_secs(2)).unwrap();
    let held = net.peers()[TERMINAL].stats(ARQ);
    assert_eq!(held.sent, before.sent);
    assert!(held.retransmitted > before.retransmitted && held.waiting.get() > 0, "{held:?}");
    let now = net.now();
    net.peers_mut()[TERMINAL].host.endpoint.hold_back(now, session, 0, false).unwrap();
    run(&mut net);
    let stats = net.peers()[TERMINAL].stats(ARQ);
    assert_eq!((stats.sent, stats.offered, stats.waiting.get()), (40, 40, 0));
}

/// Capacity on demand: what comes after a pause waits three seconds for an allocation (here half of
/// it in each direction), and later data one. That is no fade, and nothing is lost or given up.
#[test]
fn a_wait_for_an_allocation_is_no_fade() {
    let ms = Duration::from_millis;
    let steps = vec![(ms(0), ms(250)), (ms(5_000), ms(1_750)), (ms(12_000), ms(750))];
    let path = Some(Delay::Trace(Trace::new(steps, None).unwrap()));
    let hop = Hop { path, ..hop(bursts([5, 15], [100, 300]), configure) };
    let flow = Flow {
        contents: Contents::Noise,
        channel: ARQ,
        size: SIZE,
        every: ms(125),
        start: at(5.0),
        count: 400,
    };
    let mut net = net(&hop, &[], &[flow], &[]);
    run(&mut net);
    net.run_for(Duration::from_secs(5)).unwrap();
    let log = &net.peers()[TERMINAL].log;
    let has = |is: fn(&LogEvent) -> bool| log.iter().any(|entry| is(&entry.event));
    assert!(!has(|event| matches!(event, LogEvent::OutageBegins)));
    assert!(!has(|event| matches!(event, LogEvent::GivenUp { .. })));
    let arrivals = &net.peers()[HUB].arrivals[&0];
    assert!(arrivals.are_in_order() && arrivals.packets.len() == 400);
}

/// The queue in front holds 40 kB, and drops what finds it full.
#[test]
fn the_queue_in_front_is_drop_tail() {
    let flow = Flow {
        contents: Contents::Noise,
        channel: ARQ,
        size: 1000,
        every: Duration::from_millis(1),
        start: at(5.0),
        count: 100,
    };
    let mut net = net(&hop(LossModel::None, configure), &[], &[flow], &[]);
    run(&mut net);
    let arrivals = net.peers_mut()[HUB].arrivals.remove(&0).unwrap();
    let stats = net.peers()[TERMINAL].stats(ARQ);
    assert_eq!((stats.dropped_stale, stats.dropped_aqm), (0, 0));
    assert_eq!(stats.dropped_full + stats.sent, 100);
    let numbers: Vec<u64> = arrivals.packets.iter().map(|(number, _)| *number).collect();
    // The first to come are the ones that find room: 40, and those sent meanwhile.
    assert!(
        numbers.len() >= 40 && numbers[..40] == (0..40).collect::<Vec<u64>>()[..],
        "{numbers:?}"
    );
}
