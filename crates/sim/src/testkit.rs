//! Small networks, and connections without one, for tests.

use core::time::Duration;
use std::sync::Arc;

use link::{LinkConfig, LossModel, QueueLimit};
use tcp::{ByteRange, Connection, SeqNr};
use units::{BitRate, ByteCount, Instant, Machine as _, Probability};

use crate::{App, AppId, BulkAmount, ConnectionPath, LinkId, NodeId, PathLeg, RouteHop, World};

/// A link of `mbit` Mbit/s and `ms` milliseconds that loses packets with the probability `per`.
pub(crate) fn link(mbit: u64, ms: u64, per: f64) -> LinkConfig {
    let loss =
        if per > 0.0 { LossModel::Per(Probability::new(per).unwrap()) } else { LossModel::None };
    let delay = Duration::from_millis(ms);
    LinkConfig::new(BitRate::from_mbit(mbit), delay, loss, QueueLimit::Packets(2000))
}

pub(crate) fn tcp() -> [Arc<tcp::Config>; 2] {
    // The settings of browsers and servers.
    let config = Arc::new(tcp::Config { nagle: false, ..tcp::Profile::Linux.config() });
    [Arc::clone(&config), config]
}

pub(crate) fn tcp_leg() -> PathLeg {
    let [near, far] = tcp();
    PathLeg::Tcp(near, far)
}

/// Nodes in a row, with links in both directions between neighbours.
pub(crate) fn row(world: &mut World, links: &[LinkConfig]) -> (Vec<NodeId>, Vec<[LinkId; 2]>) {
    let nodes: Vec<_> = (0..=links.len()).map(|_| world.add_node()).collect();
    let mut lanes = Vec::new();
    for (at, config) in links.iter().enumerate() {
        let right = world.connect(nodes[at + 1], config.clone());
        let left = world.connect(nodes[at], config.clone());
        for (other, node) in nodes.iter().enumerate() {
            if other > at {
                world.set_route(nodes[at], *node, RouteHop::Link(right));
            } else {
                world.set_route(nodes[at + 1], *node, RouteHop::Link(left));
            }
        }
        lanes.push([right, left]);
    }
    (nodes, lanes)
}

/// Two hosts with a link of 10 Mbit/s and 250 ms in each direction.
pub(crate) fn geo(world: &mut World) -> (NodeId, NodeId, Arc<ConnectionPath>) {
    let (nodes, _) = row(world, &[link(10, 250, 0.0)]);
    (nodes[0], nodes[1], Arc::new(ConnectionPath::direct(nodes[0], nodes[1], tcp())))
}

/// A client, a terminal, a hub and a server in a row. A SLACP hop of 20 Mbit/s and 250 ms, which
/// loses packets with the probability `per`, joins the gateways; the session is not up yet.
pub(crate) fn gateways(world: &mut World, per: f64) -> ([NodeId; 4], Arc<ConnectionPath>) {
    let (nodes, _) = row(world, &[link(100, 5, 0.0), link(20, 250, per), link(100, 5, 0.0)]);
    let [client, terminal, hub, server] = nodes[..] else { unreachable!() };
    let config = slacp::Config::new(slacp::Rate::Fixed(BitRate::from_mbit(20)));
    world.add_hub(hub, config.clone(), &[terminal]);
    world.add_terminal(terminal, config, hub);
    let legs = vec![tcp_leg(), PathLeg::Slacp, tcp_leg()];
    let path = ConnectionPath::split(client, &[terminal, hub], server, legs);
    ([client, terminal, hub, server], Arc::new(path))
}

/// The world of [`geo`] with one application, which has finished.
pub(crate) fn run_app(make: impl FnOnce(Arc<ConnectionPath>) -> Box<dyn App>) -> (World, AppId) {
    let mut world = World::new(1);
    let (_, _, path) = geo(&mut world);
    let app = world.add_app(make(path));
    assert!(world.run_until_done(at(300)));
    (world, app)
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

pub(crate) fn at_ms(milliseconds: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(milliseconds)
}

pub(crate) fn bytes(n: u64) -> BulkAmount {
    BulkAmount::Bytes(ByteCount::new(n))
}

/// A client and a server that have exchanged nothing yet.
pub(crate) fn ends() -> [Connection<ByteRange>; 2] {
    let [near, far] = tcp();
    [Connection::connect(near, SeqNr::new(1000)), Connection::listen(far, SeqNr::new(u32::MAX))]
}

/// Passes segments between the two ends, at once and without loss, until neither has any to send.
pub(crate) fn exchange(now: Instant, [a, b]: &mut [Connection<ByteRange>; 2]) {
    a.handle_timeout(now);
    b.handle_timeout(now);
    loop {
        let there = a.poll_transmit(now);
        let back = b.poll_transmit(now);
        there.iter().for_each(|segment| b.handle_segment(now, segment));
        back.iter().for_each(|segment| a.handle_segment(now, segment));
        if there.is_none() && back.is_none() {
            return;
        }
    }
}
