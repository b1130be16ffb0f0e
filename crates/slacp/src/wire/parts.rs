//! A hub in several parts: endpoints with one identity, each with sessions of its own, so that each
//! can have a thread. The first one reads every initiation and passes those of other parts'
//! terminals on; all later packets find their part by their index.

use std::net::SocketAddr;

use crate::SessionId;
use crate::wire::packet::{self, Datagram, Index};

/// Maximum number of parts of a hub.
pub const MAX_PARTS: u8 = 64;

/// Position of an endpoint among the parts of a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HubPart {
    pub(crate) number: u8,
    of: u8,
}

impl HubPart {
    /// The only part of an undivided endpoint.
    pub(crate) const WHOLE: Self = Self { number: 0, of: 1 };

    /// All parts of a hub with `of` parts, between 1 and [`MAX_PARTS`].
    pub(crate) fn all(of: u8) -> impl Iterator<Item = Self> {
        let of = of.clamp(1, MAX_PARTS);
        (0..of).map(move |number| Self { number, of })
    }

    /// An index of this part next to `near`; `None` beyond the end of the index space.
    pub(crate) fn index(self, near: Index) -> Option<Index> {
        // The last block of the index space may be incomplete.
        (near - near % u32::from(self.of)).checked_add(self.number.into())
    }

    /// The first session number of this part, and the distance to the next.
    pub(crate) fn sessions(self) -> (u64, u64) {
        (self.number.into(), self.of.into())
    }
}

impl SessionId {
    /// The part that has this session, of a hub with `parts` parts.
    pub fn part(self, parts: u8) -> u8 {
        (self.0 % u64::from(parts.max(1))) as u8
    }
}

/// The part that a datagram is for, of a hub with `parts` parts: for a packet of a session the part
/// that has the session, otherwise the first.
pub fn part_of(datagram: &[u8], parts: u8) -> u8 {
    match packet::parse(datagram) {
        Some(Datagram::Data(header)) => (header.receiver % u32::from(parts.max(1))) as u8,
        _ => 0,
    }
}

/// The fields that [`part_of`] reads, for a kernel that puts datagrams on the right socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketMark {
    /// Bits of the first byte that distinguish packets of sessions from other datagrams.
    pub mask: u8,
    /// Value of these bits in a packet of a session.
    pub kind: u8,
    /// Position of the index, a big-endian number of 4 bytes. Modulo the number of parts it is the
    /// part.
    pub index_at: u8,
}

/// The [`PacketMark`] of this version.
pub const PACKET_MARK: PacketMark =
    PacketMark { mask: packet::KIND_MASK, kind: packet::DATA, index_at: 1 };

/// An initiation on its way to another part of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitiationHandover {
    /// The part it goes to.
    pub part: u8,
    pub(crate) from: SocketAddr,
    pub(crate) datagram: Vec<u8>,
    /// It was passed on before, and the first part has not read it again.
    pub(crate) is_repeated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_sessions_of_a_part_say_so() {
        for of in [1, 2, 3, 7, MAX_PARTS] {
            for part in HubPart::all(of) {
                for near in [0, 1, 12_345, u32::MAX - 200] {
                    let index = part.index(near).unwrap();
                    assert_eq!(index % u32::from(of), u32::from(part.number));
                    assert!(index.abs_diff(near) < u32::from(of));
                }
                let (first, step) = part.sessions();
                assert_eq!(SessionId(first + 5 * step).part(of), part.number);
            }
        }
        assert_eq!(HubPart::all(200).count(), usize::from(MAX_PARTS));
        // The last block of the space may be incomplete.
        assert!(HubPart::all(3).nth(2).unwrap().index(u32::MAX).is_none());
    }

    #[test]
    fn the_mark_finds_the_part_of_a_packet() {
        for first in 0..=u8::MAX {
            let packet = [first, 1, 2, 3, 4, 5, 6, 7, 8];
            let is_packet = first & PACKET_MARK.mask == PACKET_MARK.kind;
            let at = usize::from(PACKET_MARK.index_at);
            let index = u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
            let part = if is_packet { index % 7 } else { 0 };
            assert_eq!(u32::from(part_of(&packet, 7)), part, "{first:#x}");
        }
    }
}
