//! How the rate is divided: classes, flows, queues.

use core::time::Duration;

use crate::hop::{HUB, Hop, Plan, TERMINAL, at};
use crate::packets::{Arrivals, Flow, NONE, Node, channels, id, net, run};
use link::testkit::Net;
use slacp::{ChannelConfig, ClassConfig, ClassId, Config, ErrorControl, Rate, SessionId, StreamId};
use units::BitRate;

/// Channels of the classes that [`classes`] makes.
const GOLD: u8 = 4;
const CAPPED: u8 = 5;
const HEAVY: u8 = 6;

/// Besides the default class: one guaranteed 2 Mbit/s, one capped at 3 Mbit/s, and one with three
/// times the weight.
fn classes(config: &mut Config) {
    channels(config);
    let rate = |mbit| Some(BitRate::from_mbit(mbit));
    let plain = ClassConfig::default();
    let classes = [
        (GOLD, ClassConfig { guaranteed: rate(2), ..plain }),
        (CAPPED, ClassConfig { maximum: rate(3), ..plain }),
        (HEAVY, ClassConfig { weight: 3, ..plain }),
    ];
    for (channel, class) in classes {
        let class = config.add_class(class).unwrap();
        let config_of = ChannelConfig::new(ErrorControl::None);
        config.add_channel(id(channel), ChannelConfig { class, ..config_of }).unwrap();
    }
}

/// 10/10 Mbit/s without loss, 600 ms.
fn hop() -> Hop {
    let rate = BitRate::from_mbit(10);
    Hop { forward: rate, ret: rate, configure: classes, ..Hop::geo(0.0, 6) }
}

/// What arrives of these flows while the hub also has a stream with 30 MB to send.
fn beside_a_download(hop: &Hop, flows: &[Flow]) -> (Vec<Arrivals>, Net<Node>) {
    let mut net = net(hop, &[Plan::new(30_000_000, 10)], &[], flows);
    net.run_for(Duration::from_secs(4)).unwrap();
    let now = net.now();
    net.peers_mut()[HUB].host.open(now, 0).unwrap();
    run(&mut net);
    let arrivals = net.peers()[TERMINAL].arrivals.clone();
    let ports = 0..flows.len() as u16;
    (ports.map(|port| arrivals.get(&port).cloned().unwrap_or_default()).collect(), net)
}

/// Starts two downloads of `bytes`; the second is in the class with three times the weight.
fn two_downloads(bytes: u64) -> (Net<Node>, SessionId, [StreamId; 2]) {
    let plans = [Plan::new(bytes, 10), Plan::new(bytes, 10)];
    let mut net = net(&hop(), &plans, &[], &[]);
    net.run_until(|nodes| nodes.iter().all(|node| node.host.session.is_some()), at(5.0)).unwrap();
    let now = net.now();
    let node = &mut net.peers_mut()[HUB];
    let session = node.session();
    let ids = [0, 1].map(|plan| node.host.open(now, plan).unwrap());
    node.host.endpoint.classify(session, ids[1], class(3)).unwrap();
    (net, session, ids)
}

/// Converts an inner rate in Mbit/s to Mbit/s of IP packets on the hop, for packets of `size`
/// bytes: adds IP and UDP, header, tag and frame.
fn outer(mbit: f64, size: usize) -> f64 {
    mbit * (size as f64 + 28.0 + 5.0 + 16.0 + 7.0) / size as f64
}

/// One-way delay, plus the time of `packets` at 10 Mbit/s (the packet itself, in a SLACP packet
/// that others may fill, and the one already being sent), plus the 4 ms that a pacer may send ahead
/// after a pause, which stay in the link's queue.
fn at_once(packets: u32) -> Duration {
    Duration::from_millis(300 + 4) + Duration::from_micros(1200) * packets
}

#[test]
fn a_guarantee_holds_whatever_others_send() {
    let gold = Flow::new(GOLD, 1200, 1.9, 20.0);
    assert!(outer(1.9, 1200) < 2.0);
    let greedy = Flow::new(NONE, 1200, 10.0, 20.0);
    let flows = [gold.clone(), greedy.clone(), greedy.clone(), Flow::new(HEAVY, 1200, 10.0, 20.0)];
    let (arrivals, net) = beside_a_download(&hop(), &flows);
    assert_eq!(arrivals[0].packets.len() as u64, gold.count);
    let (p95, most) = (arrivals[0].delay(0.95), arrivals[0].delay(1.0));
    assert!(p95 <= at_once(2), "{p95:?}");
    assert!(most <= at_once(3), "{most:?}");
    // The others share the rest 1 to 3.
    let got = |flow: usize| outer(arrivals[flow].packets.len() as f64 * 1200.0 * 8.0 / 20e6, 1200);
    println!("{:.2} + {:.2} and {:.2} Mbit/s", got(1), got(2), got(3));
    assert!((got(3) - 6.0).abs() < 0.2, "{}", got(3));
    assert!((got(1) - got(2)).abs() < 0.05 && (got(1) - 2.0 / 3.0).abs() < 0.05, "{}", got(1));
    let gold = net.peers()[HUB].host.endpoint.class_stats(net.peers()[HUB].session(), class(1));
    let gold = gold.unwrap();
    assert!(gold.guaranteed_bytes_sent * 100 >= gold.bytes_sent * 95, "{gold:?}");
}

fn auto_classes(config: &mut Config) {
    classes(config);
    config.rate = Rate::auto();
}

/// At a measured rate, too.
#[test]
fn a_guarantee_holds_at_a_measured_rate() {
    let hop = Hop { configure: auto_classes, ..hop() };
    let gold = Flow::new(GOLD, 1200, 1.9, 20.0);
    let flows = [gold.clone(), Flow::new(HEAVY, 1200, 10.0, 20.0)];
    let (arrivals, _) = beside_a_download(&hop, &flows);
    assert_eq!(arrivals[0].packets.len() as u64, gold.count);
    // The link's own queue, which a session keeps short, comes on top.
    let (p95, most) = (arrivals[0].delay(0.95), arrivals[0].delay(1.0));
    println!("{p95:?}, at most {most:?}");
    assert!(p95 <= at_once(3) + Duration::from_millis(60), "{p95:?}");
}

/// The class that was added after `added` others.
fn class(added: usize) -> ClassId {
    let mut config = Config::new(BitRate::from_mbit(1));
    let mut last = ClassId::DEFAULT;
    (0..added).for_each(|_| last = config.add_class(ClassConfig::default()).unwrap());
    last
}

#[test]
fn a_maximum_holds_on_an_empty_link() {
    let flow = Flow::new(CAPPED, 1000, 8.0, 20.0);
    let mut net = net(&hop(), &[], &[], &[flow]);
    let session = |net: &Net<Node>| net.peers()[HUB].session();
    run(&mut net);
    let stats = net.peers()[HUB].host.endpoint.class_stats(session(&net), class(2)).unwrap();
    let counters = net.counters(HUB, TERMINAL);
    // 20 s of sending, plus what the queue held at the end: at most 50 ms.
    let mbit = counters.offered.bytes.get() as f64 * 8.0 / 20.05e6;
    println!("{mbit:.3} Mbit/s on the link, {} bytes by the class", stats.bytes_sent);
    assert!((2.98..3.02).contains(&mbit), "{mbit}");
}

#[test]
fn streams_and_channels_of_a_class_share_by_flows() {
    let greedy = || Flow::new(NONE, 1200, 10.0, 20.0);
    let (arrivals, _) = beside_a_download(&hop(), &[greedy(), greedy()]);
    for arrivals in arrivals {
        let mbit = outer(arrivals.packets.len() as f64 * 1200.0 * 8.0 / 20e6, 1200);
        assert!((mbit - 10.0 / 3.0).abs() < 0.15, "{mbit}");
    }
}

#[test]
fn streams_in_classes_share_by_weight() {
    let (mut net, session, ids) = two_downloads(20_000_000);
    let none = net.peers_mut()[HUB].host.endpoint.classify(session, ids[1], class(9));
    assert_eq!(none, Err(slacp::StreamError::NoClass));
    net.run_for(Duration::from_secs(10)).unwrap();
    let received = ids.map(|id| net.peers()[TERMINAL].host.flows[&id].received as f64);
    let ratio = received[1] / received[0];
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
}

#[test]
fn a_sparse_flow_waits_for_one_packet_of_others() {
    let voice = Flow { every: Duration::from_millis(20), ..Flow::new(NONE, 200, 0.08, 20.0) };
    let greedy = || Flow::new(NONE, 1200, 5.0, 20.0);
    let (arrivals, _) = beside_a_download(&hop(), &[voice.clone(), greedy(), greedy(), greedy()]);
    let (p95, most) = (arrivals[0].delay(0.95), arrivals[0].delay(1.0));
    println!("voice: p95 {p95:?}, most {most:?}");
    assert_eq!(arrivals[0].packets.len() as u64, voice.count);
    assert!(p95 <= at_once(2), "{p95:?}");
    assert!(most <= at_once(3), "{most:?}");
}

/// A sender that sends 13 Mbit/s over 10 Mbit/s, whatever is dropped.
#[test]
fn a_deaf_senders_queue_stands_at_the_target_and_a_little() {
    let flow = Flow::new(NONE, 1200, 13.0, 30.0);
    let mut net = net(&hop(), &[], &[], std::slice::from_ref(&flow));
    run(&mut net);
    let arrivals = &net.peers()[TERMINAL].arrivals[&0];
    let after = flow.sent_at(0) + Duration::from_secs(6);
    let late = Arrivals {
        packets: arrivals.packets.iter().filter(|p| flow.sent_at(p.0) > after).copied().collect(),
    };
    let wait = |share| late.delay(share).saturating_sub(Duration::from_micros(301_200));
    println!("waits: p50 {:?}, p99 {:?}", wait(0.5), wait(0.99));
    // Target 30 ms for an RTT of 600 ms; 20 ms more for an unresponsive sender; 4 ms as above.
    assert!(wait(0.99) <= Duration::from_millis(30 + 20 + 4 + 2), "{:?}", wait(0.99));
    let mbit = outer(late.packets.len() as f64 * 1200.0 * 8.0 / 24e6, 1200);
    assert!(mbit > 9.8, "{mbit}");
}

/// [`classes`] with another maximum for the capped class, and without the heavy one.
fn other_classes(config: &mut Config) {
    channels(config);
    let rate = |mbit| Some(BitRate::from_mbit(mbit));
    let plain = ClassConfig::default();
    config.add_class(ClassConfig { guaranteed: rate(2), ..plain }).unwrap();
    let class = config.add_class(ClassConfig { maximum: rate(6), ..plain }).unwrap();
    let capped = ChannelConfig { class, ..ChannelConfig::new(ErrorControl::None) };
    config.add_channel(id(CAPPED), capped).unwrap();
}

fn reconfigure(net: &mut Net<Node>) {
    let mut config = Config::new(BitRate::from_mbit(1));
    other_classes(&mut config);
    let (now, heavy) = (net.now(), class(3));
    let endpoint = &mut net.peers_mut()[HUB].host.endpoint;
    endpoint.configure_classes(now, &config, |old| (old != heavy).then_some(old));
}

/// Rate in Mbit/s at which a flow arrived between `from` and `to` seconds after its start.
fn pace(net: &Net<Node>, flow: &Flow, from: f64, to: f64) -> f64 {
    let time = |seconds| flow.start + Duration::from_secs_f64(seconds);
    let arrived = |packet: &&(u64, Duration)| {
        let at = flow.sent_at(packet.0) + packet.1;
        time(from) <= at && at < time(to)
    };
    let packets = net.peers()[TERMINAL].arrivals[&0].packets.iter().filter(arrived).count();
    outer(packets as f64 * flow.size as f64 * 8.0 / 1e6, flow.size) / (to - from)
}

#[test]
fn another_maximum_holds_at_once() {
    let flow = Flow::new(CAPPED, 1000, 5.5, 20.0);
    let mut net = net(&hop(), &[], &[], std::slice::from_ref(&flow));
    net.run_until(|nodes| nodes.iter().all(|node| node.host.session.is_some()), at(5.0)).unwrap();
    let middle = flow.start + Duration::from_secs(10);
    let wait = middle.saturating_since(net.now());
    net.run_for(wait).unwrap();
    reconfigure(&mut net);
    run(&mut net);
    let (before, after) = (pace(&net, &flow, 2.0, 10.0), pace(&net, &flow, 12.0, 20.0));
    println!("{before:.2}, then {after:.2} Mbit/s");
    assert!((2.9..3.05).contains(&before), "{before}");
    // All that is sent, within the maximum.
    assert!(after > outer(5.4, 1000), "{after}");
    let arrivals = &net.peers()[TERMINAL].arrivals[&0];
    assert!(arrivals.are_in_order() && arrivals.are_once());
    let session = net.peers()[HUB].session();
    let stats = net.peers()[HUB].host.endpoint.class_stats(session, class(2)).unwrap();
    assert!(stats.bytes_sent > 8_000_000, "what was counted stays: {stats:?}");
}

#[test]
fn streams_of_a_class_that_is_no_more_go_on_in_the_default_class() {
    let (mut net, session, ids) = two_downloads(40_000_000);
    let received = |net: &Net<Node>| ids.map(|id| net.peers()[TERMINAL].host.flows[&id].received);
    let mut shares = Vec::new();
    for again in [true, false] {
        // What is in flight was sent before.
        net.run_for(Duration::from_secs(2)).unwrap();
        let before = received(&net);
        net.run_for(Duration::from_secs(8)).unwrap();
        let after = received(&net);
        shares.push((after[1] - before[1]) as f64 / (after[0] - before[0]) as f64);
        if again {
            reconfigure(&mut net);
        }
    }
    println!("{shares:.2?}");
    assert!((2.9..3.1).contains(&shares[0]) && (0.97..1.03).contains(&shares[1]), "{shares:?}");
    let endpoint = &mut net.peers_mut()[HUB].host.endpoint;
    assert_eq!(endpoint.classify(session, ids[1], class(3)), Err(slacp::StreamError::NoClass));
    let waiting = endpoint.class_stats(session, ClassId::DEFAULT).unwrap().waiting.get();
    assert!(waiting > 0, "downloads wait for their turn");
}
