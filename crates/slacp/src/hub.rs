//! The hub's part in setting up sessions (`docs/slacp.md`, Session set-up).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use units::Instant;

use crate::endpoint::{Core, Owner};
use crate::handshake::Responder;
use crate::packet::{Header, Index};
use crate::session::{Peer, Session};
use crate::{PublicKey, SessionId};

/// How long an answer waits for the terminal to use it.
const CONFIRM: Duration = Duration::from_secs(30);

/// The terminals that a hub serves. Strangers leave nothing behind.
pub(crate) struct Hub {
    peers: BTreeMap<PublicKey, KnownPeer>,
}

#[derive(Default)]
struct KnownPeer {
    session: Option<SessionId>,
    tentative: Option<Tentative>,
}

/// A session that the hub has answered for. It replaces the present one when
/// the terminal uses it; a replayed first message never gets that far.
struct Tentative {
    /// The first message and the answer to it, given again to the same message.
    message: Vec<u8>,
    answer: Vec<u8>,
    answered: Instant,
    index: Index,
    session: Session,
}

impl Hub {
    pub(crate) fn new(allow: Vec<PublicKey>) -> Self {
        let peers = allow.into_iter().map(|key| (key, KnownPeer::default())).collect();
        Self { peers }
    }

    pub(crate) fn handle_initiation(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        body: &[u8],
    ) {
        let Ok(responder) = Responder::read(&core.identity, body, &mut core.rng) else {
            return core.ignore();
        };
        let key = responder.peer;
        let Some(known) = self.peers.get_mut(&key) else { return core.ignore() };
        if let Some(tentative) = &known.tentative
            && tentative.message == body
        {
            return core.send_later(from, tentative.answer.clone());
        }
        if let Some(old) = known.tentative.take() {
            core.release_index(old.index);
        }
        let Some(index) = core.claim_index(Owner::Tentative(key)) else { return core.ignore() };
        let live = known.session.and_then(|id| core.session(id)).map(|session| session.name);
        let present = live.filter(|name| responder.params.present == Some(*name));
        let peer = Peer { key, address: from, index: sender, limits: responder.params.limits };
        let (answer, keys) = responder.answer(index, sender, &core.params(present));
        let session = Session::new(now, &core.config, keys, peer, true, None);
        core.send_later(from, answer.clone());
        let message = body.to_vec();
        known.tentative = Some(Tentative { message, answer, answered: now, index, session });
    }

    /// The first packet on a tentative session makes it the present one.
    pub(crate) fn handle_first_data(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        peer: PublicKey,
        header: &Header,
        datagram: &mut [u8],
    ) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        let Some(mut tentative) = known.tentative.take() else { return };
        let rtt = now.saturating_since(tentative.answered);
        if !tentative.session.handle_packet(now, from, header, datagram) {
            known.tentative = Some(tentative);
            return;
        }
        tentative.session.assume_rtt(rtt);
        if let Some(old) = known.session.take() {
            core.end(old);
        }
        known.session = Some(core.establish(tentative.index, tentative.session));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let answers = self.peers.values().filter_map(|known| known.tentative.as_ref());
        answers.map(|tentative| tentative.answered + CONFIRM).min()
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        for known in self.peers.values_mut() {
            let stale = |tentative: &mut Tentative| tentative.answered + CONFIRM <= now;
            if let Some(tentative) = known.tentative.take_if(stale) {
                core.release_index(tentative.index);
            }
        }
    }
}
