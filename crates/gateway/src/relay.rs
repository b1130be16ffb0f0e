//! Joins a TCP connection and a stream of the hop, the same way on both sides.
//!
//! Whatever ends one ends the other in the same manner: a FIN is a FIN, a reset
//! a reset. A socket whose peer reads slowly is not written to, so the stream is
//! not read, so the far side gets no credit and stops reading its socket.

use std::future::{pending, poll_fn};
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::task::ready;
use std::time::Duration;

use slacp::{Open, Read, ResetReason, SessionId};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::counters::Counters;
use crate::hop::{Hop, Stream};
use crate::{dial, scratch, tcp};

/// How often a connection that is over is asked whether its peer has
/// acknowledged everything: soon at first, then at leisure.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long the far side may go on sending to a peer that has closed, before it
/// is reset. Several round trips of the slowest hop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a connection ended before both directions were finished.
enum Broken {
    /// The TCP socket failed, by a RST as a rule.
    Socket(io::Error),
    /// The stream was reset by the peer, or its session lost.
    Stream,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<ResetReason> for Broken {
    fn from(_: ResetReason) -> Self {
        Self::Stream
    }
}

/// A TCP connection in our care. Dropped before it has ended cleanly it is reset:
/// its peer must not take an accident for the end of the data.
struct Leg(Option<TcpStream>);

impl Leg {
    fn socket(&self) -> &TcpStream {
        self.0.as_ref().expect("the socket is there until the end")
    }

    /// Both directions are finished; the kernel may deliver the rest.
    fn release(mut self) -> TcpStream {
        self.0.take().expect("the socket is there until the end")
    }
}

impl Drop for Leg {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            tcp::reset(socket);
        }
    }
}

/// Carries a connection that a client made to us: opens a stream for it at once
/// and relays until both are over.
pub(crate) async fn originate(
    hop: Hop,
    session: SessionId,
    socket: TcpStream,
    open: Open,
    counters: Arc<Counters>,
) {
    counters.connections.increment();
    let leg = Leg(Some(socket));
    match hop.open(session, open) {
        Ok(stream) => relay(stream, leg, &counters).await,
        Err(error) => {
            counters.failed.increment();
            tracing::debug!(destination = %open.destination, "no stream: {error}");
        }
    }
}

/// Carries a stream that the peer opened: connects to its destination and relays
/// until both are over.
pub(crate) async fn answer(stream: Stream, open: Open, timeout: Duration, counters: Arc<Counters>) {
    counters.connections.increment();
    let connected = tokio::select! {
        connected = dial::connect(open.destination, timeout) => connected,
        _ = stream.reset_by_peer() => return counters.reset.increment(),
    };
    match connected {
        Ok(socket) => {
            let leg = Leg(Some(socket));
            if stream.accept().is_ok() {
                relay(stream, leg, &counters).await;
            }
        }
        Err(error) => {
            counters.failed.increment();
            tracing::debug!(destination = %open.destination, "not connected: {error}");
            stream.reset(dial::reason(&error));
        }
    }
}

async fn relay(stream: Stream, leg: Leg, counters: &Counters) {
    // It fails when the peer has reset the connection; copying finds that out.
    let _ = tcp::prepare(leg.socket());
    let copied = tokio::select! {
        copied = copy_both(&stream, leg.socket(), counters) => copied,
        error = failure(leg.socket(), &stream) => Err(Broken::Socket(error)),
        reason = stream.reset_by_peer() => Err(reason.into()),
    };
    match copied {
        Ok(()) => {
            counters.closed.increment();
            drop(stream);
            deliver_rest(leg.release()).await;
        }
        Err(Broken::Socket(_)) if stream.is_finished() => {
            counters.reset.increment();
            drop(leg);
            discard(stream).await;
        }
        Err(Broken::Socket(error)) => {
            counters.reset.increment();
            stream.reset(dial::reason(&error));
        }
        Err(Broken::Stream) => counters.reset.increment(),
    }
}

/// Copies until both directions have ended.
///
/// A peer that has sent its FIN and then takes nothing more (EPIPE) does not end
/// the direction from it: what it sent, the FIN included, may still be unread.
/// After any other error the kernel would let a reset look like a FIN.
async fn copy_both(stream: &Stream, socket: &TcpStream, counters: &Counters) -> Result<(), Broken> {
    let mut to_stream = pin!(socket_to_stream(socket, stream, counters));
    let mut to_socket = pin!(stream_to_socket(stream, socket, counters));
    tokio::select! {
        ended = &mut to_stream => {
            ended?;
            to_socket.await
        }
        ended = &mut to_socket => match ended {
            Err(Broken::Socket(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                to_stream.await?;
                Err(Broken::Socket(error))
            }
            ended => {
                ended?;
                to_stream.await
            }
        },
    }
}

async fn socket_to_stream(
    socket: &TcpStream,
    stream: &Stream,
    counters: &Counters,
) -> Result<(), Broken> {
    loop {
        socket.readable().await?;
        let read = scratch::with(|buffer| match socket.try_read(buffer) {
            Ok(count) => {
                let taken = stream.write(&buffer[..count])?;
                Ok(Some((count, buffer[taken..count].to_vec())))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Broken::Socket(error)),
        })?;
        let Some((count, rest)) = read else { continue };
        if count == 0 {
            return Ok(stream.finish()?);
        }
        counters.bytes_to_hop.add(count as u64);
        write_all(stream, &rest).await?;
        tokio::task::yield_now().await;
    }
}

async fn write_all(stream: &Stream, mut data: &[u8]) -> Result<(), Broken> {
    while !data.is_empty() {
        let taken = poll_fn(|context| stream.poll_write(context, data)).await?;
        data = &data[taken..];
    }
    Ok(())
}

async fn stream_to_socket(
    stream: &Stream,
    socket: &TcpStream,
    counters: &Counters,
) -> Result<(), Broken> {
    loop {
        // Only what the socket has room for is taken from the stream.
        socket.writable().await?;
        let moved = poll_fn(|context| {
            scratch::with(|buffer| {
                let Read::Data(count) = ready!(stream.poll_read(context, buffer))? else {
                    return Ok(None).into();
                };
                let taken = write_some(socket, &buffer[..count])?;
                Ok::<_, Broken>(Some((count, buffer[taken..count].to_vec()))).into()
            })
        });
        let Some((count, rest)) = moved.await? else {
            return shut_down(socket);
        };
        send_all(socket, &rest).await?;
        counters.bytes_from_hop.add(count as u64);
        tokio::task::yield_now().await;
    }
}

/// Passes the FIN on. A peer that is gone already needs none.
fn shut_down(socket: &TcpStream) -> Result<(), Broken> {
    match SockRef::from(socket).shutdown(Shutdown::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error.into()),
        _ => Ok(()),
    }
}

async fn send_all(socket: &TcpStream, mut data: &[u8]) -> Result<(), Broken> {
    while !data.is_empty() {
        socket.writable().await?;
        data = &data[write_some(socket, data)?..];
    }
    Ok(())
}

/// Writes what the socket takes now, perhaps nothing.
fn write_some(socket: &TcpStream, data: &[u8]) -> io::Result<usize> {
    match socket.try_write(data) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// Waits until the socket fails, even while nobody reads or writes it: a client
/// that resets is noticed though the stream is full.
///
/// A failure after the peer's FIN is none yet. A server that has sent its reply
/// and closed is soon forgotten by its kernel, which answers the next probe with
/// a RST, while a slow client is still reading. It matters only if there is
/// something to send to the server, and then sending fails.
async fn failure(socket: &TcpStream, stream: &Stream) -> io::Error {
    if let Err(error) = socket.ready(Interest::ERROR).await {
        return error;
    }
    match socket.take_error() {
        // EPIPE: a RST behind a FIN that we may not have read yet.
        Ok(Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => pending().await,
        Ok(_) if stream.is_finished() => pending().await,
        // Another call has had it: reading and writing report it too.
        Ok(None) => pending().await,
        Ok(Some(error)) | Err(error) => error,
    }
}

/// Ends a stream whose TCP peer has sent everything, closed, and takes nothing
/// more. To reset it at once would destroy what is still on its way to the far
/// side; so what comes from there is dropped until it has closed too, or goes on
/// for too long.
async fn discard(stream: Stream) {
    let emptied = tokio::time::timeout(PATIENCE, async {
        let read = || poll_fn(|context| scratch::with(|buffer| stream.poll_read(context, buffer)));
        while let Ok(Read::Data(_)) = read().await {}
    });
    if emptied.await.is_err() {
        stream.reset(ResetReason::Reset);
    }
}

/// Holds a finished connection until its peer has acknowledged everything. The
/// kernel would go on by itself, but gives up on a socket without owner when the
/// peer's window stays closed: a slow reader would lose the end.
async fn deliver_rest(socket: TcpStream) {
    let mut pause = FIRST_LOOK;
    while tcp::unacknowledged(&socket).is_ok_and(|bytes| bytes > 0) {
        tokio::time::sleep(pause).await;
        pause = LAST_LOOK.min(pause * 2);
    }
}

#[cfg(test)]
mod tests;
