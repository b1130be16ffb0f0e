//! What every client connection does: connect, ask, read answers.

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::answer::{ANSWER_LEN, Answer, AnswerError, Receipt, Refusal};
use crate::http::HttpError;
use crate::request::MAGIC;
use crate::sockets::{SocketError, SocketOptions};
use crate::stream::{patiently, read_end};

/// Why a flow did not complete.
#[derive(Debug, Error)]
pub(crate) enum FlowError {
    /// No socket could be had.
    #[error("cannot make a socket: {error}")]
    Socket {
        /// What the kernel said.
        error: io::Error,
    },
    /// The client's socket cannot have what it should.
    #[error(transparent)]
    Options(#[from] SocketError),
    /// No connection.
    #[error("cannot connect to {server}: {error}")]
    Connect {
        /// The server asked.
        server: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// The server has no port for it.
    #[error("arranging the upload: {error}")]
    Arrange {
        /// One line that says why.
        error: String,
    },
    /// The connection broke.
    #[error("while {doing}: {error}")]
    Broken {
        /// What the client was doing.
        doing: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The server will not do it.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer is none.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The reply to a request for an object is not what it should be.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An answer that does not belong here.
    #[error("the server answered {found:?}, which does not belong here")]
    Unexpected {
        /// The answer.
        found: Answer,
    },
    /// The stream ended early.
    #[error("the stream ended after {received} of {asked} bytes")]
    Truncated {
        /// Bytes that arrived.
        received: u64,
        /// Bytes that were to arrive.
        asked: u64,
    },
    /// More came than was asked for.
    #[error("more bytes came than the {asked} asked for")]
    TooLong {
        /// Bytes that were to arrive.
        asked: u64,
    },
    /// A byte was not what had been sent.
    #[error("byte {offset} is not the one that was sent")]
    Corrupt {
        /// Its offset in the stream.
        offset: u64,
    },
}

impl FlowError {
    /// For `map_err`: the connection broke while `doing`.
    pub(crate) fn broken(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Broken { doing, error }
    }
}

/// A socket for a connection to `server`, made on the calling thread and so in
/// its network namespace, wherever it is connected later.
pub(crate) fn open(server: SocketAddr, options: &SocketOptions) -> Result<TcpSocket, FlowError> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(|error| FlowError::Socket { error })?;
    options.apply(&SockRef::from(&socket))?;
    Ok(socket)
}

/// Connects, without Nagle's delay. Dropped before [`in_order`] is said of it,
/// the connection is reset: a flow that ran into its limit must not go on
/// sending what it has buffered while the next one is measured.
pub(crate) async fn connect(socket: TcpSocket, server: SocketAddr) -> Result<TcpStream, FlowError> {
    let failed = |error| FlowError::Connect { server, error };
    let stream = socket.connect(server).await.map_err(failed)?;
    let set = stream.set_nodelay(true).and_then(|()| stream.set_zero_linger());
    set.map_err(|error| FlowError::Socket { error })?;
    Ok(stream)
}

/// Both ends have closed: the connection may end like any other.
pub(crate) fn in_order(stream: &TcpStream) -> Result<(), FlowError> {
    let set = SockRef::from(stream).set_linger(None);
    set.map_err(|error| FlowError::Socket { error })
}

/// Reads one answer; a refusal is an error.
pub(crate) async fn read_answer<R: AsyncRead + Unpin>(reader: &mut R) -> Result<Answer, FlowError> {
    let mut wire = [0; ANSWER_LEN];
    let (magic, rest) = wire.split_at_mut(MAGIC.len());
    let broken = || FlowError::broken("waiting for the server's answer");
    patiently(reader.read_exact(magic)).await.map_err(broken())?;
    // What another program says may be shorter than an answer.
    if *magic == MAGIC {
        patiently(reader.read_exact(rest)).await.map_err(broken())?;
    }
    match Answer::decode(&wire)? {
        Answer::Refused(refusal) => Err(FlowError::Refused(refusal)),
        answer => Ok(answer),
    }
}

/// Reads the answer that comes before payload.
pub(crate) async fn read_accepted<R: AsyncRead + Unpin>(reader: &mut R) -> Result<(), FlowError> {
    match read_answer(reader).await? {
        Answer::Accepted => Ok(()),
        found => Err(FlowError::Unexpected { found }),
    }
}

/// Reads the end of the server's stream, after `asked` bytes of it.
pub(crate) async fn read_close<R: AsyncRead + Unpin>(
    reader: &mut R,
    asked: u64,
) -> Result<(), FlowError> {
    let ended = read_end(reader).await;
    match ended.map_err(FlowError::broken("waiting for the server to close"))? {
        true => Ok(()),
        false => Err(FlowError::TooLong { asked }),
    }
}

/// Whether the receiver of a stream of `asked` bytes had all of it, unchanged.
pub(crate) fn check(receipt: Receipt, asked: u64) -> Result<(), FlowError> {
    if let Some(offset) = receipt.first_wrong {
        return Err(FlowError::Corrupt { offset });
    }
    if receipt.bytes < asked {
        return Err(FlowError::Truncated { received: receipt.bytes, asked });
    }
    Ok(())
}
