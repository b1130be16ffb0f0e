//! HTTP exchanges at a hub, on behalf of terminals (`docs/slacp.md`, Exchanges): requests of all
//! their clients share persistent connections to servers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use config::HubHttpConfig;
use http_cache::{
    Answer, Asked, Body, Framing, LONGEST_HEAD, Parsed, RequestHead, ResponseHead, Verdict,
};
use pep::relay::Side;
use slacp::{Destination, Open, ResetReason};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::disk::Bytes;
use super::exchange::{Reply, read_reply, sent_on};
use super::hub_store::{Asker, HubStore};
use super::pool::{Line, Pool};
use super::secure::Under;
use super::sites::{self, Server};
use super::wire::{As, Broken, Inlet, Wire, pass};
use crate::clock;
use crate::figures::connections::Registered;
use crate::figures::counters::Counters;
use crate::figures::status::HttpStatus;
use crate::hop::Stream;
use crate::occasions::Occasions;
use crate::relay::terms::{Admission, DialPolicy};
use crate::relay::{dial, names};
use crate::socket_options;

/// Time for a terminal to send its request after opening the stream.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A hub's connections to servers, and its cache.
#[derive(Clone)]
pub(crate) struct HubHttp(Arc<Inner>);

struct Inner {
    pool: Pool,
    store: Option<HubStore>,
    /// Verifies servers. Without a file of authorities it is made at first use.
    connector: OnceLock<Result<TlsConnector, String>>,
    /// Time of the last log message about each untrusted server.
    distrusted: Arc<Mutex<Occasions>>,
}

/// A request of a terminal's client, and the terms on which it is carried out.
pub(super) struct Job {
    pub(super) stream: Stream,
    pub(super) open: Open<Destination>,
    /// The addresses of its host that the terminal may reach.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admission: Admission,
    pub(super) policy: DialPolicy,
    pub(super) counters: Arc<Counters>,
    pub(super) asker: Asker,
}

/// A request read from a terminal.
pub(super) struct Request {
    pub(super) head: RequestHead,
    pub(super) bytes: Vec<u8>,
    /// The server's name, for a request over TLS.
    pub(super) tls: Option<ServerName<'static>>,
    /// Set if the server may keep the connection open after its response.
    keeps: bool,
}

impl Request {
    pub(super) fn new(head: RequestHead, tls: Option<ServerName<'static>>) -> Self {
        // `Connection: close` is about the client's own connection, and this one is shared.
        let keeps = head.minor > 0 || head.keeps_alive();
        Self::of(head, tls, keeps)
    }

    /// The same request with `Connection: close`.
    fn last(&self) -> Self {
        Self::of(self.head.clone(), self.tls.clone(), false)
    }

    fn of(head: RequestHead, tls: Option<ServerName<'static>>, keeps: bool) -> Self {
        // Encoded anew: on a shared connection a server must not read another request in it than we
        // did (request smuggling, RFC 9112 §11.2).
        let bytes = sent_on(&head, Framing::None, keeps);
        Self { head, bytes, tls, keeps }
    }
}

enum Failed {
    /// The server had closed an idle connection.
    Stale,
    /// The response has no readable end, and the server keeps the connection open after it.
    Endless,
    For(ResetReason),
    /// Part of the response has reached the terminal.
    Within(ResetReason),
}

pub(super) struct Unanswered {
    pub(super) reason: ResetReason,
    /// Set if part of a response has reached the terminal, so that nothing else can be sent.
    pub(super) begun: bool,
}

impl From<ResetReason> for Failed {
    fn from(reason: ResetReason) -> Self {
        Self::For(reason)
    }
}

impl HubHttp {
    /// # Errors
    /// A message if the file of authorities cannot be used.
    pub(crate) fn new(config: HubHttpConfig) -> Result<Self, String> {
        let connector = OnceLock::new();
        // An unusable file must fail the start, not the first request.
        if let Some(path) = &config.authorities {
            let _ = connector.set(Ok(sites::connector(Some(path))?));
        }
        let store = config.cache.map(HubStore::start);
        let (pool, distrusted) = Default::default();
        Ok(Self(Arc::new(Inner { pool, store, connector, distrusted })))
    }

    /// Returns the server of this name, with the means to verify it.
    pub(super) fn server(&self, name: ServerName<'static>) -> Result<Server, ResetReason> {
        let made = self.0.connector.get_or_init(|| {
            let made = sites::connector(None);
            made.inspect_err(|error| tracing::warn!("no HTTP exchanges over TLS: {error}"))
        });
        let connector = made.clone().map_err(|_| ResetReason::Prohibited)?;
        Ok(Server { name, connector, distrusted: self.0.distrusted.clone() })
    }

    pub(super) fn status(&self) -> HttpStatus {
        let pool = &self.0.pool;
        let stats = self.0.store.as_ref().map(HubStore::stats).unwrap_or_default();
        HttpStatus::of_hub((pool.exchanges.get(), pool.reused.get()), stats)
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
    pub(super) async fn have_exchange(self, job: Job) {
        let job = Arc::new(job);
        let (counters, stream) = (&*job.counters, &job.stream);
        counters.connections.increment();
        self.0.pool.exchanges.increment();
        let (open, origin) = (job.open.clone(), job.admission.origin);
        let entry = Registered::new(clock::now(), counters, stream.session(), open, origin);
        let done = tokio::select! {
            done = self.answer(&job, &entry) => done,
            reason = stream.reset_by_peer() => Err(reason),
        };
        match done {
            Ok(()) => counters.closed.increment(),
            Err(reason) => {
                counters.failed.increment();
                counters.reasons.count(reason);
                stream.abandon(reason);
            }
        }
    }

    async fn answer(&self, job: &Arc<Job>, entry: &Registered<'_>) -> Result<(), ResetReason> {
        let read = timeout(REQUEST_LIMIT, read_request(&job.stream)).await;
        let request = read.map_err(|_| ResetReason::TimedOut)??;
        let errand = Errand { http: self, job, request: &request, entry };
        match &self.0.store {
            Some(store) => store.answer(&errand).await,
            None => {
                let sent = errand.send(&request, None).await;
                sent.map(|_| ()).map_err(|unanswered| unanswered.reason)
            }
        }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.0.pool
    }
}

/// A terminal's request, to whose stream the response is written.
#[derive(Clone, Copy)]
pub(super) struct Errand<'a> {
    pub(super) http: &'a HubHttp,
    pub(super) job: &'a Arc<Job>,
    pub(super) request: &'a Request,
    pub(super) entry: &'a Registered<'a>,
}

/// Outcome of sending a request.
pub(super) enum Sent {
    Answered,
    /// The server has validated this stored response.
    Stored(Answer<Bytes>),
    /// Another request is to be sent instead.
    Again(RequestHead, Box<Asked>),
}

impl Errand<'_> {
    /// Sends `request` in place of the terminal's, over an idle connection if possible, and
    /// forwards the response unless a stored one is to be used. `asked` is the cache's part: the
    /// store and what it wants to know.
    pub(super) async fn send(
        &self,
        request: &Request,
        asked: Option<(&HubStore, &Asked)>,
    ) -> Result<Sent, Unanswered> {
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
                    let failed = |reason| Unanswered { reason, begun: false };
                    self.line(request.tls.as_ref()).await.map_err(failed)?
                }
            };
            let _ = job.stream.accept();
            let request = last.as_ref().unwrap_or(request);
            let over = Over { errand: self, request, asked, used };
            match over.run(line.wire()).await {
                Ok((sent, reusable)) => {
                    if reusable {
                        pool.give_back(clock::now(), line, sharers);
                    }
                    return Ok(sent);
                }
                // Try again: each idle connection is taken from the pool only once.
                Err(Failed::Stale) => {}
                Err(Failed::Endless) => last = Some(request.last()),
                Err(Failed::For(reason)) => return Err(Unanswered { reason, begun: false }),
                Err(Failed::Within(reason)) => return Err(Unanswered { reason, begun: true }),
            }
        }
    }
}

pub(super) async fn connect(job: &Job) -> Result<TcpStream, ResetReason> {
    let caller = job.policy.caller(&job.open);
    let connect = |address, limit| dial::connect(address, caller, limit);
    let connected = names::try_each(job.addresses.clone(), job.policy.timeout, connect).await;
    let socket = connected.map_err(|error| dial::reason(&error))?;
    // Fails if the server has reset the connection; reading will notice.
    let _ = socket_options::prepare(&socket, &job.counters.keepalive);
    Ok(socket)
}

impl Errand<'_> {
    /// Opens a connection to the server, by TLS if it must authenticate itself as `name`.
    async fn line(&self, name: Option<&ServerName<'static>>) -> Result<Line, ResetReason> {
        let Some(name) = name else { return connect(self.job).await.map(Line::Plain) };
        let server = self.http.server(name.clone())?;
        let socket = connect(self.job).await?;
        server.over(Under::socket(socket)).await.map(|secure| Line::Secure(Box::new(secure)))
    }
}

/// A request on one connection.
struct Over<'a> {
    errand: &'a Errand<'a>,
    request: &'a Request,
    asked: Option<(&'a HubStore, &'a Asked)>,
    /// Set if the connection has carried an exchange before.
    used: bool,
}

impl Over<'_> {
    fn moved(&self, from: Side, bytes: usize) {
        self.errand.entry.moved(clock::now(), from, bytes);
    }

    /// Sends the request and forwards the response. Returns whether the connection can be used
    /// again.
    async fn run(&self, wire: Wire<'_>) -> Result<(Sent, bool), Failed> {
        let mut inlet = Inlet::default();
        let terminal = Wire::Stream(&self.errand.job.stream);
        let stale = |reason| if self.used { Failed::Stale } else { Failed::For(reason) };
        self.moved(Side::Client, self.request.bytes.len());
        wire.write(&self.request.bytes).await.map_err(stale)?;
        let reply = read_reply(wire, &mut inlet, Some(terminal)).await.map_err(stale)?;
        let Reply::Head(head, length) = reply else {
            if self.used && matches!(reply, Reply::Nothing) {
                return Err(Failed::Stale);
            }
            // An unreadable response is forwarded until the connection ends; see `Endless` for one
            // that stays open.
            if self.request.keeps && !inlet.ended {
                return Err(Failed::Endless);
            }
            let mut rest = Body::new(Framing::UntilClose);
            let (from, to) = ((wire, &mut inlet), (terminal, As::Itself));
            let passed = pass(from, to, &mut rest, |_| {}, |_| {}).await;
            self.finish(passed).await?;
            return Ok((Sent::Answered, false));
        };
        let framing = head.framing(&self.request.head.method);
        let reusable = head.keeps_alive() && framing.is_ok() && framing != Ok(Framing::UntilClose);
        if framing.is_err() && head.keeps_alive() && self.request.keeps && !inlet.ended {
            return Err(Failed::Endless);
        }
        let mut recording = None;
        if let Some((store, asked)) = self.asked {
            // An unread body behind the head would precede the next response.
            let bare = reusable && framing == Ok(Framing::None) && inlet.bytes().len() == length;
            match store.heard(asked, &head) {
                Verdict::Pass { store: true } => recording = Some(store.record()),
                Verdict::Pass { store: false } => {}
                Verdict::Answer(answer) => return Ok((Sent::Stored(answer), bare)),
                Verdict::Again(head, asked) => {
                    return Ok((Sent::Again(head, Box::new(asked)), bare));
                }
            }
        }
        self.moved(Side::Server, length);
        terminal.write(&inlet.bytes()[..length]).await.map_err(Failed::Within)?;
        inlet.consume(length);
        // An ambiguous length: forward until the connection ends, so that no other response is read
        // from it.
        let framing = framing.unwrap_or(Framing::UntilClose);
        let mut body = Body::new(framing);
        let content = |bytes: &[u8]| {
            recording.iter_mut().for_each(|it| it.add(bytes));
        };
        let moved = |count| self.moved(Side::Server, count);
        let (from, to) = ((wire, &mut inlet), (terminal, As::Itself));
        let passed = pass(from, to, &mut body, content, moved).await;
        let is_whole = passed == Ok(true);
        self.finish(passed).await?;
        if let (Some(recording), Some((_, asked)), true) = (recording, self.asked, is_whole) {
            recording.store(asked, &head);
        }
        Ok((Sent::Answered, reusable && inlet.is_empty() && !inlet.ended))
    }

    /// Ends a response on the terminal's stream. A response that its server cut off, or sent
    /// without a length, ends in the same way: the client judges by the length whether it is
    /// complete.
    async fn finish(&self, passed: Result<bool, Broken>) -> Result<(), Failed> {
        match passed {
            Ok(_) => Wire::Stream(&self.errand.job.stream).finish().await.map_err(Failed::Within),
            Err(Broken::From(reason) | Broken::To(reason)) => Err(Failed::Within(reason)),
        }
    }
}

impl Errand<'_> {
    /// Answers with a response whose head gives its length.
    pub(super) async fn say(&self, head: ResponseHead, body: &[u8]) -> Result<(), ResetReason> {
        let _ = self.job.stream.accept();
        let mut first = Vec::new();
        head.write(&mut first);
        let terminal = Wire::Stream(&self.job.stream);
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
async fn read_request(stream: &Stream) -> Result<Request, ResetReason> {
    let mut inlet = Inlet::default();
    while inlet.fill(Wire::Stream(stream)).await? {
        if inlet.bytes().len() > LONGEST_HEAD {
            return Err(ResetReason::Prohibited);
        }
    }
    let Parsed::Head(mut head, length) = inlet.head(RequestHead::parse) else {
        return Err(ResetReason::Prohibited);
    };
    let tls = secure_name(&mut head)?;
    // Only what may be repeated, since an idle connection may turn out to be closed.
    let repeats = matches!(head.method.as_str(), "GET" | "HEAD");
    let is_plain = head.framing() == Ok(Framing::None) && length == inlet.bytes().len();
    if repeats && is_plain { Ok(Request::new(head, tls)) } else { Err(ResetReason::Prohibited) }
}
