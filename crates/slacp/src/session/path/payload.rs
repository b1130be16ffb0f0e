//! Fills packets with payload: control frames, then retransmissions, then streams and packet
//! channels in scheduler order.

use core::ops::Range;

use units::Instant;

use super::{SessionPath, SharedState};
use crate::channels::{CoDelParams, PacketForm, PacketPiece, PieceRoom};
use crate::event::log::{LogEvent, PayloadUnit};
use crate::recovery::planner::SourceProtection;
use crate::recovery::sent::{SentContent, SentContents};
use crate::scheduler::{NextTurn, TrafficKind, Waiting};
use crate::session::ip_udp_overhead;
use crate::streams::StreamChunk;
use crate::wire::frame::{
    self, ChannelAnnouncement, CompressedFrame, ContextPacket, Frame, STREAM_OVERHEAD,
    TruncatedOffset,
};
use crate::wire::packet::TAG;

/// A packet under construction.
pub(in crate::session) struct PacketBuilder<'a> {
    pub(super) number: u64,
    pub(super) out: &'a mut Vec<u8>,
    /// Offsets of the packet and of its frames in `out`.
    pub(super) at: usize,
    pub(super) start: usize,
    /// Maximum end offset, without the tag.
    pub(super) end: usize,
    pub(super) cargo: SentContents,
    /// The scheduler's choice for new data, if it has been asked.
    pub(super) next: Option<NextTurn>,
    /// Repairs may protect the packet.
    pub(super) source: bool,
    /// The kinds of FEC protection that its contents ask for.
    pub(super) protection: SourceProtection,
    /// It carries data that was not sent before.
    pub(super) is_new: bool,
    /// The code point of its new data.
    pub(super) dscp: Option<u8>,
    /// It carries a PING.
    pub(super) has_ping: bool,
    /// It reports a loss on a link layer.
    pub(super) reports_loss: bool,
    /// Range of the last compressed frame in `out`; empty if there is none.
    compressed: Range<usize>,
}

impl<'a> PacketBuilder<'a> {
    /// Starts packet `number` of at most `len` bytes, whose header is at the end of `out`.
    pub(in crate::session) fn new(
        number: u64,
        out: &'a mut Vec<u8>,
        header: &Range<usize>,
        len: usize,
    ) -> Self {
        Self {
            number,
            out,
            at: header.start,
            start: header.end,
            end: header.start + len,
            cargo: SentContents::new(),
            next: None,
            source: false,
            protection: SourceProtection::default(),
            is_new: false,
            dscp: None,
            has_ping: false,
            reports_loss: false,
            compressed: 0..0,
        }
    }

    /// Returns whether no frame has been written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.out.len() == self.start
    }

    /// Length of the header, in bytes.
    pub(super) fn header_len(&self) -> usize {
        self.start - self.at
    }

    fn room(&self) -> PieceRoom {
        PieceRoom { left: self.end - self.out.len(), whole: self.end - self.start }
    }
}

impl SessionPath {
    /// Returns whether frames wait that go before new data.
    pub(in crate::session) fn has_urgent(&self, shared: &SharedState) -> bool {
        let waits = shared.streams.has_urgent() || shared.outbound.has_urgent();
        self.has_own_frames() || waits && self.takes_urgent(shared)
    }

    /// The earliest time at which waiting new data may be sent.
    pub(super) fn new_at(&self, shared: &SharedState) -> Option<Instant> {
        shared
            .scheduler
            .ready_at(|class| self.waiting(shared, class).iter().any(|side| side.flows > 0))
    }

    /// The scheduler's choice of new data to send now.
    pub(in crate::session) fn next_data(
        &self,
        shared: &SharedState,
        now: Instant,
    ) -> Option<NextTurn> {
        if self.held_back {
            return None;
        }
        shared.scheduler.next(now, |class| self.waiting(shared, class))
    }

    /// The waiting data of a class that may leave on this path.
    fn waiting(&self, shared: &SharedState, class: usize) -> Waiting {
        if !self.takes_class(shared, class) {
            return Waiting::default();
        }
        [shared.streams.backlog(class), shared.outbound.backlog(class)]
    }

    fn has_waiting(&self, shared: &SharedState, class: usize) -> bool {
        self.waiting(shared, class).iter().any(|backlog| backlog.flows > 0)
    }

    /// The time from which the guarantee of one of its classes with data puts the session before
    /// others.
    pub(in crate::session) fn class_claim(&self, shared: &SharedState) -> Option<Instant> {
        let scheduler = &shared.scheduler;
        (scheduler.guaranteed() > 0)
            .then(|| scheduler.claims_at(|class| self.has_waiting(shared, class)))
            .flatten()
    }

    /// Sum of the guarantees of those classes that have data, or had some lately, in bit/s.
    pub(in crate::session) fn class_guarantees_in_use(
        &self,
        shared: &SharedState,
        now: Instant,
    ) -> u64 {
        shared.scheduler.guaranteed_in_use(now, |class| self.has_waiting(shared, class))
    }

    /// Fills the packet with waiting frames, in order of priority.
    pub(super) fn write_payload(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
    ) {
        self.write_own_frames(packet);
        let urgent = self.takes_urgent(shared);
        if urgent {
            shared.write_control(packet);
        }
        while packet.out.len() + STREAM_OVERHEAD < packet.end {
            let placed =
                urgent && shared.may_add_lost(packet) && self.write_lost(shared, now, packet)
                    || self.may_add_new(shared, packet) && self.write_new(shared, now, packet);
            if !placed {
                break;
            }
        }
        // The last frame of a packet ends with it and needs no length.
        if !packet.compressed.is_empty() && packet.compressed.end == packet.out.len() {
            frame::drop_length(packet.out, packet.compressed.start);
        }
    }

    /// Returns whether new data may be added to the packet. On a link layer, or if classes are
    /// marked with DSCPs, control and new data travel in separate packets, because control may
    /// overtake.
    fn may_add_new(&self, shared: &SharedState, packet: &PacketBuilder) -> bool {
        let is_control = !packet.is_new && !packet.cargo.is_empty();
        let apart = shared.link_layer || shared.scheduler.marks();
        !(self.held_back || apart && is_control)
    }

    /// Writes the frames that only this path may carry.
    fn write_own_frames(&mut self, packet: &mut PacketBuilder) {
        let Some(membership) = &mut self.membership else { return };
        membership.write_reports(packet.out, packet.end);
        while let Some(frame) = membership.frames.pop_front() {
            frame.write(packet.out, false);
            packet.cargo.push(SentContent::Control(Box::new(frame)));
            packet.source = true;
            packet.protection.tail = true;
        }
    }

    fn write_lost(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
    ) -> bool {
        let room = packet.room();
        let space = |head| room.left - head;
        if let Some(chunk) = shared.streams.next_lost(space) {
            self.write_chunk(shared, now, packet, chunk, true);
            return true;
        }
        let Some(piece) = shared.outbound.next_urgent(now, room, &mut self.log) else {
            return false;
        };
        self.write_piece(shared, now, packet, piece);
        true
    }

    /// Writes new data in scheduler order; `false` if none fits or may be sent. The class of the
    /// first piece is charged for the packet's headers and tag.
    pub(in crate::session) fn write_new(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
    ) -> bool {
        let headers = packet.header_len() + TAG + ip_udp_overhead(self.remote.address);
        let before = if packet.cargo.is_empty() { headers } else { 0 };
        while let Some(next) = packet.next.take().or_else(|| self.next_data(shared, now)) {
            let NextTurn { class, side, flows } = next;
            let dscp = shared.scheduler.dscp(class);
            // A packet has one DSCP, so it holds new data of classes with the same one only.
            if packet.dscp.is_some_and(|other| other != dscp) {
                return false;
            }
            let placed = match side {
                TrafficKind::Streams => self.write_new_chunk(shared, now, packet, class),
                TrafficKind::Packets => self.write_new_piece(shared, now, packet, class),
            };
            if let Some(bytes) = placed {
                packet.dscp = Some(dscp);
                shared.scheduler.charge(now, next, before + bytes);
                return true;
            }
            // Queue management may have emptied a flow; then the next one gets its turn. Otherwise
            // the piece is too long and waits for the next packet.
            if self.waiting(shared, class)[side as usize].flows >= flows {
                return false;
            }
        }
        false
    }

    fn write_new_chunk(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
        class: usize,
    ) -> Option<usize> {
        let left = packet.room().left;
        let chunk = shared.streams.next_new(class, |head| left - head)?;
        let before = packet.out.len();
        self.write_chunk(shared, now, packet, chunk, false);
        Some(packet.out.len() - before)
    }

    fn write_chunk(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
        chunk: StreamChunk,
        again: bool,
    ) {
        let space = packet.room().left;
        let StreamChunk { stream, range, fin, sparse, compact } = chunk;
        let length = (range.end - range.start) as usize;
        // Without room for another frame, the length is left out: the data ends with the packet.
        let last =
            frame::stream_head(stream, range.start, compact) + length + STREAM_OVERHEAD >= space;
        let said = (!last).then_some(length);
        // The compact form has no length field.
        let compact = compact && last;
        let truncate = if compact { TruncatedOffset::compact } else { TruncatedOffset::full };
        let offset = truncate(range.start);
        frame::write_stream_head(packet.out, stream, offset, fin, said);
        shared.streams.copy(stream, &range, packet.out);
        let (number, unit) =
            (packet.number, PayloadUnit::Stream { stream, start: range.start, end: range.end });
        self.log.record(now, || LogEvent::Placed { packet: number, unit, again });
        packet.cargo.push(SentContent::Stream { stream, range, fin, again });
        packet.source = true;
        packet.protection.sparse |= sparse;
        packet.protection.tail = true;
        packet.is_new |= !again;
        packet.end_if(last);
    }

    fn write_new_piece(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
        class: usize,
    ) -> Option<usize> {
        let law = CoDelParams::new(self.rtt.smoothed(), self.packet_time());
        let taken = shared.outbound.next_new(now, class, packet.room(), &law, &mut self.log)?;
        self.write_piece(shared, now, packet, taken.piece);
        Some(taken.bytes)
    }

    /// Writes a packet of a channel, or a part of one. The channel's announcement precedes it until
    /// the peer has acknowledged one, so the announcement is never late.
    fn write_piece(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
        piece: PacketPiece,
    ) {
        let channel = piece.channel;
        if let Some(deadline) = shared.outbound.announcement(channel) {
            Frame::Channel(ChannelAnnouncement { channel, deadline }).write(packet.out, false);
            packet.cargo.push(SentContent::Announcement(channel, deadline));
        }
        let last = self.write_packet(shared, now, packet, &piece);
        let (number, again, unit) = (packet.number, piece.again, PayloadUnit::from(&piece));
        self.log.record(now, || LogEvent::Placed { packet: number, unit, again });
        let gone = piece.gone();
        packet.protect(&piece, shared.link_layer);
        packet.is_new |= !again;
        // A channel retransmits once: the second copy is the last.
        packet.cargo.push(match again {
            true => SentContent::LastCopy(gone),
            false if piece.error_control.has_arq() => SentContent::Packet(Box::new(piece)),
            false => SentContent::NotResent(channel),
        });
        packet.end_if(last);
    }

    /// Writes a packet of a channel in its shortest form. Returns whether the SLACP packet is then
    /// full.
    fn write_packet(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        packet: &mut PacketBuilder,
        piece: &PacketPiece,
    ) -> bool {
        let (frame, before) = (piece.frame(), packet.out.len());
        let plain = frame.head() + piece.len();
        if !shared.outbound.compresses(piece) {
            return packet.write_plain(&frame);
        }
        match self.sender.form(now, piece) {
            PacketForm::Compressed(found) => {
                let changes = Some(&found.changes[..]).filter(|changes| !changes.is_empty());
                let (slot, distance) = (found.slot, found.distance);
                let payload = &piece.data[found.header..];
                CompressedFrame { slot, distance, changes, payload }.write(packet.out, false);
                packet.compressed = before..packet.out.len();
            }
            PacketForm::Context { slot, serial, profile } => {
                let PacketPiece { channel, lane, sequence, ref data, .. } = *piece;
                let context = ContextPacket { slot, profile, channel, lane, sequence, data };
                // CONTEXT takes more bytes than the plain frame that was sized to fit. The context
                // counts as failed.
                if context.size() > packet.room().left {
                    self.sender.on_context(slot, serial, false);
                    return packet.write_plain(&frame);
                }
                context.write(packet.out);
                packet.cargo.push(SentContent::Context { slot, serial });
            }
            PacketForm::Plain => return packet.write_plain(&frame),
        }
        let written = packet.out.len() - before;
        shared.outbound.on_compressed(piece.channel, plain, written);
        false
    }
}

impl SharedState {
    /// Returns whether lost data may be added to the packet. If classes are marked with DSCPs, it
    /// must not share a packet with new data.
    fn may_add_lost(&self, packet: &PacketBuilder) -> bool {
        !(packet.is_new && self.scheduler.marks())
    }

    fn write_control(&mut self, packet: &mut PacketBuilder) {
        let mut body = Vec::new();
        while let Some(frame) = self.streams.next_control(|frame| {
            body.clear();
            frame.write(&mut body, false);
            packet.out.len() + body.len() <= packet.end
        }) {
            packet.out.extend_from_slice(&body);
            // An opening or its answer belongs to a short exchange, in which a loss would cost a
            // round trip.
            packet.protection.sparse |=
                matches!(frame, Frame::Open { .. } | Frame::Accept(_) | Frame::Reset { .. });
            packet.cargo.push(SentContent::Control(Box::new(frame)));
            packet.source = true;
            packet.protection.tail = true;
        }
    }
}

impl PacketBuilder<'_> {
    /// Sets the FEC protection that this piece asks for.
    fn protect(&mut self, piece: &PacketPiece, link_layer: bool) {
        let is_source = piece.is_source();
        self.source |= is_source;
        if link_layer && piece.again {
            self.protection.retransmission = true;
        } else {
            self.protection.promised |= is_source;
            self.protection.tail |= piece.again;
        }
    }

    /// Writes a packet of a channel uncompressed, without a length if no further frame fits.
    /// Returns whether the length was left out.
    fn write_plain(&mut self, frame: &frame::ChannelPacket<'_>) -> bool {
        let last = frame.head() + frame.data.len() + STREAM_OVERHEAD >= self.room().left;
        frame.write(self.out, last);
        last
    }

    /// Ends the packet after a frame without a length.
    fn end_if(&mut self, last: bool) {
        if last {
            self.end = self.out.len();
        }
    }
}
