//! HTTP exchanges at a hub, on behalf of terminals (`docs/slacp.md`, Exchanges): requests of all
//! their clients share persistent connections to servers. Responses may come from a cache ([`store`]).

pub(crate) mod store;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use config::HubHttpConfig;
use control::status::HttpStatus;
use http_cache::{
    BodyFraming, BodyParser, CachedResponse, ForwardedRequest, LONGEST_HEAD, ParsedHead,
    RequestHead, ResponseAction, ResponseHead,
};
use pep::relay::LegSide;
use slacp::{Destination, ResetReason, StreamOpening};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use self::store::{CacheTenant, HubStore};
use super::disk::SharedBody;
use super::exchange::{ReplyHead, encode_forwarded, read_reply};
use super::pool::{ConnectionPool, PooledConnection};
use super::record::BodyRecorder;
use super::secure::TlsTransport;
use super::sites::{self, OriginServer};
use super::wire::{
    BodyForm, BodySink, BodySource, ForwardError, ReadBuffer, WireEnd, forward_body,
};
use crate::figures::connections::Registered;
use crate::figures::counters::GatewayCounters;
use crate::hop::SessionStream;
use crate::network::socket_options;
use crate::operate::log::cause_limiter::CauseLimiter;
use crate::process::clock;
use crate::relay::terms::{Admission, DialPolicy};
use crate::relay::{dial, names};

/// Time for a terminal to send its request after opening the stream.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A hub's connections to servers, and its cache.
#[derive(Clone)]
pub(crate) struct HubHttp(Arc<HubHttpState>);

struct HubHttpState {
    pool: ConnectionPool,
    store: Option<HubStore>,
    /// Verifies servers. Without a file of authorities it is made at first use.
    connector: OnceLock<Result<TlsConnector, String>>,
    /// Time of the last log message about each untrusted server.
    distrusted: Arc<Mutex<CauseLimiter>>,
}

/// A request of a terminal's client, and the terms on which it is carried out.
pub(super) struct ExchangeJob {
    pub(super) stream: SessionStream,
    pub(super) open: StreamOpening<Destination>,
    /// The addresses of its host that the terminal may reach.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admission: Admission,
    pub(super) policy: DialPolicy,
    pub(super) counters: Arc<GatewayCounters>,
    pub(super) asker: CacheTenant,
}

/// A request read from a terminal.
pub(super) struct ExchangeRequest {
    pub(super) head: RequestHead,
    pub(super) bytes: Vec<u8>,
    /// The server's name, for a request over TLS.
    pub(super) tls: Option<ServerName<'static>>,
    /// Set if the server may keep the connection open after its response.
    keeps: bool,
}

impl ExchangeRequest {
    pub(super) fn new(head: RequestHead, tls: Option<ServerName<'static>>) -> Self {
        // `Connection: close` is about the client's own connection, and this one is shared.
        let keeps = head.minor > 0 || head.keeps_alive();
        Self::of(head, tls, keeps)
    }

    /// The same request with `Connection: close`.
    fn closing(&self) -> Self {
        Self::of(self.head.clone(), self.tls.clone(), false)
    }

    fn of(head: RequestHead, tls: Option<ServerName<'static>>, keeps: bool) -> Self {
        // Encoded anew: on a shared connection a server must not read another request in it than we
        // did (request smuggling, RFC 9112 §11.2).
        let bytes = encode_forwarded(&head, BodyFraming::None, keeps);
        Self { head, bytes, tls, keeps }
    }
}

enum AttemptError {
    /// The server had closed an idle connection.
    Stale,
    /// The response has no readable end, and the server keeps the connection open after it.
    Endless,
    BeforeResponse(ResetReason),
    /// Part of the response has reached the terminal.
    WithinResponse(ResetReason),
}

pub(super) struct ExchangeError {
    pub(super) reason: ResetReason,
    /// Set if part of a response has reached the terminal, so that nothing else can be sent.
    pub(super) begun: bool,
}

impl From<ResetReason> for AttemptError {
    fn from(reason: ResetReason) -> Self {
        Self::BeforeResponse(reason)
    }
}

impl HubHttp {
    /// # Errors
    /// A message if the file of authorities cannot be used.
    pub(crate) fn new(config: HubHttpConfig) -> Result<Self, String> {
        let connector = OnceLock::new();
        // An unusable file must fail the start, not the first request.
        if let Some(path) = &config.keys.authorities {
            let _ = connector.set(Ok(sites::connector(Some(path))?));
        }
        let directory = config.keys.directory.as_deref();
        Ok(Self(Arc::new(HubHttpState {
            pool: ConnectionPool::default(),
            store: config.cache.map(|cache| HubStore::start(cache, directory)),
            connector,
            distrusted: Arc::default(),
        })))
    }

    /// Returns the server of this name, with the means to verify it.
    pub(super) fn server(&self, name: ServerName<'static>) -> Result<OriginServer, ResetReason> {
        let made = self.0.connector.get_or_init(|| {
            let made = sites::connector(None);
            made.inspect_err(|error| tracing::warn!("no HTTP exchanges over TLS: {error}"))
        });
        let connector = made.clone().map_err(|_| ResetReason::Prohibited)?;
        Ok(OriginServer { name, connector, distrusted: self.0.distrusted.clone() })
    }

    pub(super) fn status(&self) -> HttpStatus {
        let pool = &self.0.pool;
        let (stats, disk_errors) = self.0.store.as_ref().map(HubStore::stats).unwrap_or_default();
        HttpStatus::of_hub(pool.exchanges.get(), pool.reused.get(), &stats, disk_errors)
    }

    /// Releases the cache directory to another process.
    pub(super) fn leave_disk(&self) {
        self.0.store.iter().for_each(HubStore::leave_disk);
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn close_idle(&self) {
        self.0.pool.expire(clock::now());
    }

    /// Runs the exchange and counts its outcome.
    pub(super) async fn run_exchange(self, job: ExchangeJob) {
        let job = Arc::new(job);
        let counters = &*job.counters;
        let stream = &job.stream;
        counters.traffic.connections.increment();
        self.0.pool.exchanges.increment();
        let open = job.open.clone();
        let origin = job.admission.origin;
        let entry = Registered::new(clock::now(), counters, stream.session(), open, origin);
        let done = tokio::select! {
            done = self.answer(&job, &entry) => done,
            // The client has left: the response has no reader.
            reason = stream.reset_by_peer() => Err(reason),
        };
        match done {
            Ok(()) => counters.traffic.closed.increment(),
            Err(reason) => {
                counters.traffic.failed.increment();
                counters.reasons.count(reason);
                stream.abandon(reason);
            }
        }
    }

    async fn answer(
        &self,
        job: &Arc<ExchangeJob>,
        entry: &Registered<'_>,
    ) -> Result<(), ResetReason> {
        let read = timeout(REQUEST_LIMIT, read_request(&job.stream)).await;
        let request = read.map_err(|_| ResetReason::TimedOut)??;
        let errand = PendingExchange { http: self, job, request: &request, entry };
        match &self.0.store {
            Some(store) => store.answer(&errand).await,
            None => {
                let sent = errand.send(&request, None).await;
                sent.map(|_| ()).map_err(|unanswered| unanswered.reason)
            }
        }
    }

    pub(super) fn pool(&self) -> &ConnectionPool {
        &self.0.pool
    }
}

/// A terminal's request, to whose stream the response is written.
#[derive(Clone, Copy)]
pub(super) struct PendingExchange<'a> {
    pub(super) http: &'a HubHttp,
    pub(super) job: &'a Arc<ExchangeJob>,
    pub(super) request: &'a ExchangeRequest,
    pub(super) entry: &'a Registered<'a>,
}

/// Outcome of sending a request.
pub(super) enum SendOutcome {
    Answered,
    /// The server has validated this stored response.
    Stored(CachedResponse<SharedBody>),
    /// Another request is to be sent instead.
    Again(RequestHead, Box<ForwardedRequest>),
}

impl PendingExchange<'_> {
    /// Sends `request` in place of the terminal's, over an idle connection if possible, and
    /// forwards the response unless a stored one is to be used. `asked` is the cache's part: the
    /// store and what it wants to know.
    async fn send(
        &self,
        request: &ExchangeRequest,
        asked: Option<(&HubStore, &ForwardedRequest)>,
    ) -> Result<SendOutcome, ExchangeError> {
        let job = self.job;
        let caller = job.policy.caller(&job.open);
        let name = request.tls.as_ref().map(|name| name.to_str().into_owned());
        let sharers = (caller.source.map(|source| source.ip()), name);
        let pool = self.http.pool();
        let mut last = None;
        loop {
            // The last try needs a connection of its own, which the server is to close.
            let idle = match &last {
                Some(_) => None,
                None => pool.take(clock::now(), &job.addresses, &sharers),
            };
            let used = idle.is_some();
            let line = match idle {
                Some(line) => line,
                None => {
                    let failed = |reason| ExchangeError { reason, begun: false };
                    self.open_connection(request.tls.as_ref()).await.map_err(failed)?
                }
            };
            let _ = job.stream.accept();
            let request = last.as_ref().unwrap_or(request);
            let over = ConnectionAttempt { errand: self, request, asked, used };
            match over.run(line.wire()).await {
                Ok((sent, reusable)) => {
                    if reusable {
                        pool.give_back(clock::now(), line, sharers);
                    }
                    return Ok(sent);
                }
                // Try again: each idle connection is taken from the pool only once.
                Err(AttemptError::Stale) => {}
                Err(AttemptError::Endless) => last = Some(request.closing()),
                Err(AttemptError::BeforeResponse(reason)) => {
                    return Err(ExchangeError { reason, begun: false });
                }
                Err(AttemptError::WithinResponse(reason)) => {
                    return Err(ExchangeError { reason, begun: true });
                }
            }
        }
    }
}

pub(super) async fn connect(job: &ExchangeJob) -> Result<TcpStream, ResetReason> {
    let caller = job.policy.caller(&job.open);
    let connect = |address, limit| dial::connect(address, caller, limit);
    let connected = names::connect_any(job.addresses.clone(), job.policy.timeout, connect).await;
    let socket = connected.map_err(|error| dial::reset_reason(&error))?;
    // Fails if the server has reset the connection; reading will notice.
    let _ = socket_options::prepare(&socket, &job.counters.keepalive);
    Ok(socket)
}

impl PendingExchange<'_> {
    /// Opens a connection to the server, by TLS if it must authenticate itself as `name`.
    async fn open_connection(
        &self,
        name: Option<&ServerName<'static>>,
    ) -> Result<PooledConnection, ResetReason> {
        let Some(name) = name else { return connect(self.job).await.map(PooledConnection::Plain) };
        let server = self.http.server(name.clone())?;
        let socket = connect(self.job).await?;
        server
            .connect(TlsTransport::socket(socket))
            .await
            .map(|secure| PooledConnection::Secure(Box::new(secure)))
    }
}

/// A request on one connection.
struct ConnectionAttempt<'a> {
    errand: &'a PendingExchange<'a>,
    request: &'a ExchangeRequest,
    asked: Option<(&'a HubStore, &'a ForwardedRequest)>,
    /// Set if the connection has carried an exchange before.
    used: bool,
}

impl ConnectionAttempt<'_> {
    fn terminal(&self) -> WireEnd<'_> {
        WireEnd::Stream(&self.errand.job.stream)
    }

    fn moved(&self, from: LegSide, bytes: usize) {
        self.errand.entry.moved(clock::now(), from, bytes);
    }

    /// Sends the request and forwards the response. Returns whether the connection can be used
    /// again.
    async fn run(&self, wire: WireEnd<'_>) -> Result<(SendOutcome, bool), AttemptError> {
        let mut inlet = ReadBuffer::default();
        let terminal = self.terminal();
        let stale = |reason| {
            if self.used { AttemptError::Stale } else { AttemptError::BeforeResponse(reason) }
        };
        self.moved(LegSide::Client, self.request.bytes.len());
        wire.write(&self.request.bytes).await.map_err(stale)?;
        let reply = read_reply(wire, &mut inlet, Some(terminal)).await.map_err(stale)?;
        let ReplyHead::Head(head, length) = reply else {
            if self.used && matches!(reply, ReplyHead::Nothing) {
                return Err(AttemptError::Stale);
            }
            self.forward_unreadable(wire, inlet).await?;
            return Ok((SendOutcome::Answered, false));
        };
        let framing = head.framing(&self.request.head.method);
        let reusable =
            head.keeps_alive() && framing.is_ok() && framing != Ok(BodyFraming::UntilClose);
        if framing.is_err() && head.keeps_alive() && self.request.keeps && !inlet.ended {
            return Err(AttemptError::Endless);
        }
        let mut recording = None;
        if let Some((store, asked)) = self.asked {
            // An unread body behind the head would precede the next response.
            let bare =
                reusable && framing == Ok(BodyFraming::None) && inlet.bytes().len() == length;
            match store.handle_response(asked, &head) {
                ResponseAction::Pass { store: true } => recording = Some(store.record()),
                ResponseAction::Pass { store: false } => {}
                ResponseAction::Answer(answer) => return Ok((SendOutcome::Stored(answer), bare)),
                ResponseAction::Again(head, asked) => {
                    return Ok((SendOutcome::Again(head, Box::new(asked)), bare));
                }
            }
        }
        self.moved(LegSide::Server, length);
        terminal.write(&inlet.bytes()[..length]).await.map_err(AttemptError::WithinResponse)?;
        inlet.consume(length);
        // An ambiguous length: forward until the connection ends, so that no other response is read
        // from it.
        let body = BodyParser::new(framing.unwrap_or(BodyFraming::UntilClose));
        self.forward_content(wire, &mut inlet, body, &head, recording).await?;
        // Unsolicited bytes would be taken for the response to the next request.
        Ok((SendOutcome::Answered, reusable && inlet.is_empty() && !inlet.ended))
    }

    /// Forwards a response that cannot be read as HTTP, which lasts until the connection ends.
    async fn forward_unreadable(
        &self,
        wire: WireEnd<'_>,
        mut inlet: ReadBuffer,
    ) -> Result<(), AttemptError> {
        // See `Endless` for a connection that stays open.
        if self.request.keeps && !inlet.ended {
            return Err(AttemptError::Endless);
        }
        let source = BodySource { wire, inlet: &mut inlet };
        let sink = BodySink { wire: self.terminal(), form: BodyForm::Unchanged };
        let mut rest = BodyParser::new(BodyFraming::UntilClose);
        let passed = forward_body(source, sink, &mut rest, |_| {}, |_| {}).await;
        self.finish(passed).await
    }

    /// Forwards the body of a response, and stores it if it is recorded.
    async fn forward_content(
        &self,
        wire: WireEnd<'_>,
        inlet: &mut ReadBuffer,
        mut body: BodyParser,
        head: &ResponseHead,
        mut recording: Option<BodyRecorder<'_>>,
    ) -> Result<(), AttemptError> {
        let record = |bytes: &[u8]| recording.iter_mut().for_each(|recorder| recorder.add(bytes));
        let moved = |count| self.moved(LegSide::Server, count);
        let source = BodySource { wire, inlet };
        let sink = BodySink { wire: self.terminal(), form: BodyForm::Unchanged };
        let passed = forward_body(source, sink, &mut body, record, moved).await;
        let is_whole = passed == Ok(true);
        self.finish(passed).await?;
        if let (Some(recording), Some((_, asked)), true) = (recording, self.asked, is_whole) {
            recording.store(asked, head);
        }
        Ok(())
    }

    /// Ends a response on the terminal's stream. A response that its server cut off, or sent
    /// without a length, ends in the same way: the client judges by the length whether it is
    /// complete.
    async fn finish(&self, passed: Result<bool, ForwardError>) -> Result<(), AttemptError> {
        match passed {
            Ok(_) => self.terminal().finish().await.map_err(AttemptError::WithinResponse),
            Err(ForwardError::Source(reason) | ForwardError::Sink(reason)) => {
                Err(AttemptError::WithinResponse(reason))
            }
        }
    }
}

impl PendingExchange<'_> {
    /// Answers with a response whose head gives its length.
    pub(super) async fn send_response(
        &self,
        head: ResponseHead,
        body: &[u8],
    ) -> Result<(), ResetReason> {
        let _ = self.job.stream.accept();
        let mut first = Vec::new();
        head.write(&mut first);
        let terminal = WireEnd::Stream(&self.job.stream);
        terminal.write(&first).await?;
        terminal.write(body).await?;
        terminal.finish().await
    }
}

/// Returns the server's name in an `https` target, and reduces the target to its path. [`None`] for
/// a plain one.
///
/// # Errors
/// The name differs from the field `Host`, or the target has no path.
pub(super) fn secure_name(
    head: &mut RequestHead,
) -> Result<Option<ServerName<'static>>, ResetReason> {
    let Some(place) = head.target.strip_prefix("https://") else { return Ok(None) };
    let (name, path) = place.split_at(place.find('/').ok_or(ResetReason::Prohibited)?);
    let host = head.host().unwrap_or_default();
    if host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host) != name {
        return Err(ResetReason::Prohibited);
    }
    let name = ServerName::try_from(name.to_owned()).map_err(|_| ResetReason::Prohibited)?;
    head.target = path.to_owned();
    Ok(Some(name))
}

/// Reads the one request of a stream, a GET or HEAD without a body. Reads to the stream's end,
/// because dropping an unfinished stream resets it.
async fn read_request(stream: &SessionStream) -> Result<ExchangeRequest, ResetReason> {
    let mut inlet = ReadBuffer::default();
    while inlet.fill(WireEnd::Stream(stream)).await? {
        if inlet.bytes().len() > LONGEST_HEAD {
            return Err(ResetReason::Prohibited);
        }
    }
    let ParsedHead::Head(mut head, length) = inlet.head(RequestHead::parse) else {
        return Err(ResetReason::Prohibited);
    };
    let tls = secure_name(&mut head)?;
    // Only what may be repeated, since an idle connection may turn out to be closed.
    let repeats = matches!(head.method.as_str(), "GET" | "HEAD");
    let is_plain = head.framing() == Ok(BodyFraming::None) && length == inlet.bytes().len();
    if repeats && is_plain {
        Ok(ExchangeRequest::new(head, tls))
    } else {
        Err(ResetReason::Prohibited)
    }
}
