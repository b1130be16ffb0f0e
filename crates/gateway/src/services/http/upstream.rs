//! Connections to a server: a stream of the hop, or a direct connection without it.

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

/// The transport to a server.
pub(super) enum End {
    Stream(Stream),
    Socket(TcpStream),
    Secure(Box<Secure>),
    /// An exchange: the hub fetches one response.
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

    /// Returns `true` if the bytes cross the hop.
    pub(super) fn crosses_hop(&self) -> bool {
        match self {
            Self::Stream(_) | Self::Fetch(_) => true,
            Self::Socket(_) => false,
            Self::Secure(secure) => secure.crosses_hop(),
        }
    }
}

/// The upstream connection of one client's connection, never shared with other clients.
pub(super) struct Upstream {
    pub(super) end: End,
    pub(super) inlet: Inlet,
    /// Set once it has carried an exchange.
    pub(super) used: bool,
}

/// The session that would carry a connection; [`None`] if it goes without the hop.
pub(super) fn session(
    upstreams: &Upstreams,
    route: Route,
    open: &Open<Destination>,
) -> Option<SessionId> {
    let by_name = matches!(open.destination, Destination::Name(..));
    route.hub.filter(|it| !by_name || upstreams.hop.peer_resolves(*it))
}

impl Upstream {
    /// Connects over the hop if there is a session, otherwise directly. A `server` must
    /// authenticate itself by TLS.
    ///
    /// # Errors
    /// The reset reason of a direct connection or of TLS. A stream reports its failure later, in
    /// place of a response.
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

    /// Has the hub fetch a response to a request that may be repeated, given as its encoded head.
    /// [`None`] if there is no hub that does exchanges.
    ///
    /// # Errors
    /// The reset reason, if the stream is reset.
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

    /// Returns `true` for an exchange at the hub, which cannot be used again.
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self.end, End::Fetch(_))
    }

    /// Closes the connection as a client does after the last response.
    pub(super) async fn close(self) {
        let Self { end, mut inlet, .. } = self;
        let is_finished = matches!(end, End::Fetch(_));
        if !is_finished && end.wire().finish().await.is_err() {
            return;
        }
        // Dropping a stream before its end would reset it.
        let ended = async {
            while matches!(inlet.fill(end.wire()).await, Ok(true)) {
                inlet.clear();
            }
        };
        let _ = tokio::time::timeout(super::conversation::LAST_WORDS, ended).await;
    }
}

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
                // Fails if the server has reset the connection; reading will notice.
                let _ = socket_options::prepare(&socket, &upstreams.counters.keepalive);
                return Ok(socket);
            }
            Err(error) => why = reason(&error),
        }
    }
    Err(why)
}
