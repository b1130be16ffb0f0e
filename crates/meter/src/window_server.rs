//! A listener for one upload: a window must be chosen before the connection is
//! made, when nobody has yet said what it is for.

use std::net::SocketAddr;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::answer::Answer;
use crate::server::ServeError;
use crate::window::Window;

/// Says where an upload with this window may go, and accepts it. `None` if the
/// client has gone away instead.
pub(crate) async fn accept(
    stream: &mut TcpStream,
    window: Window,
) -> Result<Option<TcpStream>, ServeError> {
    let unusable = |error| ServeError::Listener { error };
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
    stream.write_all(&Answer::Port { port }.encode()).await?;
    let mut ignored = [0];
    tokio::select! {
        accepted = listener.accept() => Ok(Some(accepted?.0)),
        // It says nothing more: this is its end.
        _ = stream.read(&mut ignored) => Ok(None),
    }
}
