//! Slots for clients' connections with questions: the number is limited, and each client's share.

use std::net::IpAddr;

use slacp::client_network;

use crate::clock;
use crate::slots::{HeldSlot, Slots};

/// TCP connections of clients at once, also within TLS.
pub(super) const MOST_CONNECTIONS: usize = 1024;
/// The share of them that one client may have: an eighth.
const SHARE: usize = MOST_CONNECTIONS / 8;

/// The slots of a resolver. All connections count as idle: a client whose connection gives way asks
/// again.
#[derive(Debug, Clone)]
pub(super) struct QuestionSlots(pub(super) Slots<IpAddr>);

impl Default for QuestionSlots {
    fn default() -> Self {
        Self(Slots::new(MOST_CONNECTIONS, SHARE))
    }
}

impl QuestionSlots {
    /// Takes a slot for a client at this address.
    pub(super) fn take(&self, client: IpAddr) -> Option<HeldSlot<IpAddr>> {
        self.0.take(clock::now(), client_network(client))
    }
}
