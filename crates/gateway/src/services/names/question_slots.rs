//! Connection slots for DNS over TCP, TLS and HTTPS: limited in total and per client.

use std::net::IpAddr;

use slacp::client_network;

use crate::network::connection_slots::{ConnectionSlots, HeldSlot};
use crate::process::clock;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, number as u8])
    }

    #[test]
    fn a_client_has_no_more_than_its_share() {
        let slots = QuestionSlots::default();
        let held: Vec<_> = (0..=CLIENT_SHARE).map(|_| slots.take(client(1))).collect();
        assert!(held.iter().all(Option::is_some), "its own oldest gives way");
        assert_eq!(slots.0.taken(), CLIENT_SHARE);
    }

    #[test]
    fn eight_clients_with_their_shares_shut_no_other_out() {
        let slots = QuestionSlots::default();
        let all = (0..MAX_CONNECTIONS).map(|number| slots.take(client(number / CLIENT_SHARE)));
        let held: Vec<_> = all.collect();
        assert!(held.iter().all(Option::is_some));
        let other = slots.take(client(8));
        assert!(other.is_some());
        assert_eq!(slots.0.taken(), MAX_CONNECTIONS);
    }
}
