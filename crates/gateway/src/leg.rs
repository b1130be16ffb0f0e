//! One TCP connection of a split pair, and how it ends.

use std::future::pending;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{scratch, tcp};

/// Polling interval for the last acknowledgement on a finished connection: short at first, then
/// longer.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long the far side may keep sending to a peer that has closed, before it is reset: several
/// round trips of the slowest hop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One leg of a split connection. Dropping it before a clean end resets it: its peer must not
/// mistake a failure for the end of the data.
pub(crate) struct Leg {
    socket: Option<TcpStream>,
    /// Whether delayed ACKs are disabled.
    quick_ack: bool,
}

impl Leg {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket: Some(socket), quick_ack: false }
    }

    /// Disables delayed ACKs if `quick_ack`.
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

    /// Call after each read: the kernel keeps re-enabling delayed ACKs.
    pub(crate) fn has_read(&self) {
        if self.quick_ack {
            tcp::acknowledge_at_once(self.socket());
        }
    }

    /// Waits until the socket fails, even while nothing reads or writes it, so that a client's
    /// reset is noticed although the other leg is blocked.
    ///
    /// An error after the peer's FIN was passed on (`is_passed`) does not count. The kernel of a
    /// server that has sent its reply and closed soon forgets the connection, and answers the next
    /// probe with a RST while a slow client is still reading. It matters only if there is data for
    /// the server, and then sending fails.
    pub(crate) async fn failure(&self, is_passed: impl Fn() -> bool) -> io::Error {
        if let Err(error) = self.socket().ready(Interest::ERROR).await {
            return error;
        }
        match self.socket().take_error() {
            // EPIPE: a RST after a FIN that we may not have read yet.
            Ok(Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => pending().await,
            Ok(_) if is_passed() => pending().await,
            // Another call consumed the error; reading and writing report it too.
            Ok(None) => pending().await,
            Ok(Some(error)) | Err(error) => error,
        }
    }

    /// Ends a connection that can no longer be written to: discards incoming data until the peer
    /// closes too, or for at most `limit`. A reset would destroy data still in flight to the peer.
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

    /// After both directions have ended, keeps the connection until its peer has acknowledged
    /// everything. The kernel would continue by itself, but abandons an orphaned socket whose peer
    /// keeps its window closed, so a slow reader would lose the end.
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

/// Sends the FIN. Succeeds if the peer has already gone.
pub(crate) fn shut_down(socket: &TcpStream) -> io::Result<()> {
    match SockRef::from(socket).shutdown(Shutdown::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
