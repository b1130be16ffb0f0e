//! Calls over a packet channel: what a packet of voice costs on the hop, with everything that goes
//! with it.
//!
//! The bytes are those of the IP packets of both directions, from 2 s after the calls have begun:
//! headers, tags, acknowledgements, repairs, contexts, and whatever else a session sends.

use core::time::Duration;

use crate::hop::{HUB, Hop, TERMINAL};
use crate::packets::{Flow, Node, id, net, run};
use link::testkit::Net;
use slacp::{ChannelConfig, Config, ErrorControl};
use units::BitRate;

type Configure = fn(&mut Config);

const VOICE: u8 = 0;
const GATHER: Duration = Duration::from_millis(20);
/// How long calls last.
const SECONDS: f64 = 60.0;

/// 1 Mbit/s each way, 600 ms.
fn hop(per: f64, configure: Configure) -> Hop {
    let rate = BitRate::from_mbit(1);
    Hop { forward: rate, ret: rate, configure, ..Hop::geo(per, 5) }
}

fn channel(config: &mut Config, error_control: ErrorControl, gather: Duration, compress: bool) {
    let usual = ChannelConfig::new(error_control);
    config.add_channel(id(VOICE), ChannelConfig { gather, compress, ..usual }).unwrap();
}

fn plain(config: &mut Config) {
    channel(config, ErrorControl::None, Duration::ZERO, false);
}

fn compressed(config: &mut Config) {
    channel(config, ErrorControl::None, Duration::ZERO, true);
}

fn gathered(config: &mut Config) {
    channel(config, ErrorControl::None, GATHER, true);
}

fn with_repairs(config: &mut Config) {
    channel(config, ErrorControl::Fec, GATHER, true);
}

fn usual(config: &mut Config) {
    channel(config, ErrorControl::Fec, Duration::ZERO, true);
}

fn retransmitted(config: &mut Config) {
    channel(config, ErrorControl::FecArq, GATHER, true);
}

/// What calls cost and suffer.
struct Bill {
    /// Bytes on the hop for each packet of voice.
    bytes: f64,
    /// Share of the packets that arrived.
    arrived: f64,
    /// The longest delay of a packet beyond that of the link.
    added: Duration,
    net: Net<Node>,
}

/// Runs calls in both directions.
fn calls(count: usize, per: f64, configure: Configure) -> Bill {
    let hop = hop(per, configure);
    let phase = |call: usize| Duration::from_micros(call as u64 * 20_000 / count as u64);
    let flows: Vec<Flow> = (0..count).map(|call| Flow::call(VOICE, phase(call), SECONDS)).collect();
    let mut net = net(&hop, &[], &flows, &flows);
    let sent = |net: &Net<Node>| -> (u64, u64) {
        let nodes = net.peers().iter();
        let stats = |node: &Node| node.host.endpoint.stats(node.session()).unwrap().bytes_sent;
        let nodes = nodes.map(|node| (stats(node), node.stats(VOICE).sent));
        nodes.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    };
    net.run_for(Duration::from_secs(7)).unwrap();
    let before = sent(&net);
    net.run_for(Duration::from_secs_f64(SECONDS - 3.0)).unwrap();
    let after = sent(&net);
    net.run_for(Duration::from_secs(5)).unwrap();
    let mut arrived = 0;
    let mut added = Duration::ZERO;
    for arrivals in net.peers().iter().flat_map(|node| node.arrivals.values()) {
        assert!(arrivals.are_in_order() && arrivals.are_once());
        arrived += arrivals.packets.len();
        added = added.max(arrivals.delay(1.0).saturating_sub(Duration::from_millis(300)));
    }
    let all = 2 * count as u64 * flows[0].count;
    let bytes = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
    Bill { bytes, arrived: arrived as f64 / all as f64, added, net }
}

fn print(name: &str, bill: &Bill) {
    let Bill { bytes, arrived, added, .. } = bill;
    println!("{name}: {bytes:.1} bytes a packet, {:.2} % arrived, + {added:?}", arrived * 100.0);
}

#[test]
fn a_packet_of_voice_costs_53_bytes_in_one_call_and_35_in_ten() {
    for (count, most) in [(1, 53.0), (10, 35.0)] {
        let bill = calls(count, 0.01, gathered);
        print(&format!("{count} calls, 1 % of loss"), &bill);
        assert!(bill.bytes <= most, "{count}: {}", bill.bytes);
        // Exactly what the link loses is lost: no packet for want of a context.
        assert!((bill.arrived - 0.99).abs() < 0.005, "{}", bill.arrived);
        for node in bill.net.peers() {
            let stats = node.host.endpoint.stats(node.session()).unwrap();
            assert_eq!(stats.without_context, 0);
        }
        let serialised = Duration::from_millis(12);
        assert!(bill.added <= GATHER + serialised, "{:?}", bill.added);
    }
}

#[test]
fn what_each_part_saves() {
    let mut bills = Vec::new();
    let kinds: [(&str, Configure); 6] = [
        ("as it is", plain),
        ("compressed", compressed),
        ("compressed and gathered", gathered),
        ("and with FEC", with_repairs),
        ("and sent again", retransmitted),
        ("with FEC, not gathered: the default for interactive packets", usual),
    ];
    for (name, configure) in kinds {
        let bill = calls(1, 0.01, configure);
        print(name, &bill);
        bills.push(bill.bytes);
    }
    // 20 + 8 + 6 + 16 around each packet, and 4 to 7 before it.
    assert!((115.0..126.0).contains(&bills[0]), "{bills:?}");
    assert!(bills[1] < bills[0] - 34.0 && bills[2] < bills[1] - 20.0, "{bills:?}");
}

/// Repairs are made against the losses that were measured: 1 % is assumed for the first 12 s of this
/// minute, until 300 packets of the hop have been.
#[test]
fn fec_costs_a_call_little_while_nothing_is_lost() {
    for (per, most) in [(0.0, 55.0), (0.01, 84.0)] {
        let bill = calls(1, per, with_repairs);
        print(&format!("FEC, {} % of loss", per * 100.0), &bill);
        assert!(bill.bytes <= most, "{per}: {}", bill.bytes);
        assert!(bill.arrived >= 0.9995, "{per}: {}", bill.arrived);
    }
}

/// Without gathering nothing waits.
#[test]
fn compression_adds_no_delay() {
    let bill = calls(2, 0.0, compressed);
    print("two calls without loss", &bill);
    assert!(bill.added < Duration::from_millis(3), "{:?}", bill.added);
    assert_eq!(bill.arrived, 1.0);
    let stats = bill.net.peers()[HUB].stats(VOICE);
    assert!(stats.compressed > stats.sent * 9 / 10, "{stats:?}");
    assert!(stats.header_bytes_saved > 33 * stats.compressed, "{stats:?}");
}

#[test]
fn no_loss_is_heavy_enough_to_cost_a_context() {
    let bill = calls(3, 0.2, gathered);
    print("three calls, 20 % of loss", &bill);
    assert!((bill.arrived - 0.8).abs() < 0.03, "{}", bill.arrived);
    for node in bill.net.peers() {
        assert_eq!(node.host.endpoint.stats(node.session()).unwrap().without_context, 0);
    }
    let stats = bill.net.peers()[TERMINAL].stats(VOICE);
    assert!(stats.compressed > stats.sent * 8 / 10, "{stats:?}");
}

/// Packets of which nothing is known but that they are IP, as large as those of QUIC.
#[test]
fn what_cannot_be_compressed_costs_what_it_did() {
    let sent = |configure| {
        let flow = Flow::new(VOICE, 1200, 0.5, 30.0);
        let mut net = net(&hop(0.01, configure), &[], &[], &[flow]);
        run(&mut net);
        let node = &net.peers()[HUB];
        assert_eq!(node.stats(VOICE).compressed, 0);
        let most = net.peers()[TERMINAL].arrivals[&0].delay(1.0);
        (node.host.endpoint.stats(node.session()).unwrap().bytes_sent, most)
    };
    assert_eq!(sent(plain), sent(compressed));
}
