//! DNS over HTTPS (RFC 8484), with HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use names::doh::{self, LONGEST_QUESTION, MEDIA_TYPE, NoQuestion, QuestionLocation};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::driver::{QuestionClient, QuestionQueue};
use super::tcp::{IDLE_TIMEOUT, QuestionOrigin};
use crate::network::tls::handshake::EarlyStream;

/// ALPN name of HTTP/2 (RFC 9113 §3.1).
pub(super) const HTTP2: &[u8] = b"h2";
/// Limit of concurrent requests of a connection. More wait.
const MAX_REQUESTS: u32 = 64;
/// Size limit of a request's head, in bytes: a question in the target, and a browser's header
/// fields.
const MAX_HEAD: usize = 16 << 10;
/// Time limit of a request with its answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(12);

type HttpsResponse = Response<Full<Bytes>>;

/// Serves requests until the client closes the connection, or is idle.
pub(super) async fn serve(
    queue: Arc<QuestionQueue>,
    stream: TlsStream<EarlyStream<TcpStream>>,
    origin: QuestionOrigin,
) {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let (active, busy) = watch::channel(0_usize);
    let service = service_fn(|request| {
        let queue = queue.clone();
        let guard = ActiveRequest::new(&active);
        async move {
            let answer = timeout(REQUEST_LIMIT, answer(&queue, request, origin)).await;
            drop(guard);
            Ok::<_, Infallible>(answer.unwrap_or_else(|_| status(StatusCode::REQUEST_TIMEOUT)))
        }
    });
    let stream = TokioIo::new(stream);
    let mut plain = http1::Builder::new();
    plain.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(MAX_HEAD);
    let mut second = http2::Builder::new(TokioExecutor::new());
    second.timer(TokioTimer::new()).max_concurrent_streams(MAX_REQUESTS);
    second.max_header_list_size(MAX_HEAD as u32);
    let connection = async {
        match is_http2 {
            true => second.serve_connection(stream, service).await,
            false => plain.serve_connection(stream, service).await,
        }
    };
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!("DNS over HTTPS connection of {} failed: {error}", origin.client);
            }
        }
        () = idle(busy) => {}
    }
}

/// Counts a request as active until dropped.
struct ActiveRequest(watch::Sender<usize>);

impl ActiveRequest {
    fn new(active: &watch::Sender<usize>) -> Self {
        active.send_modify(|count| *count += 1);
        Self(active.clone())
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Resolves when the connection has been idle for too long.
async fn idle(mut busy: watch::Receiver<usize>) {
    loop {
        // An active request ends within its own limit, after which the count changes.
        let wait = if *busy.borrow_and_update() == 0 {
            IDLE_TIMEOUT
        } else {
            REQUEST_LIMIT + IDLE_TIMEOUT
        };
        if timeout(wait, busy.changed()).await.is_err() {
            return;
        }
    }
}

async fn answer(
    queue: &QuestionQueue,
    request: Request<Incoming>,
    origin: QuestionOrigin,
) -> HttpsResponse {
    match ask(queue, request, origin).await {
        Ok(Some(answer)) => respond(answer),
        Ok(None) => status(StatusCode::SERVICE_UNAVAILABLE),
        Err(why) => {
            let code = StatusCode::from_u16(why.status());
            let mut refusal = status(code.unwrap_or(StatusCode::BAD_REQUEST));
            *refusal.body_mut() = Full::from(format!("{why}\n"));
            refusal
        }
    }
}

/// Answers the question of a request; [`None`] if there is no answer.
async fn ask(
    queue: &QuestionQueue,
    request: Request<Incoming>,
    origin: QuestionOrigin,
) -> Result<Option<Vec<u8>>, NoQuestion> {
    let (head, body) = request.into_parts();
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let uri = &head.uri;
    let message = match doh::question(head.method.as_str(), uri.path(), uri.query(), kind)? {
        QuestionLocation::Target(message) => message,
        QuestionLocation::Body => {
            let whole = Limited::new(body, LONGEST_QUESTION).collect().await;
            whole.map_err(|_| NoQuestion::TooLong)?.to_bytes().to_vec()
        }
    };
    let (sender, mut answers) = mpsc::channel(1);
    let id = message.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    // Clients should use the ID 0 in all requests (RFC 8484 §4.1): the connection's number tells
    // them apart.
    let asker = QuestionClient::Tcp { connection: queue.next_connection(), id, answers: sender };
    queue.ask(asker, origin, &message);
    Ok(answers.recv().await)
}

fn respond(answer: Vec<u8>) -> HttpsResponse {
    // As long as the shortest of its records lives (RFC 8484 §5.1).
    let age = format!("max-age={}", doh::freshness(&answer));
    let mut response = Response::new(Full::from(answer));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Ok(age) = HeaderValue::from_str(&age) {
        fields.insert(CACHE_CONTROL, age);
    }
    response
}

fn status(code: StatusCode) -> HttpsResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}
