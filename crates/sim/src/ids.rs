//! Numbers of nodes, links and applications, in the order of creation.

/// A node of the network: a host, a router or a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The node's index, in the order of creation.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One direction of a link between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// The link's index, in the order of creation.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifies an application, by the order in which it was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub(crate) u32);

impl AppId {
    /// The application's index, in the order of creation.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
