//! A QUIC client and server (quinn) for programs in a lab, shared by tests and a benchmark.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use tokio::runtime::{Builder, Runtime};

use self::tls::{client, server};

#[allow(unreachable_pub, reason = "shared with benchmarks")]
#[path = "../../../slacp/benches/quic/tls.rs"]
mod tls;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exceeds the BDP of the links of the tests.
const WINDOW: u32 = 16 << 20;

/// Congestion control of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Cubic,
    Bbr,
}

/// Result of a download.
pub(crate) struct Fetched {
    pub(crate) content: Vec<u8>,
    /// From the first handshake datagram to the last byte.
    pub(crate) time: Duration,
    /// Largest datagram that the client found the path to carry, in bytes.
    pub(crate) datagram: u16,
}

/// Windows of so many bytes; everything else is quinn's default.
fn transport(control: Control, window: u32) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.send_window(window.into());
    let window = VarInt::from_u32(window);
    config.stream_receive_window(window).receive_window(window);
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match control {
        Control::Cubic => Arc::new(CubicConfig::default()),
        Control::Bbr => Arc::new(BbrConfig::default()),
    };
    config.congestion_controller_factory(factory);
    Arc::new(config)
}

pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Answers each stream of any client on `socket` with `content`, or with as much of it as the client
/// requests, for ever.
pub(crate) fn serve(
    socket: UdpSocket,
    control: Control,
    content: &Arc<[u8]>,
) -> Result<(), Failure> {
    serve_within(socket, control, WINDOW, content)
}

/// [`serve`] with a window of so many bytes.
pub(crate) fn serve_within(
    socket: UdpSocket,
    control: Control,
    window: u32,
    content: &Arc<[u8]>,
) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let mut config = ServerConfig::with_crypto(server());
        config.transport_config(transport(control, window));
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
        while let Some(incoming) = endpoint.accept().await {
            let content = content.clone();
            tokio::spawn(async move { answer(incoming.await?, &content).await });
        }
        Ok(())
    })
}

async fn answer(connection: Connection, content: &[u8]) -> Result<(), Failure> {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let request = receive.read_to_end(1000).await?;
        let count = requested(&request).unwrap_or(content.len());
        send.write_all(&content[..count.min(content.len())]).await?;
        send.finish()?;
    }
    Ok(())
}

/// The number in `GET /number`.
fn requested(request: &[u8]) -> Option<usize> {
    str::from_utf8(request).ok()?.strip_prefix("GET /")?.trim_end().parse().ok()
}

/// Connects to `server` from `socket`, with a window of so many bytes. The endpoint must outlive the
/// connection.
pub(crate) async fn connect(
    socket: UdpSocket,
    server: SocketAddr,
    control: Control,
    window: u32,
) -> Result<(Endpoint, Connection), Failure> {
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
    let mut config = ClientConfig::new(client());
    config.transport_config(transport(control, window));
    let connection = endpoint.connect_with(config, server, "server")?.await?;
    Ok((endpoint, connection))
}

/// Requests something on a stream of its own, and receives at most `most` bytes.
pub(crate) async fn request(
    connection: Connection,
    request: String,
    most: usize,
) -> Result<Vec<u8>, Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(request.as_bytes()).await?;
    send.finish()?;
    Ok(receive.read_to_end(most).await?)
}

/// Connects to `server` from `socket` and downloads at most `most` bytes.
pub(crate) fn fetch(
    socket: UdpSocket,
    server: SocketAddr,
    control: Control,
    most: usize,
) -> Result<Fetched, Failure> {
    runtime()?.block_on(async {
        let begin = Instant::now();
        let (endpoint, connection) = connect(socket, server, control, WINDOW).await?;
        let content = request(connection.clone(), "GET /\r\n".to_owned(), most).await?;
        let time = begin.elapsed();
        let datagram = connection.stats().path.current_mtu;
        connection.close(VarInt::from_u32(0), b"");
        endpoint.wait_idle().await;
        Ok(Fetched { content, time, datagram })
    })
}
