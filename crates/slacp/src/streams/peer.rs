//! Handles the peer's frames about streams.

use core::time::Duration;
use std::net::IpAddr;

use units::Instant;

use super::{DrainingStream, ProtocolError, ResettingStream, StreamEntry, StreamSet};
use crate::streams::budget::ClientUsage;
use crate::streams::milestones::OffsetMilestones;
use crate::streams::recv_buffer::{RecvBuffer, StreamViolation};
use crate::wire::frame::{Frame, TruncatedOffset};
use crate::{Destination, Event, ResetReason, StreamId, StreamOpening, client_network};

/// Maximum time without progress of a reader before the data ahead of a reset is given up: received
/// data that is not read here, and sent data that the peer does not acknowledge.
pub(super) const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

impl StreamSet {
    pub(crate) fn on_open(
        &mut self,
        now: Instant,
        id: StreamId,
        window: u64,
        credit: u64,
        open: StreamOpening<Destination>,
    ) -> Result<(), ProtocolError> {
        let client = client_network(open.source.ip());
        // docs/slacp.md, Flow control, rule 6.
        let no_room =
            self.window_budget.share(client, false) == 0 || window > self.window_budget.left() / 2;
        let Some(stream) = self.peer_stream(id)? else { return Ok(()) };
        if stream.opened {
            return Ok(());
        }
        let end = stream.recv.highest();
        // Data may overtake its OPEN; until now only the stream window has bounded it.
        if end > window {
            let violation = StreamViolation::Credit { end, limit: window };
            return Err(ProtocolError::Stream { stream: id, violation });
        }
        stream.opened = true;
        stream.client = client;
        stream.connected = !open.destination.is_connected_to();
        stream.send.grant(credit);
        let readable = stream.recv.is_readable();
        stream.reader_waits = !readable;
        if let Some(reason) = self.refusal(no_room, &open.destination) {
            let _ = self.reset(id, reason);
            return Ok(());
        }
        self.grant_first(now, id, window, &open.destination);
        self.events.push_back(Event::Opened { stream: id, open });
        if readable {
            self.events.push_back(Event::Readable(id));
        }
        Ok(())
    }

    /// The reason to refuse a stream that the peer opens; `None` if it may be opened.
    fn refusal(&self, no_room: bool, destination: &Destination) -> Option<ResetReason> {
        if no_room || self.peer_open > self.limits.max_streams {
            return Some(ResetReason::Limit);
        }
        let unknown = !self.limits.openings.accepts(destination);
        unknown.then_some(ResetReason::Prohibited)
    }

    /// Grants the first window to a stream that the peer has opened. The grant is always announced,
    /// even if the peer took a larger window itself: until then the peer counts that window in its
    /// reserve for new streams, and it takes less next time.
    fn grant_first(&mut self, now: Instant, id: StreamId, window: u64, to: &Destination) {
        let Some(client) = self.map.get(&id).map(|stream| stream.client) else { return };
        let (first, is_small) = self.window_to(to, client);
        let Some(stream) = self.map.get_mut(&id) else { return };
        stream.is_small = is_small;
        // If the peer took more, its value holds: the data may be on its way already.
        stream.window = first.max(window);
        stream.recv.replace_limit(stream.window);
        self.control.push_back(Frame::StreamCredit { stream: id, returns: 0, limit: first });
        self.update_charge(id);
        self.start_rest(now, id);
    }

    pub(crate) fn on_accept(&mut self, now: Instant, id: StreamId) {
        if self.owned(id).is_some() {
            self.events.push_back(Event::Accepted(id));
            self.on_connected(now, id);
        }
    }

    /// Processes stream data that came in packet `number`. Returns `false` if the packet is to
    /// count as lost: data that would leave a gap when there are too many gaps. A stream may have
    /// as many gaps as remain to all others. The first missing data is always accepted, so every
    /// stream makes progress.
    pub(crate) fn on_data(
        &mut self,
        (now, number): (Instant, u64),
        id: StreamId,
        offset: TruncatedOffset,
        data: &[u8],
        fin: bool,
    ) -> Result<bool, ProtocolError> {
        if self.full_offsets && !offset.is_full() {
            return Err(ProtocolError::Compact);
        }
        if self.resetting.contains_key(&id) {
            return self.discard_data(number, id, offset, data.len(), fin);
        }
        let room = self.limits.max_gaps().saturating_sub(self.gaps);
        let Some(stream) = self.peer_stream(id)? else { return Ok(true) };
        let Some(offset) = stream.milestones.complete(offset, number) else { return Ok(false) };
        let gaps = stream.recv.gaps();
        // The packet is dropped, not the session: one client's tiny writes on an unlucky link must
        // not cut off all others.
        if stream.recv.leaves_gap(&(offset..offset + data.len() as u64)) && gaps >= room {
            return Ok(false);
        }
        let grown = stream
            .recv
            .insert(offset, data, fin)
            .map_err(|violation| ProtocolError::Stream { stream: id, violation })?;
        stream.milestones.record(number, stream.recv.highest());
        let more_gaps = stream.recv.gaps();
        let asks = !core::mem::replace(&mut stream.owes_answer, true);
        let departs = stream.delayed_reset.is_some();
        let tell = stream.opened && stream.reader_waits && stream.recv.is_readable();
        if tell {
            stream.reader_waits = false;
            self.events.push_back(Event::Readable(id));
        }
        self.gaps = self.gaps + more_gaps - gaps;
        self.measure_flight(now, data.len() as u64);
        // It may be a request, whose answer may take longer and should find its window.
        if asks {
            self.start_rest(now, id);
        }
        if fin {
            self.update_charge(id);
        }
        self.grant_held_up(id);
        if !self.recv_credit.receive(grown) {
            return Err(ProtocolError::SessionCredit);
        }
        if departs {
            self.drop_unread(id);
        }
        Ok(true)
    }

    /// Processes `length` bytes of a stream that is being reset. They are dropped but counted: both
    /// sides must agree on the credit that the stream has used.
    fn discard_data(
        &mut self,
        number: u64,
        id: StreamId,
        offset: TruncatedOffset,
        length: usize,
        fin: bool,
    ) -> Result<bool, ProtocolError> {
        let Some(resetting) = self.resetting.get_mut(&id) else { return Ok(true) };
        let Some(offset) = resetting.milestones.complete(offset, number) else {
            return Ok(false);
        };
        let end = offset + length as u64;
        resetting.milestones.record(number, end.max(resetting.highest));
        self.count_discarded(id, end)?;
        if fin {
            self.finish_reset(id);
        }
        Ok(true)
    }

    pub(crate) fn on_reset(
        &mut self,
        now: Instant,
        id: StreamId,
        reason: ResetReason,
        sent: u64,
    ) -> Result<(), ProtocolError> {
        if self.resetting.contains_key(&id) {
            self.count_discarded(id, sent)?;
            self.finish_reset(id);
            return Ok(());
        }
        if self.peer_stream(id)?.is_none() {
            return Ok(());
        }
        let Some(stream) = self.remove(id) else { return Ok(()) };
        let client = stream.client;
        // As after a reset by this side: the bytes up to `sent` count, though they will never come.
        let resetting = ResettingStream {
            highest: stream.recv.highest(),
            milestones: OffsetMilestones::default(),
            charged: ClientUsage::default(),
            client,
        };
        self.resetting.insert(id, resetting);
        self.count_discarded(id, sent)?;
        self.finish_reset(id);
        self.send_reset(id, reason, stream.send.sent());
        self.wake_writers();
        let StreamEntry { mut recv, opened, delayed_reset: departure, .. } = *stream;
        // Without OPEN, or after a reset by the owner, no owner reads the data or gets the event.
        let has_owner = opened && departure.is_none();
        // What came before the reset in order is still read, as the kernel does for TCP: otherwise
        // a server that answers and resets would lose its answer.
        let came = recv.highest() - recv.read_offset();
        let left = if has_owner { recv.truncate_at_gap() } else { 0 };
        self.recv_credit.consume(came - left);
        self.grant_session();
        if left > 0 {
            self.window_budget.replace(
                client,
                ClientUsage::default(),
                ClientUsage::part(left, true),
            );
            self.begin_drain(
                id,
                DrainingStream { recv, client, reason, until: now + UNREAD_TIMEOUT },
            );
        } else if has_owner {
            self.events.push_back(Event::Reset { stream: id, reason });
        }
        Ok(())
    }

    /// Keeps the received data of a reset stream for its reader. If there are already as many
    /// drains as streams are allowed, the one that has waited longest is given up: the streams of a
    /// peer that keeps opening and resetting them do not count as open.
    fn begin_drain(&mut self, id: StreamId, drain: DrainingStream) {
        if self.drains.len() >= self.limits.max_streams as usize
            && let Some((_, oldest)) = self.drain_ends.first().copied()
        {
            self.end_drain_if(oldest, |_| true);
        }
        self.drain_ends.insert((drain.until, id));
        self.drains.insert(id, drain);
    }

    /// The time at which [`Self::end_resets`] has something to do.
    pub(crate) fn reset_timeout(&self) -> Option<Instant> {
        let first = [self.drain_ends.first(), self.departures.first()];
        first.into_iter().flatten().map(|(until, _)| *until).min()
    }

    /// Gives up on readers, here and at the peer, that do not read the data ahead of a reset.
    pub(crate) fn end_resets(&mut self, now: Instant, is_reachable: bool) {
        self.end_departures(now, is_reachable);
        while let Some((until, id)) = self.drain_ends.first().copied()
            && until <= now
        {
            self.end_drain_if(id, |_| true);
        }
    }

    pub(super) fn take_drain(&mut self, id: StreamId) -> Option<DrainingStream> {
        let drain = self.drains.remove(&id)?;
        self.drain_ends.remove(&(drain.until, id));
        Some(drain)
    }

    pub(super) fn end_drain_if(
        &mut self,
        id: StreamId,
        over: impl FnOnce(&DrainingStream) -> bool,
    ) {
        if self.drains.get(&id).is_some_and(over)
            && let Some(DrainingStream { recv, client, reason, .. }) = self.take_drain(id)
        {
            self.return_credit(&recv, client);
            self.events.push_back(Event::Reset { stream: id, reason });
        }
    }

    /// Returns the credit for data that will never be read.
    pub(super) fn return_credit(&mut self, recv: &RecvBuffer, client: IpAddr) {
        let unread = recv.highest() - recv.read_offset();
        self.window_budget.replace(client, ClientUsage::part(unread, true), ClientUsage::default());
        self.recv_credit.consume(unread);
        self.grant_session();
    }

    pub(crate) fn on_session_credit(&mut self, limit: u64) {
        self.send_credit.raise(limit);
    }

    pub(crate) fn on_stream_credit(
        &mut self,
        now: Instant,
        id: StreamId,
        returns: u64,
        limit: u64,
    ) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        // Credit from before the last RETURN is void, however the two crossed.
        if returns == stream.returns_sent {
            stream.send.grant(limit);
        }
        let opening = core::mem::take(&mut stream.opening);
        // The first credit shows that the peer counts the window of the stream itself.
        if opening != ClientUsage::default() {
            let client = stream.client;
            self.opening_budget.replace(client, opening, ClientUsage::default());
            self.record_first_credit(client, limit);
            self.start_rest(now, id);
        }
        self.enqueue(id);
    }

    /// Returns the live stream `id`, which is created if it is new and the peer may open it. `None`
    /// if it is over.
    fn peer_stream(&mut self, id: StreamId) -> Result<Option<&mut StreamEntry>, ProtocolError> {
        if id.0 % 2 == self.parity {
            return if id.0 < self.next_id {
                Ok(self.map.get_mut(&id).map(|stream| &mut **stream))
            } else {
                Err(ProtocolError::NotOpened)
            };
        }
        if self.retired.contains(id.0 / 2) || self.resetting.contains_key(&id) {
            return Ok(None);
        }
        if !self.map.contains_key(&id) {
            self.check_new(id)?;
            self.peer_open += 1;
            self.peer_opened += 1;
            // The OPEN frame, which may come later, replaces the limit.
            let stream = StreamEntry::new(0, self.limits.stream_window, false);
            self.map.insert(id, Box::new(stream));
        }
        Ok(self.map.get_mut(&id).map(|stream| &mut **stream))
    }

    /// Checks the number of a new stream. A peer numbers its streams consecutively and keeps to the
    /// limit by its own count, and this side's count lags behind. Twice the limit is a violation,
    /// since it would let the peer fill the memory with identifiers.
    fn check_new(&self, id: StreamId) -> Result<(), ProtocolError> {
        let most = u64::from(self.limits.max_streams) * 2;
        if u64::from(self.peer_open) >= most || id.0 / 2 >= self.peer_opened + most {
            return Err(ProtocolError::TooMany);
        }
        Ok(())
    }

    /// Counts the data of a stream that is being reset, up to offset `end`, as received and read.
    pub(super) fn count_discarded(&mut self, id: StreamId, end: u64) -> Result<(), ProtocolError> {
        let Some(resetting) = self.resetting.get_mut(&id) else { return Ok(()) };
        let ResettingStream { highest, charged, client, .. } = resetting;
        let grown = end.saturating_sub(*highest);
        if !self.recv_credit.receive(grown) {
            return Err(ProtocolError::SessionCredit);
        }
        *highest += grown;
        let left = charged.bytes.saturating_sub(grown);
        let left = ClientUsage::part(left, charged.unproven == 0);
        self.window_budget.replace(*client, *charged, left);
        *charged = left;
        self.recv_credit.consume(grown);
        self.grant_session();
        Ok(())
    }

    /// Forgets a stream that is being reset once all its bytes are accounted for.
    pub(super) fn finish_reset(&mut self, id: StreamId) {
        if let Some(resetting) = self.resetting.remove(&id) {
            self.window_budget.replace(resetting.client, resetting.charged, ClientUsage::default());
        }
        self.retire(id);
    }
}
