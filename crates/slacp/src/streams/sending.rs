//! The contribution of streams to the next packet, and its acknowledgement or loss.

use core::ops::Range;

use units::Instant;

use super::{StreamChunk, StreamSet};
use crate::scheduler::{ClassBacklog, FairQueue};
use crate::streams::milestones::COMPACT_SPAN;
use crate::wire::frame::{self, Frame};
use crate::{Event, StreamId};

/// Number of queued control frames that are searched for a duplicate of a lost one: more than a
/// packet carries of those that matter.
const DUPLICATE_SEARCH: usize = 64;

/// Acknowledgement and loss of packets.
impl StreamSet {
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
        self.start_rest(now, id);
        self.continue_reset(now, id);
        self.retire_if_done(id);
        self.wake_writer(id);
    }

    pub(crate) fn on_lost(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        stream.send.lost(range, fin);
        // Lost data of sparse streams goes first (docs/slacp.md, Scheduling).
        if stream.send.has_lost() && stream.retransmit.is_none() {
            let goes_first = self.ready[usize::from(stream.class.0)].is_sparse(id);
            stream.retransmit = Some(match goes_first {
                true => self.retransmit.push_front(id),
                false => self.retransmit.push_back(id),
            });
        }
        self.enqueue(id);
    }

    /// Queues a lost control frame again, STREAM_CREDIT with its current value.
    pub(crate) fn on_control_lost(&mut self, frame: Frame<'static>) {
        let frame = match frame {
            Frame::StreamCredit { stream, .. } => {
                let Some(live) = self.map.get(&stream) else { return };
                live.credit(stream)
            }
            Frame::Return { stream, returns, .. } => {
                // A newer grant proves that the return has arrived.
                let live = self.map.get(&stream).filter(|live| live.returns_sent == returns);
                if live.is_none() {
                    return;
                }
                frame
            }
            frame => frame,
        };
        // While nothing can be sent, each probe queues the frames of the oldest packet again.
        if !self.control.iter().take(DUPLICATE_SEARCH).any(|waiting| *waiting == frame) {
            // The contents of lost packets go first (docs/slacp.md, Loss).
            self.control.push_front(frame);
        }
    }

    /// Notifies writers that had no room and now have it because other streams hold less. (A writer
    /// whose own data is sent or acknowledged is notified then.) All writers are checked only once
    /// their limit has grown by an eighth, so that a peer cannot cause that work with each packet.
    pub(crate) fn wake_writers(&mut self) {
        let now = [self.send_limit(), self.unsent_limit];
        // Not at each reset or acknowledgement: a packet of 250 resets beside 10,000 waiting
        // streams would mean 2.5 million looks.
        let grown = |(now, then): (&u64, &u64)| *now > then.saturating_add(then / 8);
        if !now.iter().zip(&self.checked_limits).any(grown) {
            // A lower limit is remembered, so that growth from there counts.
            self.checked_limits = core::array::from_fn(|at| self.checked_limits[at].min(now[at]));
            return;
        }
        self.checked_limits = now;
        let waiting: Vec<StreamId> = self.writers.iter().copied().collect();
        waiting.into_iter().for_each(|id| self.wake_writer(id));
    }

    /// Notifies a writer if it has room for a quarter of what the stream may hold: less would wake
    /// it for every few bytes.
    fn wake_writer(&mut self, id: StreamId) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        if !self.writers.contains(&id) {
            return;
        }
        let most = self.unsent_limit.min(self.send_limit());
        let enough = (most / 4).max(1);
        if self.room(id).is_ok_and(|room| room >= enough) {
            self.writers.remove(&id);
            self.events.push_back(Event::Writable(id));
        }
    }
}

/// Contents of the next packet.
impl StreamSet {
    /// Queues a frame that must arrive: it is sent again if it is lost.
    pub(crate) fn send_control(&mut self, frame: Frame<'static>) {
        self.control.push_back(frame);
    }

    /// Takes the next control frame if it `fits`.
    pub(crate) fn next_control(
        &mut self,
        fits: impl FnOnce(&Frame) -> bool,
    ) -> Option<Frame<'static>> {
        let frame = self.control.front()?;
        if fits(frame) { self.control.pop_front() } else { None }
    }

    /// Returns `true` if [`Self::next_control`], [`Self::next_lost`] or [`Self::next_new`] has
    /// something to send.
    pub(crate) fn wants_to_send(&self) -> bool {
        let ready = self.ready.iter().any(|class| !class.is_empty());
        ready && self.send_credit.room() > 0 || self.has_urgent()
    }

    /// The streams of a class with new data, none while the session has no credit.
    pub(crate) fn backlog(&self, class: usize) -> ClassBacklog {
        if self.send_credit.room() == 0 {
            return ClassBacklog::default();
        }
        let ready = &self.ready[class];
        ClassBacklog { flows: ready.len(), sparse: ready.has_sparse() }
    }

    /// Number of bytes in a class that wait for its turn.
    pub(crate) fn waiting(&self, class: usize) -> u64 {
        self.each_waiting(class).sum()
    }

    /// Number of bytes that wait for a class's turn, for each of its streams.
    pub(crate) fn each_waiting(&self, class: usize) -> impl Iterator<Item = u64> {
        let streams = self.ready[class].backlogged().filter_map(|id| self.map.get(&id));
        streams.map(|stream| stream.send.sendable())
    }

    /// Number of bytes that wait to be retransmitted. Counting stops above `bytes`.
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

    /// Number of sparse streams with new data.
    pub(crate) fn sparse(&self) -> usize {
        if self.send_credit.room() == 0 {
            return 0;
        }
        self.ready.iter().map(FairQueue::sparse).sum()
    }

    /// Returns `true` if a sparse stream has new data.
    pub(crate) fn has_sparse(&self) -> bool {
        self.send_credit.room() > 0 && self.ready.iter().any(FairQueue::has_sparse)
    }

    /// Returns `true` if control frames or lost data wait, which go before new data.
    pub(crate) fn has_urgent(&self) -> bool {
        !self.control.is_empty() || !self.retransmit.is_empty()
    }

    /// Takes the next lost piece to retransmit. `room` returns the number of data bytes that fit
    /// after a frame head of the given length.
    pub(crate) fn next_lost(&mut self, room: impl Fn(usize) -> usize) -> Option<StreamChunk> {
        let id = self.retransmit.front()?;
        let stream = self.map.get_mut(&id)?;
        let compact = !self.full_offsets && stream.send.held() <= COMPACT_SPAN;
        // The head for the highest offset sent, since that of the lost data is not known yet.
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
        chunk.map(|(range, fin)| StreamChunk { stream: id, range, fin, sparse, compact })
    }

    /// Number of packets with `room` bytes that new data of a class is sure to fill: by the stream
    /// whose turn it is, and at most one if there are other streams.
    pub(crate) fn can_fill(&mut self, class: usize, room: usize) -> u64 {
        let ready = &mut self.ready[class];
        // Beside other streams its turn may end with any packet.
        let most = if ready.len() == 1 { u64::MAX } else { 1 };
        let front = ready.front().and_then(|(id, _)| self.map.get(&id));
        let sendable = front.map_or(0, |stream| stream.send.sendable());
        (sendable.min(self.send_credit.room()) / room.max(1) as u64).min(most)
    }

    /// Takes the next new piece from the stream whose turn it is in a class.
    pub(crate) fn next_new(
        &mut self,
        class: usize,
        room: impl Fn(usize) -> usize,
    ) -> Option<StreamChunk> {
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
        self.ready[class].charge_front(id, bytes, stream.ready);
        self.wake_writer(id);
        chunk.map(|(range, fin)| StreamChunk { stream: id, range, fin, sparse, compact })
    }

    /// Appends the data of a chunk that was just taken to `out`.
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
