//! The supported link-layer header types (<https://www.tcpdump.org/linktypes.html>).

/// A link-layer header type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// BSD loopback: four bytes of address family (NULL, LOOP).
    Null,
    /// Ethernet, with VLAN tags or without.
    Ethernet,
    /// An IP packet without a link-layer header.
    Raw,
    /// Linux "cooked", version 1 (SLL).
    Cooked1,
    /// Linux "cooked", version 2 (SLL2).
    Cooked2,
    /// An unsupported type.
    Unknown(u32),
}

/// What follows a removed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// An Ethernet frame.
    Ethernet,
    /// An IP packet.
    Ip,
    /// A packet of this EtherType.
    Type(u16),
}

impl LinkType {
    /// From the number in the file.
    pub fn from_number(number: u32) -> Self {
        // The high bits of a pcap's number describe frame check sequences.
        match number & 0xffff {
            0 | 108 => Self::Null,
            1 => Self::Ethernet,
            // 12 and 14 are operating systems' own numbers.
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            113 => Self::Cooked1,
            276 => Self::Cooked2,
            other => Self::Unknown(other),
        }
    }

    /// Removes the header; `None` if there are too few bytes.
    pub(super) fn network(self, bytes: &[u8]) -> Option<(Network, &[u8])> {
        let after = |length: usize| bytes.get(length..);
        let ether_type = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, bytes[at + 1]]));
        match self {
            Self::Null => Some((Network::Ip, after(4)?)),
            Self::Ethernet => Some((Network::Ethernet, bytes)),
            Self::Raw => Some((Network::Ip, bytes)),
            Self::Cooked1 => {
                after(16).and_then(|rest| Some((Network::Type(ether_type(14)?), rest)))
            }
            Self::Cooked2 => after(20).and_then(|rest| Some((Network::Type(ether_type(0)?), rest))),
            Self::Unknown(_) => None,
        }
    }

    /// The interface named in the header itself. A capture of all interfaces sees a forwarded
    /// packet once per interface.
    pub(super) fn interface(self, bytes: &[u8]) -> u32 {
        let index = || Some(u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?));
        if self == Self::Cooked2 { index().unwrap_or(0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off_or_missed() {
        let bytes: Vec<u8> = (0..20).collect();
        for (number, network, length) in [
            (0, Network::Ip, 4),
            (1, Network::Ethernet, 0),
            (101, Network::Ip, 0),
            (113, Network::Type(0x0e0f), 16),
            (276, Network::Type(0x0001), 20),
            (0x1000_0001, Network::Ethernet, 0),
        ] {
            let found = LinkType::from_number(number).network(&bytes);
            assert_eq!(found, Some((network, &bytes[length..])), "{number}");
        }
        assert_eq!(LinkType::Cooked2.network(&bytes[..19]), None);
        assert_eq!(LinkType::from_number(147), LinkType::Unknown(147));
        assert_eq!(LinkType::Cooked2.interface(&bytes), 0x0405_0607);
    }
}
