//! Answers the streams that terminals open.

use std::net::SocketAddr;
use std::time::Duration;

use pep::admission::SlotShare;
use pep::routes::StreamRoute;
use slacp::{Destination, PublicKey, ResetReason, StreamOpening, client_network};
use tokio::task::JoinSet;
use units::Instant;

use super::Hub;
use super::upgrade::Stage;
use crate::figures::connections::ConnectionOrigin;
use crate::hop::SessionStream;
use crate::intercept::ClientArrival;
use crate::operate::GatewayOperations;
use crate::relay::names::NameResolver;
use crate::relay::terms::Admission;
use crate::relay::turns::SlotAsker;
use crate::roles::RunningRole;
use crate::runtime::joined;
use crate::services::names::hub::{HubResolver, asker};
use crate::services::{Admitted, enrolment};

/// A stream to a name, and the addresses of the name.
pub(super) struct Resolved {
    stream: SessionStream,
    open: StreamOpening<Destination>,
    admission: Admission,
    addresses: Result<Vec<SocketAddr>, ResetReason>,
}

/// Name lookups for streams. Dropping it ends them.
pub(super) struct Lookups {
    resolver: NameResolver<PublicKey>,
    /// The configured resolvers; `None` for the machine's.
    configured: Option<HubResolver>,
    tasks: JoinSet<Option<Resolved>>,
}

impl Lookups {
    pub(super) fn new(configured: Option<HubResolver>) -> Self {
        Self { resolver: NameResolver::default(), configured, tasks: JoinSet::new() }
    }

    /// Waits for the end of a lookup; `None` if its stream was reset meanwhile. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Resolved> {
        joined(&mut self.tasks).await
    }
}

/// Resolves the name a stream leads to; `None` if the stream is reset meanwhile.
async fn look_up(
    (resolver, names): (NameResolver<PublicKey>, Option<HubResolver>),
    asker: SlotAsker<PublicKey>,
    (stream, open, admission): (SessionStream, StreamOpening<Destination>, Admission),
    timeout: Duration,
) -> Option<Resolved> {
    let Destination::Name(name, port) = &open.destination else { return None };
    let resolved = async {
        if let Some(names) = names
            && let Some(addresses) = names.addresses(asker, name, *port).await
        {
            return addresses;
        }
        resolver.look_up(asker, name, *port, timeout).await
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
        ops: &mut GatewayOperations,
        stream: SessionStream,
        open: StreamOpening<Destination>,
    ) {
        let session = stream.session();
        let Some(terminal) = self.sites.of(session) else {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        };
        // An invitation permits nothing but enrolment.
        let enrols = enrolment::is_enrolment(&open.destination);
        if enrols != terminal.invited || (!enrols && self.is_blocked(ops, session)) {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        }
        let answered = self.with_services(now, ops, |it, role| it.answer(role, stream, &open));
        if let Some(stream) = answered {
            self.admit(now, ops, stream, open);
        }
    }

    /// Carries a connection, or has an exchange, if there is room.
    fn admit(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        stream: SessionStream,
        open: StreamOpening<Destination>,
    ) {
        let Some(terminal) = self.sites.of(stream.session()) else {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        };
        let (open, exchange) = match open.destination {
            Destination::Exchange(ref host) => (open.to(host.clone().into()), true),
            _ => (open, false),
        };
        let is_connection =
            matches!(open.destination, Destination::Address(_) | Destination::Name(..));
        if !is_connection || (exchange && !self.services.has_exchanges()) {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
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
        let verified = self.sites.is_behind(open.source.ip(), stream.session());
        let admission = Admission {
            origin: ConnectionOrigin::Peer { verified },
            _permit: Some(permit),
            exchange,
        };
        match &open.destination {
            Destination::Address(address) => {
                let addresses = vec![*address];
                self.answer_at(now, ops, stream, open, addresses, admission);
            }
            Destination::Name(..) => {
                let share = SlotShare::of_group(terminal.quota.lookups);
                let asker = asker(terminal, &open, share);
                let request = (stream, open, admission);
                let timeout = self.parts.gateway.connect_timeout();
                let Lookups { resolver, configured, tasks } = &mut self.lookups;
                let resolvers = (resolver.clone(), configured.clone());
                tasks.spawn(look_up(resolvers, asker, request, timeout));
            }
            Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => {}
        }
    }

    /// Returns whether no further connection is carried. A hub that another process has replaced still carries
    /// those of terminals that have no session there yet.
    fn is_full(&self, ops: &GatewayOperations) -> bool {
        let view = self.parts.gateway.view();
        match self.stage {
            Some(Stage::Leaving) => ops.exceeded(view).is_some(),
            _ => ops.bypass_reason(view).is_some(),
        }
    }

    pub(super) fn answer_resolved(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        resolved: Resolved,
    ) {
        let Resolved { stream, open, admission, addresses } = resolved;
        match addresses {
            Ok(addresses) => self.answer_at(now, ops, stream, open, addresses, admission),
            Err(reason) => self.parts.gateway.refuse(stream, &open, reason),
        }
    }

    /// Carries a connection to the first permitted address. If the first address is behind a
    /// terminal or denied, the others are not tried.
    pub(super) fn answer_at(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        stream: SessionStream,
        open: StreamOpening<Destination>,
        mut addresses: Vec<SocketAddr>,
        admission: Admission,
    ) {
        let session = stream.session();
        let Some(terminal) = self.sites.of(session) else {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        };
        let egress = &terminal.egress;
        if let Err(why) = self.parts.gateway.check_egress(egress, &open, &mut addresses) {
            return self.parts.gateway.prohibit(stream, &open, &why);
        }
        let route = |address| self.sites.route(session, open.to(address));
        let first = addresses[0];
        match route(first) {
            StreamRoute::Local => {
                addresses.retain(|address| matches!(route(*address), StreamRoute::Local));
                if admission.exchange {
                    let admitted = Admitted { stream, open, addresses, admission };
                    self.with_services(now, ops, |it, role| it.exchange(role, admitted));
                } else {
                    self.parts.gateway.answer(stream, open, addresses, admission);
                }
            }
            // The other terminal is asked for a connection instead.
            StreamRoute::Forward(_) if admission.exchange => {
                self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
            }
            StreamRoute::Forward(session) if self.is_blocked(ops, session) => {
                self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
            }
            StreamRoute::Forward(session) => {
                self.parts.gateway.forward(stream, session, open.to(first), admission);
            }
            StreamRoute::Reset(reason) => self.parts.gateway.refuse(stream, &open, reason),
        }
    }

    /// Carries a connection to a client behind a terminal.
    pub(super) fn carry(&mut self, ops: &GatewayOperations, arrival: ClientArrival) {
        match self.sites.behind(arrival.open().destination.ip()) {
            Some(session) if self.is_blocked(ops, session) => arrival.dismiss(),
            Some(session) => self.parts.gateway.originate(session, arrival),
            // Intercepted just as the session ended.
            None => arrival.dismiss(),
        }
    }
}
