//! Answers the streams that terminals open.

use std::net::SocketAddr;
use std::time::Duration;

use pep::admission::{Passage, SlotShare, StreamRequest, StreamTreatment, choose_passage};
use slacp::{Destination, PublicKey, ResetReason, StreamOpening, client_network};
use tokio::task::JoinSet;
use units::Instant;

use super::Hub;
use super::upgrade::Stage;
use crate::figures::connections::ConnectionOrigin;
use crate::hop::SessionStream;
use crate::intercept::ClientArrival;
use crate::operate::GatewayOperations;
use crate::process::runtime::joined;
use crate::relay::names::NameResolver;
use crate::relay::terms::Admission;
use crate::relay::turns::SlotAsker;
use crate::roles::RunningRole;
use crate::services::names::hub::{HubResolver, asker};
use crate::services::{Admitted, enrolment};

/// An admitted stream to a name.
struct NamedStream {
    stream: SessionStream,
    open: StreamOpening<Destination>,
    admission: Admission,
}

/// A stream to a name, and the addresses of the name.
pub(super) struct Resolved {
    named: NamedStream,
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

    /// Begins to resolve the name of a stream.
    fn begin(&mut self, named: NamedStream, asker: SlotAsker<PublicKey>, timeout: Duration) {
        let resolver = self.resolver.clone();
        let configured = self.configured.clone();
        self.tasks.spawn(look_up(resolver, configured, asker, named, timeout));
    }

    /// Waits for the end of a lookup; `None` if its stream was reset meanwhile. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Resolved> {
        joined(&mut self.tasks).await
    }
}

/// Resolves the name a stream leads to; `None` if the stream is reset meanwhile.
async fn look_up(
    resolver: NameResolver<PublicKey>,
    configured: Option<HubResolver>,
    asker: SlotAsker<PublicKey>,
    named: NamedStream,
    timeout: Duration,
) -> Option<Resolved> {
    let Destination::Name(name, port) = &named.open.destination else { return None };
    let resolved = async {
        if let Some(names) = configured
            && let Some(addresses) = names.addresses(asker, name, *port).await
        {
            return addresses;
        }
        resolver.look_up(asker, name, *port, timeout).await
    };
    let addresses = tokio::select! {
        addresses = resolved => addresses,
        _ = named.stream.reset_by_peer() => return None,
    };
    Some(Resolved { named, addresses })
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
        let request = StreamRequest {
            terminal: self.sites.of(session),
            destination: &open.destination,
            enrols: enrolment::is_enrolment(&open.destination),
            is_blocked: self.is_blocked(ops, session),
            is_served: self.services.answers(&open.destination),
            has_exchanges: self.services.has_exchanges(),
            is_full: self.is_full(ops),
        };
        match request.admit() {
            Ok(StreamTreatment::Serve) => {
                self.with_services(now, ops, |services, role| services.answer(role, stream, &open));
            }
            Ok(treatment) => self.admit_connection(now, ops, stream, open, treatment),
            Err(reason) => self.parts.gateway.refuse(stream, &open, reason),
        }
    }

    /// Carries a connection, or has an exchange, if its terminal's quota has room.
    fn admit_connection(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        stream: SessionStream,
        open: StreamOpening<Destination>,
        treatment: StreamTreatment,
    ) {
        let Some(terminal) = self.sites.of(stream.session()) else {
            return self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
        };
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
            exchange: treatment == StreamTreatment::Exchange,
        };
        let open = match open.destination {
            Destination::Exchange(ref host) => open.to(host.clone().into()),
            _ => open,
        };
        match &open.destination {
            Destination::Address(address) => {
                let addresses = vec![*address];
                self.answer_at(now, ops, stream, open, addresses, admission);
            }
            Destination::Name(..) => {
                let share = SlotShare::of_group(terminal.quota.lookups);
                let asker = asker(terminal, &open, share);
                let timeout = self.parts.gateway.connect_timeout();
                self.lookups.begin(NamedStream { stream, open, admission }, asker, timeout);
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
        let Resolved { named, addresses } = resolved;
        let NamedStream { stream, open, admission } = named;
        match addresses {
            Ok(addresses) => self.answer_at(now, ops, stream, open, addresses, admission),
            Err(reason) => self.parts.gateway.refuse(stream, &open, reason),
        }
    }

    /// Carries a connection, or has an exchange, with one of the destination's addresses.
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
        let treatment =
            if admission.exchange { StreamTreatment::Exchange } else { StreamTreatment::Connect };
        let is_blocked = |session| self.is_blocked(ops, session);
        match choose_passage(&self.sites, session, &open, addresses, treatment, is_blocked) {
            Ok(Passage::Here(addresses)) if admission.exchange => {
                let admitted = Admitted { stream, open, addresses, admission };
                self.with_services(now, ops, |services, role| services.exchange(role, admitted));
            }
            Ok(Passage::Here(addresses)) => {
                self.parts.gateway.answer(stream, open, addresses, admission);
            }
            // The other terminal is asked for a connection instead.
            Ok(Passage::Across(to, address)) => {
                self.parts.gateway.forward(stream, to, open.to(address), admission);
            }
            Err(reason) => self.parts.gateway.refuse(stream, &open, reason),
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
