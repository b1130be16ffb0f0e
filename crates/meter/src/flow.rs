//! Flows: the steps that all client connections share (connecting, requesting, reading answers), their
//! payload, early end and outcome.

pub(crate) mod download;
pub(crate) mod outcome;
mod pacer;
pub(crate) mod report;
pub(crate) mod stop;
pub(crate) mod stream;

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::http::HttpError;
use crate::protocol::answer::{ANSWER_LEN, AnswerError, Receipt, RequestRefusal, ServerAnswer};
use crate::protocol::request::MAGIC;
use crate::sockets::patience::with_idle_limit;
use crate::sockets::{SocketError, SocketOptions};
use stream::read_end;

/// The reason why a flow did not complete.
#[derive(Debug, Error)]
pub(crate) enum FlowError {
    /// The socket could not be created.
    #[error("cannot create a socket: {error}")]
    Socket {
        /// The error of the system call that failed.
        error: io::Error,
    },
    /// An option of the client's socket could not be set.
    #[error(transparent)]
    Options(#[from] SocketError),
    /// The connection could not be established.
    #[error("cannot connect to {server}: {error}")]
    Connect {
        /// Address that the client connected to.
        server: SocketAddr,
        /// The error of `connect(2)`.
        error: io::Error,
    },
    /// The server provided no port for an upload.
    #[error("arranging the upload: {error}")]
    Arrange {
        /// The reason in one line.
        error: String,
    },
    /// Reading or writing on the connection failed.
    #[error("while {doing}: {error}")]
    Broken {
        /// The step that failed, for the message.
        doing: &'static str,
        /// The error of the read or write.
        error: io::Error,
    },
    /// The server rejected the request.
    #[error("{0}")]
    Refused(RequestRefusal),
    /// The bytes received are not an answer.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The reply to an object request was invalid.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer is valid, but does not fit this point of the protocol.
    #[error("unexpected answer from the server: {found:?}")]
    Unexpected {
        /// The answer that came instead.
        found: ServerAnswer,
    },
    /// The stream ended before all bytes had arrived.
    #[error("the stream ended after {received} of {asked} bytes")]
    Truncated {
        /// Bytes that arrived before the end.
        received: u64,
        /// Bytes that the request was for.
        asked: u64,
    },
    /// More bytes arrived than requested.
    #[error("received more than the {asked} bytes requested")]
    TooLong {
        /// Bytes that the request was for.
        asked: u64,
    },
    /// A byte differed from the one sent.
    #[error("byte {offset} differs from the one sent")]
    Corrupt {
        /// Its offset in the stream.
        offset: u64,
    },
}

impl FlowError {
    /// Returns a function for `map_err` that reports a failure while `doing`.
    pub(crate) fn broken(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Broken { doing, error }
    }
}

/// Opens a socket for a connection to `server`. It is created on the calling thread, so it stays in
/// that thread's network namespace wherever it is connected later.
pub(crate) fn open(server: SocketAddr, options: &SocketOptions) -> Result<TcpSocket, FlowError> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(|error| FlowError::Socket { error })?;
    options.apply(&SockRef::from(&socket))?;
    Ok(socket)
}

/// Connects with Nagle's algorithm off. The connection is reset if it is dropped before
/// [`disable_reset_on_drop`] is called: a flow that hits its limit must not keep sending buffered data while the
/// next one is measured.
pub(crate) async fn connect(socket: TcpSocket, server: SocketAddr) -> Result<TcpStream, FlowError> {
    let failed = |error| FlowError::Connect { server, error };
    let stream = socket.connect(server).await.map_err(failed)?;
    let set = stream.set_nodelay(true).and_then(|()| stream.set_zero_linger());
    set.map_err(|error| FlowError::Socket { error })?;
    Ok(stream)
}

/// Lets the connection end normally, after both ends have closed.
pub(crate) fn disable_reset_on_drop(stream: &TcpStream) -> Result<(), FlowError> {
    let set = SockRef::from(stream).set_linger(None);
    set.map_err(|error| FlowError::Socket { error })
}

/// Reads an answer; a refusal is an error.
pub(crate) async fn read_answer<R: AsyncRead + Unpin>(
    reader: &mut R,
) -> Result<ServerAnswer, FlowError> {
    let mut wire = [0; ANSWER_LEN];
    let (magic, rest) = wire.split_at_mut(MAGIC.len());
    let broken = || FlowError::broken("waiting for the server's answer");
    with_idle_limit(reader.read_exact(magic)).await.map_err(broken())?;
    // Another program's reply may be shorter than an answer.
    if *magic == MAGIC {
        with_idle_limit(reader.read_exact(rest)).await.map_err(broken())?;
    }
    match ServerAnswer::decode(&wire)? {
        ServerAnswer::Refused(refusal) => Err(FlowError::Refused(refusal)),
        answer => Ok(answer),
    }
}

/// Reads the answer that precedes payload.
pub(crate) async fn read_accepted<R: AsyncRead + Unpin>(reader: &mut R) -> Result<(), FlowError> {
    match read_answer(reader).await? {
        ServerAnswer::Accepted => Ok(()),
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

/// Checks that the receiver of a stream of `asked` bytes got all of it, unchanged.
pub(crate) fn check(receipt: Receipt, asked: u64) -> Result<(), FlowError> {
    // A wrong byte is worse than a missing one, so it is reported first.
    if let Some(offset) = receipt.first_wrong {
        return Err(FlowError::Corrupt { offset });
    }
    if receipt.bytes < asked {
        return Err(FlowError::Truncated { received: receipt.bytes, asked });
    }
    Ok(())
}
