//! One end of a TCP connection, and its owner.

use tcp::{ByteRange, Connection};

use crate::agenda::Alarm;
use crate::packet::NodeId;
use crate::slab::Key;
use crate::talk::Side;

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) tcp: Connection<ByteRange>,
    pub(crate) node: NodeId,
    pub(crate) peer: Key,
    pub(crate) peer_node: NodeId,
    pub(crate) owner: Owner,
    pub(crate) alarm: Alarm,
    /// Its index in the probe, if it is recorded.
    pub(crate) watched: Option<u32>,
}

/// Who reads and writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    /// An application, at one end of its conversation.
    Talk(Key, Side),
    /// A split connection at a gateway.
    Split(Key),
}
