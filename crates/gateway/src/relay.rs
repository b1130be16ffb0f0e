//! Joins a TCP connection and a stream of the hop, in the same way on both sides.
//!
//! Each end of a connection is passed on as what it is: a FIN as a FIN, a reset as a reset.
//! Back-pressure works the same way: a socket whose peer reads slowly is not written to, so the
//! stream is not read, so the far side gets no credit and stops reading its socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::ready;

use slacp::{Destination, Open, Read, ResetReason, SessionId};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connections::{Origin, Registered, Waits};
use crate::counters::Counters;
use crate::deferral::Question;
use crate::gateway::{Admission, DialPolicy};
use crate::hop::{Hop, Stream};
use crate::leg::{self, Leg, PATIENCE};
use crate::{dial, names, scratch, tcp};

/// Why a connection ended before both directions were finished.
enum Broken {
    /// The TCP socket failed, usually by a RST.
    Socket(io::Error),
    /// The peer reset the stream, or the session was lost.
    Stream(ResetReason),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<ResetReason> for Broken {
    fn from(reason: ResetReason) -> Self {
        Self::Stream(reason)
    }
}

/// Carries an accepted client connection: opens a stream at once and relays until both directions
/// end.
pub(crate) async fn originate(
    hop: Hop,
    session: SessionId,
    socket: TcpStream,
    open: Open,
    counters: Arc<Counters>,
) {
    counters.connections.increment();
    let leg = Leg::new(socket);
    let entry = Registered::new(&counters, session, open, Origin::Here);
    match hop.open(session, open) {
        Ok(stream) => {
            let carried = carry(&stream, &leg, &[], &entry, &counters).await;
            if let Err(Broken::Stream(reason)) = carried
                && !stream.is_accepted()
            {
                counters.refusals.tell(open.destination, reason).await;
            }
            end(stream, leg, carried, &counters).await;
        }
        Err(error) => {
            counters.failed.increment();
            counters.reasons.count(ResetReason::Limit);
            tracing::debug!(destination = %open.destination, "no stream: {error}");
        }
    }
}

/// Carries a connection whose client is answered only after the far side has connected. The stream
/// is reset if the client gives up meanwhile.
pub(crate) async fn originate_deferred(
    hop: Hop,
    session: SessionId,
    mut question: Question,
    counters: Arc<Counters>,
) {
    counters.connections.increment();
    let open = question.open();
    let entry = Registered::new(&counters, session, open, Origin::Here);
    let stream = match hop.open(session, open) {
        Ok(stream) => stream,
        Err(error) => {
            counters.failed.increment();
            counters.reasons.count(ResetReason::Limit);
            return tracing::debug!(destination = %open.destination, "no stream: {error}");
        }
    };
    if let Err(reason) = stream.accepted().await {
        counters.failed.increment();
        counters.reasons.count(reason);
        tracing::debug!(destination = %open.destination, "not connected: {reason:?}");
        return question.turn_away(reason);
    }
    if question.let_in()
        && let Ok(socket) = timeout(PATIENCE, question.socket()).await
    {
        return relay(stream, Leg::new(socket), &[], entry, &counters).await;
    }
    counters.reset.increment();
}

/// Carries a stream opened by the peer: connects to the first of `addresses` that answers, and
/// relays until both directions end.
pub(crate) async fn answer(
    stream: Stream,
    open: Open<Destination>,
    addresses: Vec<SocketAddr>,
    admission: Admission,
    policy: DialPolicy,
    counters: Arc<Counters>,
) {
    counters.connections.increment();
    let entry = Registered::new(&counters, stream.session(), open.clone(), admission.origin);
    let caller = policy.caller(&open);
    let connect = |address, patience| dial::connect(address, caller, patience);
    let connected = tokio::select! {
        connected = names::try_each(&addresses, policy.timeout, connect) => connected,
        reason = stream.reset_by_peer() => {
            counters.reasons.count(reason);
            return counters.reset.increment();
        }
    };
    match connected {
        Ok(socket) => {
            let leg = Leg::new(socket);
            if stream.accept().is_ok() {
                relay(stream, leg, &[], entry, &counters).await;
            }
        }
        Err(error) => {
            counters.failed.increment();
            let reason = dial::reason(&error);
            counters.reasons.count(reason);
            tracing::debug!(destination = %open.destination, "not connected: {error}");
            stream.reset(reason);
        }
    }
}

/// Relays until both directions end. `first` is data already received from the TCP peer.
pub(crate) async fn relay(
    stream: Stream,
    leg: Leg,
    first: &[u8],
    entry: Registered<'_>,
    counters: &Counters,
) {
    let carried = carry(&stream, &leg, first, &entry, counters).await;
    end(stream, leg, carried, counters).await;
}

/// Copies both directions until both end, or one breaks.
async fn carry(
    stream: &Stream,
    leg: &Leg,
    first: &[u8],
    entry: &Registered<'_>,
    counters: &Counters,
) -> Result<(), Broken> {
    // Fails if the peer has reset the connection; copying will notice.
    let _ = tcp::prepare(leg.socket(), &counters.keepalive);
    entry.carries(stream.id(), leg.socket().as_raw_fd());
    let copied = tokio::select! {
        copied = copy_both(stream, leg.socket(), first, entry) => copied,
        error = leg.failure(|| stream.is_finished()) => Err(Broken::Socket(error)),
        reason = stream.reset_by_peer() => Err(reason.into()),
    };
    entry.socket_ends();
    copied
}

/// Ends stream and socket in the same manner.
async fn end(stream: Stream, leg: Leg, carried: Result<(), Broken>, counters: &Counters) {
    match carried {
        Ok(()) => {
            counters.closed.increment();
            drop(stream);
            leg.deliver_rest().await;
        }
        Err(Broken::Socket(error)) if stream.is_finished() => {
            counters.reset.increment();
            counters.reasons.count(dial::reason(&error));
            drop(leg);
            discard(stream).await;
        }
        Err(Broken::Socket(error)) => {
            counters.reset.increment();
            counters.reasons.count(dial::reason(&error));
            stream.reset(dial::reason(&error));
        }
        Err(Broken::Stream(reason)) => {
            counters.reset.increment();
            counters.reasons.count(reason);
        }
    }
}

/// Copies until both directions have ended.
///
/// A peer that has sent its FIN and then accepts no more data (EPIPE) does not end its own
/// direction: what it sent, including the FIN, may still be unread. After any other error the
/// kernel would make a reset look like a FIN.
async fn copy_both(
    stream: &Stream,
    socket: &TcpStream,
    first: &[u8],
    entry: &Registered<'_>,
) -> Result<(), Broken> {
    let mut to_stream = pin!(socket_to_stream(socket, stream, first, entry));
    let mut to_socket = pin!(stream_to_socket(stream, socket, entry));
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
    first: &[u8],
    entry: &Registered<'_>,
) -> Result<(), Broken> {
    stream.write_all(first).await?;
    entry.moved_to_hop(first.len());
    loop {
        entry.waits_to_hop(Waits::Socket);
        socket.readable().await?;
        let is_urgent = tcp::is_at_urgent(socket);
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
        if is_urgent {
            entry.saw_urgent();
        }
        entry.waits_to_hop(Waits::Stream);
        entry.moved_to_hop(count);
        stream.write_all(&rest).await?;
        tokio::task::yield_now().await;
    }
}

async fn stream_to_socket(
    stream: &Stream,
    socket: &TcpStream,
    entry: &Registered<'_>,
) -> Result<(), Broken> {
    loop {
        // Take from the stream only what fits into the socket.
        entry.waits_from_hop(Waits::Socket);
        socket.writable().await?;
        entry.waits_from_hop(Waits::Stream);
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
            return Ok(leg::shut_down(socket)?);
        };
        entry.waits_from_hop(Waits::Socket);
        send_all(socket, &rest).await?;
        entry.moved_from_hop(count);
        tokio::task::yield_now().await;
    }
}

async fn send_all(socket: &TcpStream, mut data: &[u8]) -> Result<(), Broken> {
    while !data.is_empty() {
        socket.writable().await?;
        data = &data[write_some(socket, data)?..];
    }
    Ok(())
}

/// Writes what the socket accepts now, possibly nothing.
fn write_some(socket: &TcpStream, data: &[u8]) -> io::Result<usize> {
    match socket.try_write(data) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// Winds up a stream whose TCP peer has sent everything, closed, and accepts no more. A reset would
/// destroy data still in flight to the far side, so incoming data is discarded until the far side
/// closes too, or a time limit ends the wait.
async fn discard(stream: Stream) {
    let emptied = timeout(PATIENCE, async {
        let read = || poll_fn(|context| scratch::with(|buffer| stream.poll_read(context, buffer)));
        while let Ok(Read::Data(_)) = read().await {}
    });
    if emptied.await.is_err() {
        stream.reset(ResetReason::Reset);
    }
}

#[cfg(test)]
mod tests;
