//! Connections that were accepted for names: to a host by its name, and to a server for a request
//! that only it can answer. Over the hop if there is a session, otherwise straight.

use std::sync::Arc;

use slacp::{Destination, HostName, Open, client_network};
use tokio::net::TcpStream;

use super::desk::Route;
use crate::clock;
use crate::hop::Hop;
use crate::http;
use crate::intercept::listener::Accepted;
use crate::operate::connections::{Origin, Registered};
use crate::operate::counters::Counters;
use crate::proxy::LOOKUPS_EACH;
use crate::relay;
use crate::relay::dial::{Dialer, reason};
use crate::relay::leg::Leg;
use crate::relay::names::Resolver;

/// How connections reach their destinations.
pub(crate) struct Through {
    pub(crate) hop: Hop,
    /// For those without the hop.
    pub(crate) dialer: Dialer,
    pub(crate) resolver: Resolver<()>,
    pub(crate) counters: Arc<Counters>,
    /// Answers requests of cleartext HTTP.
    pub(crate) http: Option<Arc<http::Shared>>,
}

/// Carries a connection to an address that stands for `name`.
pub(super) async fn to_name(through: Arc<Through>, route: Route, it: Accepted, name: HostName) {
    let port = it.open.destination.port();
    let destination = Destination::Name(name, port);
    if let Some(http) = through.http.as_ref().filter(|http| http.takes(port)) {
        return http::serve(http.clone(), it.socket, it.open.to(destination)).await;
    }
    carry(through, route, (it.socket, Vec::new()), it.open.to(destination)).await;
}

/// Carries a connection on which `first` has been read.
pub(super) async fn carry(
    through: Arc<Through>,
    route: Route,
    (socket, first): (TcpStream, Vec<u8>),
    open: Open<Destination>,
) {
    let counters = &*through.counters;
    counters.connections.increment();
    let leg = Leg::new(socket);
    let by_name = matches!(open.destination, Destination::Name(..));
    let session = route.hub.filter(|it| !by_name || through.hop.peer_resolves(*it));
    let stream = session.map(|session| through.hop.open(clock::now(), session, open.clone()));
    match stream {
        Some(Ok(stream)) => {
            let session = stream.session();
            let entry = Registered::new(clock::now(), counters, session, open, Origin::Here);
            relay::early(stream, leg, (&first, None), &entry, counters).await;
        }
        _ => straight(&through, leg, &first, open).await,
    }
}

/// Connects without the hop. A client that cannot be connected is reset.
async fn straight(through: &Through, leg: Leg, first: &[u8], open: Open<Destination>) {
    let counters = &*through.counters;
    let entry = Registered::straight(clock::now(), counters, open.clone());
    let addresses = match &open.destination {
        Destination::Address(address) => Ok(vec![*address]),
        Destination::Name(name, port) => {
            let asker = (((), client_network(open.source.ip())), LOOKUPS_EACH);
            through.resolver.look_up(asker, (name, *port), through.dialer.timeout).await
        }
        Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => Ok(Vec::new()),
    };
    let mut why = addresses.as_ref().err().copied();
    for address in addresses.unwrap_or_default() {
        let connected = tokio::select! {
            connected = through.dialer.connect(address, None, open.dscp) => connected,
            _ = leg.failure() => break,
        };
        match connected {
            Ok(server) => {
                counters.straight.increment();
                return relay::direct(leg, Leg::new(server), first, entry, counters).await;
            }
            Err(error) => why = Some(reason(&error)),
        }
    }
    counters.failed.increment();
    why.into_iter().for_each(|why| counters.reasons.count(why));
}
