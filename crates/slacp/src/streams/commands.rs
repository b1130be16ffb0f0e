//! Commands of the owner on its streams.

use units::Instant;

use super::peer::UNREAD_TIMEOUT;
use super::pieces::WriteRoom;
use super::recv_buffer::RecvBuffer;
use super::send_buffer::SendBuffer;
use super::{ResettingStream, StreamEntry, StreamSet};
use crate::ClassId;
use crate::streams::budget::ClientUsage;
use crate::wire::frame::Frame;
use crate::{
    Destination, ReadOutcome, ResetReason, StreamError, StreamId, StreamOpening, client_network,
};

/// Number of DSCP values (RFC 2474 §3).
const CODE_POINTS: u8 = 64;

impl StreamSet {
    pub(crate) fn open(
        &mut self,
        open: StreamOpening<Destination>,
    ) -> Result<StreamId, StreamError> {
        self.open_as(open, false)
    }

    /// Opens a stream. Its data is sent in segments if `compressed` is set and the peer understands
    /// that.
    ///
    /// # Errors
    /// If the peer does not understand the destination, or if its limit of streams or the memory
    /// for another stream of the client is exhausted.
    pub(crate) fn open_as(
        &mut self,
        mut open: StreamOpening<Destination>,
        compressed: bool,
    ) -> Result<StreamId, StreamError> {
        let understood = self.peer_limits.openings;
        if !understood.accepts(&open.destination) {
            return Err(StreamError::NoNames);
        }
        let compressed = compressed && understood.compressed();
        // A peer of an earlier version gets the stream without its code point.
        open.dscp = open.dscp.filter(|dscp| understood.code_points() && *dscp < CODE_POINTS);
        if self.own_open >= self.peer_limits.max_streams {
            return Err(StreamError::TooMany { limit: self.peer_limits.max_streams });
        }
        let client = client_network(open.source.ip());
        if !self.has_room_for(client) {
            return Err(StreamError::NoRoom);
        }
        let id = StreamId(self.next_id);
        self.next_id += 2;
        self.own_open += 1;
        let window = self.opening_window(client);
        let (credit, is_small) = self.window_to(&open.destination, client);
        // It counts until the first STREAM_CREDIT (docs/slacp.md, Flow control, rule 5).
        let opening = ClientUsage::part(window, true);
        self.opening_budget.replace(client, ClientUsage::default(), opening);
        // Services of the acceptor, such as its resolver, send no ACCEPT.
        let connected = !open.destination.is_connected_to();
        let new = StreamEntry::new(window, credit, true);
        let stream = StreamEntry { client, opening, compressed, connected, is_small, ..new };
        self.map.insert(id, Box::new(stream));
        self.update_charge(id);
        let open = Box::new(open);
        self.control.push_back(Frame::Open { stream: id, window, credit, compressed, open });
        Ok(id)
    }

    /// Records that the peer has opened a stream whose data is sent in segments.
    pub(crate) fn on_compressed(&mut self, id: StreamId) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.compressed = true;
        }
    }

    /// Returns `true` if both sides send the stream's data in segments.
    pub(crate) fn is_compressed(&self, id: StreamId) -> bool {
        self.map.get(&id).is_some_and(|stream| stream.compressed)
    }

    pub(crate) fn accept(&mut self, now: Instant, id: StreamId) -> Result<(), StreamError> {
        self.stream(id)?;
        self.control.push_back(Frame::Accept(id));
        self.on_connected(now, id);
        Ok(())
    }

    pub(crate) fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        let (send, room) = self.open_to_write(id)?;
        let count = bytes.len().min(room);
        send.write(&bytes[..count]);
        self.handle_written(id, count);
        if count < bytes.len() {
            self.writers.insert(id);
        }
        Ok(count)
    }

    /// Appends the bytes that `read` writes into the buffer, at most as many as there is room for,
    /// and returns their number. Without room `read` is not called, and the result is `None`.
    pub(crate) fn fill(
        &mut self,
        id: StreamId,
        read: impl FnOnce(&mut WriteRoom<'_>),
    ) -> Result<Option<usize>, StreamError> {
        let (send, room) = self.open_to_write(id)?;
        if room == 0 {
            self.writers.insert(id);
            return Ok(None);
        }
        let count = send.fill(room, read);
        if count > 0 {
            self.handle_written(id, count);
        }
        Ok(Some(count))
    }

    /// The buffer of a stream that is not finished, and the number of bytes that it accepts now.
    fn open_to_write(&mut self, id: StreamId) -> Result<(&mut SendBuffer, usize), StreamError> {
        let room = self.room(id)?;
        let send = &mut self.stream(id)?.send;
        if send.is_finished() {
            return Err(StreamError::Finished);
        }
        Ok((send, usize::try_from(room).unwrap_or(usize::MAX)))
    }

    fn handle_written(&mut self, id: StreamId, count: usize) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        stream.owes_answer = false;
        let is_read = stream.recv.highest() == stream.recv.read_offset();
        self.held += count as u64;
        if count > 0 {
            self.end_rest(id);
        }
        if is_read {
            // An answer may be coming, and needs a window.
            self.grant_again(id);
            self.renew(id);
        }
        self.enqueue(id);
    }

    /// Number of bytes that the stream accepts now.
    pub(crate) fn room(&self, id: StreamId) -> Result<u64, StreamError> {
        let send = &self.owned(id).ok_or(StreamError::NoStream)?.send;
        let window = self.send_limit().saturating_sub(send.held());
        Ok(window.min(self.unsent_limit.saturating_sub(send.unsent())))
    }

    /// Maximum number of unsent and unacknowledged bytes of a stream.
    pub(super) fn send_limit(&self) -> u64 {
        self.limits.send_share(self.held, self.map.len())
    }

    pub(crate) fn read(
        &mut self,
        now: Instant,
        id: StreamId,
        out: &mut [u8],
    ) -> Result<ReadOutcome, StreamError> {
        self.read_by(now, id, |recv| recv.read(out))
    }

    /// Reads with `read`, which takes bytes from the buffer and returns their number.
    pub(crate) fn read_by(
        &mut self,
        now: Instant,
        id: StreamId,
        read: impl FnOnce(&mut RecvBuffer) -> usize,
    ) -> Result<ReadOutcome, StreamError> {
        if let Some(drain) = self.drains.get_mut(&id) {
            let count = read(&mut drain.recv);
            // A reader that goes on is not given up.
            if count > 0 {
                self.drain_ends.remove(&(drain.until, id));
                drain.until = now + UNREAD_TIMEOUT;
                self.drain_ends.insert((drain.until, id));
            }
            let was_read = ClientUsage::part(count as u64, true);
            self.window_budget.replace(drain.client, was_read, ClientUsage::default());
            self.recv_credit.consume(count as u64);
            self.grant_session();
            self.end_drain_if(id, |drain| drain.recv.highest() == drain.recv.read_offset());
            return Ok(if count == 0 { ReadOutcome::Blocked } else { ReadOutcome::Data(count) });
        }
        let stream = self.stream(id)?;
        let count = read(&mut stream.recv);
        // A `read` that takes nothing although there is data is not blocked.
        if count == 0 && !stream.recv.has_data() {
            if stream.recv.is_done() {
                stream.end_read = true;
                self.retire_if_done(id);
                return Ok(ReadOutcome::End);
            }
            stream.reader_waits = true;
            return Ok(ReadOutcome::Blocked);
        }
        self.recv_credit.consume(count as u64);
        self.grant(now, id);
        Ok(ReadOutcome::Data(count))
    }

    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        let stream = self.stream(id)?;
        if stream.send.is_finished() {
            return Err(StreamError::Finished);
        }
        stream.send.finish();
        self.end_rest(id);
        self.writers.remove(&id);
        self.enqueue(id);
        Ok(())
    }

    pub(crate) fn reset(&mut self, id: StreamId, reason: ResetReason) -> Result<(), StreamError> {
        if let Some(drain) = self.take_drain(id) {
            self.return_credit(&drain.recv, drain.client);
            return Ok(());
        }
        let stream = self.remove(id).ok_or(StreamError::NoStream)?;
        let sent = stream.send.sent();
        self.send_reset(id, reason, sent);
        self.recv_credit.consume(stream.recv.highest() - stream.recv.read_offset());
        let highest = stream.recv.highest();
        let StreamEntry { client, charged, proven, milestones, .. } = *stream;
        // The peer may have sent up to the limit: its RESET or a FIN will say how much it was.
        let due = if charged.bytes > 0 { stream.recv.limit() - highest } else { 0 };
        let charged = ClientUsage::part(due, proven);
        self.window_budget.replace(client, ClientUsage::default(), charged);
        self.resetting.insert(id, ResettingStream { highest, milestones, charged, client });
        if let Some(end) = stream.recv.end() {
            // Cannot fail: a known end is the highest offset, so that nothing is added.
            let _ = self.count_discarded(id, end);
            self.finish_reset(id);
        }
        self.grant_session();
        // The memory that it held is free for others.
        self.wake_writers();
        Ok(())
    }

    /// Moves a stream to a class.
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

    pub(super) fn send_reset(&mut self, id: StreamId, reason: ResetReason, sent: u64) {
        self.control.push_back(Frame::Reset { stream: id, reason, sent });
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut StreamEntry, StreamError> {
        let stream = self.map.get_mut(&id).map(|stream| &mut **stream);
        stream.filter(|stream| stream.delayed_reset.is_none()).ok_or(StreamError::NoStream)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::scheduler::MAX_CLASSES;
    use crate::streams::flow::PeerLimits;
    use crate::wire::frame::Frame;
    use crate::wire::open::{Host, HostName, OpeningFeatures};

    fn streams(openings: OpeningFeatures) -> StreamSet {
        let limits = PeerLimits { openings, ..PeerLimits::new(1000, 1000, 9) };
        StreamSet::new(0, limits, limits, 1000, MAX_CLASSES, 1500)
    }

    fn open(destination: Destination, dscp: Option<u8>) -> StreamOpening<Destination> {
        StreamOpening { destination, source: SocketAddr::from(([10, 1, 0, 2], 4000)), dscp }
    }

    fn to_address(dscp: Option<u8>) -> StreamOpening<Destination> {
        open(SocketAddr::from(([192, 0, 2, 7], 80)).into(), dscp)
    }

    fn to_name() -> StreamOpening<Destination> {
        open(Destination::Name(HostName::new("server.example").unwrap(), 80), Some(46))
    }

    fn to_exchange() -> StreamOpening<Destination> {
        open(Destination::Exchange(Host::Address(([192, 0, 2, 7], 80).into())), None)
    }

    fn to_resolver() -> StreamOpening<Destination> {
        open(Destination::Resolver, None)
    }

    fn to_agent() -> StreamOpening<Destination> {
        open(Destination::Bundles, None)
    }

    /// Writes the opening and returns it as the peer parses it.
    fn told(streams: &mut StreamSet) -> StreamOpening<Destination> {
        let mut out = Vec::new();
        streams.next_control(|_| true).expect("a frame").write(&mut out, true);
        match crate::wire::frame::read(&mut &out[..]) {
            Ok(Some(Frame::Open { open, .. })) => *open,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_peer_gets_only_fields_that_it_understands() {
        let all = OpeningFeatures::of_this_version(true, (true, true), true).with_bundles(true);
        let mut streams_to_new = streams(all);
        let address = [to_address(Some(46)), to_address(None)];
        for wanted in address.into_iter().chain([to_name(), to_resolver(), to_agent()]) {
            streams_to_new.open(wanted.clone()).unwrap();
            assert_eq!(told(&mut streams_to_new), wanted);
        }
        streams_to_new.open(to_address(Some(64))).unwrap();
        assert_eq!(told(&mut streams_to_new), to_address(None), "there is no such code point");

        for (compressed, understands) in [(true, true), (false, true), (true, false)] {
            let mut streams =
                streams(OpeningFeatures::of_this_version(false, (false, false), understands));
            let id = streams.open_as(to_address(None), compressed).unwrap();
            assert_eq!(streams.is_compressed(id), compressed && understands);
            let mut out = Vec::new();
            streams.next_control(|_| true).unwrap().write(&mut out, true);
            let Ok(Some(Frame::Open { compressed: told, open, .. })) =
                crate::wire::frame::read(&mut &out[..])
            else {
                panic!("an opening")
            };
            assert_eq!((told, *open), (compressed && understands, to_address(None)));
        }

        let mut to_old = streams(OpeningFeatures::default());
        to_old.open(to_address(Some(46))).unwrap();
        assert_eq!(told(&mut to_old), to_address(None));
        for unknown in [to_name(), to_resolver(), to_agent()] {
            assert_eq!(to_old.open(unknown), Err(StreamError::NoNames));
        }
    }

    #[test]
    fn a_peer_that_resolves_no_names_gets_none() {
        for (openings, unwanted) in [
            (OpeningFeatures::of_this_version(false, (true, true), false), to_name()),
            (OpeningFeatures::of_this_version(true, (false, true), false), to_resolver()),
            (OpeningFeatures::of_this_version(true, (true, false), false), to_exchange()),
            (OpeningFeatures::of_this_version(true, (true, true), true), to_agent()),
        ] {
            let mut streams = streams(openings);
            streams.on_open(Instant::ZERO, StreamId(1), 10, 1000, unwanted).unwrap();
            assert!(streams.poll_event().is_none());
            let reset = streams.next_control(|_| true);
            assert!(matches!(reset, Some(Frame::Reset { reason: ResetReason::Prohibited, .. })));
        }
    }
}
