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

/// Exceeds the BDP of every link here.
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

/// Windows large enough never to limit; everything else is quinn's default.
fn transport(control: Control) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let window = VarInt::from_u32(WINDOW);
    config.stream_receive_window(window).receive_window(window).send_window(WINDOW.into());
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match control {
        Control::Cubic => Arc::new(CubicConfig::default()),
        Control::Bbr => Arc::new(BbrConfig::default()),
    };
    config.congestion_controller_factory(factory);
    Arc::new(config)
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Answers each stream of any client on `socket` with `content`, for ever.
pub(crate) fn serve(
    socket: UdpSocket,
    control: Control,
    content: &Arc<[u8]>,
) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let mut config = ServerConfig::with_crypto(server());
        config.transport_config(transport(control));
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
        receive.read_to_end(1000).await?;
        send.write_all(content).await?;
        send.finish()?;
    }
    Ok(())
}

/// Connects to `server` from `socket` and downloads at most `most` bytes.
pub(crate) fn fetch(
    socket: UdpSocket,
    server: SocketAddr,
    control: Control,
    most: usize,
) -> Result<Fetched, Failure> {
    runtime()?.block_on(async {
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
        let mut config = ClientConfig::new(client());
        config.transport_config(transport(control));
        let begin = Instant::now();
        let connection = endpoint.connect_with(config, server, "server")?.await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(b"GET /\r\n").await?;
        send.finish()?;
        let content = receive.read_to_end(most).await?;
        let time = begin.elapsed();
        let datagram = connection.stats().path.current_mtu;
        connection.close(VarInt::from_u32(0), b"");
        endpoint.wait_idle().await;
        Ok(Fetched { content, time, datagram })
    })
}
