//! A hub in several parts: endpoints with one identity, each with sessions of its own, so that each
//! can have a thread. The first one reads every initiation, and passes those of terminals that
//! belong to another part on to it; everything later finds its part by the index it carries.

use std::net::SocketAddr;

use crate::SessionId;
use crate::wire::packet::{self, Datagram, Index};

/// Maximum number of parts of a hub.
pub const MOST_PARTS: u8 = 64;

/// Which part of a hub an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) number: u8,
    of: u8,
}

impl Part {
    /// An endpoint that is not divided.
    pub(crate) const WHOLE: Self = Self { number: 0, of: 1 };

    /// All parts of a hub that has `of`, between 1 and [`MOST_PARTS`].
    pub(crate) fn all(of: u8) -> impl Iterator<Item = Self> {
        let of = of.clamp(1, MOST_PARTS);
        (0..of).map(move |number| Self { number, of })
    }

    /// The nearest index of this part; `None` where the space ends.
    pub(crate) fn index(self, near: Index) -> Option<Index> {
        (near - near % u32::from(self.of)).checked_add(self.number.into())
    }

    /// The first session of this part, and how far apart they are.
    pub(crate) fn sessions(self) -> (u64, u64) {
        (self.number.into(), self.of.into())
    }
}

impl SessionId {
    /// Which of a hub's `parts` the session is in.
    pub fn part(self, parts: u8) -> u8 {
        (self.0 % u64::from(parts.max(1))) as u8
    }
}

/// Which of a hub's `parts` takes a datagram: the one with the session of a packet, and the first
/// one everything else.
pub fn part_of(datagram: &[u8], parts: u8) -> u8 {
    match packet::parse(datagram) {
        Some(Datagram::Data(header)) => (header.receiver % u32::from(parts.max(1))) as u8,
        _ => 0,
    }
}

/// What [`part_of`] looks at, for a kernel that puts datagrams on the right socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketMark {
    /// Bits of the first byte that tell a packet of a session from everything else.
    pub mask: u8,
    /// Their value in a packet of a session.
    pub kind: u8,
    /// Position of the index, a big-endian number of 4 bytes. Modulo the number of parts it is the
    /// part.
    pub index_at: u8,
}

/// How packets of sessions are recognised.
pub const PACKET_MARK: PacketMark =
    PacketMark { mask: packet::KIND_MASK, kind: packet::DATA, index_at: 1 };

/// An initiation on its way to another part of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// The part it goes to.
    pub part: u8,
    pub(crate) from: SocketAddr,
    pub(crate) datagram: Vec<u8>,
    /// Whether it was passed on before, so that there must be an answer to it.
    pub(crate) is_repeated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_sessions_of_a_part_say_so() {
        for of in [1, 2, 3, 7, MOST_PARTS] {
            for part in Part::all(of) {
                for near in [0, 1, 12_345, u32::MAX - 200] {
                    let index = part.index(near).unwrap();
                    assert_eq!(index % u32::from(of), u32::from(part.number));
                    assert!(index.abs_diff(near) < u32::from(of));
                }
                let (first, step) = part.sessions();
                assert_eq!(SessionId(first + 5 * step).part(of), part.number);
            }
        }
        assert_eq!(Part::all(200).count(), usize::from(MOST_PARTS));
        // The last block of the space may be incomplete.
        assert!(Part::all(3).nth(2).unwrap().index(u32::MAX).is_none());
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
