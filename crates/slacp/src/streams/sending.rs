//! What the streams put into the next packet, and what happens when it arrives or is lost.

use core::ops::Range;

use units::Instant;

use super::{Chunk, Streams};
use crate::scheduler::{Backlog, FairQueue};
use crate::streams::milestones::COMPACT_SPAN;
use crate::wire::frame::{self, Frame};
use crate::{Event, StreamId};

/// How many queued control frames are searched for a duplicate of a lost one: more than a packet
/// carries of those that matter.
const LOOKED_AT: usize = 64;

/// What happens to packets.
impl Streams {
    pub(crate) fn on_acknowledged(
        &mut self,
        now: Instant,
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    ) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        let before = stream.send.held();
        stream.send.acknowledged(range, fin);
        self.held -= before - stream.send.held();
        if !stream.send.has_lost() {
            self.retransmit.remove(stream.retransmit.take());
        }
        self.rest(now, id);
        self.depart(now, id);
        self.retire_if_done(id);
        self.wake_writer(id);
    }

    pub(crate) fn on_lost(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        stream.send.lost(range, fin);
        if stream.send.has_lost() && stream.retransmit.is_none() {
            let goes_first = self.ready[usize::from(stream.class.0)].is_sparse(id);
            stream.retransmit = Some(match goes_first {
                true => self.retransmit.push_front(id),
                false => self.retransmit.push_back(id),
            });
        }
        self.enqueue(id);
    }

    /// Resends a lost control frame; credit with its current value.
    pub(crate) fn on_control_lost(&mut self, frame: Frame<'static>) {
        let frame = match frame {
            Frame::StreamCredit { stream, .. } => {
                let Some(live) = self.map.get(&stream) else { return };
                live.credit(stream)
            }
            Frame::Return { stream, returns, .. } => {
                // A newer grant proves that the return has arrived.
                let live = self.map.get(&stream).filter(|live| live.returned == returns);
                if live.is_none() {
                    return;
                }
                frame
            }
            frame => frame,
        };
        // While nothing can be sent, every probe asks for the same frames.
        if !self.control.iter().take(LOOKED_AT).any(|waiting| *waiting == frame) {
            self.control.push_front(frame);
        }
    }

    /// Notifies writers that were refused and now have room, because others hold less. A writer with
    /// room for its own sake is notified by what made it. Whatever a peer does, looking at all of them
    /// takes that what each may hold has grown by an eighth.
    pub(crate) fn wake_writers(&mut self) {
        let now = [self.share_to_send(), self.unsent_limit];
        let grown = |(now, then): (&u64, &u64)| *now > then.saturating_add(then / 8);
        if !now.iter().zip(&self.looked_at).any(grown) {
            self.looked_at = core::array::from_fn(|at| self.looked_at[at].min(now[at]));
            return;
        }
        self.looked_at = now;
        let waiting: Vec<StreamId> = self.writers.iter().copied().collect();
        waiting.into_iter().for_each(|id| self.wake_writer(id));
    }

    /// Not for every byte: only for a quarter of what the stream may hold.
    fn wake_writer(&mut self, id: StreamId) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        if !self.writers.contains(&id) {
            return;
        }
        let most = self.unsent_limit.min(self.share_to_send());
        let enough = (most / 4).max(1);
        if self.room(id).is_ok_and(|room| room >= enough) {
            self.writers.remove(&id);
            self.events.push_back(Event::Writable(id));
        }
    }
}

/// Contents of the next packet.
impl Streams {
    /// Queues a frame that must arrive.
    pub(crate) fn send_control(&mut self, frame: Frame<'static>) {
        self.control.push_back(frame);
    }

    pub(crate) fn next_control(
        &mut self,
        fits: impl FnOnce(&Frame) -> bool,
    ) -> Option<Frame<'static>> {
        let frame = self.control.front()?;
        if fits(frame) { self.control.pop_front() } else { None }
    }

    /// Whether [`Self::next_control`], [`Self::next_lost`] or [`Self::next_new`] has something.
    pub(crate) fn wants_to_send(&self) -> bool {
        let ready = self.ready.iter().any(|class| !class.is_empty());
        ready && self.send_credit.room() > 0 || self.has_urgent()
    }

    /// New data waiting in a class.
    pub(crate) fn backlog(&self, class: usize) -> Backlog {
        if self.send_credit.room() == 0 {
            return Backlog::default();
        }
        let ready = &self.ready[class];
        Backlog { flows: ready.len(), sparse: ready.has_sparse() }
    }

    /// Number of bytes waiting for a class's turn.
    pub(crate) fn waiting(&self, class: usize) -> u64 {
        self.each_waiting(class).sum()
    }

    /// Bytes waiting for a class's turn, of each stream.
    pub(crate) fn each_waiting(&self, class: usize) -> impl Iterator<Item = u64> {
        let streams = self.ready[class].backlogged().filter_map(|id| self.map.get(&id));
        streams.map(|stream| stream.send.sendable())
    }

    /// Number of bytes that wait to be retransmitted; beyond so many, it may be less than all.
    pub(crate) fn lost_up_to(&self, bytes: u64) -> u64 {
        let mut sum = 0;
        for stream in self.retransmit.iter().filter_map(|id| self.map.get(&id)) {
            sum += stream.send.lost_bytes();
            if sum > bytes {
                break;
            }
        }
        sum
    }

    /// Number of streams that were quiet until now and have data.
    pub(crate) fn sparse(&self) -> usize {
        if self.send_credit.room() == 0 {
            return 0;
        }
        self.ready.iter().map(FairQueue::sparse).sum()
    }

    /// Whether a stream that was quiet until now has data.
    pub(crate) fn has_sparse(&self) -> bool {
        self.send_credit.room() > 0 && self.ready.iter().any(FairQueue::has_sparse)
    }

    /// Whether anything waits that goes before everything else.
    pub(crate) fn has_urgent(&self) -> bool {
        !self.control.is_empty() || !self.retransmit.is_empty()
    }

    /// The next lost piece to retransmit; `room` returns how many data bytes fit after a frame head
    /// of the given length.
    pub(crate) fn next_lost(&mut self, room: impl Fn(usize) -> usize) -> Option<Chunk> {
        let id = self.retransmit.front()?;
        let stream = self.map.get_mut(&id)?;
        let compact = !self.full_offsets && stream.send.held() <= COMPACT_SPAN;
        let max = room(frame::stream_head(id, stream.send.sent(), compact));
        if max == 0 {
            return None;
        }
        let sparse = self.ready[usize::from(stream.class.0)].is_sparse(id);
        let chunk = stream.send.take_lost(max);
        if !stream.send.has_lost() {
            self.retransmit.remove(stream.retransmit.take());
        }
        stream.resent += chunk.as_ref().map_or(0, |(range, _)| range.end - range.start);
        chunk.map(|(range, fin)| Chunk { stream: id, range, fin, sparse, compact })
    }

    /// How many packets with this much room new data of a class surely fills: as many as the stream can
    /// whose turn it is if there is no other, or one.
    pub(crate) fn can_fill(&mut self, class: usize, room: usize) -> u64 {
        let ready = &mut self.ready[class];
        let most = if ready.len() == 1 { u64::MAX } else { 1 };
        let front = ready.front().and_then(|(id, _)| self.map.get(&id));
        let sendable = front.map_or(0, |stream| stream.send.sendable());
        (sendable.min(self.send_credit.room()) / room.max(1) as u64).min(most)
    }

    /// The next new piece from the stream whose turn it is in a class.
    pub(crate) fn next_new(
        &mut self,
        class: usize,
        room: impl Fn(usize) -> usize,
    ) -> Option<Chunk> {
        let (id, sparse) = self.ready[class].front()?;
        let stream = self.map.get_mut(&id)?;
        let compact = !self.full_offsets && stream.send.held() <= COMPACT_SPAN;
        let head = frame::stream_head(id, stream.send.sent(), compact);
        let max = (room(head) as u64).min(self.send_credit.room());
        if max == 0 {
            return None;
        }
        let before = stream.send.sent();
        let chunk = stream.send.take_new(max);
        let taken = stream.send.sent() - before;
        stream.ready = stream.send.has_new();
        self.send_credit.spend(taken);
        let bytes = head + taken as usize;
        self.ready[class].sent(id, bytes, stream.ready);
        self.wake_writer(id);
        chunk.map(|(range, fin)| Chunk { stream: id, range, fin, sparse, compact })
    }

    /// Appends the data of a chunk just taken.
    pub(crate) fn copy(&self, id: StreamId, range: &Range<u64>, out: &mut Vec<u8>) {
        if let Some(stream) = self.map.get(&id) {
            stream.send.copy(range, out);
        }
    }

    pub(super) fn enqueue(&mut self, id: StreamId) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if !stream.ready && stream.send.has_new() {
            stream.ready = true;
            self.ready[usize::from(stream.class.0)].push(id);
        }
    }
}
