//! Further links of sessions, from their handshakes to their first packets (`docs/slacp.md`, Links).

use std::net::SocketAddr;

use units::Instant;

use super::{AnsweredInitiation, CONFIRM, Hub, link_of};
use crate::keys::handshake::{HandshakeParams, Responder};
use crate::recovery::path::rtt::FirstRtt;
use crate::session::group::{EndpointCore, IndexOwner};
use crate::session::{Peer, Session, SessionPath};
use crate::wire::packet::PacketHeader;
use crate::{PublicKey, SessionId};

/// An answered handshake that adds a link to the session `name`.
pub(super) struct TentativeLink {
    pub(super) name: u64,
    pub(super) link: u8,
    pub(super) initiation: AnsweredInitiation,
    path: SessionPath,
}

impl Hub {
    /// Removes a link that was answered, the first for which `is` holds.
    pub(super) fn take_joining(
        &mut self,
        key: &PublicKey,
        is: impl Fn(&TentativeLink) -> bool,
    ) -> Option<TentativeLink> {
        let joining = &mut self.peers.get_mut(key)?.joining;
        let found = joining.swap_remove(joining.iter().position(is)?);
        self.answered.remove(&found.initiation.knock);
        self.expiries.remove(&(found.initiation.answered + CONFIRM, *key));
        Some(found)
    }

    pub(super) fn forget_joining(
        &mut self,
        core: &mut EndpointCore,
        key: &PublicKey,
        is: impl Fn(&TentativeLink) -> bool,
    ) {
        while let Some(found) = self.take_joining(key, &is) {
            core.release_index(found.initiation.index);
        }
    }

    /// Answers an initiation that adds a link to the session `name`. One of another session, or too
    /// many, is ignored: the terminal learns of the end of its session in other ways.
    pub(super) fn answer_link(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        request: &super::VerifiedInitiation,
        responder: Responder,
        name: u64,
        params: HandshakeParams,
    ) {
        let super::VerifiedInitiation { from, sender, knock, .. } = *request;
        let key = responder.peer;
        let (own, ours) = self.ours(core, &key, None, &params);
        let Some(known) = self.peers.get(&key) else { return };
        let session = known.session.and_then(|id| core.session(id));
        let session = session.filter(|session| session.name == name);
        // The first link of a session holds what all share, so it has no successor.
        let free = |link: &u8| session.and_then(Session::link).is_some_and(|first| first != *link);
        let Some(link) = link_of(&ours, &params).filter(free) else { return core.count_ignored() };
        self.forget_joining(core, &key, |joining| joining.link == link);
        let Some(index) = core.claim_index(IndexOwner::Joining(key)) else {
            return core.count_ignored();
        };
        let peer = Peer::new(key, from, sender, &params);
        let cipher = ours.cipher(&params);
        let ours = HandshakeParams { join: Some(name), ..ours };
        let (answer, keys) = responder.answer(index, sender, &ours, cipher);
        let seed = core.seed();
        let config = own.as_ref().unwrap_or(&core.config);
        let mut path = SessionPath::new(now, config, keys, &peer, false, None, &seed);
        path.join(link, index);
        core.queue_datagram(from, answer.clone());
        let (answered, last_answered) = (now, now);
        let initiation = AnsweredInitiation { knock, from, answer, answered, last_answered, index };
        let Some(known) = self.peers.get_mut(&key) else { return };
        known.joining.push(TentativeLink { name, link, initiation, path });
        self.answered.insert(knock, key);
        self.expiries.insert((now + CONFIRM, key));
    }

    /// Adds a link to its session on the link's first packet, which carries no data.
    pub(crate) fn handle_first_of_link(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        peer: PublicKey,
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        let known = self.peers.get_mut(&peer)?;
        let is_first = |link: &TentativeLink| link.initiation.index == header.receiver;
        let first = known.joining.iter_mut().find(|link| is_first(link))?;
        let origin = (from, core.ecn_received);
        let session = known.session.and_then(|id| core.sessions.get_mut(id));
        let session = session.filter(|session| session.is_usable() && session.name == first.name);
        let Some(session) = session else {
            self.forget_joining(core, &peer, is_first);
            return None;
        };
        let rtt = FirstRtt::AtMost(now.saturating_since(first.initiation.answered));
        if !first.path.handle_packet(&mut session.shared, now, origin, header, datagram) {
            return None;
        }
        let id = known.session?;
        let TentativeLink { mut path, initiation, .. } = self.take_joining(&peer, is_first)?;
        core.release_index(initiation.index);
        path.begin_rtt(rtt);
        core.join(id, path);
        Some(id)
    }
}
