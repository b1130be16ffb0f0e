//! A listener for a single upload. The window must be set before the connection is made, which is
//! before its purpose is known.

use std::net::SocketAddr;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::protocol::answer::ServerAnswer;
use crate::server::ServeError;
use crate::sockets::window::ReceiveWindow;

/// Announces the port for an upload with this window, and accepts its connection; `None` if the
/// client disconnects instead.
pub(crate) async fn accept(
    stream: &mut TcpStream,
    window: ReceiveWindow,
) -> Result<Option<TcpStream>, ServeError> {
    let unusable = |error| ServeError::Listener { error };
    // The client connects to the address that this connection goes to.
    let address = SocketAddr::new(stream.local_addr()?.ip(), 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(unusable)?;
    window.prepare(&SockRef::from(&socket))?;
    let listen = || {
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(1)
    };
    listen().map_err(unusable)?;
    let listener = TcpListener::from_std(socket.into()).map_err(unusable)?;
    let port = listener.local_addr().map_err(unusable)?.port();
    stream.write_all(&ServerAnswer::Port { port }.encode()).await?;
    let mut ignored = [0];
    tokio::select! {
        accepted = listener.accept() => Ok(Some(accepted?.0)),
        // The client sends nothing more, so this is its end.
        _ = stream.read(&mut ignored) => Ok(None),
    }
}
