//! A client's HTTP connection: serves one request after the other until the connection ends or is
//! relayed as opaque bytes.

use std::sync::Arc;
use std::time::Duration;

use http_cache::{Asked, Body, Framing, Key, Parsed, Plan, RequestHead};
use slacp::{Destination, Open, ResetReason, client_network};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::flight::{Boarding, Flight, Lead, Patience};
use super::secure::{Secure, Under};
use super::sites::{HANDSHAKE, Hello, Met, Server, Site};
use super::upstream::{End, Upstream, session};
use super::wire::{As, Broken, Inlet, Wire, pass};
use super::{Shared, refresh};
use crate::clock;
use crate::figures::connections::{Origin, Registered};
use crate::relay::leg::{Leg, shut_down};
use crate::relay::{self, dial};
use crate::socket_options;

/// After this silence of a client its server is connected: the protocol may be one in which the
/// server speaks first.
const SILENCE: Duration = Duration::from_millis(250);
/// Time for a head from its first byte. A client that takes longer may be speaking another
/// protocol, and be waiting for an answer to what it has sent.
const HEAD: Duration = Duration::from_secs(2);
/// Time for the peer to read the last bytes and to close its side.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(10);

/// Times that a client waits for a response to another client's request, before its own request is
/// sent.
const MOST_WAITS: u32 = 2;

/// A client's connection, with what has been read from it.
pub(super) struct Conversation {
    pub(super) shared: Arc<Shared>,
    pub(super) leg: Leg,
    /// Bytes read from the client.
    pub(super) inlet: Inlet,
    pub(super) open: Open<Destination>,
    /// An idle connection to the server, or one opened before the first request because the server
    /// may speak first.
    pub(super) upstream: Option<Upstream>,
    /// Set once a request has been read, so that the connection is known to be HTTP.
    spoke: bool,
    /// Cleared once the hub has refused to fetch from this server.
    pub(super) fetches: bool,
    /// Set while other clients may wait for the response to the current request.
    pub(super) lead: Option<Lead>,
    /// The site named in the client's ClientHello and the client's TLS connection, if it is one of
    /// ours.
    pub(super) secure: Option<(Site, Secure)>,
}

/// Next input on a client's connection.
enum Next {
    Request(RequestHead, Framing),
    /// Bytes that are relayed unchanged.
    Plain,
    End,
}

/// State of a client's connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Open for another request.
    Open,
    /// To be closed: the response is complete.
    Close,
    /// To be relayed unchanged from here on.
    Plain,
    /// To be reset for this reason.
    Broken(ResetReason),
}

/// The cache key's destination part. Responses over TLS are kept apart from cleartext ones.
pub(super) fn place(destination: &Destination, by_tls: bool) -> String {
    if by_tls { format!("tls {destination}") } else { destination.to_string() }
}

impl Conversation {
    pub(super) fn new(shared: Arc<Shared>, socket: TcpStream, open: Open<Destination>) -> Self {
        // Fails if the client has reset the connection; reading will notice.
        let _ = socket_options::prepare(&socket, &shared.upstreams.counters.keepalive);
        // If the gateway dies, a FIN would make a response that was cut off look complete.
        socket_options::reset_when_closed(&socket, true);
        let (leg, inlet) = (Leg::new(socket), Inlet::default());
        Self {
            shared,
            leg,
            inlet,
            open,
            upstream: None,
            spoke: false,
            fetches: true,
            lead: None,
            secure: None,
        }
    }

    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        let counters = &*shared.upstreams.counters;
        counters.connections.increment();
        let (now, open) = (clock::now(), self.open.clone());
        let entry = match session(&shared.upstreams, *shared.route.borrow(), &open) {
            Some(session) => Registered::new(now, counters, session, open, Origin::Here),
            None => Registered::straight(now, counters, open),
        };
        match self.converse(&entry).await {
            Fate::Open | Fate::Close => {
                counters.closed.increment();
                self.close().await;
            }
            Fate::Plain => self.relay(entry).await,
            Fate::Broken(reason) => {
                counters.reset.increment();
                counters.count_refusal(clock::now(), self.open.source.ip(), reason);
                // The server need not wait for what the client has yet to hear.
                self.upstream = None;
                self.leg.reset_after_data().await;
            }
        }
    }

    pub(super) fn client(&self) -> Wire<'_> {
        wire(&self.leg, &self.secure)
    }

    /// The server that must authenticate itself by TLS, on a connection to one of our sites.
    pub(super) fn server(&self) -> Option<&Server> {
        self.secure.as_ref().map(|(site, _)| &site.server)
    }

    /// Opens a connection to the client's server.
    pub(super) async fn way_to_server(&self) -> Result<Upstream, ResetReason> {
        let route = *self.shared.route.borrow();
        Upstream::open(&self.shared.upstreams, route, &self.open, self.server()).await
    }

    /// Reads the ClientHello, and terminates TLS if it names one of our sites. Returns an outcome
    /// if the connection is not to be served as HTTP.
    ///
    /// # Errors
    /// The reset reason, if reading fails or the TLS handshake takes too long.
    async fn meet(&mut self) -> Result<Option<Fate>, ResetReason> {
        let site = match timeout(HEAD, self.hello()).await {
            Ok(Ok(Some(site))) => site,
            Ok(Ok(None)) | Err(_) => return Ok(Some(Fate::Plain)),
            Ok(Err(reason)) => return Err(reason),
        };
        // TLS reads the ClientHello once more.
        let first = self.inlet.take();
        let socket = self.leg.duplicate().map_err(|error| dial::reason(&error))?;
        let client = self.open.source.ip();
        let under = Under::Socket(socket, first);
        match timeout(HANDSHAKE, Secure::accept(&site.acceptor, client, under)).await {
            Ok(Ok(secure)) => self.secure = Some((site, secure)),
            Ok(Err(error)) => {
                tracing::debug!("TLS handshake with a client of {} failed: {error}", site.host);
                return Ok(Some(Fate::Close));
            }
            Err(_) => return Err(ResetReason::TimedOut),
        }
        Ok(None)
    }

    /// Returns the site that the ClientHello names; [`None`] for any other first bytes.
    async fn hello(&mut self) -> Result<Option<Site>, ResetReason> {
        let mut hello = Hello::default();
        loop {
            match self.shared.sites.meet(&mut hello, self.inlet.bytes()) {
                Met::Site(site) => return Ok(Some(*site)),
                Met::Incomplete if !self.inlet.ended => {}
                Met::Incomplete | Met::Other => return Ok(None),
            }
            let limit = if self.inlet.is_empty() { SILENCE } else { HEAD };
            match timeout(limit, self.inlet.fill(Wire::Socket(self.leg.socket()))).await {
                Ok(filled) => filled.map(|_| ())?,
                Err(_) => return Ok(None),
            }
        }
    }

    async fn converse(&mut self, entry: &Registered<'_>) -> Fate {
        if port(&self.open.destination).is_some_and(|port| self.shared.sites.take(port)) {
            match self.meet().await {
                Ok(None) => {}
                Ok(Some(fate)) => return fate,
                Err(reason) => return Fate::Broken(reason),
            }
        }
        loop {
            let fate = match self.next().await {
                Ok(Next::Request(request, framing)) => self.handle(request, framing, entry).await,
                Ok(Next::Plain) => Fate::Plain,
                Ok(Next::End) => Fate::Close,
                Err(reason) => Fate::Broken(reason),
            };
            if fate != Fate::Open {
                return fate;
            }
        }
    }

    async fn next(&mut self) -> Result<Next, ResetReason> {
        loop {
            match self.inlet.head(RequestHead::parse) {
                Parsed::Head(head, length) => match head.framing() {
                    Ok(framing) => {
                        self.inlet.consume(length);
                        self.spoke = true;
                        return Ok(Next::Request(head, framing));
                    }
                    // An ambiguous length is left to the server (request smuggling,
                    // RFC 9112 §11.2).
                    Err(why) => {
                        tracing::debug!(destination = %self.open.destination, "relayed unchanged: {why}");
                        return Ok(Next::Plain);
                    }
                },
                Parsed::Malformed => return Ok(Next::Plain),
                Parsed::Incomplete if !self.inlet.ended => {}
                Parsed::Incomplete if self.spoke && self.inlet.is_empty() => {
                    return Ok(Next::End);
                }
                Parsed::Incomplete => return Ok(Next::Plain),
            }
            if !self.wait().await? {
                return Ok(Next::Plain);
            }
        }
    }

    /// Waits for bytes from the client. Returns `false` if the connection is not HTTP.
    async fn wait(&mut self) -> Result<bool, ResetReason> {
        let client = wire(&self.leg, &self.secure);
        if !self.inlet.is_empty() {
            return match timeout(HEAD, self.inlet.fill(client)).await {
                Ok(filled) => filled.map(|_| true),
                Err(_) => Ok(false),
            };
        }
        let Some(Upstream { end, inlet, .. }) = &mut self.upstream else {
            if self.spoke {
                return self.inlet.fill(client).await.map(|_| true);
            }
            if let Ok(filled) = timeout(SILENCE, self.inlet.fill(client)).await {
                return filled.map(|_| true);
            }
            self.upstream = Some(self.way_to_server().await?);
            return Ok(true);
        };
        tokio::select! {
            filled = self.inlet.fill(client) => filled.map(|_| true),
            heard = inlet.fill(end.wire()) => {
                if !self.spoke {
                    return heard.map(|_| false);
                }
                // The server closes the idle connection, perhaps after a *408*: the next request
                // gets a new one.
                self.let_go();
                Ok(true)
            }
        }
    }

    /// Closes the connection to the server, if there is one.
    pub(super) fn let_go(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            // Closing waits for the server's end, and the client need not.
            tokio::spawn(upstream.close());
        }
    }

    async fn handle(
        &mut self,
        request: RequestHead,
        framing: Framing,
        entry: &Registered<'_>,
    ) -> Fate {
        let client = client_network(self.open.source.ip());
        let key = Key {
            destination: place(&self.open.destination, self.secure.is_some()),
            host: request.host().unwrap_or_default(),
            target: request.target.clone(),
        };
        // The server is authenticated for this host only.
        if let Some((site, _)) = &self.secure
            && !is_for(&request, &site.host)
        {
            return self.misdirected(&request).await;
        }
        let now = clock::unix_time();
        let mut plan = self
            .shared
            .kept
            .change(|cache| cache.handle_request(now, key.clone(), &request, framing, client));
        let mut waits = MOST_WAITS;
        loop {
            match plan {
                Plan::Answer(answer, again) => {
                    if let Some((head, asked)) = again {
                        let open = (self.open.clone(), self.server().cloned());
                        tokio::spawn(refresh::refresh(self.shared.clone(), open, head, asked));
                    }
                    // The body could not be read from disk: the cache decides again, without it.
                    if let Some(fate) = self.answer(&request, answer, "hit").await {
                        return fate;
                    }
                }
                Plan::Ask(head, asked) => match self.board(&asked, waits) {
                    Some(flight) => match self.follow(flight, &request).await {
                        Ok(fate) => return fate,
                        Err(Patience::Left) => waits -= 1,
                        Err(Patience::Over) => waits = 0,
                    },
                    None => {
                        let fate = self.ask(&request, head, asked, framing, entry).await;
                        self.lead = None;
                        return fate;
                    }
                },
                Plan::Unavailable => return self.unavailable(&request, "fwd=miss").await,
            }
            let now = clock::unix_time();
            plan = self
                .shared
                .kept
                .change(|cache| cache.reconsider(now, key.clone(), &request, framing, client));
        }
    }

    /// Returns the response in flight to wait for, if another client has sent the same request.
    /// Otherwise this request is sent, either as the one that others wait for or on its own. It is
    /// also sent once `waits` is used up.
    fn board(&mut self, asked: &Asked, waits: u32) -> Option<Arc<Flight>> {
        if waits == 0 {
            return None;
        }
        match self.shared.kept.board(asked) {
            Boarding::Lead(lead) => {
                self.lead = Some(lead);
                None
            }
            Boarding::Join(flight) => Some(flight),
            Boarding::Alone => None,
        }
    }

    /// Relays the rest of the connection unchanged, beginning with all bytes read so far.
    async fn relay(mut self, entry: Registered<'_>) {
        let shared = self.shared.clone();
        let counters = &*shared.upstreams.counters;
        shared.counters.plain.increment();
        let upstream = match self.upstream.take() {
            Some(upstream) => Ok(upstream),
            None => {
                tokio::select! {
                    opened = self.way_to_server() => opened,
                    () = self.leg.failure() => Err(ResetReason::Reset),
                }
            }
        };
        let upstream = match upstream {
            Ok(upstream) => upstream,
            Err(reason) => {
                counters.failed.increment();
                return counters.count_refusal(clock::now(), self.open.source.ip(), reason);
            }
        };
        // Bytes that the server sent first, if it did.
        if self.client().write(upstream.inlet.bytes()).await.is_err() {
            return counters.reset.increment();
        }
        if self.secure.is_some() {
            return match self.relay_secure(upstream).await {
                Ok(()) => {
                    counters.closed.increment();
                    self.close().await;
                }
                Err(reason) => {
                    counters.reset.increment();
                    counters.count_refusal(clock::now(), self.open.source.ip(), reason);
                    self.leg.reset_after_data().await;
                }
            };
        }
        let first = self.inlet.take();
        match upstream.end {
            End::Stream(stream) => {
                let report = address(&self.open.destination);
                relay::early(stream, self.leg, (&first, report), &entry, counters).await;
            }
            // A fetch has been relayed to its end already, and TLS is handled above.
            End::Fetch(_) | End::Secure(_) => {}
            End::Socket(server) => {
                relay::direct(self.leg, Leg::new(server), &first, entry, counters).await;
            }
        }
    }

    /// Relays the decrypted bytes in both directions until both have ended.
    async fn relay_secure(&mut self, mut upstream: Upstream) -> Result<(), ResetReason> {
        let client = wire(&self.leg, &self.secure);
        let Upstream { end, inlet, .. } = &mut upstream;
        both_ways(client, &mut self.inlet, end.wire(), inlet).await
    }

    async fn close(mut self) {
        self.let_go();
        if let Some((_, secure)) = &self.secure {
            let _ = timeout(LAST_WORDS, secure.finish()).await;
        }
        // Both directions have ended, so closing may send a FIN again.
        socket_options::reset_when_closed(self.leg.socket(), false);
        if shut_down(self.leg.socket()).is_ok() {
            self.leg.discard(LAST_WORDS).await;
        }
    }
}

pub(super) fn wire<'a>(leg: &'a Leg, secure: &'a Option<(Site, Secure)>) -> Wire<'a> {
    match secure {
        Some((_, secure)) => Wire::Secure(secure),
        None => Wire::Socket(leg.socket()),
    }
}

/// Returns `true` if the request's `Host` is the site of the client's TLS connection.
fn is_for(request: &RequestHead, site: &str) -> bool {
    let host = request.host().unwrap_or_default();
    host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name) == site
}

/// Relays all bytes in both directions. If one side stops reading, the bytes it has sent are still
/// delivered.
async fn both_ways(
    client: Wire<'_>,
    said: &mut Inlet,
    server: Wire<'_>,
    heard: &mut Inlet,
) -> Result<(), ResetReason> {
    heard.clear();
    let up = async { source_failed(&one_way((client, said), server).await) };
    let down = async { source_failed(&one_way((server, heard), client).await) };
    let (up, down) = tokio::try_join!(up, down)?;
    up.and(down)
}

/// Splits a result by the failing end: the outer error is the source's, the inner one the sink's.
fn source_failed(passed: &Result<(), Broken>) -> Result<Result<(), ResetReason>, ResetReason> {
    match passed {
        Ok(()) => Ok(Ok(())),
        Err(Broken::To(reason)) => Ok(Err(*reason)),
        Err(Broken::From(reason)) => Err(*reason),
    }
}

async fn one_way(from: (Wire<'_>, &mut Inlet), to: Wire<'_>) -> Result<(), Broken> {
    let mut all = Body::new(Framing::UntilClose);
    // An interrupted write may have left bytes in TLS.
    to.flush().await.map_err(Broken::To)?;
    pass(from, (to, As::Itself), &mut all, |_| {}, |_| {}).await?;
    to.finish().await.map_err(Broken::To)
}

fn port(destination: &Destination) -> Option<u16> {
    match destination {
        Destination::Address(address) => Some(address.port()),
        Destination::Name(_, port) => Some(*port),
        Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => None,
    }
}

/// The destination's address, unless it is named or internal.
pub(super) fn address(destination: &Destination) -> Option<std::net::SocketAddr> {
    match destination {
        Destination::Address(address) => Some(*address),
        _ => None,
    }
}
