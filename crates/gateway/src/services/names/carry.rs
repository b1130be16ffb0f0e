//! Carries connections that were accepted for names: to a host by its name, and to a DNS server for
//! a request that only it can answer. Over the hop if there is a session, otherwise directly.

use std::sync::Arc;

use slacp::{Destination, HostName, StreamOpening, client_network};
use tokio::net::TcpStream;

use crate::figures::connections::{ConnectionOrigin, Registered};
use crate::intercept::listener::AcceptedConnection;
use crate::process::clock;
use crate::relay;
use crate::relay::dial::reset_reason;
use crate::relay::leg::TcpLeg;
use crate::relay::names::LOOKUPS_EACH;
use crate::relay::route::{ClientRoute, Upstreams};
use crate::relay::turns::SlotAsker;
use crate::services::http;

/// Carries clients' connections to named hosts, and what that needs.
pub(super) struct NameCarrier {
    pub(super) upstreams: Upstreams,
    /// Serves requests of cleartext HTTP.
    pub(super) http: Option<Arc<http::HttpShared>>,
}

/// Carries a connection to a pool address that stands for `name`.
pub(super) async fn carry_to_name(
    carrier: Arc<NameCarrier>,
    route: ClientRoute,
    accepted: AcceptedConnection,
    name: HostName,
) {
    let AcceptedConnection { socket, open } = accepted;
    let port = open.destination.port();
    let open = open.to(Destination::Name(name, port));
    if let Some(http) = carrier.http.as_ref().filter(|http| http.takes(port)) {
        return http::serve(http.clone(), socket, open).await;
    }
    carry(carrier, route, socket, Vec::new(), open).await;
}

/// Carries a connection from which `first` has been read.
pub(super) async fn carry(
    carrier: Arc<NameCarrier>,
    route: ClientRoute,
    socket: TcpStream,
    first: Vec<u8>,
    open: StreamOpening<Destination>,
) {
    let upstreams = &carrier.upstreams;
    let counters = &*upstreams.counters;
    counters.traffic.connections.increment();
    let leg = TcpLeg::new(socket);
    let by_name = matches!(open.destination, Destination::Name(..));
    let session = route.hub.filter(|hub| !by_name || upstreams.hop.peer_resolves(*hub));
    let stream = session.map(|session| upstreams.hop.open(clock::now(), session, open.clone()));
    match stream {
        Some(Ok(stream)) => {
            let session = stream.session();
            let entry =
                Registered::new(clock::now(), counters, session, open, ConnectionOrigin::Here);
            relay::relay_early(stream, leg, &first, None, &entry, counters).await;
        }
        _ => connect_directly(upstreams, leg, &first, open).await,
    }
}

/// Connects without the hop. The client is reset if that fails.
async fn connect_directly(
    upstreams: &Upstreams,
    leg: TcpLeg,
    first: &[u8],
    open: StreamOpening<Destination>,
) {
    let counters = &*upstreams.counters;
    let entry = Registered::direct(clock::now(), counters, open.clone());
    let addresses = match &open.destination {
        Destination::Address(address) => Ok(vec![*address]),
        Destination::Name(name, port) => {
            let asker = SlotAsker::ungrouped(client_network(open.source.ip()), LOOKUPS_EACH);
            upstreams.resolver.look_up(asker, name, *port, upstreams.dialer.timeout).await
        }
        Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => Ok(Vec::new()),
    };
    let mut why = addresses.as_ref().err().copied();
    for address in addresses.unwrap_or_default() {
        let connected = tokio::select! {
            connected = upstreams.dialer.connect(address, None, open.dscp) => connected,
            // The client has left.
            _ = leg.failure() => break,
        };
        match connected {
            Ok(server) => {
                counters.traffic.straight.increment();
                return relay::direct(leg, TcpLeg::new(server), first, entry, counters).await;
            }
            Err(error) => why = Some(reset_reason(&error)),
        }
    }
    counters.traffic.failed.increment();
    why.into_iter().for_each(|why| counters.reasons.count(why));
}
