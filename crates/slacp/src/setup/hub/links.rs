//! Further links of sessions, from their handshakes to their first packets (`docs/slacp.md`, Links).

use std::net::SocketAddr;

use units::Instant;

use super::rivals::RivalryCheck;
use super::{CONFIRM, Hub, TentativeSession, link_of};
use crate::handshake::{HandshakeParams, Responder};
use crate::path::rtt::FirstRtt;
use crate::session::{Peer, Session};
use crate::sessions::{EndpointCore, IndexOwner};
use crate::wire::packet::PacketHeader;
use crate::{PublicKey, SessionId};

/// An answered handshake that adds a link to the session `name`.
pub(super) struct TentativeLink {
    pub(super) name: u64,
    pub(super) link: u8,
    pub(super) tentative: TentativeSession,
}

impl Hub {
    /// Removes a link that was answered, the first for which `is` holds.
    pub(super) fn take_joining(
        &mut self,
        key: &PublicKey,
        is: impl Fn(&TentativeLink) -> bool,
    ) -> Option<Box<TentativeLink>> {
        let joining = &mut self.peers.get_mut(key)?.joining;
        let found = joining.swap_remove(joining.iter().position(|it| is(it))?);
        self.answered.remove(&found.tentative.knock);
        self.expiries.remove(&(found.tentative.answered + CONFIRM, *key));
        Some(found)
    }

    pub(super) fn forget_joining(
        &mut self,
        core: &mut EndpointCore,
        key: &PublicKey,
        is: impl Fn(&TentativeLink) -> bool,
    ) {
        while let Some(found) = self.take_joining(key, &is) {
            core.release_index(found.tentative.index);
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
        let session = Session::new(now, config, keys, peer, true, None, &seed);
        core.queue_datagram(from, answer.clone());
        let (answered, last_answered, first_rtt) = (now, now, None);
        let rivalry = RivalryCheck::new(now, None);
        let tentative = TentativeSession {
            knock,
            answer,
            answered,
            last_answered,
            first_rtt,
            index,
            session,
            rivalry,
            succeeds: None,
        };
        let Some(known) = self.peers.get_mut(&key) else { return };
        known.joining.push(Box::new(TentativeLink { name, link, tentative }));
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
        let id = known.session;
        let mut joining = known.joining.iter_mut().map(|it| &mut it.tentative);
        let first = joining.find(|it| it.index == header.receiver)?;
        let rtt = FirstRtt::AtMost(now.saturating_since(first.answered));
        if !first.session.handle_packet(now, from, core.ecn_received, header, datagram) {
            return None;
        }
        let found = self.take_joining(&peer, |it| it.tentative.index == header.receiver)?;
        let TentativeLink { name, link, tentative: mut first } = *found;
        core.release_index(first.index);
        let id = id.filter(|id| core.session(*id).is_some_and(|session| session.name == name))?;
        first.session.begin_rtt(rtt);
        core.join(id, first.index, link, Box::new(first.session));
        Some(id)
    }
}
