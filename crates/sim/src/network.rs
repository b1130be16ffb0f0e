//! Nodes and what joins them.

use link::Link;

use crate::agenda::Alarm;
use crate::packet::{NodeId, Packet};

/// One direction of a link between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId(pub(crate) u32);

impl LaneId {
    /// Its number, in the order in which lanes were made.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) link: Link<Box<Packet>>,
    pub(crate) to: NodeId,
    pub(crate) alarm: Alarm,
    /// The most packets that ever waited.
    pub(crate) peak: u64,
}

/// Where a packet goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// Into a link.
    Lane(LaneId),
    /// Straight to a node, at once: a satellite that reflects to everybody.
    Node(NodeId),
    /// Through the SLACP session with this gateway, whole: SLACP as a link layer.
    Tunnel(NodeId),
}

/// A node: it takes what is for it and forwards the rest.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// By destination; what is not in it takes the default.
    pub(crate) routes: Vec<Option<Hop>>,
    pub(crate) default: Option<Hop>,
    /// The place of its SLACP gateway, if it is one.
    pub(crate) gateway: Option<u32>,
}

impl Node {
    pub(crate) fn route(&self, to: NodeId) -> Option<Hop> {
        self.routes.get(to.index()).copied().flatten().or(self.default)
    }
}
