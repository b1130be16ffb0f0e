//! The same relay with QUIC in between: one stream per connection.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{
    ClientConfig, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig, VarInt,
};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::{CHUNK, Failure, tls};

/// Relays connections to `listen` as streams to `hub`, for ever.
pub(crate) fn terminal(listen: SocketAddr, hub: SocketAddr) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let mut config = ClientConfig::new(tls::client());
        config.transport_config(transport());
        let mut endpoint = Endpoint::client(([0, 0, 0, 0], 0).into())?;
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(hub, "hub")?.await?;
        let listener = TcpListener::bind(listen).await?;
        println!("ready");
        loop {
            let (socket, _) = listener.accept().await?;
            let (send, receive) = connection.open_bi().await?;
            relay(socket, send, receive).await;
        }
    })
}

/// Relays streams to `listen` as connections to `to`, for ever.
pub(crate) fn hub(listen: SocketAddr, to: SocketAddr) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let mut config = ServerConfig::with_crypto(tls::server());
        config.transport_config(transport());
        let endpoint = Endpoint::server(config, listen)?;
        println!("ready");
        while let Some(incoming) = endpoint.accept().await {
            let connection = incoming.await?;
            tokio::spawn(async move {
                while let Ok((send, receive)) = connection.accept_bi().await {
                    relay(TcpStream::connect(to).await?, send, receive).await;
                }
                Ok::<(), Failure>(())
            });
        }
        Ok(())
    })
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Windows large enough never to limit.
fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let window = VarInt::from_u32(16 << 20);
    config.stream_receive_window(window).receive_window(window).send_window(16 << 20);
    Arc::new(config)
}

async fn relay(socket: TcpStream, send: SendStream, receive: RecvStream) {
    let (read, write) = socket.into_split();
    tokio::spawn(into_quic(read, send));
    tokio::spawn(out_of_quic(receive, write));
}

async fn into_quic(mut socket: OwnedReadHalf, mut stream: SendStream) -> Result<(), Failure> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match tokio::io::AsyncReadExt::read(&mut socket, &mut buffer).await? {
            0 => return Ok(stream.finish()?),
            count => stream.write_all(&buffer[..count]).await?,
        }
    }
}

async fn out_of_quic(mut stream: RecvStream, mut socket: OwnedWriteHalf) -> Result<(), Failure> {
    let mut buffer = vec![0; CHUNK];
    while let Some(count) = stream.read(&mut buffer).await? {
        socket.write_all(&buffer[..count]).await?;
    }
    Ok(socket.shutdown().await?)
}
