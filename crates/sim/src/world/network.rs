//! Packets in transit.

use link::{Counters, Link, LinkConfig, Tally};
use units::Machine;

use super::{Due, World};
use crate::agenda::Alarm;
use crate::network::{Hop, Lane, LaneId, Node};
use crate::packet::{Body, NodeId, Packet};

/// Maximum number of times a packet is forwarded without a link in between; beyond it, routes form
/// a loop.
const HOPS: u32 = 64;

impl World {
    /// Adds a node.
    pub fn add_node(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Creates a link to `to`. Routes decide which packets enter it; several nodes may share it.
    pub fn connect(&mut self, to: NodeId, config: LinkConfig) -> LaneId {
        let link = Link::new(config, self.seeds.bits());
        self.lanes.push(Lane { link, to, alarm: Alarm::default(), peak: 0 });
        LaneId(self.lanes.len() as u32 - 1)
    }

    /// Routes packets at `node` that are addressed to `to` through `hop`.
    pub fn set_route(&mut self, node: NodeId, to: NodeId, hop: Hop) {
        let routes = &mut self.nodes[node.index()].routes;
        if routes.len() <= to.index() {
            routes.resize(to.index() + 1, None);
        }
        routes[to.index()] = Some(hop);
    }

    /// Routes all other packets at `node` through `hop`.
    pub fn set_default_route(&mut self, node: NodeId, hop: Hop) {
        self.nodes[node.index()].default = Some(hop);
    }

    /// A link's counters.
    pub fn counters(&self, lane: LaneId) -> &Counters {
        self.lanes[lane.index()].link.counters()
    }

    /// The current queue of a link.
    pub fn queued(&self, lane: LaneId) -> Tally {
        self.lanes[lane.index()].link.queued()
    }

    /// Maximum number of packets that ever waited for a link.
    pub fn peak_queue(&self, lane: LaneId) -> u64 {
        self.lanes[lane.index()].peak
    }

    /// Sends a packet created by `node`.
    pub(super) fn send(&mut self, packet: Box<Packet>) {
        let node = packet.from;
        if let Some(tap) = &mut self.tap {
            tap.packet(self.now, node, true, &packet);
        }
        self.forward(node, packet);
    }

    /// Forwards a packet from `node`.
    pub(super) fn forward(&mut self, mut node: NodeId, packet: Box<Packet>) {
        for _ in 0..HOPS {
            match self.nodes[node.index()].route(packet.to) {
                Some(Hop::Lane(lane)) => return self.enter(lane, packet),
                Some(Hop::Node(next)) => node = next,
                Some(Hop::Tunnel(peer)) => return self.enter_tunnel(node, peer, packet),
                None => break,
            }
            if node == packet.to {
                return self.deliver(packet);
            }
        }
        self.strays += 1;
    }

    fn enter(&mut self, id: LaneId, packet: Box<Packet>) {
        let lane = &mut self.lanes[id.index()];
        lane.link.handle_packet(self.now, packet);
        lane.peak = lane.peak.max(lane.link.queued().packets);
        // A later packet is delivered later.
        if lane.alarm.is_set() && !lane.link.reorders() {
            return;
        }
        let next = lane.link.poll_timeout().map(|(at, _)| at);
        lane.alarm.set(&mut self.agenda, next, Due::Lane(id));
    }

    /// Delivers packets at the end of a link.
    pub(super) fn arrive(&mut self, id: LaneId) {
        loop {
            let lane = &mut self.lanes[id.index()];
            let (to, arrived) = (lane.to, lane.link.poll_delivery(self.now));
            let more = arrived.is_some();
            if let Some(packet) = arrived {
                self.arrivals += 1;
                if packet.to == to {
                    self.deliver(packet);
                } else {
                    self.forward(to, packet);
                }
            }
            let lane = &mut self.lanes[id.index()];
            let next = lane.link.poll_timeout().map(|(at, _)| at);
            if !more || next.is_none_or(|at| at > self.now) {
                return lane.alarm.set(&mut self.agenda, next, Due::Lane(id));
            }
        }
    }

    /// Delivers a packet to its destination.
    #[inline]
    pub(super) fn deliver(&mut self, packet: Box<Packet>) {
        if let Some(tap) = &mut self.tap {
            tap.packet(self.now, packet.to, false, &packet);
        }
        let (from, to) = (packet.from, packet.to);
        // The segment is processed in place, because copying it costs more.
        if let Body::Tcp { source, destination, segment } = &packet.body {
            self.deliver_segment([from, to], [*source, *destination], segment);
            return self.boxes.push(packet);
        }
        match packet.body {
            Body::Tcp { .. } => {}
            Body::Cbr(datagram) => self.deliver_datagram(datagram),
            Body::Slacp(bytes) => self.deliver_slacp(from, to, bytes),
        }
    }
}
