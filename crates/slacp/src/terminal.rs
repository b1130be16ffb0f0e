//! The terminal's part in setting up sessions (`docs/slacp.md`, Session
//! set-up).

use std::net::SocketAddr;

use units::Instant;

use crate::endpoint::{Core, Owner};
use crate::handshake::Initiator;
use crate::packet::Index;
use crate::session::{Peer, Session};
use crate::{PublicKey, SessionId};

/// A terminal's one session, and the handshake for the next.
pub(crate) struct Terminal {
    hub: PublicKey,
    /// Where the hub may be. Handshake messages go to one after the other.
    addresses: Vec<SocketAddr>,
    turn: usize,
    initiator: Option<Initiator>,
    session: Option<SessionId>,
}

impl Terminal {
    pub(crate) fn new(hub: PublicKey, addresses: Vec<SocketAddr>) -> Self {
        Self { hub, addresses, turn: 0, initiator: None, session: None }
    }

    /// Whether a handshake is called for: there is no session, or the hub does
    /// not answer on it. It may have forgotten it.
    fn wants_handshake(&self, core: &Core) -> bool {
        !self.session.and_then(|id| core.session(id)).is_some_and(Session::is_reachable)
    }

    pub(crate) fn poll_timeout(&self, core: &Core) -> Option<Instant> {
        match &self.initiator {
            Some(initiator) => Some(initiator.due()),
            None => self.wants_handshake(core).then_some(Instant::ZERO),
        }
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        let wanted = self.wants_handshake(core);
        if let Some(old) = self.initiator.take_if(|old| !wanted || old.is_stale(now)) {
            core.release_index(old.index);
        }
        if wanted && self.initiator.is_none() {
            self.initiator = self.initiate(core, now);
        }
        if let Some(datagram) = self.initiator.as_mut().and_then(|initiator| initiator.poll(now)) {
            if let Some(address) = self.addresses.get(self.turn % self.addresses.len().max(1)) {
                core.send_later(*address, datagram);
            }
            self.turn += 1;
        }
    }

    fn initiate(&self, core: &mut Core, now: Instant) -> Option<Initiator> {
        let present = self.session.and_then(|id| core.session(id)).map(|session| session.name);
        let index = core.claim_index(Owner::Initiator)?;
        let params = core.params(present);
        Some(Initiator::new(now, &core.identity, self.hub, index, &params, &mut core.rng))
    }

    pub(crate) fn handle_response(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        receiver: Index,
        body: &[u8],
    ) {
        let Some(mut initiator) = self.initiator.take_if(|i| i.index == receiver) else {
            return core.ignore();
        };
        let Ok(params) = initiator.answer(body) else {
            self.initiator = Some(initiator);
            return core.ignore();
        };
        let present = self.session.and_then(|id| core.session(id)).map(|session| session.name);
        if present.is_some() && params.present == present {
            // The hub still has our session: the link was away, not the hub.
            return core.release_index(receiver);
        }
        let rtt = now.saturating_since(initiator.last_sent());
        let peer = Peer { key: self.hub, address: from, index: sender, limits: params.limits };
        let keys = initiator.into_keys();
        let mut session = Session::new(now, &core.config, keys, peer, false, Some(rtt));
        session.ping();
        if let Some(old) = self.session.take() {
            core.end(old);
        }
        self.session = Some(core.establish(receiver, session));
    }
}
