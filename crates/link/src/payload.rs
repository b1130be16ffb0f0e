//! The packets a link can carry.

pub(crate) mod ecn;

use ecn::mark_ce;

/// A packet as seen by a link.
pub trait CarriedPacket {
    /// Returns the size on the link in bytes, which is that of the IP packet. Called once per
    /// packet.
    fn wire_len(&self) -> usize;

    /// Marks the packet as "congestion experienced" if it is ECN-capable (RFC 3168: ECT or already
    /// marked). Returns false, with the packet unchanged, if it is not. By default packets are not.
    fn mark_ce(&mut self) -> bool {
        false
    }

    /// Returns the class, which decides on a link with several ([`crate::dama`]) which packets go
    /// first and which kind of capacity is requested for them. Called once per packet.
    fn class(&self) -> TrafficClass {
        TrafficClass::Bulk
    }
}

/// Classes of traffic, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficClass {
    /// Acknowledgements, retransmissions and control frames of SLACP; network control.
    Control,
    /// Voice: small and constant rate.
    Voice,
    /// Streams of constant or slowly changing rate.
    Stream,
    /// All other traffic.
    Bulk,
}

impl TrafficClass {
    /// The number of traffic classes.
    pub const COUNT: usize = 4;
    /// All classes, the most urgent first.
    pub const ALL: [Self; Self::COUNT] = [Self::Control, Self::Voice, Self::Stream, Self::Bulk];

    /// Returns the class of a DSCP (RFC 4594 §1.5): network control; telephony; video, broadcast
    /// and real-time interactive; the rest.
    pub const fn of_dscp(dscp: u8) -> Self {
        match dscp {
            48 | 56 => Self::Control,
            40 | 44 | 46 => Self::Voice,
            24 | 26 | 28 | 30 | 32 | 34 | 36 | 38 => Self::Stream,
            _ => Self::Bulk,
        }
    }

    /// Returns the class of an IP packet by its header; [`Self::Bulk`] for other bytes.
    fn of_packet(packet: &[u8]) -> Self {
        match packet {
            [version, class, ..] if version >> 4 == 4 => Self::of_dscp(class >> 2),
            [version, class, ..] if version >> 4 == 6 => {
                // The traffic class spans two bytes, and its upper six bits are the DSCP (RFC 2474 §3).
                Self::of_dscp((version & 0x0f) << 2 | class >> 6)
            }
            _ => Self::Bulk,
        }
    }
}

/// An IP packet with its header, as bytes.
impl CarriedPacket for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn mark_ce(&mut self) -> bool {
        mark_ce(self)
    }

    fn class(&self) -> TrafficClass {
        TrafficClass::of_packet(self)
    }
}

/// An IP packet with its header, as bytes.
impl CarriedPacket for Box<[u8]> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn mark_ce(&mut self) -> bool {
        mark_ce(self)
    }

    fn class(&self) -> TrafficClass {
        TrafficClass::of_packet(self)
    }
}

/// A packet that cannot be marked.
impl CarriedPacket for &[u8] {
    fn wire_len(&self) -> usize {
        self.len()
    }
}

/// A packet that consists only of its length, for simulations and tests.
impl CarriedPacket for usize {
    fn wire_len(&self) -> usize {
        *self
    }
}

/// A packet in a link, with what is known about it from the start.
#[derive(Debug)]
pub(crate) struct NumberedPacket<P> {
    pub(crate) packet: P,
    /// Size on the link in bytes.
    pub(crate) len: usize,
    /// Encapsulated size in bytes; zero until it is known.
    pub(crate) carried: u64,
    /// Number of packets offered before it, which is its index in the sequences of random numbers.
    pub(crate) number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dscp_of_either_ip_version_gives_the_class() {
        let class = |bytes: [u8; 2]| bytes.to_vec().class();
        // EF is 46, AF41 34, CS6 48; the ECN bits do not matter.
        assert_eq!([[0x45, 0xb8], [0x45, 0xbb], [0x6b, 0x80]].map(class), [TrafficClass::Voice; 3]);
        assert_eq!([[0x45, 0x88], [0x68, 0x80]].map(class), [TrafficClass::Stream; 2]);
        assert_eq!([[0x45, 0xc0], [0x6c, 0x00]].map(class), [TrafficClass::Control; 2]);
        assert_eq!([[0x45, 0], [0x60, 0], [0, 0xb8]].map(class), [TrafficClass::Bulk; 3]);
        assert_eq!(Vec::new().class(), TrafficClass::Bulk);
    }
}
