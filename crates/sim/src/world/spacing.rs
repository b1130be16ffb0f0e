//! Gateways that space acknowledgements instead of splitting connections.
//!
//! Acknowledgements that arrive in bursts, for instance in the slots of a return link, make the
//! sender send in bursts. A gateway at the hub holds them back so that they release data no faster than
//! the forward link carries it (RFC 3135 §3.1.1; the "TCP ACK spacing" of ENAC, 3.1). All connections
//! share one schedule, because they share the link.

use std::collections::{BTreeMap, VecDeque};

use units::{BitRate, Instant};

use super::{DueEvent, World};
use crate::agenda::{EventAlarm, EventNumber};
use crate::ids::NodeId;
use crate::network::ack_spacer::{AckSchedule, AckSpacer, is_bare};
use crate::network::packet::{PacketBody, SimulatedPacket};
use crate::slab::SlabKey;

impl World {
    /// Lets `node` space acknowledgements to `servers`, so that they release data at no more than `rate`.
    pub fn space_acknowledgements(&mut self, node: NodeId, servers: &[NodeId], rate: BitRate) {
        let pace = AckSchedule { rate, acked: BTreeMap::new(), free: Instant::ZERO };
        let servers = servers.iter().copied().collect();
        let spacer =
            AckSpacer { pace, servers, held: VecDeque::new(), alarm: EventAlarm::default() };
        self.nodes[node.index()].spacer = Some(Box::new(spacer));
    }

    /// Holds an acknowledgement until it is due; returns a packet that may pass now.
    pub(super) fn pass_spacer(
        &mut self,
        node: NodeId,
        packet: Box<SimulatedPacket>,
    ) -> Option<Box<SimulatedPacket>> {
        let now = self.now;
        let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() else {
            return Some(packet);
        };
        let PacketBody::Tcp { destination, segment, .. } = &packet.body else {
            return Some(packet);
        };
        if !spacer.servers.contains(&packet.to) {
            return Some(packet);
        }
        let sender = *destination;
        let Some(ack) = segment.ack.filter(|_| is_bare(segment)) else {
            if segment.flags.fin || segment.flags.rst {
                // The sender's connection ends, so nothing more has to be scheduled.
                spacer.pace.acked.remove(&sender);
            }
            self.release(node, sender);
            return Some(packet);
        };
        let due = spacer.pace.due(now, sender, ack);
        // One that is due still waits behind those held before it, which keeps the order.
        if due <= now && spacer.held.is_empty() {
            return Some(packet);
        }
        spacer.held.push_back((due, packet));
        self.set_spacer_alarm(node);
        None
    }

    /// Releases all acknowledgements held for a sender, so that a segment with more than an
    /// acknowledgement does not overtake them.
    fn release(&mut self, node: NodeId, sender: SlabKey) {
        let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() else { return };
        let goes = |packet: &SimulatedPacket| matches!(packet.body, PacketBody::Tcp { destination, .. } if destination == sender);
        if !spacer.held.iter().any(|(_, packet)| goes(packet)) {
            return;
        }
        let (gone, held) = core::mem::take(&mut spacer.held)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(_, packet)| goes(packet));
        spacer.held = held;
        for (_, packet) in gone {
            self.route(node, packet);
        }
        self.set_spacer_alarm(node);
    }

    pub(super) fn wake_spacer(&mut self, node: NodeId, ticket: EventNumber) {
        let now = self.now;
        let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() else { return };
        if !spacer.alarm.ring(ticket) {
            return;
        }
        while let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut()
            && let Some((_, packet)) = spacer.held.pop_front_if(|(due, _)| *due <= now)
        {
            self.route(node, packet);
        }
        self.set_spacer_alarm(node);
    }

    fn set_spacer_alarm(&mut self, node: NodeId) {
        if let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() {
            let next = spacer.held.front().map(|(due, _)| *due);
            spacer.alarm.set(&mut self.agenda, next, DueEvent::Spacer(node));
        }
    }
}
