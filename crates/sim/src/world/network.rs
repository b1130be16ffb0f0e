//! Nodes, routes and links, and the packets in transit on them.

use link::dama::{Dama, DamaConfig, DamaError};
use link::{Link, LinkConfig, PacketCounters, Tally};
use units::Machine;

use super::{DueEvent, World};
use crate::agenda::{EventAlarm, EventNumber};
use crate::ids::{LinkId, NodeId};
use crate::network::packet::{PacketBody, SimulatedPacket};
use crate::network::{LinkEntry, NodeEntry, PacketCarrier, RouteHop, SharedReturnLink};

/// Maximum number of times a packet is forwarded without a link in between; more indicate a routing
/// loop.
const MAX_DIRECT_HOPS: u32 = 64;

impl World {
    /// Adds a node without routes.
    pub fn add_node(&mut self) -> NodeId {
        self.nodes.push(NodeEntry::default());
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Creates a link to `to`. Routes decide which packets enter it; several nodes may share it.
    pub fn connect(&mut self, to: NodeId, config: LinkConfig) -> LinkId {
        let link = Box::new(Link::new(config, self.seeds.bits()));
        self.add_lane(PacketCarrier::Own { link, to, alarm: EventAlarm::default() })
    }

    /// Creates a return link to `to` that several terminals share. Each has a lane of its own, in
    /// the order of the configuration.
    ///
    /// # Errors
    /// If the configuration cannot be built.
    pub fn connect_shared(
        &mut self,
        to: NodeId,
        config: DamaConfig,
    ) -> Result<Vec<LinkId>, DamaError> {
        let dama = Dama::new(config, self.seeds.bits())?;
        let medium = self.media.len() as u32;
        let terminals = dama.terminals();
        self.media.push(SharedReturnLink { dama, to, alarm: EventAlarm::default() });
        self.set_medium_alarm(medium);
        let lane = |terminal| self.add_lane(PacketCarrier::Shared { medium, terminal });
        Ok((0..terminals).map(lane).collect())
    }

    fn add_lane(&mut self, carrier: PacketCarrier) -> LinkId {
        self.lanes.push(LinkEntry { carrier, peak: 0 });
        LinkId(self.lanes.len() as u32 - 1)
    }

    /// Returns the shared return link that a lane is part of, and the terminal's index on it.
    pub fn shared(&self, lane: LinkId) -> Option<(&Dama<Box<SimulatedPacket>>, usize)> {
        match self.lanes[lane.index()].carrier {
            PacketCarrier::Own { .. } => None,
            PacketCarrier::Shared { medium, terminal } => {
                Some((&self.media[medium as usize].dama, terminal))
            }
        }
    }

    /// Routes packets at `node` that are addressed to `to` through `hop`.
    pub fn set_route(&mut self, node: NodeId, to: NodeId, hop: RouteHop) {
        self.nodes[node.index()].routes.set(to, hop);
    }

    /// Routes all other packets at `node` through `hop`.
    pub fn set_default_route(&mut self, node: NodeId, hop: RouteHop) {
        self.nodes[node.index()].default = Some(hop);
    }

    /// Returns the counters of a link since the start of the run.
    pub fn counters(&self, lane: LinkId) -> &PacketCounters {
        self.lanes[lane.index()].read(&self.media).1
    }

    /// Returns the current queue of a link.
    pub fn queued(&self, lane: LinkId) -> Tally {
        self.lanes[lane.index()].read(&self.media).0
    }

    /// Returns the maximum number of packets that waited for a link so far.
    pub fn peak_queue(&self, lane: LinkId) -> u64 {
        self.lanes[lane.index()].peak
    }

    /// Sends a packet created by `node`.
    pub(super) fn send(&mut self, packet: Box<SimulatedPacket>) {
        let node = packet.from;
        if let Some(tap) = &mut self.tap {
            tap.packet(self.now, node, true, &packet);
        }
        self.forward(node, packet);
    }

    /// Forwards a packet from `node`, unless its spacer holds the packet back.
    pub(super) fn forward(&mut self, node: NodeId, packet: Box<SimulatedPacket>) {
        if self.nodes[node.index()].spacer.is_none() {
            self.route(node, packet);
        } else if let Some(packet) = self.pass_spacer(node, packet) {
            self.route(node, packet);
        }
    }

    /// Forwards a packet by the routes, past any spacer.
    pub(super) fn route(&mut self, mut node: NodeId, mut packet: Box<SimulatedPacket>) {
        for _ in 0..MAX_DIRECT_HOPS {
            if self.nodes[node.index()].limiter.is_some() {
                self.pass_limiter(node, &mut packet);
            }
            match self.nodes[node.index()].route(packet.to) {
                Some(RouteHop::Link(lane)) => return self.enter(lane, packet),
                Some(RouteHop::Node(next)) => node = next,
                Some(RouteHop::Tunnel(peer)) => return self.enter_tunnel(node, peer, packet),
                None => break,
            }
            if node == packet.to {
                return self.deliver(packet);
            }
        }
        self.unroutable += 1;
    }

    fn enter(&mut self, id: LinkId, packet: Box<SimulatedPacket>) {
        let lane = &mut self.lanes[id.index()];
        match &mut lane.carrier {
            PacketCarrier::Own { link, alarm, .. } => {
                link.handle_packet(self.now, packet);
                lane.peak = lane.peak.max(link.queued().packets);
                // This packet is delivered after the one that the alarm is set for.
                if alarm.is_set() && !link.reorders() {
                    return;
                }
                let next = link.poll_timeout().map(|(at, _)| at);
                alarm.set(&mut self.agenda, next, DueEvent::Lane(id));
            }
            PacketCarrier::Shared { medium, terminal } => {
                let medium = *medium;
                let terminal = *terminal;
                let dama = &mut self.media[medium as usize].dama;
                dama.handle_packet(self.now, terminal, packet);
                lane.peak = lane.peak.max(dama.queued(terminal).packets);
                self.set_medium_alarm(medium);
            }
        }
    }

    pub(super) fn wake_lane(&mut self, id: LinkId, ticket: EventNumber) {
        if let PacketCarrier::Own { alarm, .. } = &mut self.lanes[id.index()].carrier
            && alarm.ring(ticket)
        {
            self.arrive(id);
        }
    }

    /// Delivers the packets that have arrived at the end of a link.
    fn arrive(&mut self, id: LinkId) {
        loop {
            let PacketCarrier::Own { link, to, .. } = &mut self.lanes[id.index()].carrier else {
                return;
            };
            let to = *to;
            let arrived = link.poll_delivery(self.now);
            let more = arrived.is_some();
            if let Some(packet) = arrived {
                self.handle_arrival(to, packet);
            }
            // Borrowed again, because the arrival needed the whole world.
            let PacketCarrier::Own { link, alarm, .. } = &mut self.lanes[id.index()].carrier else {
                return;
            };
            let next = link.poll_timeout().map(|(at, _)| at);
            if !more || next.is_none_or(|at| at > self.now) {
                return alarm.set(&mut self.agenda, next, DueEvent::Lane(id));
            }
        }
    }

    pub(super) fn wake_medium(&mut self, index: u32, ticket: EventNumber) {
        if !self.media[index as usize].alarm.ring(ticket) {
            return;
        }
        loop {
            let medium = &mut self.media[index as usize];
            let to = medium.to;
            let arrived = medium.dama.poll_arrival(self.now);
            let Some((_, _, packet)) = arrived else { break };
            self.handle_arrival(to, packet);
        }
        self.set_medium_alarm(index);
    }

    pub(super) fn set_medium_alarm(&mut self, index: u32) {
        let medium = &mut self.media[index as usize];
        let next = medium.dama.poll_timeout().map(|(at, _)| at);
        medium.alarm.set(&mut self.agenda, next, DueEvent::Medium(index));
    }

    /// Handles a packet at the end of a link: delivers or forwards it.
    fn handle_arrival(&mut self, to: NodeId, packet: Box<SimulatedPacket>) {
        self.arrivals += 1;
        if packet.to == to {
            self.deliver(packet);
        } else {
            self.forward(to, packet);
        }
    }

    /// Delivers a packet to its destination.
    #[inline]
    pub(super) fn deliver(&mut self, packet: Box<SimulatedPacket>) {
        if let Some(tap) = &mut self.tap {
            tap.packet(self.now, packet.to, false, &packet);
        }
        let from = packet.from;
        let to = packet.to;
        let ip = packet.ip;
        // The segment is processed in place, because copying it costs more.
        if let PacketBody::Tcp { source, destination, segment } = &packet.body {
            self.deliver_segment([from, to], ip, [*source, *destination], segment);
            return self.boxes.push(packet);
        }
        match packet.body {
            PacketBody::Tcp { .. } => {}
            PacketBody::Cbr(datagram) => self.deliver_datagram(datagram),
            PacketBody::Slacp(sealed) => self.deliver_slacp(from, to, sealed.bytes),
        }
    }
}
