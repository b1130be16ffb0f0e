//! Worlds with a few nodes.

#![allow(missing_docs)]

use core::time::Duration;
use std::sync::Arc;

use link::{LinkConfig, Loss, QueueLimit};
use sim::{
    Amount, AppId, Bulk, Cbr, Direction, Hop, LaneId, Leg, Method, NodeId, Page, Path,
    RequestReply, Sizes, Turn, Users, World,
};
use units::{BitRate, ByteCount, Instant, Probability};

fn link(mbit: u64, ms: u64, per: f64) -> LinkConfig {
    let loss = if per > 0.0 { Loss::Per(Probability::new(per).unwrap()) } else { Loss::None };
    let delay = Duration::from_millis(ms);
    LinkConfig::new(BitRate::from_mbit(mbit), delay, loss, QueueLimit::Packets(2000))
}

fn tcp() -> [Arc<tcp::Config>; 2] {
    // The settings of browsers and servers.
    let config = Arc::new(tcp::Config { nagle: false, ..tcp::Profile::Linux.config() });
    [Arc::clone(&config), config]
}

/// Nodes in a row, with links in both directions between neighbours.
fn row(world: &mut World, links: &[LinkConfig]) -> (Vec<NodeId>, Vec<[LaneId; 2]>) {
    let nodes: Vec<_> = (0..=links.len()).map(|_| world.add_node()).collect();
    let mut lanes = Vec::new();
    for (at, config) in links.iter().enumerate() {
        let right = world.connect(nodes[at + 1], config.clone());
        let left = world.connect(nodes[at], config.clone());
        for (other, node) in nodes.iter().enumerate() {
            if other > at {
                world.set_route(nodes[at], *node, Hop::Lane(right));
            } else {
                world.set_route(nodes[at + 1], *node, Hop::Lane(left));
            }
        }
        lanes.push([right, left]);
    }
    (nodes, lanes)
}

fn end(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn bytes(n: u64) -> Amount {
    Amount::Bytes(ByteCount::new(n))
}

/// Duration of a 5 MB download with this split, and a counter.
fn download(split: &str, per: f64, seed: u64) -> (f64, u64) {
    let mut world = World::new(seed);
    let (nodes, _) = row(&mut world, &[link(100, 5, 0.0), link(20, 250, per), link(100, 5, 0.0)]);
    let [client, terminal, hub, server] = nodes[..] else { unreachable!() };
    let ends = tcp;
    let leg = || {
        let [a, b] = tcp();
        Leg::Tcp(a, b)
    };
    let path = match split {
        "none" => Path::direct(client, server, ends()),
        "two" => Path::split(client, &[hub], server, vec![leg(), leg()]),
        "three" => Path::split(client, &[terminal, hub], server, vec![leg(), leg(), leg()]),
        _ => {
            let config = slacp::Config::new(slacp::Rate::Fixed(BitRate::from_mbit(20)));
            world.add_hub(hub, config.clone(), &[terminal]);
            world.add_terminal(terminal, config, hub);
            Path::split(client, &[terminal, hub], server, vec![leg(), Leg::Slacp, leg()])
        }
    };
    let app = Bulk::new(Arc::new(path), Direction::Down, bytes(5_000_000), end(2));
    let app = world.add_app(Box::new(app));
    assert!(world.run_until_done(end(600)), "{split} {per}");
    world.run_until(world.now() + Duration::from_secs(130));
    let tally = world.tally(app);
    assert_eq!((tally.bytes, tally.broken, tally.deeds.len()), (5_000_000, 0, 1), "{split}");
    assert_eq!(world.strays(), 0);
    (tally.deeds[0].time().as_secs_f64(), world.arrivals())
}

#[test]
fn a_download_goes_through_every_kind_of_split() {
    for split in ["none", "two", "three", "slacp"] {
        for per in [0.0, 0.01] {
            let (time, _) = download(split, per, 1);
            assert!(time > 2.5, "{split} {per}: {time} s for what takes 2 s at the full rate");
        }
    }
}

#[test]
fn slacp_is_at_the_limit_and_plain_tcp_is_not() {
    // 5 MB at 20 Mbit/s take 2.0 s, after at most two RTTs of 520 ms.
    let (slacp, _) = download("slacp", 0.01, 1);
    let (none, _) = download("none", 0.01, 1);
    assert!(slacp < 4.5, "{slacp} s");
    assert!(none > 5.0 * slacp, "{none} s against {slacp} s");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for split in ["none", "two", "slacp"] {
        assert_eq!(download(split, 0.02, 5), download(split, 0.02, 5), "{split}");
        assert_ne!(download(split, 0.02, 5), download(split, 0.02, 6), "{split}");
    }
}

fn geo(world: &mut World) -> (NodeId, NodeId, Arc<Path>) {
    let (nodes, _) = row(world, &[link(10, 250, 0.0)]);
    (nodes[0], nodes[1], Arc::new(Path::direct(nodes[0], nodes[1], tcp())))
}

fn run(make: impl FnOnce(Arc<Path>) -> Box<dyn sim::App>) -> (World, AppId) {
    let mut world = World::new(1);
    let (_, _, path) = geo(&mut world);
    let app = world.add_app(make(path));
    assert!(world.run_until_done(end(300)));
    (world, app)
}

#[test]
fn a_reply_takes_a_round_trip_and_the_first_the_handshake_too() {
    let turn = Turn { request: 100, reply: 100 };
    let think = Duration::from_millis(700);
    let (world, app) = run(|path| Box::new(RequestReply::new(path, turn, think, 3, end(1))));
    let times: Vec<_> = world.tally(app).deeds.iter().map(|deed| deed.time().as_millis()).collect();
    assert_eq!(times, [1000, 500, 500]);
}

#[test]
fn each_method_takes_the_round_trips_that_it_must() {
    // A document and six objects of 1000 bytes; a handshake is one RTT.
    let time = |method| {
        let objects: Arc<[u64]> = vec![1000; 7].into();
        let (world, app) = run(|path| {
            let once = (1, Duration::ZERO);
            Box::new(Page::new(path, method, 300, objects, end(0), once))
        });
        world.tally(app).deeds[0].time().as_millis() / 500
    };
    assert_eq!(time(Method::Http10(1)), 14);
    assert_eq!(time(Method::Http10(6)), 4);
    assert_eq!(time(Method::KeepAlive(1)), 8);
    assert_eq!(time(Method::Pipelining(1)), 3);
    // The second connection's handshake starts with the objects.
    assert_eq!(time(Method::KeepAlive(2)), 6);
}

#[test]
fn datagrams_keep_their_rate_and_delay() {
    let mut world = World::new(1);
    let (a, b, _) = geo(&mut world);
    let rate = BitRate::from_mbit(1);
    let cbr = Cbr { from: a, to: b, rate, size: 1250, start: end(1), stop: end(11) };
    let app = world.add_app(Box::new(cbr));
    world.run_until(end(12));
    let tally = world.tally(app);
    assert_eq!(tally.datagrams, [1000, 1000]);
    // 1278 bytes at 10 Mbit/s, plus 250 ms.
    assert_eq!(tally.delay / 1000, Duration::from_nanos(251_022_400));
}

#[test]
fn an_endless_transfer_ends_when_its_time_has_come() {
    let (world, app) =
        run(|path| Box::new(Bulk::new(path, Direction::Up, Amount::Until(end(60)), end(0))));
    let goodput = world.tally(app).deeds[0].bytes as f64 * 8.0 / 60e6;
    assert!((8.5..9.6).contains(&goodput), "{goodput} Mbit/s");
}

#[test]
fn random_users_ask_as_often_as_they_should() {
    let sizes = Sizes::Pareto { least: 2000, most: 1_000_000, alpha: 1.2 };
    let every = Duration::from_millis(100);
    let mut world = World::new(1);
    let (_, _, path) = geo(&mut world);
    let seed = world.draw_seed();
    let users = Users::new(vec![path], every, (300, sizes), [end(0), end(100)], seed);
    let app = world.add_app(Box::new(users));
    world.run_until(end(200));
    let tally = world.tally(app);
    assert_eq!(tally.broken, 0);
    // A Poisson process: 1000 ± 32.
    assert!((900..1100).contains(&tally.deeds.len()), "{}", tally.deeds.len());
    // The median of 1000 is 2000·2^(1/1.2) = 3564 bytes.
    let mut sizes: Vec<_> = tally.deeds.iter().map(|deed| deed.bytes).collect();
    sizes.sort_unstable();
    assert!((3300..3800).contains(&sizes[sizes.len() / 2]), "{}", sizes[sizes.len() / 2]);
}

#[test]
fn a_packet_without_a_route_is_counted() {
    let mut world = World::new(1);
    let (a, b) = (world.add_node(), world.add_node());
    let rate = BitRate::from_mbit(1);
    let cbr = Cbr { from: a, to: b, rate, size: 1250, start: end(0), stop: end(1) };
    world.add_app(Box::new(cbr));
    world.run_until(end(2));
    assert_eq!(world.strays(), 100);
}
