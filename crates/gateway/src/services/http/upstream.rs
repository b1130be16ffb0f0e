//! Ways to a server: a stream of the hop, or a connection of our own without it.

use slacp::{Destination, Host, Open, ResetReason, SessionId, client_network};
use tokio::net::TcpStream;

use super::secure::{Secure, Under};
use super::sites::Server;
use super::wire::{Inlet, Wire};
use crate::clock;
use crate::hop::Stream;
use crate::relay::dial::reason;
use crate::relay::names::LOOKUPS_EACH;
use crate::relay::route::Route;
use crate::relay::route::Upstreams;
use crate::socket_options;

/// Where a request goes.
pub(super) enum End {
    Stream(Stream),
    Socket(TcpStream),
    Secure(Box<Secure>),
    /// The hub, for one request.
    Fetch(Stream),
}

impl End {
    pub(super) fn wire(&self) -> Wire<'_> {
        match self {
            Self::Stream(stream) | Self::Fetch(stream) => Wire::Stream(stream),
            Self::Socket(socket) => Wire::Socket(socket),
            Self::Secure(secure) => Wire::Secure(secure),
        }
    }

    /// Whether what it carries crosses the hop.
    pub(super) fn crosses_hop(&self) -> bool {
        match self {
            Self::Stream(_) | Self::Fetch(_) => true,
            Self::Socket(_) => false,
            Self::Secure(secure) => secure.crosses_hop(),
        }
    }
}

/// A way to the server of one client's connection, which carries nothing of others.
pub(super) struct Upstream {
    pub(super) end: End,
    pub(super) inlet: Inlet,
    /// Whether it has carried an exchange already.
    pub(super) used: bool,
}

/// The session that would carry a connection.
pub(super) fn session(
    upstreams: &Upstreams,
    route: Route,
    open: &Open<Destination>,
) -> Option<SessionId> {
    let by_name = matches!(open.destination, Destination::Name(..));
    route.hub.filter(|it| !by_name || upstreams.hop.peer_resolves(*it))
}

impl Upstream {
    /// Opens one: over the hop if there is a session, otherwise straight. A `server` must prove who it is.
    ///
    /// # Errors
    /// Why it cannot be connected. That of a stream comes later, instead of an answer.
    pub(super) async fn open(
        upstreams: &Upstreams,
        route: Route,
        open: &Open<Destination>,
        server: Option<&Server>,
    ) -> Result<Self, ResetReason> {
        let session = session(upstreams, route, open);
        let stream = session
            .and_then(|session| upstreams.hop.open(clock::now(), session, open.clone()).ok());
        let end = match (stream, server) {
            (Some(stream), None) => End::Stream(stream),
            (None, None) => End::Socket(straight(upstreams, open).await?),
            (Some(stream), Some(server)) => {
                End::Secure(Box::new(server.over(Under::Stream(stream)).await?))
            }
            (None, Some(server)) => {
                let socket = straight(upstreams, open).await?;
                End::Secure(Box::new(server.over(Under::socket(socket)).await?))
            }
        };
        Ok(Self { end, inlet: Inlet::default(), used: false })
    }

    /// Has the hub fetch something, if it does that: the head of a request that may be repeated. [`None`]
    /// if the hub is no help.
    ///
    /// # Errors
    /// If the stream is reset.
    pub(super) async fn fetch(
        upstreams: &Upstreams,
        route: Route,
        open: &Open<Destination>,
        head: &[u8],
    ) -> Result<Option<Self>, ResetReason> {
        let host = match &open.destination {
            Destination::Address(address) => Host::Address(*address),
            Destination::Name(name, port) => Host::Name(name.clone(), *port),
            Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => {
                return Ok(None);
            }
        };
        let session = session(upstreams, route, open);
        let Some(session) = session.filter(|it| upstreams.hop.peer_exchanges(*it)) else {
            return Ok(None);
        };
        let open = open.to(Destination::Exchange(host));
        let Ok(stream) = upstreams.hop.open(clock::now(), session, open) else { return Ok(None) };
        Wire::Stream(&stream).write(head).await?;
        Wire::Stream(&stream).finish().await?;
        let end = End::Fetch(stream);
        Ok(Some(Self { end, inlet: Inlet::default(), used: false }))
    }

    /// Whether the hub is fetching something, which leaves nothing to be used again.
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self.end, End::Fetch(_))
    }

    /// Ends it, as a client does that has heard everything.
    pub(super) async fn close(self) {
        let Self { end, mut inlet, .. } = self;
        let is_finished = matches!(end, End::Fetch(_));
        if !is_finished && end.wire().finish().await.is_err() {
            return;
        }
        // Its end is waited for, or it would be reset.
        let ended = async {
            while matches!(inlet.fill(end.wire()).await, Ok(true)) {
                inlet.clear();
            }
        };
        let _ = tokio::time::timeout(super::conversation::LAST_WORDS, ended).await;
    }
}

/// Connects without the hop.
async fn straight(
    upstreams: &Upstreams,
    open: &Open<Destination>,
) -> Result<TcpStream, ResetReason> {
    let addresses = match &open.destination {
        Destination::Address(address) => vec![*address],
        Destination::Name(name, port) => {
            let asker = (((), client_network(open.source.ip())), LOOKUPS_EACH);
            upstreams.resolver.look_up(asker, (name, *port), upstreams.dialer.timeout).await?
        }
        Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => Vec::new(),
    };
    let mut why = ResetReason::Unreachable;
    for address in addresses {
        match upstreams.dialer.connect(address, None, open.dscp).await {
            Ok(socket) => {
                upstreams.counters.straight.increment();
                let _ = socket_options::prepare(&socket, &upstreams.counters.keepalive);
                return Ok(socket);
            }
            Err(error) => why = reason(&error),
        }
    }
    Err(why)
}
