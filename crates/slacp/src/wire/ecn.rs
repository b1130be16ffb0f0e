//! The ECN codepoint of an IP packet (RFC 3168 §5), and counts of received ones.

use crate::wire::varint;

/// The ECN field of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// The transport does not understand ECN, or the field is not known.
    #[default]
    NotEct,
    /// ECN-capable transport, codepoint 01 (RFC 9331). Never sent, and not counted when received.
    Ect1,
    /// ECN-capable transport (ECT(0)), codepoint 10: the sender yields to marks.
    Ect0,
    /// Congestion experienced, codepoint 11: a router has marked the packet.
    Ce,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class byte.
    pub const fn from_bits(byte: u8) -> Self {
        match byte & 0b11 {
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            0b11 => Self::Ce,
            _ => Self::NotEct,
        }
    }

    /// The low two bits of a TOS or traffic class byte.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }
}

/// Number of packets received with each codepoint since the session was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EcnCounts {
    /// Packets with ECT(0), which no router has marked.
    pub(crate) ect0: u64,
    /// Packets with CE, which a router has marked.
    pub(crate) ce: u64,
}

impl EcnCounts {
    /// The number of packets counted. Varints are below 2^62, so it cannot overflow.
    pub(crate) fn total(self) -> u64 {
        self.ect0 + self.ce
    }

    /// The increase of the counts since `earlier`; `None` if a count has decreased.
    pub(crate) fn since(self, earlier: Self) -> Option<Self> {
        let ect0 = self.ect0.checked_sub(earlier.ect0)?;
        Some(Self { ect0, ce: self.ce.checked_sub(earlier.ce)? })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        varint::write(out, self.ect0);
        varint::write(out, self.ce);
    }

    pub(crate) fn read(input: &mut &[u8]) -> Option<Self> {
        Some(Self { ect0: varint::read(input)?, ce: varint::read(input)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3168 §5, figure 1.
    #[test]
    fn codepoints_are_the_low_bits_of_the_traffic_class() {
        let all = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
        for (bits, ecn) in (0..).zip(all) {
            assert_eq!((Ecn::from_bits(0xb8 | bits), ecn.bits()), (ecn, bits));
        }
    }

    #[test]
    fn either_count_alone_may_not_decrease() {
        let counts = |ect0, ce| EcnCounts { ect0, ce };
        assert_eq!(counts(5, 3).since(counts(5, 1)), Some(counts(0, 2)));
        assert_eq!(counts(9, 0).since(counts(5, 1)), None);
        assert_eq!(counts(4, 9).since(counts(5, 1)), None);
    }
}
