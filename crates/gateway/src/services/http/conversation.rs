//! A client's HTTP connection: serves one request after the other until the connection ends or is
//! relayed as opaque bytes.

use std::sync::Arc;
use std::time::Duration;

use http_cache::{
    BodyFraming, BodyParser, CacheKey, ForwardedRequest, ParsedHead, RequestAction, RequestHead,
};
use slacp::{Destination, ResetReason, StreamOpening, client_network};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::flight::{LeadingRequest, RequestRole, SharedResponse, SharedWaitError};
use super::secure::{TlsConnection, TlsTransport};
use super::sites::{HANDSHAKE_TIMEOUT, HelloOutcome, HelloReader, OriginServer, TlsSite};
use super::upstream::{UpstreamConnection, UpstreamTransport, session};
use super::wire::{
    BodyForm, BodySink, BodySource, ForwardError, ReadBuffer, WireEnd, forward_body,
};
use super::{HttpShared, refresh};
use crate::figures::connections::{ConnectionOrigin, Registered};
use crate::network::socket_options;
use crate::process::clock;
use crate::relay::leg::{TcpLeg, shut_down};
use crate::relay::{self, dial};

/// After this silence of a client its server is connected: the protocol may be one in which the
/// server speaks first.
const SILENT_CLIENT_WAIT: Duration = Duration::from_millis(250);
/// Time for a head from its first byte. A client that takes longer may be speaking another
/// protocol, and be waiting for an answer to what it has sent.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the peer to read the last bytes and to close its side.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Times that a client waits for a response to another client's request, before its own request is
/// sent.
const MAX_WAITS: u32 = 2;

/// A client's connection, with what has been read from it.
pub(super) struct HttpConnection {
    pub(super) shared: Arc<HttpShared>,
    pub(super) leg: TcpLeg,
    /// Bytes read from the client.
    pub(super) inlet: ReadBuffer,
    pub(super) open: StreamOpening<Destination>,
    /// An idle connection to the server, or one opened before the first request because the server
    /// may speak first.
    pub(super) upstream: Option<UpstreamConnection>,
    /// Set once a request has been read, so that the connection is known to be HTTP.
    has_request: bool,
    /// Cleared once the hub has refused to fetch from this server.
    pub(super) hub_fetches: bool,
    /// Set while other clients may wait for the response to the current request.
    pub(super) lead: Option<LeadingRequest>,
    /// The site named in the client's ClientHello and the client's TLS connection, if it is one of
    /// ours.
    pub(super) secure: Option<(TlsSite, TlsConnection)>,
}

/// Next input on a client's connection.
enum NextInput {
    Request(RequestHead, BodyFraming),
    /// Bytes that are relayed unchanged.
    Plain,
    End,
}

/// State of a client's connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Open for the client's next request.
    Open,
    /// To be closed: the response is complete.
    Close,
    /// To be relayed unchanged from here on.
    Plain,
    /// To be reset for this reason.
    Broken(ResetReason),
}

/// The cache key's destination part. Responses over TLS are kept apart from cleartext ones.
pub(super) fn key_destination(destination: &Destination, by_tls: bool) -> String {
    if by_tls { format!("tls {destination}") } else { destination.to_string() }
}

impl HttpConnection {
    pub(super) fn new(
        shared: Arc<HttpShared>,
        socket: TcpStream,
        open: StreamOpening<Destination>,
    ) -> Self {
        // Fails if the client has reset the connection; reading will notice.
        let _ = socket_options::prepare(&socket, &shared.upstreams.counters.keepalive);
        // If the gateway dies, a FIN would make a response that was cut off look complete.
        socket_options::reset_when_closed(&socket, true);
        Self {
            shared,
            leg: TcpLeg::new(socket),
            inlet: ReadBuffer::default(),
            open,
            upstream: None,
            has_request: false,
            hub_fetches: true,
            lead: None,
            secure: None,
        }
    }

    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        let counters = &*shared.upstreams.counters;
        counters.traffic.connections.increment();
        let now = clock::now();
        let open = self.open.clone();
        let entry = match session(&shared.upstreams, *shared.route.borrow(), &open) {
            Some(session) => Registered::new(now, counters, session, open, ConnectionOrigin::Here),
            None => Registered::direct(now, counters, open),
        };
        match self.serve_requests(&entry).await {
            ConnectionState::Open | ConnectionState::Close => {
                counters.traffic.closed.increment();
                self.close().await;
            }
            ConnectionState::Plain => self.relay(entry).await,
            ConnectionState::Broken(reason) => {
                counters.traffic.reset.increment();
                counters.count_refusal(clock::now(), self.open.source.ip(), reason);
                // The server need not wait for what the client has yet to hear.
                self.upstream = None;
                self.leg.reset_after_data().await;
            }
        }
    }

    pub(super) fn client(&self) -> WireEnd<'_> {
        wire(&self.leg, &self.secure)
    }

    /// The server that must authenticate itself by TLS, on a connection to one of our sites.
    pub(super) fn server(&self) -> Option<&OriginServer> {
        self.secure.as_ref().map(|(site, _)| &site.server)
    }

    /// Opens a connection to the client's server.
    pub(super) async fn connect_upstream(&self) -> Result<UpstreamConnection, ResetReason> {
        let route = *self.shared.route.borrow();
        UpstreamConnection::open(&self.shared.upstreams, route, &self.open, self.server()).await
    }

    /// Reads the ClientHello, and terminates TLS if it names one of our sites. Returns an outcome
    /// if the connection is not to be served as HTTP.
    ///
    /// # Errors
    /// The reset reason, if reading fails or the TLS handshake takes too long.
    async fn terminate_tls(&mut self) -> Result<Option<ConnectionState>, ResetReason> {
        let site = match timeout(HEAD_TIMEOUT, self.read_client_hello()).await {
            Ok(Ok(Some(site))) => site,
            // The client's TLS ends at its server, as without us.
            Ok(Ok(None)) | Err(_) => return Ok(Some(ConnectionState::Plain)),
            Ok(Err(reason)) => return Err(reason),
        };
        // TLS reads the ClientHello once more.
        let first = self.inlet.take();
        let socket = self.leg.duplicate().map_err(|error| dial::reset_reason(&error))?;
        let client = self.open.source.ip();
        let under = TlsTransport::Socket(socket, first);
        match timeout(HANDSHAKE_TIMEOUT, TlsConnection::accept(&site.acceptor, client, under)).await
        {
            Ok(Ok(secure)) => self.secure = Some((site, secure)),
            Ok(Err(error)) => {
                tracing::debug!("TLS handshake with a client of {} failed: {error}", site.host);
                return Ok(Some(ConnectionState::Close));
            }
            Err(_) => return Err(ResetReason::TimedOut),
        }
        Ok(None)
    }

    /// Returns the site that the ClientHello names; [`None`] for any other first bytes.
    async fn read_client_hello(&mut self) -> Result<Option<TlsSite>, ResetReason> {
        let mut hello = HelloReader::default();
        loop {
            match self.shared.sites.classify(&mut hello, self.inlet.bytes()) {
                HelloOutcome::Site(site) => return Ok(Some(*site)),
                HelloOutcome::Incomplete if !self.inlet.ended => {}
                HelloOutcome::Incomplete | HelloOutcome::Other => return Ok(None),
            }
            let limit = if self.inlet.is_empty() { SILENT_CLIENT_WAIT } else { HEAD_TIMEOUT };
            match timeout(limit, self.inlet.fill(WireEnd::Socket(self.leg.socket()))).await {
                Ok(filled) => filled.map(|_| ())?,
                Err(_) => return Ok(None),
            }
        }
    }

    async fn serve_requests(&mut self, entry: &Registered<'_>) -> ConnectionState {
        if port(&self.open.destination).is_some_and(|port| self.shared.sites.take(port)) {
            match self.terminate_tls().await {
                Ok(None) => {}
                Ok(Some(state)) => return state,
                Err(reason) => return ConnectionState::Broken(reason),
            }
        }
        loop {
            let state = match self.next_input().await {
                Ok(NextInput::Request(request, framing)) => {
                    self.handle(request, framing, entry).await
                }
                Ok(NextInput::Plain) => ConnectionState::Plain,
                Ok(NextInput::End) => ConnectionState::Close,
                Err(reason) => ConnectionState::Broken(reason),
            };
            if state != ConnectionState::Open {
                return state;
            }
        }
    }

    async fn next_input(&mut self) -> Result<NextInput, ResetReason> {
        loop {
            match self.inlet.head(RequestHead::parse) {
                ParsedHead::Head(head, length) => match head.framing() {
                    Ok(framing) => {
                        self.inlet.consume(length);
                        self.has_request = true;
                        return Ok(NextInput::Request(head, framing));
                    }
                    // An ambiguous length is left to the server (request smuggling,
                    // RFC 9112 §11.2).
                    Err(why) => {
                        tracing::debug!(destination = %self.open.destination, "relayed unchanged: {why}");
                        return Ok(NextInput::Plain);
                    }
                },
                ParsedHead::Malformed => return Ok(NextInput::Plain),
                ParsedHead::Incomplete if !self.inlet.ended => {}
                ParsedHead::Incomplete if self.has_request && self.inlet.is_empty() => {
                    return Ok(NextInput::End);
                }
                ParsedHead::Incomplete => return Ok(NextInput::Plain),
            }
            if !self.wait_for_input().await? {
                return Ok(NextInput::Plain);
            }
        }
    }

    /// Waits for bytes from the client. Returns `false` if the connection is not HTTP.
    async fn wait_for_input(&mut self) -> Result<bool, ResetReason> {
        let client = wire(&self.leg, &self.secure);
        if !self.inlet.is_empty() {
            return match timeout(HEAD_TIMEOUT, self.inlet.fill(client)).await {
                Ok(filled) => filled.map(|_| true),
                Err(_) => Ok(false),
            };
        }
        let Some(UpstreamConnection { end, inlet, .. }) = &mut self.upstream else {
            if self.has_request {
                return self.inlet.fill(client).await.map(|_| true);
            }
            if let Ok(filled) = timeout(SILENT_CLIENT_WAIT, self.inlet.fill(client)).await {
                return filled.map(|_| true);
            }
            self.upstream = Some(self.connect_upstream().await?);
            return Ok(true);
        };
        tokio::select! {
            filled = self.inlet.fill(client) => filled.map(|_| true),
            heard = inlet.fill(end.wire()) => {
                if !self.has_request {
                    return heard.map(|_| false);
                }
                // The server closes the idle connection, perhaps after a *408*: the next request
                // gets a new one.
                self.close_upstream();
                Ok(true)
            }
        }
    }

    /// Closes the connection to the server, if there is one.
    pub(super) fn close_upstream(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            // Closing waits for the server's end, and the client need not.
            tokio::spawn(upstream.close());
        }
    }

    async fn handle(
        &mut self,
        request: RequestHead,
        framing: BodyFraming,
        entry: &Registered<'_>,
    ) -> ConnectionState {
        let client = client_network(self.open.source.ip());
        let key = self.cache_key(&request);
        let kept = self.shared.kept.clone();
        // The server is authenticated for this host only.
        if let Some((site, _)) = &self.secure
            && !matches_host(&request, &site.host)
        {
            return self.misdirected(&request).await;
        }
        let now = clock::unix_time();
        let mut plan =
            kept.change(|cache| cache.handle_request(now, key.clone(), &request, framing, client));
        let mut waits = MAX_WAITS;
        loop {
            match plan {
                RequestAction::Answer(answer, again) => {
                    if let Some((head, asked)) = again {
                        self.spawn_refresh(head, asked);
                    }
                    // The body could not be read from disk: the cache decides again, without it.
                    if let Some(state) = self.answer(&request, answer, "hit").await {
                        return state;
                    }
                }
                RequestAction::Ask(head, asked) => match self.join_or_lead(&asked, waits) {
                    Some(flight) => match self.follow(flight, &request).await {
                        Ok(state) => return state,
                        Err(SharedWaitError::MayWaitAgain) => waits -= 1,
                        Err(SharedWaitError::AskServer) => waits = 0,
                    },
                    None => {
                        let state = self.forward(&request, head, asked, framing, entry).await;
                        self.lead = None;
                        return state;
                    }
                },
                RequestAction::Unavailable => return self.unavailable(&request, "fwd=miss").await,
            }
            let now = clock::unix_time();
            plan =
                kept.change(|cache| cache.reconsider(now, key.clone(), &request, framing, client));
        }
    }

    fn cache_key(&self, request: &RequestHead) -> CacheKey {
        // Under the destination as well as the `Host`: with a server of its own, a client could otherwise
        // store responses in the name of any host for all others.
        CacheKey {
            destination: key_destination(&self.open.destination, self.secure.is_some()),
            host: request.host().unwrap_or_default(),
            target: request.target.clone(),
        }
    }

    /// Validates a stale response that is being used. In a task of its own: the client may leave.
    fn spawn_refresh(&self, head: RequestHead, asked: ForwardedRequest) {
        let open = self.open.clone();
        let server = self.server().cloned();
        tokio::spawn(refresh::refresh(self.shared.clone(), open, server, head, asked));
    }

    /// Returns the response in flight to wait for, if another client has sent the same request.
    /// Otherwise this request is sent, either as the one that others wait for or on its own. It is
    /// also sent once `waits` is used up.
    fn join_or_lead(
        &mut self,
        asked: &ForwardedRequest,
        waits: u32,
    ) -> Option<Arc<SharedResponse>> {
        if waits == 0 {
            return None;
        }
        match self.shared.kept.board(asked) {
            RequestRole::Lead(lead) => {
                self.lead = Some(lead);
                None
            }
            RequestRole::Join(flight) => Some(flight),
            RequestRole::Alone => None,
        }
    }

    /// Relays the rest of the connection unchanged, beginning with all bytes read so far.
    async fn relay(mut self, entry: Registered<'_>) {
        let shared = self.shared.clone();
        let counters = &*shared.upstreams.counters;
        shared.counters.plain.increment();
        let upstream = match self.take_or_open_upstream().await {
            Ok(upstream) => upstream,
            Err(reason) => {
                counters.traffic.failed.increment();
                return counters.count_refusal(clock::now(), self.open.source.ip(), reason);
            }
        };
        // Bytes that the server sent first, if it did.
        if self.client().write(upstream.inlet.bytes()).await.is_err() {
            return counters.traffic.reset.increment();
        }
        if self.secure.is_some() {
            return self.relay_secure(upstream).await;
        }
        let first = self.inlet.take();
        match upstream.end {
            UpstreamTransport::Stream(stream) => {
                let report = address(&self.open.destination);
                relay::relay_early(stream, self.leg, &first, report, &entry, counters).await;
            }
            // A fetch has been relayed to its end already, and TLS is handled above.
            UpstreamTransport::Fetch(_) | UpstreamTransport::Secure(_) => {}
            UpstreamTransport::Socket(server) => {
                relay::direct(self.leg, TcpLeg::new(server), &first, entry, counters).await;
            }
        }
    }

    async fn take_or_open_upstream(&mut self) -> Result<UpstreamConnection, ResetReason> {
        if let Some(upstream) = self.upstream.take() {
            return Ok(upstream);
        }
        tokio::select! {
            opened = self.connect_upstream() => opened,
            () = self.leg.failure() => Err(ResetReason::Reset),
        }
    }

    /// Relays a connection whose TLS ends here, and closes it.
    async fn relay_secure(mut self, upstream: UpstreamConnection) {
        let shared = self.shared.clone();
        let counters = &*shared.upstreams.counters;
        match self.relay_decrypted(upstream).await {
            Ok(()) => {
                counters.traffic.closed.increment();
                self.close().await;
            }
            Err(reason) => {
                counters.traffic.reset.increment();
                counters.count_refusal(clock::now(), self.open.source.ip(), reason);
                self.leg.reset_after_data().await;
            }
        }
    }

    /// Relays the decrypted bytes in both directions until both have ended.
    async fn relay_decrypted(
        &mut self,
        mut upstream: UpstreamConnection,
    ) -> Result<(), ResetReason> {
        let client = wire(&self.leg, &self.secure);
        let UpstreamConnection { end, inlet, .. } = &mut upstream;
        relay_both_ways(client, &mut self.inlet, end.wire(), inlet).await
    }

    async fn close(mut self) {
        self.close_upstream();
        if let Some((_, secure)) = &self.secure {
            let _ = timeout(CLOSE_TIMEOUT, secure.finish()).await;
        }
        // Both directions have ended, so closing may send a FIN again.
        socket_options::reset_when_closed(self.leg.socket(), false);
        if shut_down(self.leg.socket()).is_ok() {
            self.leg.discard(CLOSE_TIMEOUT).await;
        }
    }
}

pub(super) fn wire<'a>(
    leg: &'a TcpLeg,
    secure: &'a Option<(TlsSite, TlsConnection)>,
) -> WireEnd<'a> {
    match secure {
        Some((_, secure)) => WireEnd::Secure(secure),
        None => WireEnd::Socket(leg.socket()),
    }
}

/// Returns `true` if the request's `Host` is the site of the client's TLS connection.
fn matches_host(request: &RequestHead, site: &str) -> bool {
    let host = request.host().unwrap_or_default();
    host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name) == site
}

/// Relays all bytes in both directions. If one side stops reading, the bytes it has sent are still
/// delivered.
async fn relay_both_ways(
    client: WireEnd<'_>,
    from_client: &mut ReadBuffer,
    server: WireEnd<'_>,
    from_server: &mut ReadBuffer,
) -> Result<(), ResetReason> {
    // The client has these bytes already.
    from_server.clear();
    let requests = BodySource { wire: client, inlet: from_client };
    let responses = BodySource { wire: server, inlet: from_server };
    let up = async { split_by_end(&relay_one_way(requests, server).await) };
    let down = async { split_by_end(&relay_one_way(responses, client).await) };
    let (up, down) = tokio::try_join!(up, down)?;
    up.and(down)
}

/// Splits a result by the failing end: the outer error is the source's, the inner one the sink's.
fn split_by_end(passed: &Result<(), ForwardError>) -> Result<Result<(), ResetReason>, ResetReason> {
    match passed {
        Ok(()) => Ok(Ok(())),
        Err(ForwardError::Sink(reason)) => Ok(Err(*reason)),
        Err(ForwardError::Source(reason)) => Err(*reason),
    }
}

async fn relay_one_way(source: BodySource<'_>, to: WireEnd<'_>) -> Result<(), ForwardError> {
    let mut all = BodyParser::new(BodyFraming::UntilClose);
    // An interrupted write may have left bytes in TLS.
    to.flush().await.map_err(ForwardError::Sink)?;
    let sink = BodySink { wire: to, form: BodyForm::Unchanged };
    forward_body(source, sink, &mut all, |_| {}, |_| {}).await?;
    to.finish().await.map_err(ForwardError::Sink)
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
