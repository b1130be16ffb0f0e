//! A leg of a relayed connection: a TCP socket, a connection of skyhop's own stack, or a stream of the hop.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pep::relay::LegFailure;
use slacp::{ReadOutcome, ResetReason};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::hop::SessionStream;
use crate::network::socket_options;
use crate::relay::leg::TcpLeg;
use crate::relay::{dial, leg};
use crate::stack::StackFlow;

/// A leg of a relayed connection. If it is dropped, or the process is killed, before both of its
/// directions have ended, it is reset: its peer must not mistake a failure for the end of the data.
pub(crate) enum RelayEnd {
    Socket(SocketEnd),
    Flow(StackFlow),
    Stream(SessionStream),
}

/// A TCP connection of the kernel as a leg.
pub(crate) struct SocketEnd {
    /// Shared with `failure` only, so that dropping this end closes it.
    pub(super) socket: Arc<TcpStream>,
    /// Completes when the socket fails, even while nothing reads or writes it, so that a client's
    /// reset is noticed although the other leg is blocked.
    failure: Option<Pin<Box<dyn Future<Output = LegFailure> + Send>>>,
    /// Acknowledge at once after each read.
    quick_ack: bool,
}

impl SocketEnd {
    pub(crate) fn new(socket: TcpStream, quick_ack: bool) -> Self {
        // Even if the process is killed, the peer must not take a cut-off download for a complete one.
        socket_options::reset_when_closed(&socket, true);
        let socket = Arc::new(socket);
        let failure = Some(Box::pin(failure(socket.clone())) as Pin<Box<_>>);
        Self { socket, failure, quick_ack }
    }

    /// Returns whether the next byte to read is urgent.
    pub(super) fn is_at_urgent(&self) -> bool {
        os::socket::is_at_urgent(&*self.socket)
    }

    /// Call after each read: the kernel keeps re-enabling delayed ACKs.
    pub(super) fn has_read(&self) {
        if self.quick_ack {
            socket_options::acknowledge_at_once(&self.socket);
        }
    }

    /// Runs `operation`, one of tokio's `try_` calls that needs `interest`, once the socket is ready for it.
    pub(super) fn poll_io<R>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            ready!(self.poll_ready(context, interest))?;
            match operation() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Polls the socket's readiness for reading or for writing.
    pub(super) fn poll_ready(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
    ) -> Poll<io::Result<()>> {
        if interest.is_readable() {
            self.socket.poll_read_ready(context)
        } else {
            self.socket.poll_write_ready(context)
        }
    }

    fn poll_failure(&mut self, context: &mut Context<'_>) -> Poll<LegFailure> {
        let Some(failure) = &mut self.failure else { return Poll::Pending };
        let failure = ready!(failure.as_mut().poll(context));
        self.failure = None;
        Poll::Ready(failure)
    }

    /// Returns whether the peer has acknowledged everything. From now on, closing the socket is a normal
    /// end, not a reset.
    fn is_delivered(&self) -> bool {
        socket_options::reset_when_closed(&self.socket, false);
        // An error means that the connection has already gone.
        !socket_options::unacknowledged(&self.socket).is_ok_and(|bytes| bytes > 0)
    }
}

impl From<TcpLeg> for RelayEnd {
    fn from(leg: TcpLeg) -> Self {
        Self::Socket(leg.into_end())
    }
}

impl From<StackFlow> for RelayEnd {
    fn from(flow: StackFlow) -> Self {
        Self::Flow(flow)
    }
}

impl RelayEnd {
    /// Reads available data; 0 bytes mean the end.
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, LegFailure>> {
        match self {
            Self::Socket(end) => {
                let read = || end.socket.try_read(buffer);
                let read = ready!(end.poll_io(context, Interest::READABLE, read));
                end.has_read();
                Poll::Ready(read.map_err(|error| failure_of(&error)))
            }
            Self::Flow(flow) => flow.poll_read(context, buffer),
            Self::Stream(stream) => match ready!(stream.poll_read(context, buffer)) {
                Ok(ReadOutcome::Data(count)) => Poll::Ready(Ok(count)),
                Ok(_) => Poll::Ready(Ok(0)),
                Err(reason) => Poll::Ready(Err(LegFailure::Reset(reason))),
            },
        }
    }

    /// Returns whether the leg is a readable socket whose next byte is urgent.
    pub(super) fn is_at_urgent(&self, context: &mut Context<'_>) -> bool {
        let Self::Socket(end) = self else { return false };
        // Saves a system call while nothing waits.
        let may_read = end.poll_ready(context, Interest::READABLE).is_ready();
        may_read && end.is_at_urgent()
    }

    /// Writes as much of `data` as there is room for, at least one byte.
    pub(super) fn poll_write(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, LegFailure>> {
        match self {
            Self::Socket(end) => {
                let write = || end.socket.try_write(data);
                let written = ready!(end.poll_io(context, Interest::WRITABLE, write));
                Poll::Ready(written.map_err(|error| failure_of(&error)))
            }
            Self::Flow(flow) => flow.poll_write(context, data),
            Self::Stream(stream) => stream.poll_write(context, data).map_err(LegFailure::Reset),
        }
    }

    /// Polls for room to write. A stream is always ready: it knows only when it is written to.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<(), LegFailure>> {
        match self {
            Self::Socket(end) => {
                end.poll_ready(context, Interest::WRITABLE).map_err(|error| failure_of(&error))
            }
            Self::Flow(flow) => flow.poll_room(context),
            Self::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    /// Bytes that can be written for certain; 0 if that is unknown.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Stream(stream) => usize::try_from(stream.room()).unwrap_or(usize::MAX),
            Self::Socket(_) | Self::Flow(_) => 0,
        }
    }

    pub(super) fn poll_failure(&mut self, context: &mut Context<'_>) -> Poll<LegFailure> {
        match self {
            Self::Socket(end) => end.poll_failure(context),
            Self::Flow(flow) => flow.poll_failure(context),
            Self::Stream(stream) => stream.poll_reset(context).map(LegFailure::Reset),
        }
    }

    /// Ends the sending direction of the leg. `Pending` while a stream has no room for its last bytes.
    pub(super) fn poll_finish(&self, context: &Context<'_>) -> Poll<Result<(), LegFailure>> {
        match self {
            Self::Socket(end) => {
                Poll::Ready(leg::shut_down(&end.socket).map_err(|error| failure_of(&error)))
            }
            Self::Flow(flow) => Poll::Ready(flow.finish()),
            Self::Stream(stream) => stream.poll_finish(context).map_err(LegFailure::Reset),
        }
    }

    pub(super) fn is_delivered(&mut self) -> bool {
        match self {
            Self::Socket(end) => end.is_delivered(),
            Self::Flow(flow) => flow.is_delivered(),
            // The session delivers everything that its streams have accepted.
            Self::Stream(_) => true,
        }
    }

    /// Bytes that the peer has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        match self {
            Self::Socket(end) => {
                socket_options::unacknowledged(&end.socket).map_or(0, |bytes| bytes as u64)
            }
            Self::Flow(flow) => flow.unacknowledged(),
            Self::Stream(stream) => stream.unacknowledged(),
        }
    }

    /// Returns whether the leg can be reset without losing data that was written to it.
    pub(super) fn may_be_reset(&self) -> bool {
        match self {
            Self::Socket(_) | Self::Flow(_) => self.unacknowledged() == 0,
            // A stream's reset follows the data that it has accepted.
            Self::Stream(stream) => stream.flush(),
        }
    }

    pub(super) fn reset(self, reason: ResetReason) {
        match self {
            // Dropping these resets the connection.
            Self::Socket(end) => drop(end),
            Self::Flow(flow) => drop(flow),
            Self::Stream(stream) => stream.reset(reason),
        }
    }
}

/// Translates a socket's error to the failure of its connection.
pub(super) fn failure_of(error: &io::Error) -> LegFailure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => LegFailure::Closed,
        _ => LegFailure::Broken(dial::reset_reason(error)),
    }
}

/// Waits until the socket fails.
async fn failure(socket: Arc<TcpStream>) -> LegFailure {
    match leg::failure(&socket).await {
        Some(error) => failure_of(&error),
        // Another call has consumed the error. Reading and writing report the failure, too.
        None => LegFailure::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that has closed its socket may still be owed what it sent; one that reset is not.
    #[test]
    fn a_broken_pipe_is_a_closed_socket_and_everything_else_a_broken_connection() {
        let failure = |code| failure_of(&io::Error::from_raw_os_error(code));
        assert_eq!(failure(libc::EPIPE), LegFailure::Closed);
        for (code, reason) in [
            (libc::ECONNRESET, ResetReason::Reset),
            (libc::ETIMEDOUT, ResetReason::TimedOut),
            (libc::EHOSTUNREACH, ResetReason::Unreachable),
            (libc::ECONNREFUSED, ResetReason::Refused),
        ] {
            assert_eq!(failure(code), LegFailure::Broken(reason));
        }
    }
}
