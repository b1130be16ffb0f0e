//! The hub's side of session set-up (`docs/slacp.md`, Session set-up).

mod calls;
mod links;
mod rivals;
mod succession;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use units::{ByteCount, Instant};

use self::links::TentativeLink;
use self::rivals::RivalryCheck;
use self::succession::Succession;
use crate::keys::handshake::knock::KnockKey;
use crate::keys::handshake::{self, HandshakeParams, Responder};
use crate::recovery::path::rtt::FirstRtt;
use crate::session::group::{EndpointCore, IndexOwner};
use crate::session::{self, Peer, Session};
use crate::setup::dispatch::PartAssignments;
use crate::setup::foreign::ReportLimiter;
use crate::setup::gate::AdmissionGate;
use crate::setup::own::TerminalOverrides;
use crate::setup::replacement::ReplacementPolicy;
use crate::setup::strangers::{Stranger, StrangerTable};
use crate::wire::packet::{self, Datagram, Echo, Index, MAC, Mac, PacketHeader, VERSION};
use crate::{
    AggregateId, CloseReason, Config, EndpointNotice, HandshakeEffort, InitiationHandover, KeyPair,
    MAX_LINKS, PublicKey, Rate, SessionId, TerminalContact,
};

/// Time for which an answered handshake waits for the terminal's first packet.
const CONFIRM: Duration = Duration::from_secs(30);
/// Minimum interval between answers to the same initiation.
const ANSWER_AGAIN: Duration = Duration::from_millis(200);
/// Another handshake with the same key within this time counts as failed: a terminal waits a second
/// for the answer to its first message.
const MIN_HANDSHAKE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of an initiation; longer ones are ignored. Initiations of every version fit in the
/// smallest IPv6 packet: 1280 bytes less the IP and UDP headers.
const MAX_INITIATION: usize = 1280 - 40 - 8;

/// A key of the hub, and the knocks that belong to it.
struct HubIdentity {
    pair: KeyPair,
    knock_key: KnockKey,
}

impl HubIdentity {
    fn new(pair: KeyPair) -> Self {
        Self { knock_key: KnockKey::new(pair.public()), pair }
    }
}

/// An initiation whose knock is right.
#[derive(Debug, Clone, Copy)]
struct VerifiedInitiation {
    from: SocketAddr,
    sender: Index,
    knock: Mac,
    /// Which of the hub's keys it is for.
    identity: usize,
    /// It has the cookie of its sender's address, which its sender has received there.
    proven: bool,
}

/// The terminals that a hub serves. Strangers leave no state behind but a bounded table.
pub(crate) struct Hub {
    /// The keys that it answers to, at least one. There are two while one replaces another.
    identities: Vec<HubIdentity>,
    /// Hashes computed with keys that are no longer there.
    hashes_before: u64,
    /// Number of hints sent, which take turns with the keys.
    hints: usize,
    gate: AdmissionGate,
    peers: BTreeMap<PublicKey, KnownPeer>,
    own: TerminalOverrides,
    /// The key whose tentative session was created by the initiation with this knock.
    answered: BTreeMap<Mac, PublicKey>,
    /// When the tentative session of each key expires.
    expiries: BTreeSet<(Instant, PublicKey)>,
    /// When to look again at the newcomer with each key.
    rivalries: BTreeSet<(Instant, PublicKey)>,
    /// Reports about terminals of other versions.
    foreign: ReportLimiter<(IpAddr, u8)>,
    /// Machines that are not served.
    strangers: StrangerTable,
    /// Number of initiations decrypted, of terminals and strangers.
    initiations_read: u64,
    /// Which terminals belong to another part of the hub.
    dispatch: PartAssignments,
    /// Another process at the same address.
    succession: Option<Succession>,
    /// Terminals to be called, and when the next one is.
    calls: VecDeque<TerminalContact>,
    next_call: Instant,
}

/// The number of the link that a handshake came over, if both sides have several.
fn link_of(ours: &HandshakeParams, theirs: &HandshakeParams) -> Option<u8> {
    ours.links.and(theirs.links).and_then(|link| u8::try_from(link).ok())
}

#[derive(Default)]
struct KnownPeer {
    session: Option<SessionId>,
    tentative: Option<Box<TentativeSession>>,
    /// Further links of the session that were answered, at most one of each number.
    joining: Vec<TentativeLink>,
    replacement: ReplacementPolicy,
}

/// An initiation that the hub has answered.
struct AnsweredInitiation {
    knock: Mac,
    /// Where it came from.
    from: SocketAddr,
    /// The answer, repeated for the same message from the same address.
    answer: Vec<u8>,
    answered: Instant,
    last_answered: Instant,
    /// The index of the packets that follow.
    index: Index,
}

/// A session that the hub has answered. It replaces the current one when the terminal first uses
/// it, which a replayed initiation never achieves.
struct TentativeSession {
    initiation: AnsweredInitiation,
    /// An upper bound of the round-trip time, from the first data packet.
    first_rtt: Option<FirstRtt>,
    session: Session,
    /// The decision about the session in use that it would replace.
    rivalry: RivalryCheck,
    /// The token by which the terminal succeeds to a session of the process before.
    succeeds: Option<u64>,
}

impl Hub {
    pub(crate) fn new(identity: KeyPair, allow: Vec<PublicKey>, gate: AdmissionGate) -> Self {
        let peers = allow.into_iter().map(|key| (key, KnownPeer::default())).collect();
        Self {
            identities: vec![HubIdentity::new(identity)],
            hashes_before: 0,
            hints: 0,
            gate,
            peers,
            answered: BTreeMap::new(),
            expiries: BTreeSet::new(),
            rivalries: BTreeSet::new(),
            foreign: ReportLimiter::default(),
            strangers: StrangerTable::default(),
            own: TerminalOverrides::default(),
            initiations_read: 0,
            dispatch: PartAssignments::default(),
            succession: None,
            calls: VecDeque::new(),
            next_call: Instant::ZERO,
        }
    }

    /// The same, of the first part of a hub that has `parts`.
    pub(crate) fn divided_into(mut self, parts: u8) -> Self {
        self.dispatch = PartAssignments::new(parts);
        self.dispatch.set_allowed(&self.peers.keys().copied().collect());
        self
    }

    /// Replaces the keys that the hub answers to; none of them changes nothing.
    pub(crate) fn set_identities(&mut self, pairs: Vec<KeyPair>) {
        if !pairs.is_empty() {
            self.hashes_before += self.hashes();
            self.identities = pairs.into_iter().map(HubIdentity::new).collect();
        }
    }

    /// Hashes computed with the present keys.
    fn hashes(&self) -> u64 {
        self.identities.iter().map(|identity| identity.knock_key.hashes()).sum()
    }

    /// Keeps terminals that share a link in one part of the hub.
    pub(crate) fn set_aggregates(&mut self, of: &BTreeMap<PublicKey, AggregateId>) {
        self.dispatch.set_aggregates(of);
    }

    /// Replaces the set of terminals served.
    pub(crate) fn set_allowed(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        allow: Vec<PublicKey>,
    ) {
        let allow: BTreeSet<PublicKey> = allow.into_iter().collect();
        self.dispatch.set_allowed(&allow);
        let gone: Vec<PublicKey> =
            self.peers.keys().filter(|key| !allow.contains(key)).copied().collect();
        for key in gone {
            self.forget_tentative(core, &key);
            self.forget_joining(core, &key, |_| true);
            if let Some(session) = self.peers.remove(&key).and_then(|known| known.session) {
                core.close(now, session, CloseReason::Prohibited);
            }
        }
        for key in allow {
            self.strangers.forget(&key);
            self.peers.entry(key).or_default();
        }
    }

    /// Overrides the memory limits of these terminals, from their next session on.
    pub(crate) fn set_memory(&mut self, memory: BTreeMap<PublicKey, ByteCount>) {
        self.own.memory = memory;
    }

    /// Overrides the rates on links towards these terminals, from their next session on.
    pub(crate) fn set_link_rates(&mut self, rates: BTreeMap<PublicKey, BTreeMap<u8, Rate>>) {
        self.own.link_rates = rates;
    }

    /// Sets the source addresses of packets from these terminals, from their next session on.
    pub(crate) fn set_packet_addresses(
        &mut self,
        addresses: BTreeMap<PublicKey, Option<Ipv4Addr>>,
    ) {
        self.own.addresses = addresses;
    }

    /// Removes the tentative session of a key.
    fn take_tentative(&mut self, key: &PublicKey) -> Option<Box<TentativeSession>> {
        let tentative = self.peers.get_mut(key)?.tentative.take()?;
        self.answered.remove(&tentative.initiation.knock);
        self.expiries.remove(&(tentative.initiation.answered + CONFIRM, *key));
        self.end_rivalry(key, &tentative.rivalry);
        Some(tentative)
    }

    fn forget_tentative(&mut self, core: &mut EndpointCore, key: &PublicKey) {
        if let Some(tentative) = self.take_tentative(key) {
            core.release_index(tentative.initiation.index);
        }
    }

    fn put_tentative(&mut self, key: PublicKey, tentative: TentativeSession) {
        let Some(known) = self.peers.get_mut(&key) else { return };
        self.answered.insert(tentative.initiation.knock, key);
        self.expiries.insert((tentative.initiation.answered + CONFIRM, key));
        known.tentative = Some(Box::new(tentative));
    }

    /// The work that handshakes have cost so far.
    pub(crate) fn effort(&self) -> HandshakeEffort {
        let hashes = self.hashes_before + self.hashes() + self.gate.hashes();
        HandshakeEffort { hashes, handshakes: self.initiations_read }
    }

    /// Number of answered handshakes waiting for their terminals.
    pub(crate) fn handshakes(&self) -> usize {
        self.answered.len()
    }

    pub(crate) fn handle_initiation(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        datagram: &[u8],
    ) {
        if core.refuses_sessions() || datagram.len() > MAX_INITIATION {
            return core.count_ignored();
        }
        let Some(request) = self.verify_knock(from, sender, datagram) else {
            return self.reject_stranger(core, now, from, None);
        };
        let knock = request.knock;
        if self.answered.contains_key(&knock) {
            return self.answer_again(core, now, &request);
        }
        if let Some(part) = self.dispatch.repeated(now, &knock) {
            return core.hand_over(part, from, datagram, true);
        }
        let request = self.check_cookie(now, request, datagram);
        if !self.admits_handshake(core, now, &request) {
            return;
        }
        let proven = request.proven;
        let responder = self.read_initiation(core, &request, datagram);
        let stranger = responder.as_ref().map(|responder| responder.peer);
        let responder = responder.filter(|responder| self.peers.contains_key(&responder.peer));
        // A thousand terminals behind one address need a thousand handshakes, so only those in vain
        // count against their network.
        let fails = |responder: &Responder| self.had_recent_handshake(now, &responder.peer);
        if proven && responder.as_ref().is_none_or(fails) {
            self.gate.record_failure(now, from);
        }
        let Some(responder) = responder else {
            return match stranger {
                Some(key) => self.reject_stranger(core, now, from, Some(key)),
                None => core.count_ignored(),
            };
        };
        if let Some(part) = self.dispatch.pass_on(now, &responder.peer, knock) {
            return core.hand_over(part, from, datagram, false);
        }
        self.admit(core, now, &request, responder);
    }

    /// Leaves a stranger without an answer.
    fn reject_stranger(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        key: Option<PublicKey>,
    ) {
        // A sealed "not permitted" would break the silence that SECURITY.md promises.
        core.count_ignored();
        core.notices.extend(self.strangers.record(now, from, key));
    }

    /// The machines that asked lately and are not served.
    pub(crate) fn strangers(&self, now: Instant) -> impl Iterator<Item = &Stranger> {
        self.strangers.all(now)
    }

    /// An initiation of any version, if its knock is right.
    fn verify_knock(
        &self,
        from: SocketAddr,
        sender: Index,
        datagram: &[u8],
    ) -> Option<VerifiedInitiation> {
        let (identity, knock) = self.knock(datagram)?;
        Some(VerifiedInitiation { from, sender, knock, identity, proven: false })
    }

    /// The knock of an initiation, and which of the hub's keys it is for.
    fn knock(&self, datagram: &[u8]) -> Option<(usize, Mac)> {
        let knocks = self.identities.iter().map(|own| own.knock_key.check(datagram));
        knocks.enumerate().find_map(|(identity, knock)| Some((identity, knock?)))
    }

    /// Handles an initiation that the first part of the hub has let pass.
    pub(crate) fn handle_handover(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        handover: &InitiationHandover,
    ) {
        let InitiationHandover { from, datagram, is_repeated, .. } = handover;
        let Some(Datagram::Initiation { sender }) = packet::parse(datagram) else { return };
        if core.refuses_sessions() {
            return;
        }
        let Some(request) = self.verify_knock(*from, sender, datagram) else { return };
        if self.answered.contains_key(&request.knock) {
            return self.answer_again(core, now, &request);
        }
        let request = self.check_cookie(now, request, datagram);
        // One without an answer came before this part served its terminal, or was held off. The first part
        // has not counted the repeat, which anyone can send.
        if *is_repeated && !self.admits_handshake(core, now, &request) {
            return;
        }
        let responder = self.read_initiation(core, &request, datagram);
        match responder.filter(|responder| self.peers.contains_key(&responder.peer)) {
            Some(responder) => self.admit(core, now, &request, responder),
            None => core.count_ignored(),
        }
    }

    /// Returns whether to spend Diffie–Hellman operations on an initiation. Otherwise its sender is asked for a
    /// cookie, or ignored if it has one.
    fn admits_handshake(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        request: &VerifiedInitiation,
    ) -> bool {
        if request.proven {
            let admitted = self.gate.admits_proven(now, request.from);
            if !admitted {
                core.count_ignored();
            }
            return admitted;
        }
        let admitted = self.gate.admits_unproven(now);
        if !admitted {
            self.ask_for_cookie(core, now, request);
        }
        admitted
    }

    /// Looks whether an initiation has the cookie of its sender's address.
    fn check_cookie(
        &self,
        now: Instant,
        request: VerifiedInitiation,
        initiation: &[u8],
    ) -> VerifiedInitiation {
        let cookie = handshake::cookie_of(initiation);
        let proven = cookie.is_some_and(|cookie| self.gate.is_cookie(now, request.from, cookie));
        VerifiedInitiation { proven, ..request }
    }

    /// Answers an authentic initiation of a terminal that is served, unless it is held off.
    fn admit(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        request: &VerifiedInitiation,
        responder: Responder,
    ) {
        // A replayed message must not displace the session of a fresh one.
        if !request.proven && self.tentative(&responder.peer).is_some() {
            return self.ask_for_cookie(core, now, request);
        }
        if !self.may_succeed(now, &responder)
            || !self.screens(core, now, request.from, &responder.peer)
        {
            return core.count_ignored();
        }
        self.answer(core, now, request, responder);
    }

    /// Reads an initiation. This costs more than all checks before it.
    fn read_initiation(
        &mut self,
        core: &mut EndpointCore,
        request: &VerifiedInitiation,
        initiation: &[u8],
    ) -> Option<Responder> {
        self.initiations_read += 1;
        let own = &self.identities.get(request.identity)?.pair;
        Responder::read(own, initiation, &mut core.rng).ok()
    }

    fn tentative(&self, key: &PublicKey) -> Option<&TentativeSession> {
        self.peers.get(key)?.tentative.as_deref()
    }

    /// Returns `true` if the key had another handshake a moment ago ([`MIN_HANDSHAKE_INTERVAL`]).
    fn had_recent_handshake(&self, now: Instant, key: &PublicKey) -> bool {
        self.tentative(key)
            .is_some_and(|tentative| now < tentative.initiation.answered + MIN_HANDSHAKE_INTERVAL)
            || self.dispatch.had_recent_initiation(now, key, MIN_HANDSHAKE_INTERVAL)
    }

    /// Answers an initiation of another version. The knock is in the same place in every version.
    pub(crate) fn handle_foreign(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        version: u8,
        echo: Echo,
        datagram: &[u8],
    ) {
        if !core.has_answer_room() || datagram.len() > MAX_INITIATION {
            return core.count_ignored();
        }
        let Some((identity, knock)) = self.knock(datagram) else { return core.count_ignored() };
        if self.foreign.is_news(now, (from.ip(), version)) {
            let notice =
                EndpointNotice::ForeignTerminal { address: from, ours: VERSION, theirs: version };
            core.notices.push_back(notice);
        }
        // No answer is longer than its question, whose source may be forged.
        let answer = self.identities[identity].knock_key.versions(echo, &knock);
        if answer.len() <= datagram.len() {
            core.queue_answer(from, answer);
        }
    }

    /// Answers a packet of an unknown session, perhaps one from before a restart. Anyone can send
    /// these, so the most expensive check comes last.
    pub(crate) fn handle_unknown(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        header: &PacketHeader,
        size: usize,
    ) {
        core.count_ignored();
        let sibling = self.succession.as_ref().map(|succession| &succession.sibling);
        if sibling.is_some_and(|sibling| sibling.indices.contains(header.receiver)) {
            return;
        }
        let hint = packet::unknown(header);
        let answered = hint.len() + MAC <= size && core.has_answer_room();
        if answered && self.gate.admits_hint(now, from) {
            // Which key the terminal knows is not in its packet. It sends more of them.
            let own = &self.identities[self.hints % self.identities.len()].knock_key;
            self.hints = self.hints.wrapping_add(1);
            core.queue_answer(from, own.seal_answer(hint, None));
        }
    }

    fn ask_for_cookie(&self, core: &mut EndpointCore, now: Instant, request: &VerifiedInitiation) {
        if !core.has_answer_room() {
            return;
        }
        let VerifiedInitiation { from, sender, knock, identity, .. } = request;
        let cookie = self.gate.cookie(now, *from);
        let own = &self.identities[*identity].knock_key;
        core.queue_answer(*from, own.cookie_request(*sender, &cookie, knock));
    }

    /// Handles a repeated initiation. The answer was lost, or somebody replays the message; in the
    /// latter case the terminal must prove its address.
    fn answer_again(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        request: &VerifiedInitiation,
    ) {
        let from = request.from;
        let known = self.answered.get(&request.knock).and_then(|key| self.peers.get_mut(key));
        let all = known.map(|known| {
            let joining = known.joining.iter_mut().map(|link| &mut link.initiation);
            known.tentative.iter_mut().map(|session| &mut session.initiation).chain(joining)
        });
        let found =
            all.and_then(|mut all| all.find(|initiation| initiation.knock == request.knock));
        let Some(initiation) = found else { return };
        if initiation.from != from {
            return self.ask_for_cookie(core, now, request);
        }
        if now >= initiation.last_answered + ANSWER_AGAIN {
            initiation.last_answered = now;
            core.queue_datagram(from, initiation.answer.clone());
        }
    }

    fn answer(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        request: &VerifiedInitiation,
        responder: Responder,
    ) {
        let VerifiedInitiation { from, sender, knock, .. } = *request;
        let params = match responder.params {
            Ok(params) => params,
            Err(unsupported) => {
                return core.queue_datagram(from, responder.refusal(sender, unsupported));
            }
        };
        let key = responder.peer;
        if let Some(name) = params.join {
            return self.answer_link(core, now, request, responder, name, params);
        }
        if self.awaits_session(&key, params.present) {
            return core.count_ignored();
        }
        let Some(index) = core.claim_index(IndexOwner::Tentative(key)) else {
            return core.count_ignored();
        };
        self.forget_tentative(core, &key);
        let Some(known) = self.peers.get(&key) else { return };
        let live = known.session.and_then(|id| core.session(id)).map(|session| session.name);
        let present =
            params.present.filter(|name| live == Some(*name) || self.is_of_sibling(*name));
        let peer = Peer::new(key, from, sender, &params);
        let (own, ours) = self.ours(core, &key, present, &params);
        let (answer, keys) = responder.answer(index, sender, &ours, ours.cipher(&params));
        let seed = core.seed();
        let config = own.as_ref().unwrap_or(&core.config);
        let mut session = Session::new(now, config, keys, &peer, true, None, &seed);
        if let Some(link) = link_of(&ours, &params) {
            session.enable_links(link);
        }
        core.queue_datagram(from, answer.clone());
        let rivalry = self.begin_rivalry(core, now, from, &key);
        let succeeds = params.succeeds;
        let (answered, last_answered) = (now, now);
        let tentative = TentativeSession {
            initiation: AnsweredInitiation { knock, from, answer, answered, last_answered, index },
            first_rtt: None,
            session,
            rivalry,
            succeeds,
        };
        self.put_tentative(key, tentative);
    }

    /// The configuration of a session, if it differs from the usual one, and the parameters that
    /// answer those of the terminal.
    fn ours(
        &self,
        core: &EndpointCore,
        key: &PublicKey,
        present: Option<u64>,
        theirs: &HandshakeParams,
    ) -> (Option<Config>, HandshakeParams) {
        let mut own = self.own.of(&core.config, key);
        let mut ours = HandshakeParams { address: None, ..core.params(present) };
        if let Some(own) = &own {
            ours.limits = session::limits(own);
        }
        let links = &own.as_ref().unwrap_or(&core.config).links;
        let links = &links[..links.len().min(MAX_LINKS)];
        let number = theirs.links.and_then(|link| usize::try_from(link).ok());
        if core.has_links()
            && let Some(rate) = number.and_then(|number| links.get(number)).cloned()
        {
            ours.links = Some(links.len() as u64);
            (ours.rate, ours.times) = (rate.initial(), Some(rate.is_measured()));
            let usual = own.take().unwrap_or_else(|| core.config.clone());
            own = Some(Config { rate, ..usual });
        }
        let ours = self.own.address(key, theirs, ours);
        (own, ours)
    }

    /// Puts a tentative session into use on its first packet, and returns it, unless the one in use is
    /// still there.
    pub(crate) fn handle_first_data(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        peer: PublicKey,
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        let known = self.peers.get_mut(&peer)?;
        let tentative = known.tentative.as_mut()?;
        // The answer may have been repeated, and so may the packet.
        let rtt = FirstRtt::AtMost(now.saturating_since(tentative.initiation.answered));
        if !tentative.session.handle_packet(now, from, core.ecn_received, header, datagram) {
            return None;
        }
        tentative.first_rtt = tentative.first_rtt.or(Some(rtt));
        let succeeds = tentative.succeeds;
        if self.is_reserved(now, &peer, succeeds) {
            self.forget_tentative(core, &peer);
            return None;
        }
        if !self.may_replace(core, now, from, &peer) {
            return None;
        }
        self.promote(core, &peer)
    }

    /// Puts the tentative session of a key into use, in place of the one before.
    fn promote(&mut self, core: &mut EndpointCore, key: &PublicKey) -> Option<SessionId> {
        let mut tentative = self.take_tentative(key)?;
        let known = self.peers.get_mut(key)?;
        let old = known.session.take();
        if old.is_some() {
            known.replacement.replaced();
        }
        tentative.first_rtt.into_iter().for_each(|rtt| tentative.session.begin_rtt(rtt));
        if let Some(old) = old {
            core.replace(old);
        }
        let established = core.establish(tentative.initiation.index, tentative.session);
        self.peers.get_mut(key)?.session = Some(established);
        Some(established)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.expiries.first().map(|(expiry, _)| *expiry);
        let call = (!self.calls.is_empty()).then_some(self.next_call);
        expiry.into_iter().chain(call).chain(self.next_rivalry()).min()
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut EndpointCore, now: Instant) {
        while let Some((at, key)) = self.expiries.first().copied().filter(|(at, _)| *at <= now) {
            let expires = |initiation: &AnsweredInitiation| initiation.answered + CONFIRM <= now;
            self.forget_joining(core, &key, |link| expires(&link.initiation));
            if self.tentative(&key).is_some_and(|session| expires(&session.initiation)) {
                self.forget_tentative(core, &key);
            }
            self.expiries.remove(&(at, key));
        }
        self.follow_rivalries(core, now);
        self.follow_calls(core, now);
    }
}
