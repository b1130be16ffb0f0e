//! A packet of a channel on its way to the peer, or a part of one.

use core::ops::Range;
use std::sync::Arc;

use units::Instant;

use super::ErrorControl;
use crate::ChannelId;
use crate::event::log::PayloadUnit;
use crate::wire::frame::{ChannelPacket, GoneFrame, PacketPart, TruncatedOffset};

/// Minimum size of a part in bytes, except for the last of a packet.
const SHORTEST_PART: usize = 64;

/// A packet, or a part of one, that is carried in one SLACP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PacketPiece {
    pub(crate) channel: ChannelId,
    pub(crate) lane: u8,
    pub(crate) sequence: u64,
    pub(crate) error_control: ErrorControl,
    /// The time at which the packet was first sent.
    pub(crate) first_sent: Instant,
    /// Set if it is a retransmission.
    pub(crate) again: bool,
    /// The bytes of the packet that it carries.
    pub(crate) range: Range<usize>,
    /// The whole packet, which its pieces share.
    pub(crate) data: Arc<[u8]>,
}

/// The room for a piece in a SLACP packet, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceRoom {
    /// Bytes left for frames in this packet.
    pub(crate) left: usize,
    /// Bytes for frames in an empty packet.
    pub(crate) whole: usize,
}

/// The result of fitting a piece into a SLACP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceFit {
    Whole,
    /// This many bytes fit. The piece would not fit in a packet of its own either.
    Cut(usize),
    /// It fits in the next packet, or more of it does.
    Later,
    /// Not even the smallest part fits in a packet on this path.
    Never,
}

impl PacketPiece {
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns `true` if FEC protects the packet that carries it: every retransmission, and
    /// everything on channels with FEC.
    pub(crate) fn is_source(&self) -> bool {
        self.again || self.error_control.has_fec()
    }

    /// The report that its packet is given up.
    pub(crate) fn gone(&self) -> GoneFrame {
        GoneFrame { channel: self.channel, lane: self.lane, sequence: self.sequence }
    }

    pub(crate) fn frame(&self) -> ChannelPacket<'_> {
        let total = self.data.len();
        let part =
            (self.range != (0..total)).then_some(PacketPart { offset: self.range.start, total });
        ChannelPacket {
            channel: self.channel,
            lane: self.lane,
            sequence: TruncatedOffset::new(self.sequence),
            part,
            data: &self.data[self.range.clone()],
        }
    }

    /// Fits the piece, and the `before` bytes that must precede it, into a packet.
    pub(crate) fn fit(&self, before: usize, room: PieceRoom) -> PieceFit {
        let size = before + self.frame().head() + self.len();
        if size <= room.left {
            return PieceFit::Whole;
        }
        if size <= room.whole {
            return PieceFit::Later;
        }
        // The head of a part is longer: it has the offset and the size of the packet.
        let head = before + self.part(self.range.start..self.range.end - 1).frame().head();
        match room.left.saturating_sub(head) {
            space if space >= SHORTEST_PART => PieceFit::Cut(space.min(self.len() - 1)),
            _ if room.left < room.whole => PieceFit::Later,
            _ => PieceFit::Never,
        }
    }

    /// Cuts the piece after `size` bytes; returns the rest.
    pub(crate) fn cut(&mut self, size: usize) -> Self {
        let at = self.range.start + size;
        let rest = self.part(at..self.range.end);
        self.range.end = at;
        rest
    }

    fn part(&self, range: Range<usize>) -> Self {
        Self { range, ..self.clone() }
    }
}

impl From<&PacketPiece> for PayloadUnit {
    fn from(piece: &PacketPiece) -> Self {
        Self::Packet { channel: piece.channel, lane: piece.lane, sequence: piece.sequence }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(len: usize) -> PacketPiece {
        PacketPiece {
            channel: ChannelId(1),
            lane: 5,
            sequence: 70_000,
            error_control: ErrorControl::FecArq,
            first_sent: Instant::ZERO,
            again: false,
            range: 0..len,
            data: (0..len).map(|i| i as u8).collect(),
        }
    }

    proptest! {
        #[test]
        fn parts_fit_and_together_are_the_packet(
            len in 1usize..9000, whole in 100usize..2000, used in 0usize..2000, before in 0usize..5
        ) {
            let mut rest = piece(len);
            let mut room = PieceRoom { left: whole - used.min(whole), whole };
            let mut back = Vec::new();
            let mut parts = 0;
            loop {
                match rest.fit(before, room) {
                    PieceFit::Later => prop_assert!(room.left < whole),
                    PieceFit::Never => unreachable!("every piece can be cut"),
                    PieceFit::Whole => {
                        let frame = rest.frame();
                        prop_assert!(before + frame.head() + frame.data.len() <= room.left);
                        back.extend_from_slice(frame.data);
                        break;
                    }
                    PieceFit::Cut(size) => {
                        let next = rest.cut(size);
                        let frame = rest.frame();
                        prop_assert!(before + frame.head() + frame.data.len() <= room.left);
                        back.extend_from_slice(frame.data);
                        rest = next;
                        parts += 1;
                    }
                }
                room.left = whole;
            }
            prop_assert_eq!(&back[..], &*piece(len).data);
            prop_assert!(parts == 0 || piece(len).frame().head() + len + before > whole);
        }
    }
}
