//! Sockets and streams, read and written alike, and what has been read of them but not used.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use pep::http::{BadChunk, Body};
use slacp::{Read, ResetReason};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::secure::Secure;
use crate::hop::{Hop, Stream};
use crate::relay::dial;
use crate::relay::leg::shut_down;
use crate::relay::scratch;

/// One end of an exchange.
#[derive(Clone, Copy)]
pub(super) enum Wire<'a> {
    Socket(&'a TcpStream),
    Stream(&'a Stream),
    Secure(&'a Secure),
    /// A client that gets nothing before everything that the hub pushes is known.
    Held(&'a TcpStream, &'a Hop),
}

/// How long it is held for what is lost on the hop.
const HELD: Duration = Duration::from_millis(20);

fn failed(error: &io::Error) -> ResetReason {
    dial::reason(error)
}

impl Wire<'_> {
    /// Appends what has arrived; returns how much, and 0 at the end. Cancel-safe.
    async fn read(self, to: &mut Vec<u8>) -> Result<usize, ResetReason> {
        match self {
            Self::Socket(socket) | Self::Held(socket, _) => loop {
                socket.readable().await.map_err(|error| failed(&error))?;
                let read: io::Result<usize> = scratch::with(|buffer| {
                    let count = socket.try_read(buffer)?;
                    to.extend_from_slice(&buffer[..count]);
                    Ok(count)
                });
                match read {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result.map_err(|error| failed(&error)),
                }
            },
            Self::Secure(secure) => secure.read(to).await,
            Self::Stream(stream) => {
                let read = poll_fn(|context| {
                    scratch::with(|buffer| {
                        let read = ready!(stream.poll_read(context, buffer))?;
                        let count = if let Read::Data(count) = read { count } else { 0 };
                        to.extend_from_slice(&buffer[..count]);
                        Poll::Ready(Ok(count))
                    })
                });
                read.await
            }
        }
    }

    /// Writes everything.
    pub(super) async fn write(self, mut data: &[u8]) -> Result<(), ResetReason> {
        if let Self::Held(_, hop) = self {
            let _ = timeout(HELD, hop.all_heard()).await;
        }
        while !data.is_empty() {
            let taken = match self {
                Self::Secure(secure) => {
                    secure.write(data).await?;
                    data.len()
                }
                Self::Socket(socket) | Self::Held(socket, _) => {
                    socket.writable().await.map_err(|error| failed(&error))?;
                    match socket.try_write(data) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                        result => result.map_err(|error| failed(&error))?,
                    }
                }
                Self::Stream(stream) => poll_fn(|context| stream.poll_write(context, data)).await?,
            };
            data = &data[taken..];
        }
        Ok(())
    }

    /// Ends what is sent.
    pub(super) async fn finish(self) -> Result<(), ResetReason> {
        match self {
            Self::Socket(socket) | Self::Held(socket, _) => {
                shut_down(socket).map_err(|error| failed(&error))
            }
            Self::Stream(stream) => poll_fn(|context| stream.poll_finish(context)).await,
            Self::Secure(secure) => secure.finish().await,
        }
    }
}

/// What has been read and not used yet.
#[derive(Default)]
pub(super) struct Inlet {
    pub(super) bytes: Vec<u8>,
    /// Whether the end has come.
    pub(super) ended: bool,
}

impl Inlet {
    /// Reads more. Returns whether there was any. Cancel-safe.
    pub(super) async fn fill(&mut self, wire: Wire<'_>) -> Result<bool, ResetReason> {
        if !self.ended {
            self.ended = wire.read(&mut self.bytes).await? == 0;
        }
        Ok(!self.ended)
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.bytes.drain(..count);
    }
}

/// Why a body did not come whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Its source failed, or ended too soon.
    From(ResetReason),
    /// Who it was for failed.
    To(ResetReason),
}

impl From<BadChunk> for Broken {
    fn from(_: BadChunk) -> Self {
        Self::From(ResetReason::Prohibited)
    }
}

/// What a body is passed on as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum As {
    /// It came so.
    Itself,
    /// Its content, without chunks.
    Content,
    /// Nothing.
    Nothing,
}

/// Passes a body on. `content` gets what it contains, and `moved` how many bytes have been passed.
/// Without a length it ends with its source: then the result is `false`.
pub(super) async fn pass(
    (from, inlet): (Wire<'_>, &mut Inlet),
    (to, form): (Wire<'_>, As),
    body: &mut Body,
    mut content: impl FnMut(&[u8]),
    moved: impl Fn(usize),
) -> Result<bool, Broken> {
    let mut piece = Vec::new();
    while !body.is_over() {
        if inlet.bytes.is_empty() && !inlet.fill(from).await.map_err(Broken::From)? {
            return Ok(false);
        }
        piece.clear();
        let taken = body.take(&inlet.bytes, |bytes| {
            content(bytes);
            if form == As::Content {
                piece.extend_from_slice(bytes);
            }
        })?;
        let passed = match form {
            As::Itself => &inlet.bytes[..taken],
            As::Content => &piece,
            As::Nothing => &[],
        };
        to.write(passed).await.map_err(Broken::To)?;
        moved(taken);
        inlet.consume(taken);
    }
    Ok(true)
}
