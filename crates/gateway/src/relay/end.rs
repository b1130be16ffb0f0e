//! A leg of a relayed connection: a TCP socket, a connection of our own stack, or a stream of the hop.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pep::relay::Failure;
use slacp::{Read, ResetReason};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::hop::Stream;
use crate::relay::leg::Leg;
use crate::relay::{dial, leg};
use crate::socket_options;
use crate::stack::Flow;

/// A leg of a relayed connection. If it is dropped, or the process is killed, before both of its
/// directions have ended, it is reset: its peer must not mistake a failure for the end of the data.
pub(crate) enum End {
    Socket(SocketEnd),
    Flow(Flow),
    Stream(Stream),
}

/// A TCP connection.
pub(crate) struct SocketEnd {
    /// Shared with `failure` only.
    pub(super) socket: Arc<TcpStream>,
    /// Completes when the socket fails, even while nothing reads or writes it, so that a client's
    /// reset is noticed although the other leg is blocked.
    failure: Option<Pin<Box<dyn Future<Output = Failure> + Send>>>,
    /// Whether delayed ACKs are disabled.
    quick_ack: bool,
}

impl SocketEnd {
    pub(crate) fn new(socket: TcpStream, quick_ack: bool) -> Self {
        socket_options::reset_when_closed(&socket, true);
        let socket = Arc::new(socket);
        let failure = Some(Box::pin(failure(socket.clone())) as Pin<Box<_>>);
        Self { socket, failure, quick_ack }
    }

    /// Whether the next bytes to read begin with an urgent one.
    pub(super) fn is_at_urgent(&self) -> bool {
        os::socket::is_at_urgent(&*self.socket)
    }

    /// Call after each read: the kernel keeps re-enabling delayed ACKs.
    pub(super) fn has_read(&self) {
        if self.quick_ack {
            socket_options::acknowledge_at_once(&self.socket);
        }
    }

    /// Runs `operation`, one of tokio's `try_` calls to read or write, as `interest` says, when it
    /// is possible.
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

    /// Waits until the socket may be read or written.
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

    fn poll_failure(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        let Some(failure) = &mut self.failure else { return Poll::Pending };
        let failure = ready!(failure.as_mut().poll(context));
        self.failure = None;
        Poll::Ready(failure)
    }

    /// Makes the closing of the connection its end, and returns whether its peer has acknowledged
    /// everything.
    fn is_delivered(&self) -> bool {
        socket_options::reset_when_closed(&self.socket, false);
        !socket_options::unacknowledged(&self.socket).is_ok_and(|bytes| bytes > 0)
    }
}

impl From<Leg> for End {
    fn from(leg: Leg) -> Self {
        Self::Socket(leg.into_end())
    }
}

impl From<Flow> for End {
    fn from(flow: Flow) -> Self {
        Self::Flow(flow)
    }
}

impl End {
    /// Reads available data; 0 bytes mean the end.
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Failure>> {
        match self {
            Self::Socket(end) => {
                let read = || end.socket.try_read(buffer);
                let read = ready!(end.poll_io(context, Interest::READABLE, read));
                end.has_read();
                Poll::Ready(read.map_err(|error| of(&error)))
            }
            Self::Flow(flow) => flow.poll_read(context, buffer),
            Self::Stream(stream) => match ready!(stream.poll_read(context, buffer)) {
                Ok(Read::Data(count)) => Poll::Ready(Ok(count)),
                Ok(_) => Poll::Ready(Ok(0)),
                Err(reason) => Poll::Ready(Err(Failure::Reset(reason))),
            },
        }
    }

    /// Whether there may be bytes to read, and they begin with an urgent one.
    pub(super) fn is_at_urgent(&self, context: &mut Context<'_>) -> bool {
        let Self::Socket(end) = self else { return false };
        let may_read = end.poll_ready(context, Interest::READABLE).is_ready();
        may_read && end.is_at_urgent()
    }

    /// Writes as much of `data` as there is room for, at least one byte.
    pub(super) fn poll_write(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, Failure>> {
        match self {
            Self::Socket(end) => {
                let write = || end.socket.try_write(data);
                let written = ready!(end.poll_io(context, Interest::WRITABLE, write));
                Poll::Ready(written.map_err(|error| of(&error)))
            }
            Self::Flow(flow) => flow.poll_write(context, data),
            Self::Stream(stream) => stream.poll_write(context, data).map_err(Failure::Reset),
        }
    }

    /// Waits for room, as far as a leg can tell before it is written to.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match self {
            Self::Socket(end) => {
                end.poll_ready(context, Interest::WRITABLE).map_err(|error| of(&error))
            }
            Self::Flow(flow) => flow.poll_room(context),
            Self::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    /// How many bytes there is surely room for; 0 if it is not known.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Stream(stream) => usize::try_from(stream.room()).unwrap_or(usize::MAX),
            Self::Socket(_) | Self::Flow(_) => 0,
        }
    }

    pub(super) fn poll_failure(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        match self {
            Self::Socket(end) => end.poll_failure(context),
            Self::Flow(flow) => flow.poll_failure(context),
            Self::Stream(stream) => stream.poll_reset(context).map(Failure::Reset),
        }
    }

    /// Ends what is sent on the leg, if it has room for the end.
    pub(super) fn poll_finish(&self, context: &Context<'_>) -> Poll<Result<(), Failure>> {
        match self {
            Self::Socket(end) => {
                Poll::Ready(leg::shut_down(&end.socket).map_err(|error| of(&error)))
            }
            Self::Flow(flow) => Poll::Ready(flow.finish()),
            Self::Stream(stream) => stream.poll_finish(context).map_err(Failure::Reset),
        }
    }

    pub(super) fn is_delivered(&mut self) -> bool {
        match self {
            Self::Socket(end) => end.is_delivered(),
            Self::Flow(flow) => flow.is_delivered(),
            // The session delivers what its streams have taken.
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

    /// Whether the leg may be reset without loss of what was sent on it.
    pub(super) fn may_be_reset(&self) -> bool {
        match self {
            Self::Socket(_) | Self::Flow(_) => self.unacknowledged() == 0,
            // The session delivers what its streams have taken before their reset.
            Self::Stream(stream) => stream.flush(),
        }
    }

    pub(super) fn reset(self, reason: ResetReason) {
        match self {
            Self::Socket(end) => drop(end),
            Self::Flow(flow) => drop(flow),
            Self::Stream(stream) => stream.reset(reason),
        }
    }
}

/// What a socket's error means for its connection.
pub(super) fn of(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Broken(dial::reason(error)),
    }
}

/// Waits until the socket fails.
async fn failure(socket: Arc<TcpStream>) -> Failure {
    match leg::failure(&socket).await {
        Some(error) => of(&error),
        // Another call has consumed the error; reading and writing report it too.
        None => Failure::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that has closed its socket may still be owed what it sent; one that reset is not.
    #[test]
    fn a_broken_pipe_is_a_closed_socket_and_everything_else_a_broken_connection() {
        let failure = |code| of(&io::Error::from_raw_os_error(code));
        assert_eq!(failure(libc::EPIPE), Failure::Closed);
        for (code, reason) in [
            (libc::ECONNRESET, ResetReason::Reset),
            (libc::ETIMEDOUT, ResetReason::TimedOut),
            (libc::EHOSTUNREACH, ResetReason::Unreachable),
            (libc::ECONNREFUSED, ResetReason::Refused),
        ] {
            assert_eq!(failure(code), Failure::Broken(reason));
        }
    }
}
