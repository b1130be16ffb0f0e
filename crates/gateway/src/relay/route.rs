//! Routes of clients' connections: over the hop, or past it.

use std::sync::Arc;

use slacp::SessionId;

use super::dial::Dialer;
use super::names::NameResolver;
use crate::figures::counters::GatewayCounters;
use crate::hop::Hop;

/// The current route of clients' connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClientRoute {
    /// The session with the hub, while it can be reached.
    pub(crate) hub: Option<SessionId>,
    /// New connections may be opened by name.
    pub(crate) by_name: bool,
}

/// Means to connect clients to their destinations.
pub(crate) struct Upstreams {
    pub(crate) hop: Hop,
    /// For connections that do not cross the hop.
    pub(crate) dialer: Dialer,
    pub(crate) resolver: NameResolver<()>,
    pub(crate) counters: Arc<GatewayCounters>,
}
