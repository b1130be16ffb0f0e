//! Chooses the source address towards a peer: the address that the peer wrote to.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use slacp::SessionId;

/// Most senders outside sessions that are remembered. At most as many answers are queued, and an answer
/// leaves soon after its request.
const STRANGERS: usize = 2048;

/// Source addresses towards peers.
pub enum SourceAddresses<S = SessionId> {
    /// Chosen by routing, on a terminal: its addresses may change.
    Routed,
    /// The address that the peer wrote to, on a hub.
    AsAddressed(AddressedPeers<S>),
}

impl<S: Copy + Ord> SourceAddresses<S> {
    /// For a hub, which may have several addresses.
    pub fn as_addressed() -> Self {
        Self::AsAddressed(AddressedPeers::new())
    }

    /// Records that a datagram from `peer` arrived at the address `ours`, with its `session` if it was
    /// authentic.
    pub fn remember(&mut self, peer: SocketAddr, ours: Option<IpAddr>, session: Option<S>) {
        let Self::AsAddressed(known) = self else { return };
        let Some(ours) = ours else { return };
        match session {
            Some(session) => known.enter_peer(session, PeerAddress { at: peer, ours }),
            None => known.enter_stranger(peer, ours),
        }
    }

    /// Forgets a session that has ended.
    pub fn forget(&mut self, session: S) {
        if let Self::AsAddressed(known) = self {
            known.forget(session);
        }
    }

    /// The source address towards `peer`; `None` leaves the choice to routing.
    pub fn of(&self, peer: Option<SocketAddr>) -> Option<IpAddr> {
        match self {
            Self::Routed => None,
            Self::AsAddressed(known) => known.of(&peer?),
        }
    }
}

/// Remembers peers as long as their sessions live. Senders outside sessions, which an attacker can
/// multiply, displace only each other.
pub struct AddressedPeers<S> {
    /// The last two addresses of each session's peer, the newest first: both are in use while it moves.
    sessions: BTreeMap<S, [Option<PeerAddress>; 2]>,
    /// Our address towards each peer, and the session that set it.
    peers: BTreeMap<SocketAddr, (IpAddr, S)>,
    strangers: BTreeMap<SocketAddr, IpAddr>,
    /// Senders outside sessions in order of arrival.
    order: VecDeque<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct PeerAddress {
    at: SocketAddr,
    ours: IpAddr,
}

impl<S: Copy + Ord> AddressedPeers<S> {
    fn new() -> Self {
        Self {
            sessions: BTreeMap::new(),
            peers: BTreeMap::new(),
            strangers: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    fn enter_peer(&mut self, session: S, peer: PeerAddress) {
        let known = self.sessions.entry(session).or_default();
        if known[0] == Some(peer) {
            return;
        }
        // The peer has moved, or wrote to another address of ours: the address in use so far becomes the
        // older one.
        let [newest, before] = *known;
        *known = [Some(peer), newest.filter(|newest| newest.at != peer.at).or(before)];
        let kept = known.map(|kept| kept.map(|kept| kept.at));
        let gone = before.filter(|before| !kept.contains(&Some(before.at)));
        self.peers.insert(peer.at, (peer.ours, session));
        gone.into_iter().for_each(|gone| self.remove(gone.at, session));
    }

    /// Removes a peer's address, unless another session has taken it over.
    fn remove(&mut self, at: SocketAddr, session: S) {
        if self.peers.get(&at).is_some_and(|(_, owner)| *owner == session) {
            self.peers.remove(&at);
        }
    }

    fn forget(&mut self, session: S) {
        let known = self.sessions.remove(&session).unwrap_or_default();
        known.into_iter().flatten().for_each(|peer| self.remove(peer.at, session));
    }

    fn enter_stranger(&mut self, at: SocketAddr, ours: IpAddr) {
        // An authenticated peer's entry counts more than what anyone may send from its address.
        if self.peers.contains_key(&at) || self.strangers.insert(at, ours).is_some() {
            return;
        }
        self.order.push_back(at);
        if self.order.len() > STRANGERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.strangers.remove(&oldest);
        }
    }

    fn of(&self, peer: &SocketAddr) -> Option<IpAddr> {
        let peers = self.peers.get(peer).map(|(ours, _)| *ours);
        peers.or_else(|| self.strangers.get(peer).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn address(n: u32) -> SocketAddr {
        SocketAddr::from(((0x0a00_0000 + n).to_be_bytes(), 5900))
    }

    #[test]
    fn strangers_do_not_push_out_the_peers_of_sessions() {
        let mut sources = SourceAddresses::as_addressed();
        sources.remember(address(1), ours(1), Some(1));
        for n in 0..100_000 {
            sources.remember(address(1000 + n), ours(2), None);
            assert_eq!(sources.of(Some(address(1000 + n))), ours(2), "is answered");
        }
        // A forged packet from a peer's address changes nothing either.
        sources.remember(address(1), ours(2), None);
        assert_eq!(sources.of(Some(address(1))), ours(1));
        assert_eq!(sources.of(Some(address(1000))), None, "forgotten");
        let SourceAddresses::AsAddressed(known) = &sources else { panic!() };
        assert_eq!((known.strangers.len(), known.order.len()), (STRANGERS, STRANGERS));
    }

    #[test]
    fn a_peer_that_moves_is_known_at_its_last_two_addresses_while_its_session_lives() {
        let mut sources = SourceAddresses::as_addressed();
        for n in 1..=100 {
            sources.remember(address(n), ours(n as u8), Some(1));
            sources.remember(address(n), ours(n as u8), Some(1));
        }
        let known = |sources: &SourceAddresses<u32>| {
            (1..=200).filter(|n| sources.of(Some(address(*n))).is_some()).collect::<Vec<u32>>()
        };
        assert_eq!(known(&sources), [99, 100]);
        // The peer moves back and forth, and another session takes an address it had.
        sources.remember(address(99), ours(99), Some(1));
        assert_eq!(known(&sources), [99, 100]);
        sources.remember(address(100), ours(7), Some(2));
        sources.forget(1);
        assert_eq!(known(&sources), [100]);
        assert_eq!(sources.of(Some(address(100))), ours(7));
        sources.forget(2);
        assert!(known(&sources).is_empty());
        let SourceAddresses::AsAddressed(known) = &sources else { panic!() };
        assert!(known.sessions.is_empty() && known.peers.is_empty());
    }

    #[test]
    fn a_terminal_leaves_it_to_the_routing() {
        let mut sources = SourceAddresses::Routed;
        sources.remember(address(1), ours(1), Some(1));
        assert_eq!(sources.of(Some(address(1))), None);
    }
}
