//! One end of a TCP connection, and its owner.

use pep::relay::Side;
use scenario::IpVersion;
use tcp::{ByteRange, Connection};

use crate::agenda::Alarm;
use crate::ids::NodeId;
use crate::slab::Key;
use crate::talk;

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) tcp: Connection<ByteRange>,
    pub(crate) node: NodeId,
    pub(crate) peer: Key,
    pub(crate) peer_node: NodeId,
    /// The IP headers of its packets.
    pub(crate) ip: IpVersion,
    pub(crate) owner: Owner,
    pub(crate) alarm: Alarm,
    /// Its index in the probe, if it is recorded.
    pub(crate) watched: Option<u32>,
}

/// The part of the simulator that reads from and writes to a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    /// An application, at one end of its conversation.
    Talk(Key, talk::Side),
    /// A host that follows a script.
    Script(Key, Side),
    /// A split connection at a gateway.
    Split(Key),
    /// A switched-off host: segments that arrive are ignored.
    Nobody,
}

/// The two hosts of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hosts {
    /// Applications in conversation.
    Talk(Key),
    /// Hosts that follow a script.
    Script(Key),
}
