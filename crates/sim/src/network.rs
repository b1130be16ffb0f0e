//! Nodes and the links between them.

use link::dama::Dama;
use link::{Counters, Link, Tally};

use crate::agenda::Alarm;
use crate::packet::{NodeId, Packet};

/// One direction of a link between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId(pub(crate) u32);

impl LaneId {
    /// Its index, in the order of creation.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) carrier: Carrier,
    /// Maximum number of packets that ever waited.
    pub(crate) peak: u64,
}

/// What carries the packets of a lane.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// A link of its own.
    Own { link: Box<Link<Box<Packet>>>, to: NodeId, alarm: Alarm },
    /// The slots of a terminal on a return link that several share, by their indices.
    Shared { medium: u32, terminal: usize },
}

impl Lane {
    /// What waits for the lane, and its counters.
    pub(crate) fn read<'a>(&'a self, media: &'a [Medium]) -> (Tally, &'a Counters) {
        match &self.carrier {
            Carrier::Own { link, .. } => (link.queued(), link.counters()),
            Carrier::Shared { medium, terminal } => {
                let dama = &media[*medium as usize].dama;
                (dama.queued(*terminal), dama.counters(*terminal))
            }
        }
    }
}

/// A return link that terminals share.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) dama: Dama<Box<Packet>>,
    pub(crate) to: NodeId,
    pub(crate) alarm: Alarm,
}

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// Into a link.
    Lane(LaneId),
    /// To a node without delay: a satellite that broadcasts to everyone.
    Node(NodeId),
    /// Through the SLACP session with this gateway, as a whole packet: SLACP as a link layer.
    Tunnel(NodeId),
}

/// A node. It accepts packets addressed to it and forwards the rest.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// By destination; without an entry, the default applies.
    pub(crate) routes: Vec<Option<Hop>>,
    pub(crate) default: Option<Hop>,
    /// The index of its SLACP gateway, if it is one.
    pub(crate) gateway: Option<u32>,
}

impl Node {
    pub(crate) fn route(&self, to: NodeId) -> Option<Hop> {
        self.routes.get(to.index()).copied().flatten().or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_to_the_destination_goes_before_the_default() {
        let [lane, node] = [Hop::Lane(LaneId(7)), Hop::Node(NodeId(9))];
        let mut router = Node { routes: vec![None, Some(lane)], ..Node::default() };
        assert_eq!([0, 1, 2].map(|to| router.route(NodeId(to))), [None, Some(lane), None]);
        router.default = Some(node);
        let all = [0, 1, 2].map(|to| router.route(NodeId(to)));
        assert_eq!(all, [Some(node), Some(lane), Some(node)]);
    }
}
