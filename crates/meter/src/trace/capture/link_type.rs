//! The supported link-layer header types (<https://www.tcpdump.org/linktypes.html>).

use super::layers::{CapturePlace, Layer};

/// A link-layer header type of a capture.
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
    /// PPP, with the address field or without.
    Ppp,
    /// A PPPoE packet without the Ethernet frame around it.
    Session,
    /// The number of an unsupported type.
    Unknown(u32),
}

impl LinkType {
    /// Converts the number in the file.
    pub fn from_number(number: u32) -> Self {
        // The high bits of a pcap's number describe frame check sequences.
        match number & 0xffff {
            0 | 108 => Self::Null,
            1 => Self::Ethernet,
            9 | 50 => Self::Ppp,
            51 => Self::Session,
            // 12 and 14 are operating systems' own numbers.
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            113 => Self::Cooked1,
            276 => Self::Cooked2,
            other => Self::Unknown(other),
        }
    }

    /// Removes the header; `None` if there are too few bytes.
    pub(crate) fn first<'a>(self, bytes: &'a [u8], place: &mut CapturePlace) -> Option<Layer<'a>> {
        let ether_type = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, bytes[at + 1]]));
        match self {
            Self::Null => Some(Layer::Ip(bytes.get(4..)?)),
            Self::Ethernet => Some(Layer::Ethernet(bytes)),
            Self::Raw => Some(Layer::Ip(bytes)),
            Self::Ppp => Some(Layer::Ppp(bytes)),
            Self::Session => Some(Layer::Session(bytes)),
            Self::Cooked1 => {
                let rest = bytes.get(16..)?;
                // Packet type (received, sent, for another host) and the sender's address.
                place.add(&bytes[..2]);
                place.add(&bytes[6..14]);
                Some(Layer::Type(ether_type(14)?, rest))
            }
            Self::Cooked2 => {
                let rest = bytes.get(20..)?;
                place.add(&bytes[10..20]);
                Some(Layer::Type(ether_type(0)?, rest))
            }
            Self::Unknown(_) => None,
        }
    }

    /// Returns the interface index in the header itself, else 0. A capture of all interfaces sees a
    /// forwarded packet once per interface.
    pub(crate) fn interface(self, bytes: &[u8]) -> u32 {
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
        let first = |number, bytes| {
            LinkType::from_number(number).first(bytes, &mut CapturePlace::default())
        };
        for (number, layer) in [
            (0, Layer::Ip(&bytes[4..])),
            (1, Layer::Ethernet(&bytes)),
            (9, Layer::Ppp(&bytes)),
            (51, Layer::Session(&bytes)),
            (101, Layer::Ip(&bytes)),
            (113, Layer::Type(0x0e0f, &bytes[16..])),
            (276, Layer::Type(0x0001, &bytes[20..])),
            (0x1000_0001, Layer::Ethernet(&bytes)),
        ] {
            assert_eq!(first(number, &bytes), Some(layer), "{number}");
        }
        assert_eq!(first(276, &bytes[..19]), None);
        assert_eq!(LinkType::from_number(147), LinkType::Unknown(147));
        assert_eq!(LinkType::Cooked2.interface(&bytes), 0x0405_0607);
    }
}
