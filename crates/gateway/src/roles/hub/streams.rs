//! Answers the streams that terminals open.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pep::admission::SlotShare;
use pep::routes::Route;
use slacp::{Destination, Open, PublicKey, ResetReason, client_network};
use units::Instant;

use super::Hub;
use super::upgrade::Stage;
use crate::enrolment;
use crate::enrolment::etcd::Etcd;
use crate::figures::connections::Origin;
use crate::hop::Stream;
use crate::http::hub_store::Asker;
use crate::intercept::Arrival;
use crate::names::hub::HubResolver;
use crate::operate::Operations;
use crate::relay::names::Resolver;
use crate::relay::terms::Admission;

/// A stream to a name, and the addresses of the name.
pub(super) struct Resolved {
    stream: Stream,
    open: Open<Destination>,
    admission: Admission,
    addresses: Result<Vec<SocketAddr>, ResetReason>,
}

/// Resolves the name a stream leads to; `None` if the stream is reset meanwhile.
async fn look_up(
    (resolver, names): (Resolver<PublicKey>, Option<HubResolver>),
    asker: ((PublicKey, IpAddr), SlotShare),
    (stream, open, admission): (Stream, Open<Destination>, Admission),
    timeout: Duration,
) -> Option<Resolved> {
    let Destination::Name(name, port) = &open.destination else { return None };
    let resolved = async {
        if let Some(names) = names
            && let Some(addresses) = names.addresses(asker, (name, *port)).await
        {
            return addresses;
        }
        resolver.look_up(asker, (name, *port), timeout).await
    };
    let addresses = tokio::select! {
        addresses = resolved => addresses,
        _ = stream.reset_by_peer() => return None,
    };
    Some(Resolved { stream, open, admission, addresses })
}

impl Hub {
    /// Carries a connection, if this gateway and its terminal's quota have room. Otherwise the
    /// terminal lets new connections pass unaccelerated for a while.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        ops: &Operations,
        stream: Stream,
        open: Open<Destination>,
    ) {
        let session = stream.session();
        let Some(terminal) = self.sites.of(session) else {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        };
        if enrolment::is_meant(&open.destination) {
            return self.enrol(stream, &open);
        }
        if terminal.invited || self.is_blocked(ops, session) {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        }
        let (open, exchange) = match open.destination {
            Destination::Exchange(ref host) => (open.to(host.clone().into()), true),
            _ => (open, false),
        };
        if exchange && self.http.is_none() {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        }
        if open.destination == Destination::Resolver {
            let Some(names) = self.names.clone() else {
                return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
            };
            let asker = (terminal.key, client_network(open.source.ip()));
            let answer = names.answer(asker, stream);
            return self.parts.gateway.serve(answer);
        }
        if open.destination == Destination::Bundles {
            let name = &terminal.name;
            let peer = self.bundles.as_ref().and_then(|bundles| bundles.terminal(name));
            let (Some(bundles), Some(peer)) = (&mut self.bundles, peer) else {
                return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
            };
            return bundles.answer(peer, stream);
        }
        if self.is_full(ops) {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Limit);
        }
        let client = client_network(open.source.ip());
        let permit = match self.quotas.admit(now, &terminal.key, client) {
            Ok(permit) => permit,
            Err(bound) => {
                tracing::debug!("{} has reached its limit: {bound:?}", terminal.name);
                return self.parts.gateway.refuse(stream, &open, ResetReason::Limit);
            }
        };
        let verified = self.sites.is_behind(open.source.ip(), session);
        let admission =
            Admission { origin: Origin::Peer { verified }, _permit: Some(permit), exchange };
        match &open.destination {
            Destination::Address(address) => {
                let addresses = vec![*address];
                self.answer_at(ops, stream, open, addresses, admission);
            }
            Destination::Name(..) => {
                let share = SlotShare::of_group(terminal.quota.lookups);
                let (asker, request) = (((terminal.key, client), share), (stream, open, admission));
                let timeout = self.parts.gateway.connect_timeout();
                let resolvers = (self.resolver.clone(), self.names.clone());
                self.lookups.spawn(look_up(resolvers, asker, request, timeout));
            }
            Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => {}
        }
    }

    /// Whether no further connection is carried. A hub that another process has replaced still takes those
    /// of terminals that have no session there yet.
    fn is_full(&self, ops: &Operations) -> bool {
        let view = self.parts.gateway.view();
        match self.stage {
            Some(Stage::Leaving) => ops.exceeded(view).is_some(),
            _ => ops.bypass_reason(view).is_some(),
        }
    }

    /// Lets a terminal replace its invitation with its own key.
    pub(super) fn enrol(&mut self, stream: Stream, open: &Open<Destination>) {
        let terminal = self.sites.of(stream.session()).filter(|terminal| terminal.invited);
        let place = terminal.and_then(|terminal| self.permits.place_of(&terminal.name));
        let (Some(terminal), Some(place)) = (terminal, place) else {
            return self.parts.gateway.refuse(stream, open, ResetReason::Prohibited);
        };
        if !self.enrolling.insert(terminal.key) {
            return self.parts.gateway.refuse(stream, open, ResetReason::Limit);
        }
        let (name, key) = (terminal.name.clone(), terminal.key);
        let place = (place, self.permits.config().etcd.as_ref().map(Etcd::new));
        let others = self.permits.all().iter().map(|terminal| terminal.key).collect();
        self.enrolments.spawn(async move {
            enrolment::serve(stream, (name, key), others, place).await;
            key
        });
    }

    pub(super) fn answer_resolved(&mut self, ops: &Operations, resolved: Resolved) {
        let Resolved { stream, open, admission, addresses } = resolved;
        match addresses {
            Ok(addresses) => self.answer_at(ops, stream, open, addresses, admission),
            Err(reason) => self.parts.gateway.refuse(stream, &open, reason),
        }
    }

    /// Carries a connection to the first permitted address. If the first address is behind a
    /// terminal or denied, the others are not tried.
    pub(super) fn answer_at(
        &mut self,
        ops: &Operations,
        stream: Stream,
        open: Open<Destination>,
        mut addresses: Vec<SocketAddr>,
        admission: Admission,
    ) {
        let session = stream.session();
        let Some(terminal) = self.sites.of(session) else {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        };
        let (egress, asker) =
            (&terminal.egress, Asker::new(&terminal.key, terminal.cache.as_deref()));
        if let Err(why) = self.parts.gateway.check_egress(egress, &open, &mut addresses) {
            return self.parts.gateway.prohibit(stream, &open, &why);
        }
        let route = |address| self.sites.route(session, open.to(address));
        let first = addresses[0];
        match route(first) {
            Route::Local => {
                addresses.retain(|address| matches!(route(*address), Route::Local));
                let gateway = &mut self.parts.gateway;
                match self.http.clone().filter(|_| admission.exchange) {
                    Some(http) => {
                        gateway.exchange(http, stream, open, (addresses, asker), admission);
                    }
                    None => gateway.answer(stream, open, addresses, admission),
                }
            }
            // The other terminal is asked for a connection instead.
            Route::Forward(_) if admission.exchange => {
                self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
            }
            Route::Forward(session) if self.is_blocked(ops, session) => {
                self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
            }
            Route::Forward(session) => {
                self.parts.gateway.forward(stream, session, open.to(first), admission);
            }
            Route::Reset(reason) => self.parts.gateway.refuse(stream, &open, reason),
        }
    }

    /// Carries a connection to a client behind a terminal.
    pub(super) fn carry(&mut self, ops: &Operations, arrival: Arrival) {
        match self.sites.behind(arrival.open().destination.ip()) {
            Some(session) if self.is_blocked(ops, session) => arrival.dismiss(),
            Some(session) => self.parts.gateway.originate(session, arrival),
            // Intercepted just as the session ended.
            None => arrival.dismiss(),
        }
    }
}
