//! The hub's part in setting up sessions (`docs/slacp.md`, Session set-up).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use units::Instant;

use crate::endpoint::{Core, Owner};
use crate::foreign::Reported;
use crate::gate::Gate;
use crate::handshake::{self, Responder};
use crate::knock::Mac;
use crate::packet::{self, Echo, Header, Index, VERSION};
use crate::rtt::FirstRtt;
use crate::session::{Peer, Session};
use crate::{CloseReason, Notice, PublicKey, SessionId};

/// How long an answer waits for the terminal to use it.
const CONFIRM: Duration = Duration::from_secs(30);
/// The same initiation is answered no more often than this.
const ANSWER_AGAIN: Duration = Duration::from_millis(200);

/// The terminals that a hub serves. Strangers leave nothing behind.
pub(crate) struct Hub {
    gate: Gate,
    peers: BTreeMap<PublicKey, KnownPeer>,
    /// Whose tentative session the initiation with this knock has made.
    answered: BTreeMap<Mac, PublicKey>,
    /// Terminals of other versions.
    foreign: Reported,
}

#[derive(Default)]
struct KnownPeer {
    session: Option<SessionId>,
    tentative: Option<Tentative>,
}

/// A session that the hub has answered for. It replaces the present one when
/// the terminal uses it; a replayed first message never gets that far.
struct Tentative {
    /// Of the first message.
    knock: Mac,
    /// The answer to it, given again to the same message from the same address.
    answer: Vec<u8>,
    answered: Instant,
    last_answered: Instant,
    index: Index,
    session: Session,
}

impl Hub {
    pub(crate) fn new(allow: Vec<PublicKey>, gate: Gate) -> Self {
        let peers = allow.into_iter().map(|key| (key, KnownPeer::default())).collect();
        Self { gate, peers, answered: BTreeMap::new(), foreign: Reported::default() }
    }

    /// Serves these from now on.
    pub(crate) fn set_allowed(&mut self, core: &mut Core, now: Instant, allow: Vec<PublicKey>) {
        let allow: BTreeSet<PublicKey> = allow.into_iter().collect();
        let gone: Vec<PublicKey> =
            self.peers.keys().filter(|key| !allow.contains(key)).copied().collect();
        for known in gone.iter().filter_map(|key| self.peers.remove(key)) {
            if let Some(tentative) = known.tentative {
                self.answered.remove(&tentative.knock);
                core.release_index(tentative.index);
            }
            if let Some(session) = known.session {
                core.close(now, session, CloseReason::Prohibited);
            }
        }
        for key in allow {
            self.peers.entry(key).or_default();
        }
    }

    /// How many answers wait for their terminals.
    pub(crate) fn handshakes(&self) -> usize {
        self.answered.len()
    }

    pub(crate) fn handle_initiation(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        datagram: &[u8],
    ) {
        let knock = core.knocker.check(datagram).filter(|_| !core.shut);
        let Some(knock) = knock else { return core.ignore() };
        if self.answered.contains_key(&knock) {
            return self.answer_again(core, now, from, sender, &knock);
        }
        let cookie = handshake::cookie_of(datagram);
        let proven = cookie.is_some_and(|cookie| self.gate.is_cookie(now, from, cookie));
        if !proven && !self.gate.admits_unproven(now) {
            return self.ask_for_cookie(core, now, from, sender, &knock);
        }
        if proven && !self.gate.admits_proven(now, from) {
            return core.ignore();
        }
        let Ok(responder) = Responder::read(&core.identity, datagram, &mut core.rng) else {
            return core.ignore();
        };
        let Some(known) = self.peers.get(&responder.peer) else { return core.ignore() };
        // An old message sent again must not push out what a fresh one has made.
        if known.tentative.is_some() && !proven {
            return self.ask_for_cookie(core, now, from, sender, &knock);
        }
        self.answer(core, now, from, sender, knock, responder);
    }

    /// A first message of another version. Every version has its knock at the
    /// same place.
    pub(crate) fn handle_foreign(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        version: u8,
        echo: Echo,
        datagram: &[u8],
    ) {
        let Some(knock) = core.knocker.check(datagram) else { return core.ignore() };
        if self.foreign.is_news(now, from.ip(), version) {
            let (ours, theirs) = (VERSION, version);
            core.notices.push_back(Notice::ForeignTerminal { address: from, ours, theirs });
        }
        let answer = core.knocker.versions(echo, &knock);
        if answer.len() <= datagram.len() {
            core.answer_later(from, answer);
        }
    }

    /// A packet of a session that there is not: perhaps of before a restart.
    pub(crate) fn handle_unknown(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        size: usize,
    ) {
        core.ignore();
        let hint = core.knocker.seal_answer(packet::unknown(header), None);
        if hint.len() <= size && self.gate.admits_hint(now, from) {
            core.answer_later(from, hint);
        }
    }

    fn ask_for_cookie(
        &self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        knock: &Mac,
    ) {
        let cookie = self.gate.cookie(now, from);
        let request = core.knocker.cookie_request(sender, &cookie, knock);
        core.answer_later(from, request);
    }

    /// The answer was lost, or somebody else sends the same message: then the
    /// terminal proves which address is its own.
    fn answer_again(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        knock: &Mac,
    ) {
        let known = self.answered.get(knock).and_then(|key| self.peers.get_mut(key));
        let Some(tentative) = known.and_then(|known| known.tentative.as_mut()) else { return };
        if tentative.session.peer.address != from {
            return self.ask_for_cookie(core, now, from, sender, knock);
        }
        if now >= tentative.last_answered + ANSWER_AGAIN {
            tentative.last_answered = now;
            core.send_later(from, tentative.answer.clone());
        }
    }

    fn answer(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        knock: Mac,
        responder: Responder,
    ) {
        let params = match responder.params {
            Ok(params) => params,
            Err(unsupported) => {
                return core.send_later(from, responder.refusal(sender, unsupported));
            }
        };
        let key = responder.peer;
        let Some(index) = core.claim_index(Owner::Tentative(key)) else { return core.ignore() };
        let Some(known) = self.peers.get_mut(&key) else { return };
        if let Some(old) = known.tentative.take() {
            self.answered.remove(&old.knock);
            core.release_index(old.index);
        }
        let live = known.session.and_then(|id| core.session(id)).map(|session| session.name);
        let present = live.filter(|name| params.present == Some(*name));
        let (limits, times) = (params.limits, params.times);
        let peer = Peer { key, address: from, index: sender, limits, times };
        let ours = core.params(present);
        let (answer, keys) = responder.answer(index, sender, &ours, ours.cipher(&params));
        let seed = core.seed();
        let session = Session::new(now, &core.config, keys, peer, true, None, &seed);
        core.send_later(from, answer.clone());
        self.answered.insert(knock, key);
        let (answered, last_answered) = (now, now);
        known.tentative =
            Some(Tentative { knock, answer, answered, last_answered, index, session });
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
        // The answer may have been given again, and the packet sent again.
        let rtt = FirstRtt::AtMost(now.saturating_since(tentative.answered));
        if !tentative.session.handle_packet(now, from, header, datagram) {
            known.tentative = Some(tentative);
            return;
        }
        self.answered.remove(&tentative.knock);
        tentative.session.begin_rtt(rtt);
        if let Some(old) = known.session.take() {
            core.replace(old);
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
                self.answered.remove(&tentative.knock);
                core.release_index(tentative.index);
            }
        }
    }
}
