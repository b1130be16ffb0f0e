//! Uploads with a given window: each goes to a separate port of the server that has it.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::bulk::{BulkOptions, Direction};
use crate::flow::{self, FlowError};
use crate::request::{Request, Work};
use crate::sockets::SocketOptions;
use crate::window::Window;

/// The destination of an upload and the connection that keeps its port open, or the error.
pub(crate) type Arranged = Result<(SocketAddr, TcpStream), FlowError>;

/// Arranges all uploads of a transfer, one after the other, before its clock starts. The result is
/// empty if they need no arrangement.
pub(crate) async fn uploads(options: &BulkOptions) -> Vec<Arranged> {
    let mut arranged = Vec::new();
    let Some(window) = options.window else { return arranged };
    if options.directions.each().contains(&Direction::Upload) {
        for _ in 0..options.flows {
            arranged.push(upload(options, window).await);
        }
    }
    arranged
}

async fn upload(options: &BulkOptions, window: Window) -> Arranged {
    let socket = flow::open(options.server, &SocketOptions::default())?;
    let mut stream = flow::connect(socket, options.server).await?;
    let (key, sockets) = (options.key, SocketOptions::default());
    let request = Request { key, sockets, work: Work::Listen(window) };
    let sent = stream.write_all(&request.encode()).await;
    sent.map_err(FlowError::broken("sending the request"))?;
    match flow::read_answer(&mut stream).await? {
        Answer::Port { port } => Ok((SocketAddr::new(options.server.ip(), port), stream)),
        found => Err(FlowError::Unexpected { found }),
    }
}
