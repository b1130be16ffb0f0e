//! The server's side of a page. It serves objects over HTTP/1.0 and 1.1, one after the other on
//! each connection, so that pipelined requests wait their turn.

use std::io;

use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::flow::stream::PayloadSource;
use crate::http::head::refusal;
use crate::http::{self, HttpError, RequestHead, ResponseHead};
use crate::protocol::payload::{Payload, PayloadSide};
use crate::sockets::congestion::{CongestionError, ListenerControl};
use crate::sockets::sender;

/// The reason why a connection for objects failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HttpServeError {
    /// The request was invalid, or for something that does not exist.
    #[error(transparent)]
    Request(#[from] HttpError),
    /// The congestion control could not be set.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// No further request came in time, or the connection broke.
    #[error("the connection failed: {0}")]
    Broken(#[from] io::Error),
}

/// Serves the requests of a connection, whose first bytes, `first`, have been read.
pub(crate) async fn serve(
    stream: &mut TcpStream,
    first: &[u8],
    unpaced: &ListenerControl,
) -> Result<(), HttpServeError> {
    let socket = sender::duplicate_descriptor(stream)?;
    let (reader, mut writer) = stream.split();
    // The caller has read the first bytes to tell the protocols apart.
    let mut reader = BufReader::new(first.chain(reader));
    loop {
        let head = timeout(crate::server::REQUEST_LIMIT, http::read_head(&mut reader)).await;
        let Some(head) = head.map_err(io::Error::from)?? else {
            return Ok(writer.shutdown().await?);
        };
        let request = match RequestHead::decode(&head) {
            Ok(request) => request,
            Err(error) => {
                refuse(&mut writer, "404 Not Found").await?;
                return Err(error.into());
            }
        };
        let wanted = request.object.congestion_control.as_ref();
        if let Err(error) = unpaced.set_control(&SockRef::from(&socket), wanted) {
            refuse(&mut writer, "409 No such congestion control").await?;
            return Err(error.into());
        }
        let reply = ResponseHead { length: request.object.size, persistent: request.persistent };
        let head = match request.object.fresh {
            Some(seconds) => reply.encode_fresh(seconds),
            None => reply.encode(),
        };
        writer.write_all(head.as_bytes()).await?;
        let payload = Payload::new(request.object.key, PayloadSide::Server);
        PayloadSource::new(payload).send(&mut writer, 0..request.object.size).await?;
        if !request.persistent {
            return Ok(writer.shutdown().await?);
        }
    }
}

async fn refuse<W: AsyncWriteExt + Unpin>(writer: &mut W, status: &str) -> io::Result<()> {
    writer.write_all(refusal(status).as_bytes()).await?;
    writer.shutdown().await
}
