//! Connects a client of the proxy to its destination: over the hop, or directly without one.
//!
//! The hub resolves names. This machine's resolver is used without a hop, if the hub does not
//! resolve names, or if configured.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use config::{AnswerTiming, NameResolution};
use pep::proxy::ProxyProtocol;
use pep::relay::LegSide;
use slacp::{Destination, ResetReason, SessionId, StreamOpening, client_network};
use tokio::io::AsyncWriteExt;

use super::{ProxyClient, refuse};
use crate::figures::connections::{ArrivingConnection, ConnectionOrigin, Registered};
use crate::figures::counters::GatewayCounters;
use crate::hop::{Hop, SessionStream};
use crate::process::clock;
use crate::relay;
use crate::relay::dial::{self, Dialer};
use crate::relay::leg::TcpLeg;
use crate::relay::names::LOOKUPS_EACH;
use crate::relay::names::NameResolver;
use crate::relay::turns::SlotAsker;

/// The configured treatment of the proxy's clients while there is a hop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProxySettings {
    /// Time at which clients are answered.
    pub(super) answer: AnswerTiming,
    /// Side of the hop that resolves names.
    pub(super) names: NameResolution,
}

/// Route of the proxy's clients to their destinations.
#[derive(Clone)]
pub(crate) struct ProxyUpstream {
    settings: ProxySettings,
    /// For direct connections. Its time limit also applies to lookups.
    dialer: Dialer,
    resolver: NameResolver<()>,
    quick_ack: bool,
    counters: Arc<GatewayCounters>,
}

impl ProxyUpstream {
    /// Disables delayed ACKs towards clients if `quick_ack`.
    pub(crate) fn with_quick_ack(self, quick_ack: bool) -> Self {
        Self { quick_ack, ..self }
    }

    /// A copy with other settings for its connections.
    pub(super) fn with_dialer(&self, dialer: Dialer, quick_ack: bool) -> Self {
        Self { dialer, quick_ack, ..self.clone() }
    }

    pub(crate) fn new(
        settings: ProxySettings,
        dialer: Dialer,
        counters: Arc<GatewayCounters>,
    ) -> Self {
        Self { settings, dialer, resolver: NameResolver::default(), quick_ack: false, counters }
    }

    /// The destinations to request from the hub, in the order to try them.
    pub(super) async fn hub_destinations(
        &self,
        client: IpAddr,
        destination: &Destination,
        hop: &Hop,
        session: SessionId,
    ) -> Result<Vec<Destination>, ResetReason> {
        let is_name = matches!(destination, Destination::Name(..));
        if is_name && self.settings.names == NameResolution::Hub && hop.peer_resolves(session) {
            return Ok(vec![destination.clone()]);
        }
        let mut addresses = self.addresses(client, destination).await?;
        // The hub would connect back, and services of this machine would take the client for the
        // hub.
        addresses.retain(|address| !self.dialer.is_own(address.ip()));
        if addresses.is_empty() {
            return Err(ResetReason::Prohibited);
        }
        Ok(addresses.into_iter().map(Destination::from).collect())
    }

    /// The addresses of a destination, resolved on this machine.
    async fn addresses(
        &self,
        client: IpAddr,
        destination: &Destination,
    ) -> Result<Vec<SocketAddr>, ResetReason> {
        match destination {
            Destination::Address(address) => Ok(vec![*address]),
            Destination::Name(name, port) => {
                let asker = SlotAsker::ungrouped(client_network(client), LOOKUPS_EACH);
                self.resolver.look_up(asker, name, *port, self.dialer.timeout).await
            }
            Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => {
                Err(ResetReason::Prohibited)
            }
        }
    }
}

/// Carries a client's connection until it ends. `hop` is set if the hub is reachable.
pub(super) async fn carry(
    client: ProxyClient,
    hop: Option<(Hop, SessionId)>,
    upstream: ProxyUpstream,
    arriving: ArrivingConnection,
) {
    upstream.counters.traffic.connections.increment();
    let ProxyClient { leg, source, dscp, request } = client;
    let open = StreamOpening { destination: request.destination, source, dscp };
    let client = PendingClient {
        leg,
        open,
        dialect: request.dialect,
        first: request.first,
        arriving: Some(arriving),
    };
    let Some((hop, session)) = hop else { return client.connect_directly(&upstream).await };
    let destination = &client.open.destination;
    match upstream.hub_destinations(source.ip(), destination, &hop, session).await {
        Err(reason) => fail(client.leg, client.dialect, reason, &upstream).await,
        Ok(beyond) => match upstream.settings.answer {
            AnswerTiming::Early => client.early(&hop, session, &beyond, &upstream).await,
            AnswerTiming::Deferred => client.deferred(&hop, session, &beyond, &upstream).await,
        },
    }
}

/// Refuses a client while connections are at their limit.
pub(super) async fn reject(client: ProxyClient, upstream: ProxyUpstream) {
    fail(client.leg, client.request.dialect, ResetReason::Limit, &upstream).await;
}

async fn fail(leg: TcpLeg, dialect: ProxyProtocol, reason: ResetReason, upstream: &ProxyUpstream) {
    upstream.counters.traffic.failed.increment();
    refuse(leg, &dialect.answer(Err(reason))).await;
}

/// A client that is not connected yet.
struct PendingClient {
    leg: TcpLeg,
    open: StreamOpening<Destination>,
    dialect: ProxyProtocol,
    first: Vec<u8>,
    /// Counts the connection until it is in the register.
    arriving: Option<ArrivingConnection>,
}

impl PendingClient {
    /// Answers the client at once: its first data travels with the opening of the stream, and a
    /// refusal is a reset. There is no second try, so prefer IPv4, which a hub is most likely to
    /// have.
    async fn early(
        self,
        hop: &Hop,
        session: SessionId,
        beyond: &[Destination],
        upstream: &ProxyUpstream,
    ) {
        let is_v4 = |destination: &&Destination| {
            matches!(destination, Destination::Address(SocketAddr::V4(_)))
        };
        let destination = beyond.iter().find(is_v4).unwrap_or(&beyond[0]);
        let open = self.open.to(destination.clone());
        match hop.open(clock::now(), session, open.clone()) {
            Ok(stream) => self.relay(stream, open, upstream).await,
            // The hub has no room.
            Err(_) => self.connect_directly(upstream).await,
        }
    }

    /// Answers the client once the far end is connected, or with the reason for the failure.
    async fn deferred(
        self,
        hop: &Hop,
        session: SessionId,
        beyond: &[Destination],
        upstream: &ProxyUpstream,
    ) {
        let mut reason = ResetReason::Unreachable;
        for destination in beyond {
            let open = self.open.to(destination.clone());
            let Ok(stream) = hop.open(clock::now(), session, open.clone()) else {
                return self.connect_directly(upstream).await;
            };
            tokio::select! {
                accepted = stream.accepted() => match accepted {
                    Ok(()) => return self.relay(stream, open, upstream).await,
                    Err(why) => reason = why,
                },
                // The client has left.
                _ = self.leg.failure() => return upstream.counters.traffic.failed.increment(),
            }
        }
        fail(self.leg, self.dialect, reason, upstream).await;
    }

    async fn relay(
        mut self,
        stream: SessionStream,
        open: StreamOpening<Destination>,
        upstream: &ProxyUpstream,
    ) {
        if self.answer_connected().await.is_ok() {
            let entry = Registered::new(
                clock::now(),
                &upstream.counters,
                stream.session(),
                open,
                ConnectionOrigin::Here,
            );
            // The register counts it from here on.
            drop(self.arriving);
            relay::relay(stream, LegSide::Client, self.leg, &self.first, entry, &upstream.counters)
                .await;
        }
    }

    /// Connects without the hop; the server's answer decides.
    async fn connect_directly(mut self, upstream: &ProxyUpstream) {
        let entry = Registered::direct(clock::now(), &upstream.counters, self.open.clone());
        // The register counts it from here on.
        drop(self.arriving.take());
        let addresses =
            match upstream.addresses(self.open.source.ip(), &self.open.destination).await {
                Ok(addresses) => addresses,
                Err(reason) => return fail(self.leg, self.dialect, reason, upstream).await,
            };
        let mut reason = ResetReason::Unreachable;
        for destination in addresses {
            let dialled = tokio::select! {
                dialled = upstream.dialer.reach(destination, None, self.open.dscp) => dialled,
                // The client has left.
                _ = self.leg.failure() => return upstream.counters.traffic.failed.increment(),
            };
            match dialled {
                Ok(dialled) => {
                    upstream.counters.traffic.straight.increment();
                    let server = dialled.into_end(upstream.dialer.side.quick_ack);
                    if self.answer_connected().await.is_ok() {
                        let client = self.leg.with_quick_ack(upstream.quick_ack);
                        relay::direct(client, server, &self.first, entry, &upstream.counters).await;
                    }
                    return;
                }
                Err(error) => reason = dial::reset_reason(&error),
            }
        }
        fail(self.leg, self.dialect, reason, upstream).await;
    }

    async fn answer_connected(&mut self) -> io::Result<()> {
        let answer = self.dialect.answer(Ok(()));
        self.leg.socket_mut().write_all(&answer).await
    }
}
