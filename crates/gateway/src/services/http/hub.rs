//! HTTP exchanges at a hub, on behalf of terminals (`docs/slacp.md`, Exchanges): requests of all their
//! clients share persistent connections to servers.

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

/// How long a terminal may take to send a request, once its stream is there.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A hub's connections to servers, and its cache.
#[derive(Clone)]
pub(crate) struct HubHttp(Arc<Inner>);

struct Inner {
    pool: Pool,
    store: Option<HubStore>,
    /// Verifies servers. Without a file it is made when it is first needed.
    connector: OnceLock<Result<TlsConnector, String>>,
    /// See [`Server::distrusted`].
    distrusted: Arc<Mutex<Occasions>>,
}

/// A request of a terminal's client, and how to carry it out.
pub(super) struct Job {
    pub(super) stream: Stream,
    pub(super) open: Open<Destination>,
    /// Permitted addresses of its host.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admission: Admission,
    pub(super) policy: DialPolicy,
    pub(super) counters: Arc<Counters>,
    pub(super) asker: Asker,
}

/// What a terminal has sent.
pub(super) struct Request {
    pub(super) head: RequestHead,
    pub(super) bytes: Vec<u8>,
    /// The server's name, if it is asked by TLS.
    pub(super) tls: Option<ServerName<'static>>,
    /// Whether the server may keep the connection open after its answer.
    keeps: bool,
}

impl Request {
    pub(super) fn new(head: RequestHead, tls: Option<ServerName<'static>>) -> Self {
        // What the client wants to happen to its own connection is not for one that others use, too.
        let keeps = head.minor > 0 || head.keeps_alive();
        Self::of(head, tls, keeps)
    }

    /// The same request, after whose answer the server closes the connection.
    fn last(&self) -> Self {
        Self::of(self.head.clone(), self.tls.clone(), false)
    }

    fn of(head: RequestHead, tls: Option<ServerName<'static>>, keeps: bool) -> Self {
        // Written anew: a server must not find anything else in it than we did, on a connection that
        // others use, too.
        let bytes = sent_on(&head, Framing::None, keeps);
        Self { head, bytes, tls, keeps }
    }
}

/// Why an attempt has failed.
enum Failed {
    /// The server had closed a connection that it had kept open.
    Stale,
    /// We cannot tell where the answer ends, and the server keeps the connection open behind it.
    Endless,
    For(ResetReason),
    /// The terminal has got some of the answer.
    Within(ResetReason),
}

/// Why a request was not answered.
pub(super) struct Unanswered {
    pub(super) reason: ResetReason,
    /// Whether the terminal has got some of an answer.
    pub(super) begun: bool,
}

impl From<ResetReason> for Failed {
    fn from(reason: ResetReason) -> Self {
        Self::For(reason)
    }
}

impl HubHttp {
    /// # Errors
    /// What is wrong with the file of authorities.
    pub(crate) fn new(config: HubHttpConfig) -> Result<Self, String> {
        let connector = OnceLock::new();
        if let Some(path) = &config.authorities {
            let _ = connector.set(Ok(sites::connector(Some(path))?));
        }
        let store = config.cache.map(HubStore::start);
        let (pool, distrusted) = Default::default();
        Ok(Self(Arc::new(Inner { pool, store, connector, distrusted })))
    }

    /// The server of this name.
    pub(super) fn server(&self, name: ServerName<'static>) -> Result<Server, ResetReason> {
        let made = self.0.connector.get_or_init(|| {
            let made = sites::connector(None);
            made.inspect_err(|error| tracing::warn!("no server can be asked by TLS: {error}"))
        });
        let connector = made.clone().map_err(|_| ResetReason::Prohibited)?;
        Ok(Server { name, connector, distrusted: self.0.distrusted.clone() })
    }

    pub(super) fn status(&self) -> HttpStatus {
        let pool = &self.0.pool;
        let stats = self.0.store.as_ref().map(HubStore::stats).unwrap_or_default();
        HttpStatus::of_hub((pool.exchanges.get(), pool.reused.get()), stats)
    }

    /// Leaves the files of the cache to another process.
    pub(super) fn leave_disk(&self) {
        self.0.store.iter().for_each(HubStore::leave_disk);
    }

    /// Closes connections that have been idle for long.
    pub(super) fn close_idle(&self) {
        self.0.pool.expire(clock::now());
    }

    /// Has the exchange.
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

/// A request of a terminal, whose stream gets the answer.
#[derive(Clone, Copy)]
pub(super) struct Errand<'a> {
    pub(super) http: &'a HubHttp,
    pub(super) job: &'a Arc<Job>,
    pub(super) request: &'a Request,
    pub(super) entry: &'a Registered<'a>,
}

/// What is to be done next about a request.
pub(super) enum Sent {
    Answered,
    /// The server has confirmed this, which is stored.
    Stored(Answer<Bytes>),
    /// This is to be sent instead.
    Again(RequestHead, Box<Asked>),
}

impl Errand<'_> {
    /// Sends a request in place of the terminal's, over a connection that is there if possible, and passes
    /// the answer on, unless what is stored does. `asked` is what the cache has asked.
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
    /// A new connection to the server, which must prove to have the `name`.
    async fn line(&self, name: Option<&ServerName<'static>>) -> Result<Line, ResetReason> {
        let Some(name) = name else { return connect(self.job).await.map(Line::Plain) };
        let server = self.http.server(name.clone())?;
        let socket = connect(self.job).await?;
        server.over(Under::socket(socket)).await.map(|secure| Line::Secure(Box::new(secure)))
    }
}

/// A request over one connection.
struct Over<'a> {
    errand: &'a Errand<'a>,
    request: &'a Request,
    asked: Option<(&'a HubStore, &'a Asked)>,
    /// Whether the connection was there.
    used: bool,
}

impl Over<'_> {
    fn moved(&self, from: Side, bytes: usize) {
        self.errand.entry.moved(clock::now(), from, bytes);
    }

    /// Returns whether the connection can be used again, too.
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
            // Whatever it says, the client hears it, to its end.
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
        // What can be read in two ways passes to its end: nothing else comes over this connection.
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

    /// Ends a response that has passed. One that its server has ended too soon, or has without a length, ends
    /// in the same way: the client gets what came, and sees by the length whether that was all.
    async fn finish(&self, passed: Result<bool, Broken>) -> Result<(), Failed> {
        match passed {
            Ok(_) => Wire::Stream(&self.errand.job.stream).finish().await.map_err(Failed::Within),
            Err(Broken::From(reason) | Broken::To(reason)) => Err(Failed::Within(reason)),
        }
    }
}

impl Errand<'_> {
    /// Answers with something that has a length.
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

/// The name of the server of an `https` target, which becomes a path. It must be that of the field `Host`.
///
/// # Errors
/// It is another one, or the target has no path.
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

/// The one request of a stream, which must be one that may be repeated. Reads to the end, or the stream
/// would be reset when it is dropped.
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
    let repeats = matches!(head.method.as_str(), "GET" | "HEAD");
    let is_plain = head.framing() == Ok(Framing::None) && length == inlet.bytes().len();
    if repeats && is_plain { Ok(Request::new(head, tls)) } else { Err(ResetReason::Prohibited) }
}
