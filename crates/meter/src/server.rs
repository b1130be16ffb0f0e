//! The server: carries out the request of each connection.

pub(crate) mod http;
pub(crate) mod udp;
pub(crate) mod window;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::flow::stream::{self, PayloadSink, PayloadSource, SendPlan, read_end};
use crate::protocol::amount::FlowAmount;
use crate::protocol::answer::{Receipt, RequestRefusal, ServerAnswer};
use crate::protocol::payload::{Payload, PayloadSide};
use crate::protocol::request::{MAGIC, MeterRequest, REQUEST_LEN, RequestError, RequestedWork};
use crate::sockets::SocketError;
use crate::sockets::congestion::{CongestionError, ListenerControl};
use crate::sockets::patience::with_idle_limit;
use crate::sockets::sender::{self, RttMean, SenderReport};
use crate::sockets::window::ReceiveWindow;

pub use self::http::HttpServeError;

/// Maximum number of concurrent connections; more are refused.
const CONNECTIONS_MAX: usize = 1024;
/// Time limit for a new connection to send its request.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for a refused client to stop sending. If the connection were closed with unread
/// bytes, the refusal would be lost to a reset (RFC 9293 §3.6.1).
const LINGER_LIMIT: Duration = Duration::from_secs(10);
/// Minimum interval between progress reports to the sender of an upload.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Pause after a failed accept: without free descriptors the next one would fail as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why the server failed, or did not finish with a connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The listening socket cannot be used.
    #[error("cannot use the listening socket: {error}")]
    Listener {
        /// The error of the system call that failed.
        error: io::Error,
    },
    /// No request came in time.
    #[error("no request within {} s", REQUEST_LIMIT.as_secs())]
    NoRequest,
    /// The bytes received are not a request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A socket option could not be set.
    #[error(transparent)]
    Options(#[from] SocketError),
    /// A connection for the objects of a page failed.
    #[error(transparent)]
    Http(#[from] HttpServeError),
    /// A UDP measurement failed after its request.
    #[error("UDP: {error}")]
    Udp {
        /// The reason in one line.
        error: String,
    },
    /// The client's stream was shorter or longer than announced.
    #[error("the client sent {found} of {asked} bytes")]
    Length {
        /// Bytes received; one more than announced if the stream did not end.
        found: u64,
        /// Bytes that the request had announced.
        asked: u64,
    },
    /// Reading or writing on the connection failed.
    #[error("the connection failed: {0}")]
    Broken(#[from] io::Error),
}

/// Serves meter clients on `listener` until dropped; connections in progress end with it. Failed
/// connections are logged and do not disturb the others.
///
/// # Errors
/// If the listener cannot be used at all.
pub async fn serve(listener: std::net::TcpListener) -> Result<Infallible, ServeError> {
    let unusable = |error| ServeError::Listener { error };
    listener.set_nonblocking(true).map_err(unusable)?;
    let unpaced = ListenerControl::start_with_reno(&SockRef::from(&listener));
    let listener = TcpListener::from_std(listener).map_err(unusable)?;
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let busy = connections.len() >= CONNECTIONS_MAX;
                if !busy {
                    connections.spawn(run(stream, client, unpaced.clone()));
                // Not awaited: a slow client must not delay the other ones.
                } else if let Err(error) = stream.try_write(&BUSY.encode()) {
                    debug!(%client, %error, "cannot report that this server is busy");
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        // Finished tasks would count as connections until they are joined.
        while connections.try_join_next().is_some() {}
    }
}

const BUSY: ServerAnswer = ServerAnswer::Refused(RequestRefusal::Busy);

async fn run(mut stream: TcpStream, client: SocketAddr, unpaced: ListenerControl) {
    match handle(&mut stream, &unpaced).await {
        Ok(()) => debug!(%client, "done"),
        Err(error) => {
            warn!(%client, %error, "connection failed");
            if let Some(refusal) = refusal(&error) {
                let _ = timeout(LINGER_LIMIT, refuse(&mut stream, refusal)).await;
            }
        }
    }
}

async fn handle(stream: &mut TcpStream, unpaced: &ListenerControl) -> Result<(), ServeError> {
    stream.set_nodelay(true)?;
    let mut wire = [0; REQUEST_LEN];
    let (magic, rest) = wire.split_at_mut(MAGIC.len());
    let read = timeout(REQUEST_LIMIT, stream.read_exact(magic)).await;
    read.map_err(|_| ServeError::NoRequest)??;
    // The same port serves the objects of pages over HTTP.
    if magic == b"GET " {
        return Ok(http::serve(stream, magic, unpaced).await?);
    }
    let read = timeout(REQUEST_LIMIT, stream.read_exact(rest)).await;
    read.map_err(|_| ServeError::NoRequest)??;
    let request = MeterRequest::decode(&wire)?;
    let socket = SockRef::from(&*stream);
    // Connections begin with Reno: the kernel never takes back the pacing of BBR.
    let wanted = request.sockets.congestion_control.as_ref();
    unpaced.set_control(&socket, wanted).map_err(SocketError::from)?;
    request.sockets.apply(&socket)?;
    work(stream, &request).await
}

async fn work(stream: &mut TcpStream, request: &MeterRequest) -> Result<(), ServeError> {
    match request.work {
        RequestedWork::Download { amount, cap } => {
            let plan = SendPlan { amount, cap, framed: true };
            download(stream, request.key, &plan).await
        }
        RequestedWork::Upload { amount } => upload(stream, request.key, amount, None).await,
        RequestedWork::Listen(window) => upload_on_own_port(stream, window).await,
        RequestedWork::Udp(plan) => {
            let served = udp::serve(stream, request.key, &plan).await;
            served.map_err(|error| ServeError::Udp { error: error.to_string() })
        }
        RequestedWork::RequestReply { request: asked, reply, count } => {
            let sizes = MessageSizes { request: asked, reply, count };
            request_reply(stream, request.key, sizes).await
        }
    }
}

/// Returns the refusal to send for an error; `None` once payload has moved.
fn refusal(error: &ServeError) -> Option<RequestRefusal> {
    match error {
        ServeError::Request(RequestError::Version { .. }) => Some(RequestRefusal::Version),
        ServeError::Request(_) => Some(RequestRefusal::Malformed),
        ServeError::Options(SocketError::Congestion(error)) => Some(match error {
            CongestionError::Unknown { .. } => RequestRefusal::CongestionUnknown,
            CongestionError::Forbidden { .. } => RequestRefusal::CongestionForbidden,
            _ => RequestRefusal::CongestionRefused,
        }),
        ServeError::Options(_) => Some(RequestRefusal::BufferRefused),
        _ => None,
    }
}

async fn refuse(stream: &mut TcpStream, refusal: RequestRefusal) -> io::Result<()> {
    stream.write_all(&ServerAnswer::Refused(refusal).encode()).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 4096];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

async fn download(stream: &mut TcpStream, key: u64, plan: &SendPlan) -> Result<(), ServeError> {
    stream::bound_unsent(stream, plan)?;
    let mut bytes = 0;
    let mut mean = RttMean::default();
    // Sampled through a descriptor of its own, since sending keeps the stream in use.
    let socket = sender::duplicate_descriptor(stream)?;
    tokio::select! {
        sent = send_and_wait(stream, key, plan, &mut bytes) => sent?,
        never = mean.watch(&socket) => match never {},
    }
    let report = SenderReport::of(stream, bytes, mean)?;
    stream.write_all(&ServerAnswer::Sent(report).encode()).await?;
    Ok(stream.shutdown().await?)
}

/// Sends payload and waits until the client has all of it and half-closes: only then has the kernel
/// counted every retransmission.
async fn send_and_wait(
    stream: &mut TcpStream,
    key: u64,
    plan: &SendPlan,
    bytes: &mut u64,
) -> Result<(), ServeError> {
    stream.write_all(&ServerAnswer::Accepted.encode()).await?;
    PayloadSource::new(Payload::new(key, PayloadSide::Server))
        .send_amount(stream, plan, bytes)
        .await?;
    // After its request the client sends nothing but the half-close.
    expect_end(stream, 0).await
}

/// Serves an upload on a port of its own, where the window can be set before the connection is
/// made.
async fn upload_on_own_port(
    stream: &mut TcpStream,
    window: ReceiveWindow,
) -> Result<(), ServeError> {
    let Some(mut stream) = window::accept(stream, window).await? else { return Ok(()) };
    stream.set_nodelay(true)?;
    let mut wire = [0; REQUEST_LEN];
    let read = timeout(REQUEST_LIMIT, stream.read_exact(&mut wire)).await;
    read.map_err(|_| ServeError::NoRequest)??;
    let request = MeterRequest::decode(&wire)?;
    request.sockets.apply(&SockRef::from(&stream))?;
    match request.work {
        RequestedWork::Upload { amount } => {
            upload(&mut stream, request.key, amount, Some(window)).await
        }
        _ => Err(RequestError::Kind { found: wire[5] }.into()),
    }
}

async fn upload(
    stream: &mut TcpStream,
    key: u64,
    amount: FlowAmount,
    window: Option<ReceiveWindow>,
) -> Result<(), ServeError> {
    // An upload limited by time ends with the client's half-close.
    let bytes = amount.bytes().unwrap_or(u64::MAX);
    let mut sink = PayloadSink::new(Payload::new(key, PayloadSide::Client));
    let mut told: Option<Instant> = None;
    while sink.received() < bytes && sink.read(stream, bytes).await? > 0 {
        if let Some(window) = window {
            window.hold(&SockRef::from(&*stream))?;
        }
        // The first bytes are reported at once: this is the first-byte time.
        if told.is_none_or(|told| told.elapsed() >= PROGRESS_INTERVAL) {
            let progress = ServerAnswer::Progress { bytes: sink.received() };
            with_idle_limit(stream.write_all(&progress.encode())).await?;
            told = Some(Instant::now());
        }
    }
    finish(stream, sink.receipt(), amount.bytes().unwrap_or_else(|| sink.received())).await
}

/// Message sizes of a request/reply connection.
struct MessageSizes {
    request: u64,
    reply: u64,
    count: u32,
}

async fn request_reply(
    stream: &mut TcpStream,
    key: u64,
    sizes: MessageSizes,
) -> Result<(), ServeError> {
    stream.write_all(&ServerAnswer::Accepted.encode()).await?;
    let mut sink = PayloadSink::new(Payload::new(key, PayloadSide::Client));
    let mut source = PayloadSource::new(Payload::new(key, PayloadSide::Server));
    for index in 0..u64::from(sizes.count) {
        // Cannot overflow: decoding has bounded size times count.
        let asked = sizes.request * (index + 1);
        if !sink.read_to(stream, asked).await? {
            return Err(ServeError::Length { found: sink.received(), asked });
        }
        source.send(stream, sizes.reply * index..sizes.reply * (index + 1)).await?;
    }
    finish(stream, sink.receipt(), sizes.request * u64::from(sizes.count)).await
}

/// Waits for the client's half-close and sends the receipt.
async fn finish(stream: &mut TcpStream, receipt: Receipt, asked: u64) -> Result<(), ServeError> {
    // A stream that is too short has already ended.
    if receipt.bytes == asked {
        expect_end(stream, asked).await?;
    }
    stream.write_all(&ServerAnswer::Receipt(receipt).encode()).await?;
    stream.shutdown().await?;
    if receipt.bytes < asked {
        return Err(ServeError::Length { found: receipt.bytes, asked });
    }
    Ok(())
}

async fn expect_end<R: AsyncRead + Unpin>(stream: &mut R, asked: u64) -> Result<(), ServeError> {
    match read_end(stream).await? {
        true => Ok(()),
        false => Err(ServeError::Length { found: asked + 1, asked }),
    }
}
