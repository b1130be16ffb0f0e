//! What the driver makes of arrived packets, and a driver between real devices.

use core::time::Duration;
use std::net::{IpAddr, UdpSocket};

use link::dama::{Dama, DamaConfig, DamaEvent};
use link::{ErrorModel, Link, LinkConfig, LossModel, QueueLimit};
use os::packet::RING_BYTES;
use os::testkit::skip;
use scenario::Preset;
use units::BitRate;

use super::*;
use crate::driver::shared_return::OfferedPacket;
use crate::topology::crossing::{Crossing, Extent};
use crate::topology::{self, LabNetwork};
use crate::{Node, Site};

/// An IPv4 packet of 1500 bytes, which takes 1 ms on the links here.
const PACKET: [u8; 1500] = [0x45; 1500];

fn config(rate: BitRate) -> LinkConfig {
    LinkConfig::new(rate, Duration::ZERO, LossModel::None, QueueLimit::Packets(100))
}

fn track(told: Instant) -> LinkTrack {
    let link = Link::starting_at(told, config(BitRate::from_mbit(12)), 1);
    LinkTrack {
        name: LinkName::Forward,
        carrier: LinkCarrier::Own(Box::new(link)),
        advanced_to: told,
        peak_queue: 0,
    }
}

fn own(track: &LinkTrack) -> &Link<Vec<u8>> {
    let LinkCarrier::Own(link) = &track.carrier else { unreachable!() };
    link
}

fn frame(bytes: &[u8], wall: u64) -> RingFrame<'_> {
    RingFrame { bytes, wall, whole: true, losing: false, outgoing: false, unfinished: false }
}

/// Takes frames that arrived at these numbers of milliseconds after `origin`.
fn take<'a>(
    origin: Instant,
    frames: impl IntoIterator<Item = (u64, RingFrame<'a>)>,
) -> (LinkTrack, u64, bool) {
    let clocks = WallClock::read();
    let mut track = track(origin);
    let mut arrivals =
        ArrivalTaker { track: &mut track, shared: None, clocks, oversized: 0, losing: false };
    for (ms, frame) in frames {
        let wall = clocks.wall(origin + Duration::from_millis(ms));
        arrivals.take(&RingFrame { wall, ..frame });
    }
    let oversized = arrivals.oversized;
    let losing = arrivals.losing;
    (track, oversized, losing)
}

/// A moment in the past, so that the clocks know stamps after it.
fn a_second_ago() -> Instant {
    Instant::from_nanos(clock::now().as_nanos() - 1_000_000_000)
}

/// When the packets in the link leave it, in milliseconds after `origin`.
fn departures(track: &mut LinkTrack, origin: Instant) -> Vec<u128> {
    let end = origin + Duration::from_secs(60);
    let LinkCarrier::Own(link) = &mut track.carrier else { return Vec::new() };
    link.handle_timeout(end);
    let next = || link.poll_arrival(end);
    core::iter::from_fn(next).map(|(at, _)| at.saturating_since(origin).as_millis()).collect()
}

#[test]
fn packets_enter_the_link_when_the_device_received_them() {
    let origin = a_second_ago();
    let frames = [10, 20, 20].map(|ms| (ms, frame(&PACKET, 0)));
    let (mut track, ..) = take(origin, frames);
    assert_eq!(departures(&mut track, origin), [11, 21, 22]);
}

#[test]
fn a_stamp_from_before_the_link_s_time_does_not_turn_it_back() {
    let origin = a_second_ago();
    let (mut track, ..) = take(origin, [20, 10].map(|ms| (ms, frame(&PACKET, 0))));
    assert_eq!(track.advanced_to, origin + Duration::from_millis(20));
    assert_eq!(departures(&mut track, origin), [21, 22]);
}

#[test]
fn truncated_packets_are_counted_and_go_no_further() {
    let cut = RingFrame { whole: false, ..frame(&PACKET, 0) };
    let (track, oversized, losing) = take(a_second_ago(), [(1, cut), (2, frame(&PACKET, 0))]);
    assert_eq!((oversized, losing), (1, false));
    assert_eq!(own(&track).counters().offered.packets, 1);
}

#[test]
fn only_ip_crosses_the_link() {
    // An ARP request (hardware type 1), and nothing at all.
    let (track, oversized, _) =
        take(a_second_ago(), [(1, frame(&[0, 1, 8, 0], 0)), (2, frame(&[], 0))]);
    assert_eq!((own(&track).counters().offered.packets, oversized), (0, 0));
}

#[test]
fn one_sign_of_a_full_ring_is_enough() {
    let full = RingFrame { losing: true, ..frame(&PACKET, 0) };
    let (.., losing) = take(a_second_ago(), [(1, full), (2, frame(&PACKET, 0))]);
    assert!(losing);
}

#[test]
fn the_driver_wakes_for_the_earliest_link() {
    let mut tracks = [30, 10, 20].map(|ms| {
        let mut track = track(Instant::ZERO);
        let LinkCarrier::Own(link) = &mut track.carrier else { unreachable!() };
        link.handle_packet(Instant::from_nanos(ms * 1_000_000), PACKET.to_vec());
        track
    });
    let faults = Faults::default();
    let lateness = Lateness::default();
    let idle = DriverState {
        tracks: vec![track(Instant::ZERO)],
        shared: None,
        faults,
        lateness,
        stopping: false,
    };
    assert_eq!(idle.next_timeout(), None);
    tracks.reverse();
    let state = DriverState { tracks: tracks.into(), ..idle };
    assert_eq!(state.next_timeout(), Some(Instant::from_nanos(11_000_000)));
}

#[test]
fn every_kind_of_fault_is_in_the_total() {
    assert_eq!(Faults { missed: 1, oversized: 20, refused: 300, astray: 4000 }.total(), 4321);
}

/// A lab's network and driver without its services and names; `None` if this machine refuses.
fn start(terminals: u8, rate: BitRate) -> Option<(LabNetwork, LinkDriver)> {
    start_with(terminals, rate, clock::now(), None)
}

/// The same; with `dama`, the terminals share it as their return link.
fn start_with(
    terminals: u8,
    rate: BitRate,
    origin: Instant,
    dama: Option<DamaConfig>,
) -> Option<(LabNetwork, LinkDriver)> {
    let extent =
        Extent { terminals, terrestrial: false, client_side: false, mtu: 1500, cabled: false };
    let network = match topology::build(&extent) {
        Ok(network) => network,
        Err(error) => {
            skip(error);
            return None;
        }
    };
    let shares = dama.is_some();
    let lane = |crossing: Crossing| LinkLane {
        port: PacketPort::open(&crossing.sky, crossing.station, crossing.mtu, RING_BYTES).unwrap(),
        carrier: match crossing.link {
            LinkName::Return(site) if shares => LinkCarrier::Shared(site.index()),
            _ => LinkCarrier::Own(Box::new(Link::starting_at(origin, config(rate), 1))),
        },
        name: crossing.link,
        exit: extent.exit(crossing.link),
    };
    let lanes = network.sky.run(|| extent.crossings().into_iter().map(lane).collect());
    let shared = dama.map(|dama| Dama::starting_at(origin, dama, SEED).unwrap());
    Some((network, LinkDriver::start(lanes, shared).unwrap()))
}

/// A socket on a host, bound to its address, that gives up waiting after 20 s.
fn socket(network: &LabNetwork, node: Node, address: IpAddr) -> UdpSocket {
    let socket = network.host(node).run(|| UdpSocket::bind((address, 4000))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// The seed of a shared return link.
const SEED: u64 = 7;

/// The return link of star-one, with short delays and error bursts.
fn shared(terminals: u32) -> DamaConfig {
    let preset = Preset::load("star-one").unwrap();
    let [_, mut ret] = preset.links();
    ret.delay = Duration::from_millis(20).into();
    ret.loss = ErrorModel::Medium.into();
    preset.dama.unwrap().config(&preset.forward, &ret, terminals).unwrap()
}

/// The same terminals in the lab and in virtual time: what really came to the terminals, given to
/// the same machine without a lab, is granted the same slots.
#[test]
fn a_replay_of_what_came_to_the_terminals_is_granted_the_same() {
    let origin = clock::now();
    let rate = BitRate::from_mbit(12);
    let Some((network, driver)) = start_with(3, rate, origin, Some(shared(3))) else { return };
    driver.record();
    let server = socket(&network, Node::Server, Node::Server.address4().into());
    let clients: Vec<_> = Site::first(3)
        .map(|site| socket(&network, Site::client(site), Site::client(site).address4().into()))
        .collect();
    for round in 0..30usize {
        for (number, client) in clients.iter().enumerate() {
            let packet = vec![0; 100 + 37 * ((round * 3 + number) % 30)];
            client.send_to(&packet, (Node::Server.address4(), 4000)).unwrap();
        }
        // Some arrive before the next round is sent.
        if round % 3 == 0 {
            heard(&server);
        }
    }
    (0..40).for_each(|_| _ = heard(&server));
    let record = driver.recorded().unwrap();
    let mut replay: Dama<usize> = Dama::starting_at(origin, shared(3), SEED).unwrap();
    let first = record.offered[0].at;
    // What came before the record began is not part of it.
    replay.handle_timeout(first);
    replay.record_events();
    for OfferedPacket { at, terminal, bytes } in &record.offered {
        while replay.poll_arrival(*at).is_some() {}
        replay.handle_packet(*at, *terminal, *bytes);
    }
    let end = record.offered.last().unwrap().at + Duration::from_secs(60);
    while replay.poll_arrival(end).is_some() {}
    let granted: Vec<_> = record.events.iter().filter(|event| has_slots(event)).collect();
    let replayed: Vec<_> = core::iter::from_fn(|| replay.poll_event()).collect();
    let replayed: Vec<_> = replayed.iter().filter(|event| has_slots(event)).collect();
    assert!(granted.len() > 20, "{}", granted.len());
    assert_eq!(granted, replayed[..granted.len()]);
}

/// Whether it is a request, or a superframe in which somebody got something.
fn has_slots(event: &DamaEvent) -> bool {
    match event {
        DamaEvent::Allocated { grants, .. } => !grants.is_empty(),
        _ => true,
    }
}

fn heard(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 100];
    let (length, _) = socket.recv_from(&mut bytes).expect("the packet arrives");
    bytes[..length].to_vec()
}

#[test]
fn a_star_delivers_to_each_terminal_what_is_its_own() {
    let Some((network, driver)) = start(3, BitRate::from_mbit(12)) else { return };
    let clients: Vec<Node> = Site::first(3).map(Site::client).collect();
    for of in [|node: Node| node.address4().into(), |node: Node| IpAddr::from(node.address6())] {
        if of(Node::Server).is_ipv6() && !os::has_ipv6() {
            continue;
        }
        let server = socket(&network, Node::Server, of(Node::Server));
        let sockets: Vec<_> =
            clients.iter().map(|client| socket(&network, *client, of(*client))).collect();
        for (client, socket) in clients.iter().zip(&sockets) {
            let name = client.to_string();
            server.send_to(name.as_bytes(), (of(*client), 4000)).unwrap();
            assert_eq!(heard(socket), name.as_bytes());
            socket.send_to(name.as_bytes(), (of(Node::Server), 4000)).unwrap();
            assert_eq!(heard(&server), name.as_bytes());
        }
        // Between two sites, by way of the hub.
        sockets[1].send_to(b"hello", (of(clients[2]), 4000)).unwrap();
        assert_eq!(heard(&sockets[2]), b"hello");
    }
    assert_eq!(driver.faults(), Faults::default());
}

#[test]
fn a_change_wakes_the_driver() {
    // A packet of 31 bytes would take four minutes.
    let Some((network, driver)) = start(1, BitRate::from_bits_per_second(1)) else { return };
    let [server, client] =
        [Node::Server, Node::Client].map(|node| socket(&network, node, node.address4().into()));
    server.send_to(b"now", (Node::Client.address4(), 4000)).unwrap();
    let forward = || driver.gauges().read()[0].counters;
    while forward().inside.packets == 0 {
        thread::yield_now();
    }
    let mut asked = Vec::new();
    driver.change(|name, link, now| {
        asked.push(name);
        let ChangeableLink::Own(link) = link else { unreachable!() };
        link.set_rate(now, BitRate::from_mbit(12));
    });
    assert_eq!(asked, [LinkName::Forward, LinkName::Return(Site::FIRST)]);
    assert_eq!(heard(&client), b"now");
    assert_eq!((forward().delivered.packets, driver.lateness().packets()), (1, 1));
}
