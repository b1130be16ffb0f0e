//! A stream of a terminal's session as an asynchronous reader and writer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use slacp::{ReadOutcome, SessionId, StreamId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::member::{MemberState, SwarmMember};

/// The tasks that wait for a stream, and its early end.
#[derive(Debug, Default)]
pub(super) struct StreamWaiters {
    wakers: [Option<Waker>; 2],
    /// Reason for an early end, in one line.
    ended: Option<String>,
}

/// Index of the reader's waker.
const READER: usize = 0;
const WRITER: usize = 1;

impl StreamWaiters {
    /// Wakes both tasks: the stream may be readable or writable again.
    pub(super) fn wake(&mut self) {
        self.wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// Records that the stream ended before it was complete, and wakes both tasks.
    pub(super) fn end(&mut self, why: &str) {
        self.ended.get_or_insert_with(|| why.to_owned());
        self.wake();
    }

    /// Returns the error of reads and writes after an early end.
    fn error(&self) -> Option<io::Error> {
        let why = self.ended.clone()?;
        Some(io::Error::new(io::ErrorKind::ConnectionReset, why))
    }
}

/// The reading and writing end of a stream. It resets the stream when dropped, unless both
/// directions have ended.
pub(super) struct HopStream<'a> {
    member: &'a SwarmMember,
    session: SessionId,
    id: StreamId,
}

impl<'a> HopStream<'a> {
    pub(super) fn open(
        member: &'a SwarmMember,
        now: units::Instant,
        open: slacp::StreamOpening,
    ) -> io::Result<Self> {
        let mut state = member.state.borrow_mut();
        let session = state.session.ok_or_else(|| io::Error::other("there is no session"))?;
        let id = state.endpoint.open(now, session, open).map_err(io::Error::other)?;
        state.stream = Some(StreamWaiters::default());
        // Wakes the driver, which sends what the endpoint has.
        member.work.notify_one();
        Ok(Self { member, session, id })
    }

    /// Runs `what`; registers the waker of `who` if it has no result yet.
    fn poll<T>(
        &self,
        context: &Context<'_>,
        who: usize,
        what: impl FnOnce(&mut MemberState) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.member.state.borrow_mut();
        if let Some(ended) = state.stream.as_ref().and_then(StreamWaiters::error) {
            return Poll::Ready(Err(ended));
        }
        let done = match what(&mut state) {
            Ok(done) => done,
            Err(error) => {
                // The stream is gone once the last data before a reset has been read: the event
                // that says why may still wait.
                self.member.follow_events(&mut state);
                let ended = state.stream.as_ref().and_then(StreamWaiters::error);
                return Poll::Ready(Err(ended.unwrap_or(error)));
            }
        };
        if let (None, Some(stream)) = (&done, &mut state.stream) {
            stream.wakers[who] = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.member.work.notify_one();
        done.map_or(Poll::Pending, |done| Poll::Ready(Ok(done)))
    }
}

impl AsyncRead for HopStream<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let session = self.session;
        let id = self.id;
        self.poll(context, READER, |state| {
            match state.endpoint.read(session, id, buffer.initialize_unfilled()) {
                Ok(ReadOutcome::Data(count)) => {
                    buffer.advance(count);
                    Ok(Some(()))
                }
                // A read that fills nothing is the end of the stream.
                Ok(ReadOutcome::End) => Ok(Some(())),
                Ok(ReadOutcome::Blocked) => Ok(None),
                Err(error) => Err(io::Error::other(error)),
            }
        })
    }
}

impl AsyncWrite for HopStream<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let session = self.session;
        let id = self.id;
        self.poll(context, WRITER, |state| {
            let written = state.endpoint.write(session, id, data).map_err(io::Error::other)?;
            Ok((written > 0).then_some(written))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing to push: the driver sends whatever the endpoint has.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let session = self.session;
        let id = self.id;
        self.poll(context, WRITER, |state| {
            state.endpoint.finish(session, id).map(Some).map_err(io::Error::other)
        })
    }
}

impl Drop for HopStream<'_> {
    fn drop(&mut self) {
        let mut state = self.member.state.borrow_mut();
        state.stream = None;
        // Fails for a stream that is complete.
        let _ = state.endpoint.reset(self.session, self.id, slacp::ResetReason::Reset);
        self.member.work.notify_one();
    }
}
