//! The server's side of a UDP measurement.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::flow::FlowError;
use crate::flow::stop::Stop;
use crate::protocol::answer::ServerAnswer;
use crate::protocol::payload::{Payload, PayloadSide};
use crate::protocol::udp_plan::UdpPlan;
use crate::server::REQUEST_LIMIT;
use crate::udp::exchange::{exchange, open_socket};
use crate::udp::receiver::{GREETING, read};

/// Serves a measurement on a UDP port of its own.
pub(crate) async fn serve(
    stream: &mut TcpStream,
    key: u64,
    plan: &UdpPlan,
) -> Result<(), FlowError> {
    let broken = || FlowError::broken("preparing the UDP port");
    let local = stream.local_addr().map_err(broken())?;
    // The client sends to the address that its connection goes to.
    let socket = open_socket(local.ip()).await.map_err(broken())?;
    let port = socket.local_addr().map_err(broken())?.port();
    stream.write_all(&ServerAnswer::Port { port }.encode()).await.map_err(broken())?;
    let heard = timeout(REQUEST_LIMIT, await_greeting(&socket, key)).await;
    let client = heard.map_err(|late| late.into()).and_then(|heard| heard);
    let client = client.map_err(FlowError::broken("waiting for the client's first datagram"))?;
    socket.connect(client).await.map_err(broken())?;
    stream.write_all(&ServerAnswer::Accepted.encode()).await.map_err(broken())?;
    exchange(stream, &socket, plan, key, PayloadSide::Server, &Stop::default()).await?;
    stream.shutdown().await.map_err(FlowError::broken("closing"))
}

/// Waits for a greeting with the right key; returns its source address. Other datagrams are
/// ignored.
async fn await_greeting(socket: &UdpSocket, key: u64) -> std::io::Result<SocketAddr> {
    let payload = Payload::new(key, PayloadSide::Client);
    // Longer than any datagram, so that none is cut to the expected length.
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        if read(payload, &buffer[..length]).is_some_and(|(number, _)| number == GREETING) {
            return Ok(from);
        }
    }
}
