//! A client's connection: its requests one after the other, until it ends or becomes something else.

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

/// How long a client may be silent before its server is connected, which may be the one to speak first.
const SILENCE: Duration = Duration::from_millis(250);
/// How long a head may take from its first byte. What takes longer may wait for an answer to half of it,
/// which only another protocol gets.
const HEAD: Duration = Duration::from_secs(2);
/// Time for what was said last to be heard.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(10);

/// How often a client waits for the answer to another's request before it asks for itself.
const MOST_WAITS: u32 = 2;

/// A client's connection.
pub(super) struct Conversation {
    pub(super) shared: Arc<Shared>,
    pub(super) leg: Leg,
    /// What the client has sent.
    pub(super) inlet: Inlet,
    pub(super) open: Open<Destination>,
    /// A way to its server that is idle, or (before the first request) may speak first.
    pub(super) upstream: Option<Upstream>,
    /// Whether a request was read.
    spoke: bool,
    /// Whether the hub fetches from this server.
    pub(super) fetches: bool,
    /// That of the request under way, if others may wait for its answer.
    pub(super) lead: Option<Lead>,
    /// The site that the client has asked for, and its TLS.
    pub(super) secure: Option<(Site, Secure)>,
}

/// What comes next on a connection.
enum Next {
    Request(RequestHead, Framing),
    /// Something that passes as it is.
    Plain,
    End,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Another request may come.
    Open,
    /// Everything was said.
    Close,
    /// What follows passes as it is.
    Plain,
    /// It is reset.
    Broken(ResetReason),
}

/// The place in the cache of what comes from a destination.
pub(super) fn place(destination: &Destination, by_tls: bool) -> String {
    if by_tls { format!("tls {destination}") } else { destination.to_string() }
}

impl Conversation {
    pub(super) fn new(shared: Arc<Shared>, socket: TcpStream, open: Open<Destination>) -> Self {
        // Fails if the client has reset the connection; reading will notice.
        let _ = socket_options::prepare(&socket, &shared.upstreams.counters.keepalive);
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

    /// What the client's server must prove to be.
    pub(super) fn server(&self) -> Option<&Server> {
        self.secure.as_ref().map(|(site, _)| &site.server)
    }

    /// A way to the server.
    pub(super) async fn way_to_server(&self) -> Result<Upstream, ResetReason> {
        let route = *self.shared.route.borrow();
        Upstream::open(&self.shared.upstreams, route, &self.open, self.server()).await
    }

    /// Reads a ClientHello. If it is for one of our sites, its TLS ends here.
    ///
    /// # Errors
    /// If the client cannot agree with us on TLS.
    async fn meet(&mut self) -> Result<Option<Fate>, ResetReason> {
        let site = match timeout(HEAD, self.hello()).await {
            Ok(Ok(Some(site))) => site,
            Ok(Ok(None)) | Err(_) => return Ok(Some(Fate::Plain)),
            Ok(Err(reason)) => return Err(reason),
        };
        let first = self.inlet.take();
        let socket = self.leg.duplicate().map_err(|error| dial::reason(&error))?;
        let client = self.open.source.ip();
        let under = Under::Socket(socket, first);
        match timeout(HANDSHAKE, Secure::accept(&site.acceptor, client, under)).await {
            Ok(Ok(secure)) => self.secure = Some((site, secure)),
            Ok(Err(error)) => {
                tracing::debug!("a client of {} fails at TLS: {error}", site.host);
                return Ok(Some(Fate::Close));
            }
            Err(_) => return Err(ResetReason::TimedOut),
        }
        Ok(None)
    }

    /// The site that the client asks for, if it is ours.
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
                    Err(why) => {
                        tracing::debug!(destination = %self.open.destination, "passes as it is: {why}");
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

    /// Waits for the client. Returns `false` if it is none of HTTP.
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
                // It ends the connection, or says why it does: the next request gets another.
                self.let_go();
                Ok(true)
            }
        }
    }

    /// Ends the way to the server.
    pub(super) fn let_go(&mut self) {
        if let Some(upstream) = self.upstream.take() {
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
                    // Without its body, which the disk has lost, the cache decides again.
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

    /// Where to wait for the answer to the same request of another client. Without one, or if it has waited
    /// in vain too often, this one is sent on.
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

    /// Lets the connection pass as it is from here on, with all that was read.
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
            // It passes to its end where it is read.
            End::Fetch(_) | End::Secure(_) => {}
            End::Socket(server) => {
                relay::direct(self.leg, Leg::new(server), &first, entry, counters).await;
            }
        }
    }

    /// Passes on what is within TLS, both ways, until both have ended.
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

/// Whether a request is for the host that the client has asked for in TLS.
fn is_for(request: &RequestHead, site: &str) -> bool {
    let host = request.host().unwrap_or_default();
    host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name) == site
}

/// Passes on everything between two ends. From one that takes no more, what it has said is still heard.
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

/// The failure of a direction's source, outside, or that of its sink, inside.
fn source_failed(passed: &Result<(), Broken>) -> Result<Result<(), ResetReason>, ResetReason> {
    match passed {
        Ok(()) => Ok(Ok(())),
        Err(Broken::To(reason)) => Ok(Err(*reason)),
        Err(Broken::From(reason)) => Err(*reason),
    }
}

async fn one_way(from: (Wire<'_>, &mut Inlet), to: Wire<'_>) -> Result<(), Broken> {
    let mut all = Body::new(Framing::UntilClose);
    // A body that was interrupted may have left something in TLS.
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

/// The address of a destination that has one.
pub(super) fn address(destination: &Destination) -> Option<std::net::SocketAddr> {
    match destination {
        Destination::Address(address) => Some(*address),
        _ => None,
    }
}
