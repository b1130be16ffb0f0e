//! The TCP connection of a client or a server, until it is relayed or refused.

use std::future::pending;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::relay::SocketEnd;
use crate::relay::{scratch, tcp};

/// One leg of a split connection. Dropping it resets it: its peer must not mistake a failure for
/// the end of the data.
pub(crate) struct Leg {
    socket: Option<TcpStream>,
    /// Whether to disable delayed ACKs.
    quick_ack: bool,
}

impl Leg {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket: Some(socket), quick_ack: false }
    }

    /// Disables delayed ACKs if `quick_ack`.
    pub(crate) fn acknowledging_at_once(mut self, quick_ack: bool) -> Self {
        self.quick_ack = quick_ack;
        if quick_ack {
            tcp::acknowledge_at_once(self.socket());
        }
        self
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.socket.as_ref().expect("the socket is there until it is relayed")
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        self.socket.as_mut().expect("the socket is there until it is relayed")
    }

    /// Hands the socket over to a relay.
    pub(crate) fn into_end(mut self) -> SocketEnd {
        let socket = self.socket.take().expect("the socket is there until it is relayed");
        SocketEnd::new(socket, self.quick_ack)
    }

    /// Waits until the connection fails. A RST after a FIN that we have not read yet (EPIPE) does
    /// not count: what the client has sent may still be carried.
    pub(crate) async fn failure(&self) {
        match failure(self.socket()).await {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {}
            _ => pending().await,
        }
    }

    /// Ends a connection to which everything was said: discards incoming data until the peer closes
    /// too, or for at most `limit`. A reset would destroy data still in flight to the peer.
    pub(crate) async fn discard(mut self, limit: Duration) {
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
            // The kernel delivers the rest.
            drop(self.socket.take());
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

/// Waits until a socket fails, even while nothing reads or writes it. Returns its error, unless
/// another call has consumed it.
pub(crate) async fn failure(socket: &TcpStream) -> Option<io::Error> {
    match socket.ready(Interest::ERROR).await {
        Ok(_) => socket.take_error().unwrap_or_else(Some),
        Err(error) => Some(error),
    }
}

/// Sends the FIN. Succeeds if the peer has already gone.
pub(crate) fn shut_down(socket: &TcpStream) -> io::Result<()> {
    match SockRef::from(socket).shutdown(Shutdown::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
