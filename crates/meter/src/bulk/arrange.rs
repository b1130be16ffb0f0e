//! Uploads with a given window: each goes to a separate port of the server that has it.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bulk::{BulkOptions, Direction};
use crate::flow::{self, FlowError};
use crate::protocol::answer::ServerAnswer;
use crate::protocol::request::{MeterRequest, RequestedWork};
use crate::sockets::SocketOptions;
use crate::sockets::window::ReceiveWindow;

/// The destination of an upload and the connection that keeps its port open, or the error.
pub(crate) type ArrangedUpload = Result<(SocketAddr, TcpStream), FlowError>;

/// Arranges all uploads of a transfer, one after the other, before its clock starts. The result is
/// empty if they need no arrangement.
pub(crate) async fn arrange_uploads(options: &BulkOptions) -> Vec<ArrangedUpload> {
    let mut arranged = Vec::new();
    let Some(window) = options.window else { return arranged };
    if options.directions.each().contains(&Direction::Upload) {
        for _ in 0..options.flows {
            arranged.push(arrange_upload(options, window).await);
        }
    }
    arranged
}

async fn arrange_upload(options: &BulkOptions, window: ReceiveWindow) -> ArrangedUpload {
    let socket = flow::open(options.server, &SocketOptions::default())?;
    let mut stream = flow::connect(socket, options.server).await?;
    let key = options.key;
    let sockets = SocketOptions::default();
    let request = MeterRequest { key, sockets, work: RequestedWork::Listen(window) };
    let sent = stream.write_all(&request.encode()).await;
    sent.map_err(FlowError::broken("sending the request"))?;
    match flow::read_answer(&mut stream).await? {
        ServerAnswer::Port { port } => Ok((SocketAddr::new(options.server.ip(), port), stream)),
        found => Err(FlowError::Unexpected { found }),
    }
}
