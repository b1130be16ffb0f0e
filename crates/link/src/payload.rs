//! The packets a link can carry.

use crate::ecn::mark_ce;

/// A packet as seen by a link.
pub trait Payload {
    /// Size on the link in bytes, which is that of the IP packet. Called once per packet.
    fn wire_len(&self) -> usize;

    /// Marks the packet as "congestion experienced" if it is ECN-capable (RFC 3168: ECT or already
    /// marked). Returns false, with the packet unchanged, if it is not. The default is that packets
    /// are not.
    fn mark_ce(&mut self) -> bool {
        false
    }
}

/// An IP packet.
impl Payload for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn mark_ce(&mut self) -> bool {
        mark_ce(self)
    }
}

/// An IP packet.
impl Payload for Box<[u8]> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn mark_ce(&mut self) -> bool {
        mark_ce(self)
    }
}

/// A packet that cannot be marked.
impl Payload for &[u8] {
    fn wire_len(&self) -> usize {
        self.len()
    }
}

/// A packet that consists only of its length, for simulations and tests.
impl Payload for usize {
    fn wire_len(&self) -> usize {
        *self
    }
}

/// A packet in a link, with what is known about it from the start.
#[derive(Debug)]
pub(crate) struct Frame<P> {
    pub(crate) packet: P,
    /// Size on the link in bytes.
    pub(crate) len: usize,
    /// Number of packets offered before it, which is its index in the sequences of random numbers.
    pub(crate) number: u64,
}
