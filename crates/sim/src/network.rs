//! Nodes, the links between them, and the packets on the way.

pub(crate) mod ack_spacer;
pub(crate) mod ip;
pub(crate) mod packet;
pub(crate) mod window_limiter;

use std::collections::VecDeque;

use link::dama::Dama;
use link::{Link, PacketCounters, Tally};

use crate::agenda::EventAlarm;
use crate::ids::{LinkId, NodeId};
use ack_spacer::AckSpacer;
use packet::SimulatedPacket;
use window_limiter::WindowLimiter;

/// One direction of a link, as nodes use it.
#[derive(Debug)]
pub(crate) struct LinkEntry {
    pub(crate) carrier: PacketCarrier,
    /// Maximum number of packets that waited so far.
    pub(crate) peak: u64,
}

/// The link that carries the packets of a lane.
#[derive(Debug)]
pub(crate) enum PacketCarrier {
    /// A link of its own.
    Own { link: Box<Link<Box<SimulatedPacket>>>, to: NodeId, alarm: EventAlarm },
    /// A terminal's part of a shared return link; both fields are indices.
    Shared { medium: u32, terminal: usize },
}

impl LinkEntry {
    /// Returns the current queue and the counters.
    pub(crate) fn read<'a>(&'a self, media: &'a [SharedReturnLink]) -> (Tally, &'a PacketCounters) {
        match &self.carrier {
            PacketCarrier::Own { link, .. } => (link.queued(), link.counters()),
            PacketCarrier::Shared { medium, terminal } => {
                let dama = &media[*medium as usize].dama;
                (dama.queued(*terminal), dama.counters(*terminal))
            }
        }
    }
}

/// A return link shared by terminals.
#[derive(Debug)]
pub(crate) struct SharedReturnLink {
    pub(crate) dama: Dama<Box<SimulatedPacket>>,
    pub(crate) to: NodeId,
    pub(crate) alarm: EventAlarm,
}

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteHop {
    /// Into a link, whose queue and delay it gets.
    Link(LinkId),
    /// To a node without delay: from a satellite that broadcasts to all terminals.
    Node(NodeId),
    /// Through the SLACP session with this gateway, as a whole packet: SLACP as a link layer.
    Tunnel(NodeId),
}

/// Next hops by destination. A table takes memory for all destinations between its first and its last.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    first: u32,
    hops: VecDeque<Option<RouteHop>>,
}

impl RouteTable {
    pub(crate) fn set(&mut self, to: NodeId, hop: RouteHop) {
        if self.hops.is_empty() {
            self.first = to.0;
        }
        while to.0 < self.first {
            self.first -= 1;
            self.hops.push_front(None);
        }
        let place = (to.0 - self.first) as usize;
        if self.hops.len() <= place {
            self.hops.resize(place + 1, None);
        }
        self.hops[place] = Some(hop);
    }

    fn get(&self, to: NodeId) -> Option<RouteHop> {
        let place = to.0.checked_sub(self.first)?;
        self.hops.get(place as usize).copied().flatten()
    }
}

/// A node. It accepts packets addressed to it and forwards the rest.
#[derive(Debug, Default)]
pub(crate) struct NodeEntry {
    /// Next hops by destination; without an entry, the default applies.
    pub(crate) routes: RouteTable,
    pub(crate) default: Option<RouteHop>,
    /// The index of its SLACP gateway, if it is one.
    pub(crate) gateway: Option<u32>,
    /// Limits the windows of passing connections, if set.
    pub(crate) limiter: Option<Box<WindowLimiter>>,
    /// Spaces the acknowledgements of passing connections, if set.
    pub(crate) spacer: Option<Box<AckSpacer>>,
}

impl NodeEntry {
    pub(crate) fn route(&self, to: NodeId) -> Option<RouteHop> {
        self.routes.get(to).or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_to_the_destination_goes_before_the_default() {
        let [lane, node] = [RouteHop::Link(LinkId(7)), RouteHop::Node(NodeId(9))];
        let mut router = NodeEntry::default();
        router.routes.set(NodeId(1), lane);
        assert_eq!([0, 1, 2].map(|to| router.route(NodeId(to))), [None, Some(lane), None]);
        router.default = Some(node);
        let all = [0, 1, 2].map(|to| router.route(NodeId(to)));
        assert_eq!(all, [Some(node), Some(lane), Some(node)]);
    }

    #[test]
    fn routes_may_come_in_any_order() {
        let mut routes = RouteTable::default();
        let lane = |number| RouteHop::Link(LinkId(number));
        for (to, number) in [(500, 1), (502, 2), (497, 3), (502, 4)] {
            routes.set(NodeId(to), lane(number));
        }
        let all = [0, 497, 498, 500, 501, 502, 503].map(|to| routes.get(NodeId(to)));
        assert_eq!(all, [None, Some(lane(3)), None, Some(lane(1)), None, Some(lane(4)), None]);
        assert_eq!(routes.hops.len(), 6);
    }
}
