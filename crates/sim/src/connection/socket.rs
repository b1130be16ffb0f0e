//! One end of a TCP connection, and its owner.

use pep::relay::LegSide;
use scenario::IpVersion;
use tcp::{ByteRange, Connection};

use super::talk;
use crate::agenda::EventAlarm;
use crate::ids::NodeId;
use crate::slab::SlabKey;

#[derive(Debug)]
pub(crate) struct SimulatedSocket {
    pub(crate) tcp: Connection<ByteRange>,
    pub(crate) node: NodeId,
    pub(crate) peer: SlabKey,
    pub(crate) peer_node: NodeId,
    /// The IP headers of its packets.
    pub(crate) ip: IpVersion,
    pub(crate) owner: SocketOwner,
    pub(crate) alarm: EventAlarm,
    /// Its index in the probe, if it is recorded.
    pub(crate) watched: Option<u32>,
}

/// The part of the simulator that reads from and writes to a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SocketOwner {
    /// An application, at one end of its conversation.
    Talk(SlabKey, talk::ConversationSide),
    /// A host that follows a script.
    Script(SlabKey, LegSide),
    /// A split connection at a gateway.
    Split(SlabKey),
    /// A switched-off host: segments that arrive are ignored.
    Unattended,
}

/// The two hosts of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConnectionHosts {
    /// Applications in conversation.
    Talk(SlabKey),
    /// Hosts that follow a script.
    Script(SlabKey),
}
