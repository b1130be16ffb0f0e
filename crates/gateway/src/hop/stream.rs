//! A stream of the hop: polled reads and writes that wake the task when they can continue.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::MutexGuard;
use std::task::{Context, Poll, Waker};

use compression::StreamRead;
use pep::accounting::TrafficDirection;
use slacp::{Endpoint, ReadOutcome, ResetReason, SessionId, StreamError, StreamId, WriteRoom};

use super::compression::{Compression, send};
use super::handle::{Hop, PartState, StreamEntry, StreamKey};
use crate::process::clock;

/// A stream. Dropping it before both directions have ended resets it: an aborted connection must
/// not look like a finished one.
pub(crate) struct SessionStream {
    hop: Hop,
    key: StreamKey,
}

impl SessionStream {
    pub(super) fn new(hop: Hop, key: StreamKey) -> Self {
        Self { hop, key }
    }

    /// Identifier of the stream within its session.
    pub(crate) fn id(&self) -> StreamId {
        self.key.1
    }

    /// Reads available data into `buffer`. Never returns [`ReadOutcome::Blocked`].
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<ReadOutcome, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        let is_coded = entry.coder.is_some();
        if let Some(reason) = entry.reset.filter(|_| !is_coded) {
            return Poll::Ready(Err(reason));
        }
        if entry.ended {
            return Poll::Ready(Ok(ReadOutcome::End));
        }
        // A session that has used its share of the thread must not delay the others.
        if !state.may_work(self.key.0) {
            return self.wait_for_turn(&mut state, context, |entry| &mut entry.reader);
        }
        if is_coded {
            return self.poll_read_coded(state, context, buffer);
        }
        let (endpoint, _) = state.entry(self.key);
        // If the endpoint no longer has the stream, it was reset; a pending event has the reason.
        let read = endpoint.read(self.key.0, self.key.1, buffer).unwrap_or(ReadOutcome::Blocked);
        self.handle_read(&mut state, context, read)
    }

    /// Continues [`Self::poll_read`] for a compressed stream.
    fn poll_read_coded(
        &self,
        mut state: MutexGuard<'_, PartState>,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<ReadOutcome, ResetReason>> {
        let (endpoint, entry, compression) = state.parts(self.key);
        let coded = entry.coder.as_mut().expect("the caller has seen the coder under this lock");
        let receive = |buffer: &mut [u8]| {
            endpoint.read(self.key.0, self.key.1, buffer).unwrap_or(ReadOutcome::Blocked)
        };
        let before = coded.work();
        let got = compression.read(coded, buffer, receive);
        let decoding = coded.work() - before;
        state.work.charge(self.key.0, decoding);
        match got {
            Ok(StreamRead::Data(count)) => {
                self.handle_read(&mut state, context, ReadOutcome::Data(count))
            }
            Ok(StreamRead::End) => self.handle_read(&mut state, context, ReadOutcome::End),
            Ok(StreamRead::Nothing) => {
                if let Some(reason) = state.entry(self.key).1.reset {
                    // Only now: a reset must not overtake data that the decoder held.
                    return Poll::Ready(Err(reason));
                }
                if decoding > 0 {
                    // The decoder has consumed data, which frees credit for the peer.
                    self.hop.notify_driver(self.key.0);
                }
                self.handle_read(&mut state, context, ReadOutcome::Blocked)
            }
            Ok(StreamRead::Later) => {
                self.wait_for_turn(&mut state, context, |entry| &mut entry.reader)
            }
            Err(error) => {
                tracing::debug!("reset a stream with invalid data: {error}");
                state.entry(self.key).1.coder = None;
                // `abandon` takes the lock itself.
                drop(state);
                self.abandon(ResetReason::Reset);
                Poll::Ready(Err(ResetReason::Reset))
            }
        }
    }

    /// Registers the task for the driver's next turn, in which the session may work again.
    fn wait_for_turn<T>(
        &self,
        state: &mut PartState,
        context: &Context<'_>,
        waker: impl FnOnce(&mut StreamEntry) -> &mut Option<Waker>,
    ) -> Poll<T> {
        register_waker(waker(state.entry(self.key).1), context);
        state.queue_for_turn(self.key);
        self.hop.notify_driver(self.key.0);
        Poll::Pending
    }

    /// Returns whether the stream is compressed, which [`Self::poll_offer`] and [`Self::poll_fill`] do not
    /// support.
    pub(crate) fn is_coded(&self) -> bool {
        let mut state = self.hop.lock(self.key.0);
        state.parts(self.key).1.coder.is_some()
    }

    /// Like [`Self::poll_read`], without a copy: offers available data as slices to `take`, which returns
    /// the number of bytes it has consumed, possibly 0.
    pub(crate) fn poll_offer(
        &self,
        context: &mut Context<'_>,
        take: impl FnOnce(&[IoSlice<'_>]) -> usize,
    ) -> Poll<Result<ReadOutcome, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        if entry.ended {
            return Poll::Ready(Ok(ReadOutcome::End));
        }
        if !state.may_work(self.key.0) {
            return self.wait_for_turn(&mut state, context, |entry| &mut entry.reader);
        }
        let (endpoint, _) = state.entry(self.key);
        let read = endpoint.offer(self.key.0, self.key.1, take).unwrap_or(ReadOutcome::Blocked);
        self.handle_read(&mut state, context, read)
    }

    /// Accounts for data read, or registers the task if there was none.
    fn handle_read(
        &self,
        state: &mut PartState,
        context: &Context<'_>,
        read: ReadOutcome,
    ) -> Poll<Result<ReadOutcome, ResetReason>> {
        let (_, entry, _) = state.parts(self.key);
        match read {
            ReadOutcome::Blocked => {
                register_waker(&mut entry.reader, context);
                return Poll::Pending;
            }
            ReadOutcome::End => entry.ended = true,
            ReadOutcome::Data(count) => {
                state.charge(self.key.0, count);
                state.count(self.key, TrafficDirection::From, count);
                if let Some(forecast) = &mut state.forecast {
                    forecast.handle_received(clock::now(), self.key);
                }
            }
        }
        // The peer may be waiting for the credit that this has freed.
        self.hop.notify_driver(self.key.0);
        Poll::Ready(Ok(read))
    }

    /// Bytes that the stream would accept now; 0 if that is unknown, as for a compressed stream.
    pub(crate) fn room(&self) -> u64 {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry, _) = state.parts(self.key);
        match entry.coder {
            Some(_) => 0,
            None => endpoint.room(self.key.0, self.key.1).unwrap_or(0),
        }
    }

    /// Writes as much of `data` as the stream accepts, at least one byte. After `Pending`, it must be
    /// called with the same data again: a compressed stream may have consumed a part.
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
            return self.wait_for_turn(&mut state, context, |entry| &mut entry.writer);
        }
        let (endpoint, entry, compression) = state.parts(self.key);
        let taken = match &mut entry.coder {
            Some(coded) => compression.write(coded, data, |bytes| send(endpoint, self.key, bytes)),
            None => send(endpoint, self.key, data),
        };
        if taken == 0 {
            register_waker(&mut entry.writer, context);
            if entry.coder.is_some() {
                // The coder may have passed compressed bytes to the stream nevertheless.
                self.hop.notify_driver(self.key.0);
            }
            return Poll::Pending;
        }
        self.handle_written(&mut state, taken);
        Poll::Ready(Ok(taken))
    }

    /// Like [`Self::poll_write`], without a copy: `read` appends to the stream's memory, at most what it
    /// has room for, possibly nothing. Not for compressed streams.
    pub(crate) fn poll_fill(
        &self,
        context: &mut Context<'_>,
        read: impl FnOnce(&mut WriteRoom<'_>),
    ) -> Poll<Result<usize, ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        if !state.may_work(self.key.0) {
            return self.wait_for_turn(&mut state, context, |entry| &mut entry.writer);
        }
        let (endpoint, entry) = state.entry(self.key);
        match endpoint.fill(self.key.0, self.key.1, read) {
            Ok(Some(0)) => Poll::Ready(Ok(0)),
            Ok(Some(count)) => {
                self.handle_written(&mut state, count);
                Poll::Ready(Ok(count))
            }
            // If the endpoint no longer has the stream, a pending event has the reason.
            Ok(None) | Err(_) => {
                register_waker(&mut entry.writer, context);
                Poll::Pending
            }
        }
    }

    /// Accounts for data written, and wakes the driver to send it.
    fn handle_written(&self, state: &mut PartState, count: usize) {
        state.charge(self.key.0, count);
        state.count(self.key, TrafficDirection::To, count);
        if let Some(forecast) = &mut state.forecast {
            forecast.handle_sent(clock::now(), self.key, count);
        }
        self.hop.notify_driver(self.key.0);
    }

    /// Finishes our direction. `Pending` while a compressed stream has no room for its last bytes.
    pub(crate) fn poll_finish(&self, context: &Context<'_>) -> Poll<Result<(), ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry, compression) = state.parts(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        let is_flushed = flush_coder(endpoint, entry, compression, self.key);
        self.hop.notify_driver(self.key.0);
        if !is_flushed {
            register_waker(&mut entry.writer, context);
            return Poll::Pending;
        }
        let finished =
            endpoint.finish(self.key.0, self.key.1).map_err(|error| reset_reason(&error));
        entry.finished |= finished.is_ok();
        Poll::Ready(finished)
    }

    /// Calls [`Self::poll_finish`] on a stream with room.
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
        endpoint.accept(self.key.0, self.key.1).map_err(|error| reset_reason(&error))?;
        self.hop.notify_driver(self.key.0);
        Ok(())
    }

    /// The session that the stream belongs to.
    pub(crate) fn session(&self) -> SessionId {
        self.key.0
    }

    /// Waits until the peer has connected the stream to its destination.
    ///
    /// # Errors
    /// The reason of the reset if the peer could not connect.
    pub(crate) async fn accepted(&self) -> Result<(), ResetReason> {
        poll_fn(|context| self.poll_accepted(context)).await
    }

    /// Polls [`Self::accepted`]; only the last task to poll is woken.
    pub(crate) fn poll_accepted(&self, context: &Context<'_>) -> Poll<Result<(), ResetReason>> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        match entry.reset {
            Some(reason) => return Poll::Ready(Err(reason)),
            None if entry.accepted => return Poll::Ready(Ok(())),
            None => register_waker(&mut entry.watcher, context),
        }
        Poll::Pending
    }

    /// Returns whether the peer has connected the stream to its destination.
    pub(crate) fn is_accepted(&self) -> bool {
        self.hop.lock(self.key.0).entry(self.key).1.accepted
    }

    /// Waits until the peer resets the stream or the session is lost. Never returns otherwise.
    pub(crate) async fn reset_by_peer(&self) -> ResetReason {
        poll_fn(|context| self.poll_reset(context)).await
    }

    /// Polls [`Self::reset_by_peer`]; only the last task to poll is woken.
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Poll<ResetReason> {
        let mut state = self.hop.lock(self.key.0);
        let (_, entry) = state.entry(self.key);
        match entry.reset {
            Some(reason) => Poll::Ready(reason),
            None => {
                register_waker(&mut entry.watcher, context);
                Poll::Pending
            }
        }
    }

    /// Bytes written that the peer has not acknowledged, sent or not.
    pub(crate) fn unacknowledged(&self) -> u64 {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, _) = state.entry(self.key);
        let stats = endpoint.stream_stats(self.key.0, self.key.1);
        stats.map_or(0, |stats| stats.unsent + stats.unacknowledged)
    }

    /// Passes the remaining bytes of the coder to a compressed stream; false if they do not fit.
    pub(crate) fn flush(&self) -> bool {
        let mut state = self.hop.lock(self.key.0);
        let (endpoint, entry, compression) = state.parts(self.key);
        let is_flushed = entry.reset.is_some()
            || entry.finished
            || flush_coder(endpoint, entry, compression, self.key);
        self.hop.notify_driver(self.key.0);
        is_flushed
    }

    /// Resets both directions with a reason for the peer, after the data written so far.
    pub(crate) fn reset(self, reason: ResetReason) {
        self.abandon(reason);
    }

    /// Like [`Self::reset`], for a stream that other owners may still hold.
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

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.abandon(ResetReason::Reset);
        let mut state = self.hop.lock(self.key.0);
        state.streams.remove(&self.key);
        if let Some(forecast) = &mut state.forecast {
            forecast.remove(self.key);
        }
    }
}

/// Writes the last compressed bytes before a stream's end or reset. Returns false without room for them.
fn flush_coder(
    endpoint: &mut Endpoint,
    entry: &mut StreamEntry,
    compression: &mut Compression,
    key: StreamKey,
) -> bool {
    let coded = entry.coder.as_mut();
    coded.is_none_or(|coded| compression.finish(coded, |bytes| send(endpoint, key, bytes)))
}

fn register_waker(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(present) => present.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}

/// Returns the reset reason for a stream that the endpoint no longer has, before its event arrives.
fn reset_reason(error: &StreamError) -> ResetReason {
    match error {
        StreamError::NoSession => ResetReason::SessionLost,
        _ => ResetReason::Reset,
    }
}
