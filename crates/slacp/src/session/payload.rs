//! What a session puts in a packet for its owner: control frames, what was lost,
//! then streams and packet channels as the scheduler says.

use smallvec::SmallVec;
use units::Instant;

use super::{Session, ip_udp_overhead};
use crate::channels::{Law, Piece, Room};
use crate::event_log::{LogEvent, Unit};
use crate::frame::{self, Announcement, Frame, STREAM_OVERHEAD, TruncatedOffset};
use crate::packet::TAG;
use crate::planner::Protection;
use crate::scheduler::{Side, Waiting};
use crate::sent::Cargo;
use crate::streams::Chunk;

/// A packet that is being filled.
pub(super) struct Filling<'a> {
    pub(super) number: u64,
    pub(super) out: &'a mut Vec<u8>,
    /// The length of its header.
    pub(super) start: usize,
    /// The length it may grow to.
    pub(super) end: usize,
    pub(super) cargo: SmallVec<[Cargo; 2]>,
    /// Whether repairs may protect it.
    pub(super) source: bool,
    /// When they are to.
    pub(super) protection: Protection,
}

impl<'a> Filling<'a> {
    /// The packet `number` of which `out` holds the header.
    pub(super) fn new(number: u64, out: &'a mut Vec<u8>, end: usize) -> Self {
        let start = out.len();
        let cargo = SmallVec::new();
        Self { number, start, out, end, cargo, source: false, protection: Protection::default() }
    }

    /// Whether nothing has been put in it.
    pub(super) fn is_empty(&self) -> bool {
        self.out.len() == self.start
    }

    fn room(&self) -> Room {
        Room { left: self.end - self.out.len(), whole: self.end - self.start }
    }
}

impl Session {
    /// Whether something waits that goes before everything new.
    pub(super) fn has_urgent(&self) -> bool {
        self.streams.has_urgent() || self.outbound.has_urgent()
    }

    /// From when on there is something new to send.
    pub(super) fn new_at(&self) -> Option<Instant> {
        self.scheduler.ready_at(|class| self.waiting(class).iter().any(|side| side.flows > 0))
    }

    fn waiting(&self, class: usize) -> Waiting {
        [self.streams.backlog(class), self.outbound.backlog(class)]
    }

    /// Fills a packet as far as there is something.
    pub(super) fn write_payload(&mut self, now: Instant, packet: &mut Filling) {
        self.write_control(packet);
        while packet.out.len() + STREAM_OVERHEAD < packet.end {
            let placed = self.write_lost(now, packet) || self.write_new(now, packet);
            if !placed {
                return;
            }
        }
    }

    fn write_control(&mut self, packet: &mut Filling) {
        let mut body = Vec::new();
        while let Some(frame) = self.streams.next_control(|frame| {
            body.clear();
            frame.write(&mut body, false);
            packet.out.len() + body.len() <= packet.end
        }) {
            packet.out.extend_from_slice(&body);
            packet.protection.sparse |=
                matches!(frame, Frame::Open { .. } | Frame::Accept(_) | Frame::Reset { .. });
            packet.cargo.push(Cargo::Control(frame));
            packet.source = true;
            packet.protection.tail = true;
        }
    }

    fn write_lost(&mut self, now: Instant, packet: &mut Filling) -> bool {
        let room = packet.room();
        let space = |head| room.left - head;
        if let Some(chunk) = self.streams.next_lost(space) {
            self.write_chunk(now, packet, chunk, true);
            return true;
        }
        let Some(piece) = self.outbound.next_urgent(now, room, &mut self.log) else { return false };
        self.write_piece(now, packet, piece);
        true
    }

    /// What the scheduler says. The first new piece pays for the headers.
    fn write_new(&mut self, now: Instant, packet: &mut Filling) -> bool {
        let headers = packet.start + TAG + ip_udp_overhead(self.peer.address);
        let before = if packet.cargo.is_empty() { headers } else { 0 };
        while let Some((class, side)) = self.scheduler.next(now, |class| self.waiting(class)) {
            let flows = self.waiting(class)[side as usize].flows;
            let placed = match side {
                Side::Streams => self.write_new_chunk(now, packet, class),
                Side::Packets => self.write_new_piece(now, packet, class),
            };
            if let Some(bytes) = placed {
                self.scheduler.sent(now, class, side, before + bytes, flows);
                return true;
            }
            // Queue management may have emptied a flow; else it waits for the
            // next packet.
            if self.waiting(class)[side as usize].flows >= flows {
                return false;
            }
        }
        false
    }

    fn write_new_chunk(
        &mut self,
        now: Instant,
        packet: &mut Filling,
        class: usize,
    ) -> Option<usize> {
        let left = packet.room().left;
        let chunk = self.streams.next_new(class, |head| left - head)?;
        let before = packet.out.len();
        self.write_chunk(now, packet, chunk, false);
        Some(packet.out.len() - before)
    }

    fn write_chunk(&mut self, now: Instant, packet: &mut Filling, chunk: Chunk, again: bool) {
        let space = packet.room().left;
        let Chunk { stream, range, fin, sparse, compact } = chunk;
        let length = (range.end - range.start) as usize;
        // Without room for another frame the length goes without saying.
        let last =
            frame::stream_head(stream, range.start, compact) + length + STREAM_OVERHEAD >= space;
        let said = (!last).then_some(length);
        let compact = compact && last;
        let truncate = if compact { TruncatedOffset::compact } else { TruncatedOffset::full };
        let offset = truncate(range.start);
        frame::write_stream_head(packet.out, stream, offset, fin, said);
        self.streams.copy(stream, &range, packet.out);
        let (number, unit) =
            (packet.number, Unit::Stream { stream, start: range.start, end: range.end });
        self.log.record(now, || LogEvent::Placed { packet: number, unit, again });
        packet.cargo.push(Cargo::Stream { stream, range, fin, again });
        packet.source = true;
        packet.protection.sparse |= sparse;
        packet.protection.tail = true;
        packet.close_if(last);
    }

    fn write_new_piece(
        &mut self,
        now: Instant,
        packet: &mut Filling,
        class: usize,
    ) -> Option<usize> {
        let law = Law::for_rtt(self.rtt.smoothed());
        let taken = self.outbound.next_new(now, class, packet.room(), &law, &mut self.log)?;
        self.write_piece(now, packet, taken.piece);
        Some(taken.bytes)
    }

    /// A packet of a channel, or a part of one, with what the peer must know of
    /// the channel until it is known to know it.
    fn write_piece(&mut self, now: Instant, packet: &mut Filling, piece: Piece) {
        let channel = piece.channel;
        if let Some(deadline) = self.outbound.announcement(channel) {
            Frame::Channel(Announcement { channel, deadline }).write(packet.out, false);
            packet.cargo.push(Cargo::Announced(channel, deadline));
        }
        let frame = piece.frame();
        let last = frame.head() + piece.len() + STREAM_OVERHEAD >= packet.room().left;
        frame.write(packet.out, last);
        let (number, again, unit) = (packet.number, piece.again, Unit::from(&piece));
        self.log.record(now, || LogEvent::Placed { packet: number, unit, again });
        let once = again || !piece.error_control.has_arq();
        packet.source |= piece.is_source();
        packet.protection.promised |= piece.is_source();
        packet.protection.tail |= again;
        packet.cargo.push(if once { Cargo::Gone(channel) } else { Cargo::Packet(piece) });
        packet.close_if(last);
    }
}

impl Filling<'_> {
    /// Nothing may follow a frame without a length.
    fn close_if(&mut self, last: bool) {
        if last {
            self.end = self.out.len();
        }
    }
}
