//! What a link can carry.

use crate::ecn::mark_ce;

/// A packet, as far as a link cares.
pub trait Payload {
    /// Length on the link in bytes: that of the IP packet. A link asks once per
    /// packet.
    fn wire_len(&self) -> usize;

    /// Marks the packet with "congestion experienced" if its sender understands
    /// (RFC 3168: it is ECT or marked already). False, and nothing changed, if
    /// not; so for every packet unless a type says otherwise.
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

/// A packet that is nothing but its length, for simulations and tests.
impl Payload for usize {
    fn wire_len(&self) -> usize {
        *self
    }
}

/// One packet in a link, with what is known about it from the moment it was
/// offered.
#[derive(Debug)]
pub(crate) struct Frame<P> {
    pub(crate) packet: P,
    /// Length on the link in bytes.
    pub(crate) len: usize,
    /// How many packets were offered before it, which are its places in the
    /// sequences of random numbers.
    pub(crate) number: u64,
}
