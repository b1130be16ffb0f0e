//! The parts that hub and terminal start and stop the same way: interception, operations, tunnel, and the
//! connections over the hop.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::{InterceptConfig, OperationConfig, TunnelConfig};
use control::Role;
use control::status::GatewayStatus;
use pep::traffic::{TrafficClasses, TrafficPolicy};
use slacp::{Endpoint, PublicKey};
use units::Instant;

use super::gateway::{Gateway, Report, Side, TrafficContext};
use super::workers::Workers;
use crate::figures::counters::GatewayCounters;
use crate::hop::PacketSink;
use crate::hop::class::LiveClasses;
use crate::hop::peers::PeerTable;
use crate::hop::sockets::HopSockets;
use crate::intercept::intake::{self, Intake};
use crate::intercept::netfilter::NameRules;
use crate::intercept::own::OwnAddresses;
use crate::intercept::{ClientArrival, IntakeEvent, Interception};
use crate::operate::{GatewayOperations, interception_status};
use crate::process::error::RunError;
use crate::relay::terms::DialPolicy;
use crate::services::tunnel::{Selection, Tunnel};

/// The parts of one side of a pair, before they start.
pub(super) struct Setup<'a> {
    pub(super) side: Side,
    /// The public key of its identity.
    pub(super) key: PublicKey,
    pub(super) own: OwnAddresses,
    /// The endpoints, the sockets of each, and their threads.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) sockets: Vec<HopSockets>,
    pub(super) workers: Workers,
    pub(super) peers: PeerTable,
    pub(super) dial: DialPolicy,
    pub(super) operation: &'a OperationConfig,
    pub(super) intercept: Option<&'a InterceptConfig>,
    pub(super) policies: Vec<TrafficPolicy>,
    pub(super) classes: TrafficClasses,
    /// Queries to redirect to the resolver.
    pub(super) names: Option<NameRules>,
    /// The tunnel, what goes through it, and `mesh` ([`Tunnel::install`]).
    pub(super) tunnel: Option<(&'a TunnelConfig, Selection, bool)>,
    /// The tunnel's device, if another process has it.
    pub(super) device: Option<OwnedFd>,
}

/// One side of a pair, running.
pub(super) struct Parts {
    pub(super) gateway: Gateway,
    /// Intercepts connections, and the replies to transparent ones.
    pub(super) intake: Option<Intake>,
    pub(super) policies: Vec<TrafficPolicy>,
}

/// An event of a side of a pair.
pub(super) enum PairEvent {
    /// Of the hop, or a fatal error.
    Report(Report),
    /// A client's connection at the interception, or a change there.
    Arrival(IntakeEvent),
}

impl From<Side> for Role {
    fn from(side: Side) -> Self {
        match side {
            Side::Hub => Self::Hub,
            Side::Terminal => Self::Terminal,
        }
    }
}

impl Setup<'_> {
    /// Starts everything but the tunnel, which takes no packets yet.
    ///
    /// # Errors
    /// If the kernel refuses something.
    pub(super) fn start(
        self,
        now: Instant,
    ) -> Result<(GatewayOperations, Parts, Option<Tunnel>), RunError> {
        let interception = match self.intercept {
            Some(intercept) => Some(Interception::install(intercept, &self.policies, self.names)?),
            // Replies to clients' addresses must come back to this machine's sockets.
            None if self.dial.transparent => Some(Interception::install_for_replies()?),
            None => None,
        };
        let role = self.side.into();
        let mut ops =
            GatewayOperations::start(now, role, Some(self.key), self.operation, self.peers)?;
        let classes = Arc::new(LiveClasses::new(self.classes));
        let counters = Arc::new(GatewayCounters::default());
        counters.keepalive.set(self.operation.keepalive);
        counters.live.set_limit(ops.most_connections());
        let tunnel = self.tunnel.map(|(tunnel, selection, mesh)| {
            let classes = classes.clone();
            Tunnel::install(tunnel, selection, mesh, classes, counters.clone(), self.device)
        });
        let tunnel = tunnel.transpose()?;
        let context = TrafficContext {
            classes,
            counters,
            tunnel: tunnel.as_ref().map(|tunnel| tunnel.port() as Arc<dyn PacketSink>),
        };
        let gateway = Gateway::start(
            self.side,
            self.endpoints,
            self.sockets,
            self.workers,
            self.dial,
            self.own,
            context,
        )?;
        // Before the first session, whose rate resumes from what is remembered of its path.
        ops.restore_paths(now, gateway.hop());
        ops.foresee(gateway.hop());
        let intake =
            interception.map(|interception| Intake::new(now, interception, gateway.counters()));
        Ok((ops, Parts { gateway, intake, policies: self.policies }, tunnel))
    }
}

/// Logs the end of a session, and how many connections ended with it.
pub(super) fn log_end(what: &str, connections: usize) {
    match resets(connections) {
        None => tracing::info!("{what}; it carried no connections"),
        Some(resets) => tracing::warn!("{what}: {resets}"),
    }
}

/// Says that the connections of a session are reset; `None` if it had none.
pub(super) fn resets(connections: usize) -> Option<String> {
    match connections {
        0 => None,
        1 => Some("its connection is reset".to_owned()),
        lost => Some(format!("its {lost} connections are reset")),
    }
}

impl Parts {
    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> PairEvent {
        tokio::select! {
            report = self.gateway.report() => PairEvent::Report(report),
            arrival = intake::next(&mut self.intake) => PairEvent::Arrival(arrival),
        }
    }

    /// Handles an event of the interception. Returns the client's connection that has arrived, if one has.
    pub(super) fn admit(&mut self, now: Instant, arrived: IntakeEvent) -> Option<ClientArrival> {
        self.intake.as_mut()?.handle(now, arrived)
    }

    /// The part of the status that is not of the hop.
    pub(super) fn role_status(&self, now: Instant) -> GatewayStatus {
        interception_status(now, self.intake.as_ref(), &self.policies)
    }

    /// Restores routes that the kernel removed.
    pub(super) fn follow_routes(&mut self) {
        self.intake.iter_mut().for_each(Intake::follow_routes);
    }

    /// Ends interception, then all connections.
    pub(super) async fn stop(self) {
        // First, so that new connections pass unaccelerated instead of being reset.
        drop(self.intake);
        self.gateway.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_that_there_were_are_said_to_be_reset() {
        assert_eq!(resets(0), None);
        assert_eq!(resets(1).unwrap(), "its connection is reset");
        assert_eq!(resets(3).unwrap(), "its 3 connections are reset");
    }
}
