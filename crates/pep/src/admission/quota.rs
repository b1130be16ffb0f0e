//! Quotas of a hub's terminals, so that no terminal, and no client behind one, takes what others need. Time
//! is passed in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use shaping::TokenBucket;
use slacp::PublicKey;
use units::Instant;

use super::connection_shares::ConnectionShares;
use crate::routes::TerminalQuota;

/// Burst of new connections, in seconds of the permitted rate: after an outage all clients of a terminal
/// return at once.
const BURST_SECONDS: u32 = 10;

/// Usage of a hub by all terminals.
pub struct TerminalQuotas {
    peers: BTreeMap<PublicKey, PeerUsage>,
}

struct PeerUsage {
    most: u64,
    bucket: TokenBucket,
    shares: ClientShares,
}

/// Connections of a terminal by client.
#[derive(Debug, Clone, Default)]
struct ClientShares(Arc<Mutex<ConnectionShares>>);

impl ClientShares {
    fn lock(&self) -> MutexGuard<'_, ConnectionShares> {
        self.0.lock().expect("nobody panics while holding the shares")
    }
}

/// Permit for a connection within its terminal's quota; dropping it ends the connection's count.
#[derive(Debug)]
pub struct QuotaPermit {
    shares: ClientShares,
    client: IpAddr,
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        self.shares.lock().leave(self.client);
    }
}

/// Limit that a terminal has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// Concurrent connections of all clients of the terminal.
    Connections,
    /// Concurrent connections of one client.
    ConnectionsOfClient,
    /// New connections per second, beyond the burst of ten seconds.
    Pace,
}

impl TerminalQuotas {
    /// Creates the quotas of terminals at a hub that carries at most `total` connections.
    pub fn new(terminals: &BTreeMap<PublicKey, TerminalQuota>, total: u64) -> Self {
        let mut quotas = Self { peers: BTreeMap::new() };
        quotas.configure(terminals, total);
        quotas
    }

    /// Applies new limits. Existing connections keep their permits.
    pub fn configure(&mut self, terminals: &BTreeMap<PublicKey, TerminalQuota>, total: u64) {
        // Half, so that no terminal alone can take all that others need.
        let usual = if terminals.len() == 1 { total } else { (total / 2).max(1) };
        let mut before = std::mem::take(&mut self.peers);
        for (key, quota) in terminals {
            let pace = quota.per_second;
            let burst = quota.per_second.saturating_mul(BURST_SECONDS);
            let most = quota.connections.unwrap_or(usual);
            let peer = match before.remove(key) {
                Some(mut peer) => {
                    peer.bucket.configure(pace, burst);
                    PeerUsage { most, ..peer }
                }
                None => PeerUsage {
                    most,
                    bucket: TokenBucket::new(pace, burst),
                    shares: ClientShares::default(),
                },
            };
            self.peers.insert(*key, peer);
        }
    }

    /// Takes a permit for a new connection. `client` is the address that the terminal gives; the terminal's
    /// quota is divided among its clients.
    ///
    /// # Errors
    /// The limit that the terminal or its client has reached.
    pub fn admit(
        &mut self,
        now: Instant,
        terminal: &PublicKey,
        client: IpAddr,
    ) -> Result<QuotaPermit, QuotaExceeded> {
        let peer = self.peers.get_mut(terminal).ok_or(QuotaExceeded::Connections)?;
        let mut shares = peer.shares.lock();
        if shares.count() >= peer.most {
            return Err(QuotaExceeded::Connections);
        }
        if !shares.admits(client, peer.most) {
            return Err(QuotaExceeded::ConnectionsOfClient);
        }
        // Last, so that a connection refused for another reason does not use up the rate.
        if !peer.bucket.take(now) {
            return Err(QuotaExceeded::Pace);
        }
        shares.enter(client);
        drop(shares);
        Ok(QuotaPermit { shares: peer.shares.clone(), client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIP: PublicKey = PublicKey([1; 32]);
    const RIG: PublicKey = PublicKey([2; 32]);
    const START: Instant = Instant::ZERO;
    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn admitted_of(
        quotas: &mut TerminalQuotas,
        key: PublicKey,
        client: IpAddr,
        now: Instant,
    ) -> Vec<QuotaPermit> {
        (0..100).map_while(|_| quotas.admit(now, &key, client).ok()).collect()
    }

    fn admitted(quotas: &mut TerminalQuotas, key: PublicKey, now: Instant) -> Vec<QuotaPermit> {
        admitted_of(quotas, key, CLIENT, now)
    }

    #[test]
    fn a_terminal_has_as_many_connections_as_it_may_and_no_more_than_it_ends() {
        let few = TerminalQuota { connections: Some(3), ..TerminalQuota::default() };
        let mut quotas = TerminalQuotas::new(&[(SHIP, few)].into(), 50);
        let mut permits = admitted(&mut quotas, SHIP, START);
        assert_eq!(permits.len(), 3);
        assert_eq!(quotas.admit(START, &SHIP, CLIENT).unwrap_err(), QuotaExceeded::Connections);
        permits.pop();
        assert_eq!(admitted(&mut quotas, SHIP, START).len(), 1);
    }

    #[test]
    fn no_terminal_fills_a_hub_that_serves_others() {
        let alone = &mut TerminalQuotas::new(&[(SHIP, TerminalQuota::default())].into(), 20);
        assert_eq!(admitted(alone, SHIP, START).len(), 18, "some are left for its other clients");
        let both = [SHIP, RIG].map(|key| (key, TerminalQuota::default())).into();
        let quotas = &mut TerminalQuotas::new(&both, 12);
        let ship = admitted(quotas, SHIP, START);
        assert_eq!((ship.len(), admitted(quotas, RIG, START).len()), (6, 6));
    }

    #[test]
    fn a_client_leaves_connections_to_the_others_of_its_terminal() {
        let few = TerminalQuota { connections: Some(80), ..TerminalQuota::default() };
        let mut quotas = TerminalQuotas::new(&[(SHIP, few)].into(), 1000);
        let greedy = admitted(&mut quotas, SHIP, START);
        assert_eq!(greedy.len(), 70);
        let refused = quotas.admit(START, &SHIP, CLIENT).unwrap_err();
        assert_eq!(refused, QuotaExceeded::ConnectionsOfClient);
        let other = admitted_of(&mut quotas, SHIP, IpAddr::from([10, 0, 0, 2]), START);
        assert_eq!(other.len(), 9);
        drop(greedy);
        assert_eq!(admitted(&mut quotas, SHIP, START).len(), 63);
    }

    #[test]
    fn connections_in_haste_wait_for_the_pace_of_their_terminal_alone() {
        let slow = TerminalQuota { per_second: 2, ..TerminalQuota::default() };
        let terminals = [(SHIP, slow), (RIG, TerminalQuota::default())].into();
        let mut quotas = TerminalQuotas::new(&terminals, 1000);
        assert_eq!(admitted(&mut quotas, SHIP, START).len(), 20, "ten seconds' worth");
        assert_eq!(quotas.admit(START, &SHIP, CLIENT).unwrap_err(), QuotaExceeded::Pace);
        assert_eq!(admitted(&mut quotas, RIG, START).len(), 100);
        let later = START + std::time::Duration::from_secs(1);
        assert_eq!(admitted(&mut quotas, SHIP, later).len(), 2);
    }

    #[test]
    fn other_bounds_leave_a_terminal_what_it_has() {
        let bound = |most| {
            [(SHIP, TerminalQuota { connections: Some(most), ..TerminalQuota::default() })].into()
        };
        let mut quotas = TerminalQuotas::new(&bound(5), 1000);
        let permits = admitted(&mut quotas, SHIP, START);
        quotas.configure(&bound(6), 1000);
        assert_eq!((permits.len(), admitted(&mut quotas, SHIP, START).len()), (5, 1));
        quotas.configure(&[(RIG, TerminalQuota::default())].into(), 1000);
        assert_eq!(quotas.admit(START, &SHIP, CLIENT).unwrap_err(), QuotaExceeded::Connections);
    }
}
