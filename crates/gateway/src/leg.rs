//! A TCP connection in our care, and how it ends.

use std::future::pending;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{scratch, tcp};

/// How often a connection that is over is asked whether its peer has
/// acknowledged everything: soon at first, then at leisure.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long the far side may go on sending to a peer that has closed, before it
/// is reset. Several round trips of the slowest hop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One leg of a split connection. Dropped before it has ended cleanly it is
/// reset: its peer must not take an accident for the end of the data.
pub(crate) struct Leg {
    socket: Option<TcpStream>,
    /// What comes is acknowledged at once.
    quick_ack: bool,
}

impl Leg {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket: Some(socket), quick_ack: false }
    }

    /// Has what comes acknowledged at once, if asked.
    pub(crate) fn acknowledging_at_once(mut self, quick_ack: bool) -> Self {
        self.quick_ack = quick_ack;
        self.has_read();
        self
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.socket.as_ref().expect("the socket is there until the end")
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        self.socket.as_mut().expect("the socket is there until the end")
    }

    /// Something has been read. The kernel forgets again and again that it is to
    /// acknowledge at once.
    pub(crate) fn has_read(&self) {
        if self.quick_ack {
            tcp::acknowledge_at_once(self.socket());
        }
    }

    /// Waits until the socket fails, even while nobody reads or writes it: a
    /// client that resets is noticed though the other leg takes nothing.
    ///
    /// A failure after the peer's FIN was passed on (`is_passed`) is none yet. A
    /// server that has sent its reply and closed is soon forgotten by its kernel,
    /// which answers the next probe with a RST, while a slow client is still
    /// reading. It matters only if there is something to send to the server, and
    /// then sending fails.
    pub(crate) async fn failure(&self, is_passed: impl Fn() -> bool) -> io::Error {
        if let Err(error) = self.socket().ready(Interest::ERROR).await {
            return error;
        }
        match self.socket().take_error() {
            // EPIPE: a RST behind a FIN that we may not have read yet.
            Ok(Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => pending().await,
            Ok(_) if is_passed() => pending().await,
            // Another call has had it: reading and writing report it too.
            Ok(None) => pending().await,
            Ok(Some(error)) | Err(error) => error,
        }
    }

    /// Ends a connection to whose peer nothing more can be said: what it still
    /// says is dropped until it has closed too, or goes on for longer than
    /// `limit`. To reset it at once would destroy what is still on its way to it.
    pub(crate) async fn discard(self, limit: Duration) {
        let socket = self.socket();
        let emptied = timeout(limit, async {
            loop {
                socket.readable().await?;
                match scratch::with(|buffer| socket.try_read(buffer)) {
                    Ok(0) => return Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => tokio::task::yield_now().await,
                }
            }
        });
        if matches!(emptied.await, Ok(Ok(()))) {
            self.deliver_rest().await;
        }
    }

    /// Both directions are finished: holds the connection until its peer has
    /// acknowledged everything. The kernel would go on by itself, but gives up on
    /// a socket without owner when the peer's window stays closed: a slow reader
    /// would lose the end.
    pub(crate) async fn deliver_rest(mut self) {
        let socket = self.socket.take().expect("the socket is there until the end");
        let mut pause = FIRST_LOOK;
        while tcp::unacknowledged(&socket).is_ok_and(|bytes| bytes > 0) {
            tokio::time::sleep(pause).await;
            pause = LAST_LOOK.min(pause * 2);
        }
    }
}

impl Drop for Leg {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            tcp::reset(socket);
        }
    }
}

/// Passes the FIN on. A peer that is gone already needs none.
pub(crate) fn shut_down(socket: &TcpStream) -> io::Result<()> {
    match SockRef::from(socket).shutdown(Shutdown::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
