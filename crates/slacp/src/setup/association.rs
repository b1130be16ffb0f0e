//! A terminal's association with one of its hubs: the session, and the handshake for the next one
//! (`docs/slacp.md`, Session set-up).

use core::time::Duration;
use std::net::SocketAddr;

use units::Instant;

use crate::keys::handshake::knock::KnockKey;
use crate::keys::handshake::{HandshakeError, HandshakeParams, Initiator, UnsupportedParameter};
use crate::session::group::{EndpointCore, IndexOwner};
use crate::session::{Peer, Session};
use crate::setup::joining::{JoinTarget, LinkHandshake};
use crate::wire::packet::{self, Echo, Index, Mac, PacketHeader, VERSION};
use crate::{EndpointNotice, MAX_LINKS, PublicKey, SessionId};

/// Pause of a terminal after a refusal by the hub, and minimum interval between two hints about an
/// unknown session that it believes.
const PAUSE: Duration = Duration::from_secs(5);
/// Transmissions of a message for one of two keys, before the other key has its turn.
const SENDINGS_EACH: u32 = 3;

/// A terminal's session with one hub, and the handshake for the next one.
pub(super) struct HubAssociation {
    /// The key of the hub that sessions are set up with.
    key: KnockKey,
    /// The key that will replace it, if one is known.
    next: Option<KnockKey>,
    /// The key that it has replaced, by which the owner may still name the hub.
    former: Option<PublicKey>,
    /// The last handshake was for the next key. While there are two keys, they take turns.
    for_next: bool,
    /// The owner wants a session with this hub.
    wanted: bool,
    /// Possible addresses of the hub, tried in turn by handshake messages.
    addresses: Vec<SocketAddr>,
    turn: usize,
    initiator: Option<Initiator>,
    /// The link of the handshake for the session, if there are several.
    link: u8,
    /// Handshakes for the further links of the session.
    joining: Vec<LinkHandshake>,
    session: Option<SessionId>,
    /// The token of a session that was left to the process before the hub's present one, until there is
    /// another session.
    succeeds: Option<u64>,
    /// The hub has hinted that it does not know the session.
    session_doubted: bool,
    hint_again: Instant,
    not_before: Instant,
    last_notice: Option<EndpointNotice>,
}

impl HubAssociation {
    pub(super) fn new(hub: PublicKey, addresses: Vec<SocketAddr>, wanted: bool) -> Self {
        Self {
            key: KnockKey::new(hub),
            next: None,
            former: None,
            for_next: false,
            wanted,
            addresses,
            turn: 0,
            initiator: None,
            link: 0,
            joining: Vec::new(),
            session: None,
            succeeds: None,
            session_doubted: false,
            hint_again: Instant::ZERO,
            not_before: Instant::ZERO,
            last_notice: None,
        }
    }

    /// Returns whether the key is the hub's present, next or former one.
    pub(super) fn is_known_as(&self, key: &PublicKey) -> bool {
        let next = self.next.as_ref().map(|next| &next.hub);
        self.key.hub == *key || next == Some(key) || self.former.as_ref() == Some(key)
    }

    /// Sets the key that will replace the hub's, if any. The next handshake tries it first.
    pub(super) fn set_next_key(&mut self, next: Option<PublicKey>) {
        self.next = next.filter(|next| *next != self.key.hub).map(KnockKey::new);
        // A handshake in progress keeps its key; otherwise the next one begins with the new key.
        if self.initiator.is_none() {
            self.for_next = false;
        }
    }

    /// The key of the current or last handshake.
    fn handshake_key(&self) -> &KnockKey {
        self.next.as_ref().filter(|_| self.for_next).unwrap_or(&self.key)
    }

    /// Returns whether a handshake for a session is in progress.
    pub(super) fn has_handshake(&self) -> bool {
        self.initiator.is_some()
    }

    /// Returns whether a handshake in progress uses this index.
    pub(super) fn initiates_with(&self, index: Index) -> bool {
        self.initiator.as_ref().is_some_and(|initiator| initiator.index == index)
            || self.joins_with(index).is_some()
    }

    fn joins_with(&self, index: Index) -> Option<usize> {
        self.joining.iter().position(|joining| joining.initiates_with(index))
    }

    /// The links that are still to be added to a session.
    pub(super) fn missing_links(&self, session: SessionId) -> impl Iterator<Item = u8> {
        let joining = self.joining.iter().filter(move |_| self.session == Some(session));
        joining.filter_map(LinkHandshake::missing)
    }

    /// The session that links are being added to, if any.
    fn target(&self, core: &EndpointCore) -> Option<JoinTarget> {
        let id = self.session.filter(|_| !self.joining.is_empty())?;
        let session = core.session(id).filter(|_| !core.shut)?;
        Some(JoinTarget { id, name: session.name, address: session.address() })
    }

    /// Sets whether the owner wants a session. An existing one goes on either way.
    pub(super) fn set_wanted(&mut self, core: &mut EndpointCore, wanted: bool) {
        self.wanted = wanted;
        if let Some(initiator) = self.initiator.take_if(|_| !wanted) {
            core.release_index(initiator.index);
            self.session_doubted = false;
        }
    }

    /// Replaces the addresses at which the hub is tried.
    pub(super) fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        self.addresses = addresses;
    }

    /// Returns whether a handshake is needed: there is no session, the hub does not answer on it,
    /// another process takes new sessions, or the hub has hinted that it does not know it.
    fn wants_handshake(&self, core: &EndpointCore) -> bool {
        let session = self.session.and_then(|id| core.session(id));
        let serves = |session: &Session| session.is_connected() && !session.is_succeeded();
        self.wanted && !core.shut && (self.session_doubted || !session.is_some_and(serves))
    }

    /// Releases a session whose process takes no new ones. It lives on for its streams, and the
    /// next session does not replace it.
    fn release_succeeded(&mut self, core: &mut EndpointCore) {
        let is_succeeded =
            |id: &mut SessionId| core.session(*id).is_some_and(Session::is_succeeded);
        if let Some(former) = self.session.take_if(is_succeeded) {
            self.succeeds = core.session(former).map(|session| session.token);
            // The next session starts on the same path before this one ends.
            core.store_path_memory(former);
            self.session_doubted = false;
            self.end_joining(core);
            let old = self.initiator.take();
            old.into_iter().for_each(|old| core.release_index(old.index));
        }
    }

    pub(super) fn poll_timeout(&self, core: &EndpointCore) -> Option<Instant> {
        let session = match &self.initiator {
            Some(initiator) => Some(initiator.due()),
            None => self.wants_handshake(core).then_some(self.not_before),
        };
        let joining = self.joining.iter().filter_map(LinkHandshake::poll_timeout);
        joining.filter(|_| self.target(core).is_some()).chain(session).min()
    }

    pub(super) fn handle_timeout(&mut self, core: &mut EndpointCore, now: Instant) {
        self.release_succeeded(core);
        self.continue_joining(core, now);
        let wanted = self.wants_handshake(core);
        if let Some(old) = self.initiator.take_if(|old| !wanted || core.is_stale(old, now)) {
            // The link may be down, so the next handshake takes the next one.
            self.link = (self.link + 1) % core.config.links.len().clamp(1, MAX_LINKS) as u8;
            self.session_doubted = false;
            core.release_index(old.index);
        }
        if wanted && self.initiator.is_none() && now >= self.not_before {
            self.initiator = self.initiate(core, now);
        }
        if let Some(datagram) = self.initiator.as_mut().and_then(|initiator| initiator.poll(now)) {
            if let Some(address) = self.address() {
                core.queue_datagram_on(self.link, address, datagram);
            }
            self.turn += 1;
        }
    }

    fn continue_joining(&mut self, core: &mut EndpointCore, now: Instant) {
        let Some(target) = self.target(core) else { return self.end_joining(core) };
        for joining in &mut self.joining {
            joining.handle_timeout(core, now, &self.key, &target);
        }
    }

    fn end_joining(&mut self, core: &mut EndpointCore) {
        self.joining.drain(..).for_each(|mut joining| joining.end(core));
    }

    /// Destination of the next handshake message.
    fn address(&self) -> Option<SocketAddr> {
        self.addresses.get(self.turn % self.addresses.len().max(1)).copied()
    }

    fn present(&self, core: &EndpointCore) -> Option<u64> {
        self.session.and_then(|id| core.session(id)).map(|session| session.name)
    }

    fn params(&self, core: &EndpointCore) -> HandshakeParams {
        let succeeds = self.succeeds;
        HandshakeParams { succeeds, ..core.link_params(self.link, self.present(core)) }
    }

    fn initiate(&mut self, core: &mut EndpointCore, now: Instant) -> Option<Initiator> {
        let index = core.claim_index(IndexOwner::Initiator)?;
        let params = self.params(core);
        self.for_next = self.next.is_some() && !self.for_next;
        let hub = self.handshake_key();
        let mut initiator = Initiator::new(now, &core.identity, hub, index, &params, &mut core.rng);
        if self.next.is_some() {
            initiator.send_at_most(SENDINGS_EACH);
        }
        Some(initiator)
    }

    /// Returns whether a short answer belongs to the handshake in progress.
    fn is_answered_by(&self, answer: &[u8]) -> bool {
        let initiator = self.initiator.as_ref();
        initiator.is_some_and(|initiator| initiator.is_answered_by(self.handshake_key(), answer))
    }

    /// Handles a request for a cookie, whose receiver is the handshake in progress.
    pub(super) fn handle_cookie(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        receiver: Index,
        cookie: &Mac,
        answer: &[u8],
    ) {
        if let Some(number) = self.joins_with(receiver) {
            let Some(target) = self.target(core) else { return core.count_ignored() };
            let joining = &mut self.joining[number];
            return joining.handle_cookie(core, now, &self.key, &target, cookie, answer);
        }
        let params = self.params(core);
        if !self.is_answered_by(answer) {
            return core.count_ignored();
        }
        let Some(mut initiator) = self.initiator.take() else { return };
        let hub = self.handshake_key();
        initiator.take_cookie(now, &core.identity, hub, &params, cookie, &mut core.rng);
        self.initiator = Some(initiator);
        // The cookie came from the address the last message went to, so use that one again.
        self.turn = self.turn.wrapping_sub(1);
    }

    /// Returns whether a *versions* answer refuses the handshake in progress.
    pub(super) fn is_refused_by(&self, echo: Echo, answer: &[u8]) -> bool {
        let echoed = |initiator: &Initiator| packet::echo_of(initiator.index) == echo;
        self.initiator.as_ref().is_some_and(echoed) && self.is_answered_by(answer)
    }

    /// Reports a hub that does not speak this version. It may be upgraded, so the handshake goes
    /// on.
    pub(super) fn handle_versions(&mut self, core: &mut EndpointCore, answer: &[u8]) {
        let theirs = packet::spoken(answer).to_vec();
        self.notice(core, EndpointNotice::OtherVersion { ours: VERSION, theirs });
    }

    /// Returns whether the session may have sent a packet with this header.
    pub(super) fn may_have_sent(&self, core: &EndpointCore, header: &PacketHeader) -> bool {
        let session = self.session.and_then(|id| core.session(id));
        session.is_some_and(|session| session.may_have_sent(header))
    }

    /// Handles a hint that the session is unknown. It comes from the hub or from somebody who knows
    /// its key, so it only starts a handshake: the session lives until the hub confirms the loss in
    /// that.
    pub(super) fn handle_unknown(&mut self, core: &mut EndpointCore, now: Instant, hint: &[u8]) {
        let keys = [Some(&self.key), self.next.as_ref()];
        let authentic = keys.into_iter().flatten().any(|key| key.is_answer(hint, None));
        if now < self.hint_again || !authentic {
            return core.count_ignored();
        }
        self.session_doubted = true;
        self.hint_again = now + PAUSE;
        // The hub is back, and the intervals between transmissions are meant for an absent one.
        if let Some(initiator) = &mut self.initiator {
            initiator.send_now(now);
        }
    }

    /// Handles the hub's answer to an initiation: for the session, or for one more link of it.
    pub(super) fn handle_response(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        receiver: Index,
        body: &[u8],
    ) {
        // Ends handshakes with a process that takes no new sessions: this may be an answer to one.
        self.release_succeeded(core);
        if let Some(number) = self.joins_with(receiver) {
            return self.handle_link_response(core, now, number, sender, body);
        }
        let Some(mut initiator) = self.initiator.take() else { return core.count_ignored() };
        let params = match initiator.answer(body) {
            Ok(params) => params,
            Err(error) if error.is_incompatible() => {
                return self.give_up(core, now, receiver, &error);
            }
            // The handshake goes on: an authentic answer may still come.
            Err(_) => {
                self.initiator = Some(initiator);
                return core.count_ignored();
            }
        };
        self.session_doubted = false;
        let present = self.present(core);
        if present.is_some() && params.present == present {
            // The hub still has our session: the link was down, not the hub.
            return core.release_index(receiver);
        }
        let rtt = initiator.first_rtt(now);
        self.adopt_next_key();
        let peer = Peer::new(self.key.hub, self.credible_address(from), sender, &params);
        let keys = initiator.into_keys(params.cipher(&core.params(None)));
        let seed = core.seed();
        let config = core.link_config(self.link);
        let mut session = Session::new(now, &config, keys, &peer, false, Some(rtt), &seed);
        drop(config);
        // The hub keeps the session tentative until the first data packet.
        session.ping();
        if let Some(old) = self.session.take() {
            core.replace(old);
        }
        // Links were being added to the former session.
        self.end_joining(core);
        if let Some(allowed) = params.links.filter(|_| core.has_links()) {
            session.enable_links(self.link);
            self.begin_joining(core, now, allowed);
        }
        // After a session, a notice is news even if it repeats the last.
        self.last_notice = None;
        self.succeeds = None;
        self.session = Some(core.establish(receiver, session));
    }

    fn handle_link_response(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        number: usize,
        sender: Index,
        body: &[u8],
    ) {
        let Some(target) = self.target(core) else { return core.count_ignored() };
        let joining = &mut self.joining[number];
        if let Err(error) = joining.handle_response(core, now, &self.key, &target, sender, body) {
            self.notice_incompatible(core, &error);
        }
    }

    /// The hub's address for a session whose answer came from `from`. An answer from an unknown
    /// address may be a copy, so the address that was asked is used then.
    fn credible_address(&self, from: SocketAddr) -> SocketAddr {
        let asked = self.addresses.get(self.turn.wrapping_sub(1) % self.addresses.len().max(1));
        let known = self.addresses.contains(&from);
        asked.copied().filter(|_| !known).unwrap_or(from)
    }

    /// Begins the handshakes for further links of a session, of which the hub allows `allowed`.
    fn begin_joining(&mut self, core: &EndpointCore, now: Instant, allowed: u64) {
        let links = core.config.links.len().min(MAX_LINKS) as u64;
        // A session has only the links that both sides have.
        let others = (0..links.min(allowed) as u8).filter(|link| *link != self.link);
        self.joining = others.map(|link| LinkHandshake::new(now, link)).collect();
    }

    /// Adopts the next key if the session was set up with it. The key before it is not tried again:
    /// whoever has it may have stolen it.
    fn adopt_next_key(&mut self) {
        if let Some(next) = self.next.take_if(|_| self.for_next) {
            self.former = Some(core::mem::replace(&mut self.key, next).hub);
        }
        self.for_next = false;
    }

    /// Ends the handshake and pauses: the two sides are incompatible, which will not change soon.
    fn give_up(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        index: Index,
        error: &HandshakeError,
    ) {
        core.release_index(index);
        self.session_doubted = false;
        self.not_before = now + PAUSE;
        self.notice_incompatible(core, error);
    }

    fn notice_incompatible(&mut self, core: &mut EndpointCore, error: &HandshakeError) {
        match *error {
            HandshakeError::Refused { parameter } => {
                self.notice(core, EndpointNotice::Refused { parameter });
            }
            HandshakeError::Unsupported(UnsupportedParameter { parameter }) => {
                self.notice(core, EndpointNotice::Unsupported { parameter });
            }
            HandshakeError::Noise(_) | HandshakeError::Malformed => {}
        }
    }

    /// Notifies the owner, unless the last notice was the same.
    fn notice(&mut self, core: &mut EndpointCore, notice: EndpointNotice) {
        if self.last_notice.as_ref() != Some(&notice) {
            self.last_notice = Some(notice.clone());
            core.notices.push_back(notice);
        }
    }
}
