//! What travels.

use tcp::{ByteRange, Ecn, Segment};
use units::Instant;

use crate::slab::Key;

/// An IPv4 header without options, in bytes.
pub(crate) const IP_HEADER: usize = 20;
/// A UDP header, in bytes.
pub(crate) const UDP_HEADER: usize = 8;

/// A node of the network: a host, a router or a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Its number, in the order in which nodes were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An IPv4 packet as a struct. On links it is boxed: a link moves its packets
/// several times.
#[derive(Debug)]
pub struct Packet {
    /// Who sent it.
    pub from: NodeId,
    /// Whom it is for.
    pub to: NodeId,
    /// What it carries.
    pub body: Body,
}

impl Packet {
    /// One of a segment, to be filled in.
    pub(crate) fn blank() -> Box<Self> {
        let (source, destination, segment) = (Key::default(), Key::default(), Segment::default());
        let body = Body::Tcp { source, destination, segment };
        Box::new(Self { from: NodeId(0), to: NodeId(0), body })
    }
}

/// What a packet carries.
#[derive(Debug)]
pub enum Body {
    /// A segment from one socket to another.
    Tcp {
        /// The sender's socket.
        source: Key,
        /// The receiver's socket.
        destination: Key,
        /// The segment; its data are ranges, no byte of them exists.
        segment: Segment<ByteRange>,
    },
    /// A datagram of an application that sends at a constant rate.
    Cbr(Datagram),
    /// A datagram of a SLACP session: its real bytes.
    Slacp(Vec<u8>),
}

/// A UDP datagram without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The application, by its number.
    pub app: u32,
    /// Counts the application's datagrams.
    pub number: u64,
    /// When it was sent.
    pub sent_at: Instant,
    /// Bytes of payload.
    pub len: u32,
}

impl link::Payload for Box<Packet> {
    #[inline]
    fn wire_len(&self) -> usize {
        let body = match &self.body {
            Body::Tcp { segment, .. } => segment.wire_len(),
            Body::Cbr(datagram) => UDP_HEADER + datagram.len as usize,
            Body::Slacp(bytes) => UDP_HEADER + bytes.len(),
        };
        IP_HEADER + body
    }

    fn mark_ce(&mut self) -> bool {
        match &mut self.body {
            Body::Tcp { segment, .. } if segment.ecn != Ecn::NotEct => {
                segment.ecn = Ecn::Ce;
                true
            }
            _ => false,
        }
    }
}
