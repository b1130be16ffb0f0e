//! A stream of the hop: polled reads and writes that wake the task when they are possible again.

use std::future::poll_fn;
use std::io::IoSlice;
use std::task::{Context, Poll, Waker};

use compression::Got;
use pep::accounting::Direction;
use slacp::{Endpoint, Read, ResetReason, Room, SessionId, StreamError, StreamId};

use super::compression::{Compression, send};
use super::handle::{Entry, Hop, Key, State};
use crate::clock;

/// A stream. Dropping it before both directions have ended resets it: an aborted connection must
/// not look like a finished one.
pub(crate) struct Stream {
    hop: Hop,
    key: Key,
}

impl Stream {
    pub(super) fn new(hop: Hop, key: Key) -> Self {
        Self { hop, key }
    }

    /// The stream's id in its session.
    pub(crate) fn id(&self) -> StreamId {
        self.key.1
    }

    /// Reads available data into `buffer`. Never returns [`Read::Blocked`].
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<Read, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        if let (Some(reason), None) = (entry.reset, &entry.coded) {
            return Poll::Ready(Err(reason));
        }
        if entry.ended {
            return Poll::Ready(Ok(Read::End));
        }
        if !state.may_work(self.key.0) {
            return self.rest(&mut state, context, |entry| &mut entry.reader);
        }
        let (endpoint, entry, compression) = state.parts(self.key);
        // If the endpoint no longer knows the stream, it was reset; a pending event has the reason.
        let mut receive = |buffer: &mut [u8]| {
            endpoint.read(self.key.0, self.key.1, buffer).unwrap_or(Read::Blocked)
        };
        let Some(coded) = &mut entry.coded else {
            let read = receive(buffer);
            return self.handle_read(&mut state, context, read);
        };
        let before = coded.work();
        let got = compression.read(coded, buffer, receive);
        let decoding = coded.work() - before;
        state.work.charge(self.key.0, decoding);
        match got {
            Ok(Got::Data(count)) => self.handle_read(&mut state, context, Read::Data(count)),
            Ok(Got::End) => self.handle_read(&mut state, context, Read::End),
            Ok(Got::Nothing) => {
                if let Some(reason) = state.entry(self.key).1.reset {
                    // Until now the decoder held what had come before.
                    return Poll::Ready(Err(reason));
                }
                if decoding > 0 {
                    // Something was read that became nothing yet.
                    self.hop.notify_driver(self.key.0);
                }
                self.handle_read(&mut state, context, Read::Blocked)
            }
            Ok(Got::Later) => self.rest(&mut state, context, |entry| &mut entry.reader),
            Err(error) => {
                tracing::debug!("a stream is reset: {error}");
                state.entry(self.key).1.coded = None;
                drop(state);
                self.abandon(ResetReason::Reset);
                Poll::Ready(Err(ResetReason::Reset))
            }
        }
    }

    /// Waits for the next turn of the driver, in which the session may work again.
    fn rest<T>(
        &self,
        state: &mut State,
        context: &Context<'_>,
        waker: impl FnOnce(&mut Entry) -> &mut Option<Waker>,
    ) -> Poll<T> {
        wait(waker(state.entry(self.key).1), context);
        state.rest(self.key);
        self.hop.notify_driver(self.key.0);
        Poll::Pending
    }

    /// Whether what the stream carries is compressed, which [`Self::poll_offer`] and
    /// [`Self::poll_fill`] cannot do.
    pub(crate) fn is_coded(&self) -> bool {
        let mut state = self.hop.lock(self.key.0);
        state.parts(self.key).1.coded.is_some()
    }

    /// As [`Self::poll_read`], without a copy: offers available data, in parts, to `take`, which says how
    /// much of it was taken, perhaps nothing.
    pub(crate) fn poll_offer(
        &self,
        context: &mut Context<'_>,
        take: impl FnOnce(&[IoSlice<'_>]) -> usize,
    ) -> Poll<Result<Read, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        if entry.ended {
            return Poll::Ready(Ok(Read::End));
        }
        if !state.may_work(self.key.0) {
            return self.rest(&mut state, context, |entry| &mut entry.reader);
        }
        let (endpoint, _) = state.entry(self.key);
        let read = endpoint.offer(self.key.0, self.key.1, take).unwrap_or(Read::Blocked);
        self.handle_read(&mut state, context, read)
    }

    /// Keeps account of what was read, or waits.
    fn handle_read(
        &self,
        state: &mut State,
        context: &Context<'_>,
        read: Read,
    ) -> Poll<Result<Read, ResetReason>> {
        let (_, entry, _) = state.parts(self.key);
        match read {
            Read::Blocked => {
                wait(&mut entry.reader, context);
                return Poll::Pending;
            }
            Read::End => entry.ended = true,
            Read::Data(count) => {
                state.charge(self.key.0, count);
                state.count(self.key, Direction::From, count);
                if let Some(forecast) = &mut state.forecast {
                    forecast.handle_received(clock::now(), self.key);
                }
            }
        }
        // The peer may be waiting for the credit that this has freed.
        self.hop.notify_driver(self.key.0);
        Poll::Ready(Ok(read))
    }

    /// How many bytes there is room for, as far as that is known.
    pub(crate) fn room(&self) -> u64 {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry, _) = state.parts(self.key);
        match entry.coded {
            Some(_) => 0,
            None => endpoint.room(self.key.0, self.key.1).unwrap_or(0),
        }
    }

    /// Writes as much of `data` as the stream accepts, at least one byte. While it waits for room, it
    /// must be called with the same data.
    pub(crate) fn poll_write(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        if !state.may_work(self.key.0) {
            return self.rest(&mut state, context, |entry| &mut entry.writer);
        }
        let (endpoint, entry, compression) = state.parts(self.key);
        let taken = match &mut entry.coded {
            Some(coded) => compression.write(coded, data, |bytes| send(endpoint, self.key, bytes)),
            None => send(endpoint, self.key, data),
        };
        if taken == 0 {
            wait(&mut entry.writer, context);
            if entry.coded.is_some() {
                // A part may have been sent.
                self.hop.notify_driver(self.key.0);
            }
            return Poll::Pending;
        }
        self.handle_written(&mut state, taken);
        Poll::Ready(Ok(taken))
    }

    /// As [`Self::poll_write`], without a copy: `read` appends to the stream's memory, at most what it has
    /// room for, perhaps nothing. Not for streams that are compressed.
    pub(crate) fn poll_fill(
        &self,
        context: &mut Context<'_>,
        read: impl FnOnce(&mut Room<'_>),
    ) -> Poll<Result<usize, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        if !state.may_work(self.key.0) {
            return self.rest(&mut state, context, |entry| &mut entry.writer);
        }
        let (endpoint, entry) = state.entry(self.key);
        match endpoint.fill(self.key.0, self.key.1, read) {
            Ok(Some(0)) => Poll::Ready(Ok(0)),
            Ok(Some(count)) => {
                self.handle_written(&mut state, count);
                Poll::Ready(Ok(count))
            }
            // If the endpoint no longer knows the stream, a pending event has the reason.
            Ok(None) | Err(_) => {
                wait(&mut entry.writer, context);
                Poll::Pending
            }
        }
    }

    /// Keeps account of what was written.
    fn handle_written(&self, state: &mut State, count: usize) {
        state.charge(self.key.0, count);
        state.count(self.key, Direction::To, count);
        if let Some(forecast) = &mut state.forecast {
            forecast.handle_sent(clock::now(), self.key, count);
        }
        self.hop.notify_driver(self.key.0);
    }

    /// Finishes our direction, once there is room for what precedes its end.
    pub(crate) fn poll_finish(&self, context: &Context<'_>) -> Poll<Result<(), ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry, compression) = state.parts(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        let is_flushed = is_flushed(endpoint, entry, compression, self.key);
        self.hop.notify_driver(self.key.0);
        if !is_flushed {
            wait(&mut entry.writer, context);
            return Poll::Pending;
        }
        let finished = endpoint.finish(self.key.0, self.key.1).map_err(|error| lost(&error));
        entry.finished |= finished.is_ok();
        Poll::Ready(finished)
    }

    /// [`Self::poll_finish`] of a stream with room.
    #[cfg(test)]
    pub(crate) fn finish(&self) -> Result<(), ResetReason> {
        match self.poll_finish(&Context::from_waker(Waker::noop())) {
            Poll::Ready(finished) => finished,
            Poll::Pending => panic!("the stream has no room"),
        }
    }

    /// Tells the peer that the stream is connected to its destination.
    pub(crate) fn accept(&self) -> Result<(), ResetReason> {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Err(reason);
        }
        endpoint.accept(self.key.0, self.key.1).map_err(|error| lost(&error))?;
        self.hop.notify_driver(self.key.0);
        Ok(())
    }

    /// The session of the stream.
    pub(crate) fn session(&self) -> SessionId {
        self.key.0
    }

    /// Waits until the peer has connected the stream to its destination.
    ///
    /// # Errors
    /// The reason if it could not.
    pub(crate) async fn accepted(&self) -> Result<(), ResetReason> {
        poll_fn(|context| self.poll_accepted(context)).await
    }

    /// Like [`Self::accepted`].
    pub(crate) fn poll_accepted(&self, context: &Context<'_>) -> Poll<Result<(), ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        match entry.reset {
            Some(reason) => return Poll::Ready(Err(reason)),
            None if entry.accepted => return Poll::Ready(Ok(())),
            None => wait(&mut entry.watcher, context),
        }
        Poll::Pending
    }

    /// Whether the peer has connected the stream to its destination.
    pub(crate) fn is_accepted(&self) -> bool {
        self.hop.lock(self.key.0).entry(self.key).1.accepted
    }

    /// Waits until the peer resets the stream or the session is lost; otherwise for ever.
    pub(crate) async fn reset_by_peer(&self) -> ResetReason {
        poll_fn(|context| self.poll_reset(context)).await
    }

    /// Like [`Self::reset_by_peer`].
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Poll<ResetReason> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        match entry.reset {
            Some(reason) => Poll::Ready(reason),
            None => {
                wait(&mut entry.watcher, context);
                Poll::Pending
            }
        }
    }

    /// Bytes that the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, _) = state.entry(self.key);
        let stats = endpoint.stream_stats(self.key.0, self.key.1);
        stats.map_or(0, |stats| stats.unsent + stats.unacknowledged)
    }

    /// Makes sure that a compressed stream has taken all that was written; false if it has no room.
    pub(crate) fn flush(&self) -> bool {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry, compression) = state.parts(self.key);
        let is_flushed = entry.reset.is_some()
            || entry.finished
            || is_flushed(endpoint, entry, compression, self.key);
        self.hop.notify_driver(self.key.0);
        is_flushed
    }

    /// Resets both directions, with a reason for the peer, once the peer has what was written.
    pub(crate) fn reset(self, reason: ResetReason) {
        self.abandon(reason);
    }

    /// [`Self::reset`] of a stream that others may still hold.
    pub(crate) fn abandon(&self, reason: ResetReason) {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry) = state.entry(self.key);
        if entry.reset.is_some() || (entry.finished && entry.ended) {
            return;
        }
        // Fails only for a stream that is already gone.
        let _ = endpoint.reset_after_data(self.key.0, self.key.1, reason);
        entry.reset = Some(reason);
        self.hop.notify_driver(self.key.0);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.abandon(ResetReason::Reset);
        let mut state = self.hop.lock(self.key.0);
        state.streams.remove(&self.key);
        if let Some(forecast) = &mut state.forecast {
            forecast.remove(self.key);
        }
    }
}

/// Writes what must precede the end or the reset of a stream; whether there was room for it.
fn is_flushed(
    endpoint: &mut Endpoint,
    entry: &mut Entry,
    compression: &mut Compression,
    key: Key,
) -> bool {
    let coded = entry.coded.as_mut();
    coded.is_none_or(|coded| compression.finish(coded, |bytes| send(endpoint, key, bytes)))
}

fn wait(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(present) => present.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}

/// The reason when the endpoint has already forgotten the stream, before its event arrives.
fn lost(error: &StreamError) -> ResetReason {
    match error {
        StreamError::NoSession => ResetReason::SessionLost,
        _ => ResetReason::Reset,
    }
}
