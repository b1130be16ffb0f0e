//! TLS over a socket or a stream of the hop, with the same interface as these.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use slacp::{ReadOutcome, ResetReason};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::pool::is_silent;
use crate::hop::SessionStream;
use crate::network::tls::handshake::{self, EarlyStream};
use crate::relay::{dial, scratch};
use slacp::client_network;

pub(super) enum TlsTransport {
    /// A socket, and bytes that have been read from it already.
    Socket(TcpStream, Vec<u8>),
    Stream(SessionStream),
}

impl TlsTransport {
    pub(super) fn socket(socket: TcpStream) -> Self {
        Self::Socket(socket, Vec::new())
    }
}

/// A TLS connection. One task may alternate between reading and writing.
pub(super) struct TlsConnection(Mutex<TlsStream<EarlyStream<TlsTransport>>>);

impl TlsConnection {
    /// Accepts TLS as a server.
    pub(super) async fn accept(
        acceptor: &TlsAcceptor,
        client: IpAddr,
        under: TlsTransport,
    ) -> io::Result<Self> {
        let stream = handshake::accept(acceptor, client_network(client), under).await?;
        Ok(Self(Mutex::new(TlsStream::Server(stream))))
    }

    /// Connects TLS as a client, to a server that must authenticate itself as `name`.
    pub(super) async fn connect(
        connector: &TlsConnector,
        name: ServerName<'static>,
        under: TlsTransport,
    ) -> io::Result<Self> {
        let stream = connector.connect(name, EarlyStream::unread(under)).await?;
        Ok(Self(Mutex::new(TlsStream::Client(stream))))
    }

    fn lock(&self) -> MutexGuard<'_, TlsStream<EarlyStream<TlsTransport>>> {
        self.0.lock().expect("nobody panics while holding the connection")
    }

    /// Appends received bytes and returns their number, 0 at the end. Cancel-safe. An end without
    /// TLS's `close_notify` is an error: the rest may have been cut off.
    pub(super) async fn read(&self, to: &mut Vec<u8>) -> Result<usize, ResetReason> {
        let read = poll_fn(|context| {
            scratch::with(|buffer| {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(&mut *self.lock()).poll_read(context, &mut buffer))?;
                to.extend_from_slice(buffer.filled());
                Poll::Ready(io::Result::Ok(buffer.filled().len()))
            })
        });
        read.await.map_err(|error| dial::reset_reason(&error))
    }

    /// Writes some bytes and returns their number. They may be held back until [`Self::flush`].
    /// Cancel-safe.
    pub(super) async fn write_some(&self, data: &[u8]) -> Result<usize, ResetReason> {
        let written = poll_fn(|context| Pin::new(&mut *self.lock()).poll_write(context, data));
        written.await.map_err(|error| dial::reset_reason(&error))
    }

    /// Sends the written bytes. Cancel-safe.
    pub(super) async fn flush(&self) -> Result<(), ResetReason> {
        let flushed = poll_fn(|context| Pin::new(&mut *self.lock()).poll_flush(context));
        flushed.await.map_err(|error| dial::reset_reason(&error))
    }

    /// Returns `true` for TLS over a stream of the hop.
    pub(super) fn crosses_hop(&self) -> bool {
        matches!(self.lock().get_ref().0.under(), Some(TlsTransport::Stream(_)))
    }

    /// The peer's address, for TLS over a socket.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self.lock().get_ref().0.under()? {
            TlsTransport::Socket(socket, _) => socket.peer_addr().ok(),
            TlsTransport::Stream(_) => None,
        }
    }

    /// Returns `true` for TLS over a socket on which nothing has arrived since the last byte that
    /// was read, not even the end. Consumes a byte if there is one.
    pub(super) fn is_silent(&self) -> bool {
        let stream = self.lock();
        let (early, tls) = stream.get_ref();
        match early.unbuffered() {
            // rustls wants to read exactly if it holds neither unread plaintext nor the end.
            Some(TlsTransport::Socket(socket, first)) => {
                first.is_empty() && tls.wants_read() && is_silent(socket)
            }
            Some(TlsTransport::Stream(_)) | None => false,
        }
    }

    /// Ends the sending direction with `close_notify`.
    pub(super) async fn finish(&self) -> Result<(), ResetReason> {
        let finished = poll_fn(|context| Pin::new(&mut *self.lock()).poll_shutdown(context));
        finished.await.map_err(|error| dial::reset_reason(&error))
    }
}

fn failed(reason: ResetReason) -> io::Error {
    // The error codes that `dial::reason` maps back to the same reasons.
    io::Error::from_raw_os_error(match reason {
        ResetReason::Refused => libc::ECONNREFUSED,
        ResetReason::TimedOut => libc::ETIMEDOUT,
        ResetReason::Unreachable => libc::EHOSTUNREACH,
        ResetReason::Prohibited => libc::EACCES,
        ResetReason::Limit => libc::ENOBUFS,
        _ => libc::ECONNRESET,
    })
}

impl AsyncRead for TlsTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket, first) if first.is_empty() => {
                Pin::new(socket).poll_read(context, buffer)
            }
            Self::Socket(_, first) => {
                let count = first.len().min(buffer.remaining());
                buffer.put_slice(&first[..count]);
                first.drain(..count);
                Poll::Ready(Ok(()))
            }
            Self::Stream(stream) => {
                let read = ready!(stream.poll_read(context, buffer.initialize_unfilled()));
                // If nothing is added, TLS sees the end.
                if let ReadOutcome::Data(count) = read.map_err(failed)? {
                    buffer.advance(count);
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Socket(socket, _) => Pin::new(socket).poll_write(context, data),
            Self::Stream(_) if data.is_empty() => Poll::Ready(Ok(0)),
            Self::Stream(stream) => stream.poll_write(context, data).map_err(failed),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Neither sockets nor streams hold written bytes back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket, _) => Pin::new(socket).poll_shutdown(context),
            Self::Stream(stream) => stream.poll_finish(context).map_err(failed),
        }
    }
}
