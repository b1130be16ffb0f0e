//! Connection slots for DNS over TCP, TLS and HTTPS: limited in total and per client.

use std::net::IpAddr;

use slacp::client_network;

use crate::clock;
use crate::slots::{ConnectionSlots, HeldSlot};

/// Limit of clients' connections, also within TLS.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// A client's share of them.
const CLIENT_SHARE: usize = MAX_CONNECTIONS / 8;

/// The slots of a resolver. All connections count as idle, so any may be closed for a new one: its
/// client asks again.
#[derive(Debug, Clone)]
pub(super) struct QuestionSlots(pub(super) ConnectionSlots<IpAddr>);

impl Default for QuestionSlots {
    fn default() -> Self {
        Self(ConnectionSlots::new(MAX_CONNECTIONS, CLIENT_SHARE))
    }
}

impl QuestionSlots {
    /// Takes a slot for a client at this address; [`None`] if no connection can give way.
    pub(super) fn take(&self, client: IpAddr) -> Option<HeldSlot<IpAddr>> {
        self.0.take(clock::now(), client_network(client))
    }
}
