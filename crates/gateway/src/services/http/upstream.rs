//! Connections to a server: a stream of the hop, or a direct connection without it.

use slacp::{Destination, Host, ResetReason, SessionId, StreamOpening, client_network};
use tokio::net::TcpStream;

use super::secure::{TlsConnection, TlsTransport};
use super::sites::OriginServer;
use super::wire::{ReadBuffer, WireEnd};
use crate::hop::SessionStream;
use crate::network::socket_options;
use crate::process::clock;
use crate::relay::dial::reset_reason;
use crate::relay::names::LOOKUPS_EACH;
use crate::relay::route::ClientRoute;
use crate::relay::route::Upstreams;
use crate::relay::turns::SlotAsker;

/// The transport to a server.
pub(super) enum UpstreamTransport {
    Stream(SessionStream),
    Socket(TcpStream),
    Secure(Box<TlsConnection>),
    /// An exchange: the hub fetches one response.
    Fetch(SessionStream),
}

impl UpstreamTransport {
    pub(super) fn wire(&self) -> WireEnd<'_> {
        match self {
            Self::Stream(stream) | Self::Fetch(stream) => WireEnd::Stream(stream),
            Self::Socket(socket) => WireEnd::Socket(socket),
            Self::Secure(secure) => WireEnd::Secure(secure),
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
pub(super) struct UpstreamConnection {
    pub(super) end: UpstreamTransport,
    pub(super) inlet: ReadBuffer,
    /// Set once it has carried an exchange.
    pub(super) used: bool,
}

/// The session that would carry a connection; [`None`] if it goes without the hop.
pub(super) fn session(
    upstreams: &Upstreams,
    route: ClientRoute,
    open: &StreamOpening<Destination>,
) -> Option<SessionId> {
    let by_name = matches!(open.destination, Destination::Name(..));
    route.hub.filter(|session| !by_name || upstreams.hop.peer_resolves(*session))
}

impl UpstreamConnection {
    /// Connects over the hop if there is a session, otherwise directly. A `server` must
    /// authenticate itself by TLS.
    ///
    /// # Errors
    /// The reset reason of a direct connection or of TLS. A stream reports its failure later, in
    /// place of a response.
    pub(super) async fn open(
        upstreams: &Upstreams,
        route: ClientRoute,
        open: &StreamOpening<Destination>,
        server: Option<&OriginServer>,
    ) -> Result<Self, ResetReason> {
        let session = session(upstreams, route, open);
        // A session without room counts as none.
        let stream = session
            .and_then(|session| upstreams.hop.open(clock::now(), session, open.clone()).ok());
        let end = match (stream, server) {
            (Some(stream), None) => UpstreamTransport::Stream(stream),
            (None, None) => UpstreamTransport::Socket(connect_directly(upstreams, open).await?),
            (Some(stream), Some(server)) => UpstreamTransport::Secure(Box::new(
                server.connect(TlsTransport::Stream(stream)).await?,
            )),
            (None, Some(server)) => {
                let socket = connect_directly(upstreams, open).await?;
                UpstreamTransport::Secure(Box::new(
                    server.connect(TlsTransport::socket(socket)).await?,
                ))
            }
        };
        Ok(Self { end, inlet: ReadBuffer::default(), used: false })
    }

    /// Has the hub fetch a response to a request that may be repeated, given as its encoded head.
    /// [`None`] if there is no hub that does exchanges.
    ///
    /// # Errors
    /// The reset reason, if the stream is reset.
    pub(super) async fn fetch(
        upstreams: &Upstreams,
        route: ClientRoute,
        open: &StreamOpening<Destination>,
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
        let Some(session) = session.filter(|session| upstreams.hop.peer_exchanges(*session)) else {
            return Ok(None);
        };
        let open = open.to(Destination::Exchange(host));
        let Ok(stream) = upstreams.hop.open(clock::now(), session, open) else { return Ok(None) };
        WireEnd::Stream(&stream).write(head).await?;
        // The hub reads the request up to this end.
        WireEnd::Stream(&stream).finish().await?;
        let end = UpstreamTransport::Fetch(stream);
        Ok(Some(Self { end, inlet: ReadBuffer::default(), used: false }))
    }

    /// Returns `true` for an exchange at the hub, which cannot be used again.
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self.end, UpstreamTransport::Fetch(_))
    }

    /// Closes the connection as a client does after the last response.
    pub(super) async fn close(self) {
        let Self { end, mut inlet, .. } = self;
        // The request of a fetch has ended its direction already.
        let is_finished = matches!(end, UpstreamTransport::Fetch(_));
        if !is_finished && end.wire().finish().await.is_err() {
            return;
        }
        // Dropping a stream before its end would reset it.
        let ended = async {
            while matches!(inlet.fill(end.wire()).await, Ok(true)) {
                inlet.clear();
            }
        };
        let _ = tokio::time::timeout(super::conversation::CLOSE_TIMEOUT, ended).await;
    }
}

async fn connect_directly(
    upstreams: &Upstreams,
    open: &StreamOpening<Destination>,
) -> Result<TcpStream, ResetReason> {
    let addresses = match &open.destination {
        Destination::Address(address) => vec![*address],
        Destination::Name(name, port) => {
            let asker = SlotAsker::ungrouped(client_network(open.source.ip()), LOOKUPS_EACH);
            upstreams.resolver.look_up(asker, name, *port, upstreams.dialer.timeout).await?
        }
        Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => Vec::new(),
    };
    let mut why = ResetReason::Unreachable;
    for address in addresses {
        match upstreams.dialer.connect(address, None, open.dscp).await {
            Ok(socket) => {
                upstreams.counters.traffic.straight.increment();
                // Fails if the server has reset the connection; reading will notice.
                let _ = socket_options::prepare(&socket, &upstreams.counters.keepalive);
                return Ok(socket);
            }
            Err(error) => why = reset_reason(&error),
        }
    }
    Err(why)
}
