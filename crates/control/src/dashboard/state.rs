//! What all viewers of a dashboard share: the last status, and the hour before it.

use std::collections::BTreeMap;

use units::Instant;

use super::history::GatewayHistory;
use crate::status::{ConnectionStatus, GatewayStatus};

/// The last status of a gateway, some of its connections, and its history.
#[derive(Debug)]
pub struct DashboardState {
    pub(super) history: GatewayHistory,
    pub(super) status: GatewayStatus,
    /// Second of the status on the history's clock.
    pub(super) second: u64,
    pub(super) connections: BTreeMap<ConnectionInterest, ShownConnections>,
}

/// Connections with the peer of this name; with all peers, if `None`.
pub type ConnectionInterest = Option<String>;

/// Some connections, and the number of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShownConnections {
    /// Those that have moved the most bytes.
    pub most_moved: Vec<ConnectionStatus>,
    /// Number of all.
    pub total: u64,
}

impl DashboardState {
    /// The state before the first status. Seconds count from `origin`.
    pub fn new(origin: Instant) -> Self {
        Self {
            history: GatewayHistory::new(origin),
            status: GatewayStatus::default(),
            second: 0,
            connections: BTreeMap::new(),
        }
    }

    /// Records a status, with the connections that viewers want to see.
    pub fn record(
        &mut self,
        now: Instant,
        status: GatewayStatus,
        connections: BTreeMap<ConnectionInterest, ShownConnections>,
    ) {
        self.history.record(now, &status);
        self.second = self.history.second(now);
        self.status = status;
        self.connections = connections;
    }
}

/// Hides the destinations of connections.
pub fn hide_destinations(connections: &mut [ConnectionStatus]) {
    connections.iter_mut().for_each(|each| "hidden".clone_into(&mut each.destination));
}
