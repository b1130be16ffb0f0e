//! All streams of a session: their life, their credit, and who sends next.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;
use units::{Instant, RangeSet};

use crate::flow::{Limits, RecvCredit, SendCredit};
use crate::frame::{self, COMPACT_SPAN, Frame, TruncatedOffset};
use crate::recv_buffer::{RecvBuffer, Violation};
use crate::scheduler::{Backlog, ClassId, FairQueue};
use crate::send_buffer::SendBuffer;
use crate::{Event, Open, Read, ResetReason, StreamError, StreamId, StreamStats};

/// How long what came before a reset waits for its reader.
const DRAIN: Duration = Duration::from_secs(30);

/// The peer broke the protocol; the session cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ProtocolError {
    #[error("stream {stream:?}: {violation}")]
    Stream { stream: StreamId, violation: Violation },
    #[error("the peer exceeds the credit of the session")]
    SessionCredit,
    #[error("the peer opens streams far beyond its limit")]
    TooMany,
    #[error("the peer speaks for a stream that only this side may open")]
    NotOpened,
}

/// The state of one stream. It is forgotten when both directions are done or
/// it is reset.
#[derive(Debug)]
struct Stream {
    send: SendBuffer,
    recv: RecvBuffer,
    /// False while bytes have come but the opening frame has not.
    opened: bool,
    /// The owner was told that there is nothing to read.
    reader_waits: bool,
    /// The owner was told that the peer has finished.
    end_told: bool,
    /// Whose share of the rate it uses.
    class: ClassId,
    /// Something new to send in `Streams::ready`, in `Streams::retransmit`.
    ready: bool,
    retransmit: bool,
    /// Bytes sent again, and bytes that came in packets that FEC restored.
    resent: u64,
    recovered: u64,
}

impl Stream {
    fn new(send_credit: u64, recv_limit: u64, opened: bool) -> Self {
        Self {
            send: SendBuffer::new(send_credit),
            recv: RecvBuffer::new(recv_limit),
            opened,
            reader_waits: true,
            end_told: false,
            class: ClassId::DEFAULT,
            ready: false,
            retransmit: false,
            resent: 0,
            recovered: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.send.is_done() && self.end_told
    }
}

/// A piece of a stream for the next packet.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) stream: StreamId,
    pub(crate) range: Range<u64>,
    pub(crate) fin: bool,
    /// The stream does not fill the link: somebody waits for these bytes.
    pub(crate) sparse: bool,
    /// So few bytes are held that their offset fits in a compact frame.
    pub(crate) compact: bool,
}

/// What a stream may send in its turn, and before others if it was quiet: a
/// reply that somebody waits for, not a download. 5 ms at 50 Mbit/s.
const SPARSE: usize = 32 * 1024;

/// What is left of a stream that the peer reset: it is read first, as from the
/// kernel's buffer of a TCP connection.
#[derive(Debug)]
struct Drain {
    recv: RecvBuffer,
    reason: ResetReason,
    until: Instant,
}

#[derive(Debug)]
pub(crate) struct Streams {
    /// 0 if this side opens even streams, 1 for odd ones.
    parity: u64,
    next_id: u64,
    own_open: u32,
    peer_open: u32,
    /// Streams that the peer has ever opened.
    peer_opened: u64,
    limits: Limits,
    peer_limits: Limits,
    /// How many written bytes a stream may hold unsent.
    unsent_limit: u64,
    map: BTreeMap<StreamId, Stream>,
    /// Streams that the peer opened and that are over.
    retired: RangeSet,
    /// Streams that this side reset while the peer may still be sending, with
    /// the highest offset received.
    resetting: BTreeMap<StreamId, u64>,
    /// Streams that the peer reset and that have bytes to read.
    drains: BTreeMap<StreamId, Drain>,
    send_credit: SendCredit,
    recv_credit: RecvCredit,
    /// Bytes held in all send buffers.
    held: u64,
    /// Frames that must arrive, to be sent before any stream data.
    control: VecDeque<Frame<'static>>,
    retransmit: VecDeque<StreamId>,
    /// Streams with something new to send, per class.
    ready: Vec<FairQueue<StreamId>>,
    /// Streams whose writer was refused bytes.
    writers: BTreeSet<StreamId>,
    events: VecDeque<Event>,
}

impl Streams {
    /// The streams of a session with so many `classes`, for packets of `mtu`
    /// bytes.
    pub(crate) fn new(
        parity: u64,
        limits: Limits,
        peer_limits: Limits,
        unsent_limit: u64,
        classes: usize,
        mtu: usize,
    ) -> Self {
        Self {
            parity,
            next_id: parity,
            own_open: 0,
            peer_open: 0,
            peer_opened: 0,
            limits,
            peer_limits,
            unsent_limit,
            map: BTreeMap::new(),
            retired: RangeSet::default(),
            resetting: BTreeMap::new(),
            drains: BTreeMap::new(),
            send_credit: SendCredit::new(peer_limits.memory),
            recv_credit: RecvCredit::new(limits.memory),
            held: 0,
            control: VecDeque::new(),
            retransmit: VecDeque::new(),
            ready: (0..classes).map(|_| FairQueue::new(mtu.max(SPARSE))).collect(),
            writers: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Sets how many written bytes a stream may hold unsent.
    pub(crate) fn set_unsent_limit(&mut self, bytes: u64) {
        self.unsent_limit = bytes;
        self.wake_writers();
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many streams are alive.
    pub(crate) fn len(&self) -> usize {
        self.map.len() + self.drains.len()
    }

    /// What is known of a stream.
    pub(crate) fn stats(&self, id: StreamId) -> Option<StreamStats> {
        let Stream { send, recv, resent, recovered, .. } = self.map.get(&id)?;
        let unsent = send.unsent();
        Some(StreamStats {
            written: send.written(),
            unsent,
            unacknowledged: send.held() - unsent,
            blocked_by_peer: send.is_blocked() || (unsent > 0 && self.send_credit.room() == 0),
            resent: *resent,
            held_to_read: recv.highest() - recv.read_offset(),
            recovered: *recovered,
        })
    }

    /// Bytes of a stream came in a packet that FEC restored.
    pub(crate) fn on_recovered(&mut self, id: StreamId, bytes: usize) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.recovered += bytes as u64;
        }
    }

    /// Bytes held for streams, to send and to read.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.held, self.recv_credit.held())
    }
}

/// Commands of the owner.
impl Streams {
    pub(crate) fn open(&mut self, open: Open) -> Result<StreamId, StreamError> {
        if self.own_open >= self.peer_limits.max_streams {
            return Err(StreamError::TooMany { limit: self.peer_limits.max_streams });
        }
        let id = StreamId(self.next_id);
        self.next_id += 2;
        self.own_open += 1;
        let credit = self.limits.share(self.recv_credit.held());
        self.map.insert(id, Stream::new(self.peer_limits.stream_window, credit, true));
        self.control.push_back(Frame::Open { stream: id, credit, open });
        Ok(id)
    }

    pub(crate) fn accept(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.stream(id)?;
        self.control.push_back(Frame::Accept(id));
        Ok(())
    }

    pub(crate) fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        let room = self.room(id)?;
        let stream = self.stream(id)?;
        if stream.send.is_finished() {
            return Err(StreamError::Finished);
        }
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        stream.send.write(&bytes[..count]);
        self.held += count as u64;
        if count < bytes.len() {
            self.writers.insert(id);
        }
        self.enqueue(id);
        Ok(count)
    }

    /// How many bytes may be written to the stream now.
    fn room(&self, id: StreamId) -> Result<u64, StreamError> {
        let send = &self.map.get(&id).ok_or(StreamError::NoStream)?.send;
        let window = self.limits.share(self.held).saturating_sub(send.held());
        Ok(window.min(self.unsent_limit.saturating_sub(send.unsent())))
    }

    pub(crate) fn read(&mut self, id: StreamId, out: &mut [u8]) -> Result<Read, StreamError> {
        if let Some(drain) = self.drains.get_mut(&id) {
            let count = drain.recv.read(out);
            self.recv_credit.consume(count as u64);
            self.grant_session();
            self.end_drain_if(id, |drain| drain.recv.highest() == drain.recv.read_offset());
            return Ok(if count == 0 { Read::Blocked } else { Read::Data(count) });
        }
        let stream = self.stream(id)?;
        let count = stream.recv.read(out);
        if count == 0 {
            if stream.recv.is_done() {
                stream.end_told = true;
                self.retire_if_done(id);
                return Ok(Read::End);
            }
            stream.reader_waits = !stream.recv.is_readable();
            return Ok(Read::Blocked);
        }
        self.recv_credit.consume(count as u64);
        self.grant(id);
        Ok(Read::Data(count))
    }

    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        let stream = self.stream(id)?;
        if stream.send.is_finished() {
            return Err(StreamError::Finished);
        }
        stream.send.finish();
        self.writers.remove(&id);
        self.enqueue(id);
        Ok(())
    }

    pub(crate) fn reset(&mut self, id: StreamId, reason: ResetReason) -> Result<(), StreamError> {
        if let Some(drain) = self.drains.remove(&id) {
            self.give_back(&drain.recv);
            return Ok(());
        }
        let stream = self.remove(id).ok_or(StreamError::NoStream)?;
        let sent = stream.send.sent();
        self.control.push_back(Frame::Reset { stream: id, reason, sent });
        self.recv_credit.consume(stream.recv.highest() - stream.recv.read_offset());
        self.resetting.insert(id, stream.recv.highest());
        if let Some(end) = stream.recv.end() {
            let _ = self.discard_to(id, end);
            self.end_reset(id);
        }
        self.grant_session();
        self.wake_writers();
        Ok(())
    }

    /// Puts a stream in a class.
    pub(crate) fn classify(&mut self, id: StreamId, class: ClassId) -> Result<(), StreamError> {
        if usize::from(class.0) >= self.ready.len() {
            return Err(StreamError::NoClass);
        }
        let stream = self.stream(id)?;
        let old = core::mem::replace(&mut stream.class, class);
        if old != class && core::mem::take(&mut stream.ready) {
            self.ready[usize::from(old.0)].remove(id);
            self.enqueue(id);
        }
        Ok(())
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream, StreamError> {
        self.map.get_mut(&id).ok_or(StreamError::NoStream)
    }
}

/// What the peer says.
impl Streams {
    pub(crate) fn on_open(
        &mut self,
        id: StreamId,
        credit: u64,
        open: Open,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.peer_stream(id)? else { return Ok(()) };
        if stream.opened {
            return Ok(());
        }
        stream.opened = true;
        stream.send.grant(credit);
        let readable = stream.recv.is_readable();
        stream.reader_waits = !readable;
        if self.peer_open > self.limits.max_streams {
            let _ = self.reset(id, ResetReason::Limit);
            return Ok(());
        }
        self.events.push_back(Event::Opened { stream: id, open });
        if readable {
            self.events.push_back(Event::Readable(id));
        }
        Ok(())
    }

    pub(crate) fn on_accept(&mut self, id: StreamId) {
        if self.map.contains_key(&id) {
            self.events.push_back(Event::Accepted(id));
        }
    }

    pub(crate) fn on_data(
        &mut self,
        id: StreamId,
        offset: TruncatedOffset,
        data: &[u8],
        fin: bool,
    ) -> Result<(), ProtocolError> {
        if let Some(&highest) = self.resetting.get(&id) {
            let end = offset.expand(highest) + data.len() as u64;
            self.discard_to(id, end)?;
            if fin {
                self.end_reset(id);
            }
            return Ok(());
        }
        let Some(stream) = self.peer_stream(id)? else { return Ok(()) };
        let offset = offset.expand(stream.recv.highest());
        let grown = stream
            .recv
            .insert(offset, data, fin)
            .map_err(|violation| ProtocolError::Stream { stream: id, violation })?;
        let tell = stream.opened && stream.reader_waits && stream.recv.is_readable();
        if tell {
            stream.reader_waits = false;
            self.events.push_back(Event::Readable(id));
        }
        if self.recv_credit.receive(grown) { Ok(()) } else { Err(ProtocolError::SessionCredit) }
    }

    pub(crate) fn on_reset(
        &mut self,
        now: Instant,
        id: StreamId,
        reason: ResetReason,
        sent: u64,
    ) -> Result<(), ProtocolError> {
        if self.resetting.contains_key(&id) {
            self.discard_to(id, sent)?;
            self.end_reset(id);
            return Ok(());
        }
        if self.peer_stream(id)?.is_none() {
            return Ok(());
        }
        let Some(stream) = self.remove(id) else { return Ok(()) };
        self.resetting.insert(id, stream.recv.highest());
        self.discard_to(id, sent)?;
        self.end_reset(id);
        self.control.push_back(Frame::Reset { stream: id, reason, sent: stream.send.sent() });
        self.wake_writers();
        let Stream { mut recv, opened, .. } = stream;
        let came = recv.highest() - recv.read_offset();
        let left = if opened { recv.cut() } else { 0 };
        self.recv_credit.consume(came - left as u64);
        self.grant_session();
        if left > 0 {
            self.drains.insert(id, Drain { recv, reason, until: now + DRAIN });
        } else if opened {
            self.events.push_back(Event::Reset { stream: id, reason });
        }
        Ok(())
    }

    /// When [`Self::end_drains`] has something to do.
    pub(crate) fn drain_timeout(&self) -> Option<Instant> {
        self.drains.values().map(|drain| drain.until).min()
    }

    /// Gives up on readers that do not read what came before a reset.
    pub(crate) fn end_drains(&mut self, now: Instant) {
        let late = self.drains.iter().filter(|(_, drain)| drain.until <= now);
        let late: Vec<StreamId> = late.map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.end_drain_if(id, |_| true));
    }

    fn end_drain_if(&mut self, id: StreamId, over: impl FnOnce(&Drain) -> bool) {
        if self.drains.get(&id).is_some_and(over)
            && let Some(Drain { recv, reason, .. }) = self.drains.remove(&id)
        {
            self.give_back(&recv);
            self.events.push_back(Event::Reset { stream: id, reason });
        }
    }

    /// What nobody will read any more.
    fn give_back(&mut self, recv: &RecvBuffer) {
        self.recv_credit.consume(recv.highest() - recv.read_offset());
        self.grant_session();
    }

    pub(crate) fn on_session_credit(&mut self, limit: u64) {
        self.send_credit.raise(limit);
    }

    pub(crate) fn on_stream_credit(&mut self, id: StreamId, limit: u64) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.send.grant(limit);
            self.enqueue(id);
        }
    }

    /// The live stream of this name, made if the peer may open it and it is
    /// new; `None` if it is over.
    fn peer_stream(&mut self, id: StreamId) -> Result<Option<&mut Stream>, ProtocolError> {
        if id.0 % 2 == self.parity {
            return if id.0 < self.next_id {
                Ok(self.map.get_mut(&id))
            } else {
                Err(ProtocolError::NotOpened)
            };
        }
        if self.retired.contains(id.0 / 2) {
            return Ok(None);
        }
        if !self.map.contains_key(&id) {
            self.check_new(id)?;
            self.peer_open += 1;
            self.peer_opened += 1;
            self.map.insert(id, Stream::new(0, self.limits.stream_window, false));
        }
        Ok(self.map.get_mut(&id))
    }

    /// A peer numbers its streams one after another and keeps to the limit, by
    /// its own count; ours lags behind. Twice the limit is a lie, and would
    /// let it fill our memory with names.
    fn check_new(&self, id: StreamId) -> Result<(), ProtocolError> {
        let most = u64::from(self.limits.max_streams) * 2;
        if u64::from(self.peer_open) >= most || id.0 / 2 >= self.peer_opened + most {
            return Err(ProtocolError::TooMany);
        }
        Ok(())
    }

    /// Counts bytes of a stream being reset, up to offset `end`, as received
    /// and read.
    fn discard_to(&mut self, id: StreamId, end: u64) -> Result<(), ProtocolError> {
        let Some(highest) = self.resetting.get_mut(&id) else { return Ok(()) };
        let grown = end.saturating_sub(*highest);
        if !self.recv_credit.receive(grown) {
            return Err(ProtocolError::SessionCredit);
        }
        *highest += grown;
        self.recv_credit.consume(grown);
        self.grant_session();
        Ok(())
    }

    /// All bytes of a stream being reset are accounted for: forget it.
    fn end_reset(&mut self, id: StreamId) {
        self.resetting.remove(&id);
        self.retire(id);
    }
}

/// What becomes of packets.
impl Streams {
    pub(crate) fn on_acknowledged(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        let before = stream.send.held();
        stream.send.acknowledged(range, fin);
        self.held -= before - stream.send.held();
        if stream.retransmit && !stream.send.has_lost() {
            stream.retransmit = false;
            self.retransmit.retain(|other| *other != id);
        }
        self.retire_if_done(id);
    }

    pub(crate) fn on_lost(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        stream.send.lost(range, fin);
        if stream.send.has_lost() && !stream.retransmit {
            stream.retransmit = true;
            if self.ready[usize::from(stream.class.0)].is_sparse(id) {
                self.retransmit.push_front(id);
            } else {
                self.retransmit.push_back(id);
            }
        }
        self.enqueue(id);
    }

    /// A lost control frame goes again; credit with its present value.
    pub(crate) fn on_control_lost(&mut self, frame: Frame<'static>) {
        let frame = match frame {
            Frame::StreamCredit { stream, .. } => {
                let Some(live) = self.map.get(&stream) else { return };
                Frame::StreamCredit { stream, limit: live.recv.limit() }
            }
            frame => frame,
        };
        self.control.push_front(frame);
    }

    /// Tells the writers that were refused bytes and that have room again.
    pub(crate) fn wake_writers(&mut self) {
        let waiting: Vec<StreamId> = self.writers.iter().copied().collect();
        waiting.into_iter().for_each(|id| self.wake_writer(id));
    }

    /// Not for every byte: for a quarter of what the stream may get at all.
    fn wake_writer(&mut self, id: StreamId) {
        let most = self.unsent_limit.min(self.limits.share(self.held));
        let enough = (most / 4).max(1);
        if self.writers.contains(&id) && self.room(id).is_ok_and(|room| room >= enough) {
            self.writers.remove(&id);
            self.events.push_back(Event::Writable(id));
        }
    }
}

/// What goes into the next packet.
impl Streams {
    /// Has a frame sent that must arrive.
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

    /// Whether [`Self::next_control`], [`Self::next_lost`] or
    /// [`Self::next_new`] has something.
    pub(crate) fn wants_to_send(&self) -> bool {
        let ready = self.ready.iter().any(|class| !class.is_empty());
        ready && self.send_credit.room() > 0 || self.has_urgent()
    }

    /// What waits to be sent for the first time in a class.
    pub(crate) fn backlog(&self, class: usize) -> Backlog {
        if self.send_credit.room() == 0 {
            return Backlog::default();
        }
        let ready = &self.ready[class];
        Backlog { flows: ready.len(), sparse: ready.has_sparse() }
    }

    /// Whether a stream waits that was quiet until now.
    pub(crate) fn has_sparse(&self) -> bool {
        self.send_credit.room() > 0 && self.ready.iter().any(FairQueue::has_sparse)
    }

    /// Whether something waits that goes before everything else.
    pub(crate) fn has_urgent(&self) -> bool {
        !self.control.is_empty() || !self.retransmit.is_empty()
    }

    /// The next lost piece to send again; `room` says how many bytes of a stream
    /// fit.
    pub(crate) fn next_lost(&mut self, room: impl Fn(StreamId, bool) -> usize) -> Option<Chunk> {
        let id = *self.retransmit.front()?;
        let stream = self.map.get_mut(&id)?;
        let compact = stream.send.held() <= COMPACT_SPAN;
        let max = room(id, compact);
        if max == 0 {
            return None;
        }
        let sparse = self.ready[usize::from(stream.class.0)].is_sparse(id);
        let chunk = stream.send.take_lost(max);
        if !stream.send.has_lost() {
            stream.retransmit = false;
            self.retransmit.pop_front();
        }
        stream.resent += chunk.as_ref().map_or(0, |(range, _)| range.end - range.start);
        chunk.map(|(range, fin)| Chunk { stream: id, range, fin, sparse, compact })
    }

    /// The next new piece of the stream of a class whose turn it is.
    pub(crate) fn next_new(
        &mut self,
        class: usize,
        room: impl Fn(StreamId, bool) -> usize,
    ) -> Option<Chunk> {
        let id = self.ready[class].front()?;
        let stream = self.map.get_mut(&id)?;
        let compact = stream.send.held() <= COMPACT_SPAN;
        let max = (room(id, compact) as u64).min(self.send_credit.room());
        if max == 0 {
            return None;
        }
        let sparse = self.ready[class].is_sparse(id);
        let before = stream.send.sent();
        let chunk = stream.send.take_new(max);
        let taken = stream.send.sent() - before;
        stream.ready = stream.send.has_new();
        self.send_credit.spend(taken);
        let bytes = frame::stream_head(id, compact) + taken as usize;
        self.ready[class].sent(id, bytes, stream.ready);
        self.wake_writer(id);
        chunk.map(|(range, fin)| Chunk { stream: id, range, fin, sparse, compact })
    }

    /// Appends the bytes of a chunk just taken.
    pub(crate) fn copy(&self, id: StreamId, range: &Range<u64>, out: &mut Vec<u8>) {
        if let Some(stream) = self.map.get(&id) {
            stream.send.copy(range, out);
        }
    }

    fn enqueue(&mut self, id: StreamId) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if !stream.ready && stream.send.has_new() {
            stream.ready = true;
            self.ready[usize::from(stream.class.0)].push(id);
        }
    }
}

/// The end of streams, and credit.
impl Streams {
    fn grant(&mut self, id: StreamId) {
        let share = self.limits.share(self.recv_credit.held());
        if let Some(stream) = self.map.get_mut(&id)
            && stream.recv.end().is_none()
        {
            let limit = stream.recv.read_offset() + share;
            if limit >= stream.recv.limit() + self.limits.stream_window.div_ceil(8) {
                stream.recv.raise_limit(limit);
                self.control.push_back(Frame::StreamCredit { stream: id, limit });
            }
        }
        self.grant_session();
    }

    fn grant_session(&mut self) {
        if let Some(limit) = self.recv_credit.grant() {
            self.control.push_back(Frame::SessionCredit(limit));
        }
    }

    fn retire_if_done(&mut self, id: StreamId) {
        if self.map.get(&id).is_some_and(Stream::is_done) {
            self.remove(id);
            self.retire(id);
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Takes a stream out of everything that names it.
    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.map.remove(&id)?;
        self.held -= stream.send.held();
        self.writers.remove(&id);
        self.ready[usize::from(stream.class.0)].remove(id);
        if stream.retransmit {
            self.retransmit.retain(|other| *other != id);
        }
        Some(stream)
    }

    fn retire(&mut self, id: StreamId) {
        if id.0 % 2 == self.parity {
            self.own_open -= 1;
        } else {
            self.peer_open -= 1;
            self.retired.insert_one(id.0 / 2);
        }
    }
}
