//! The terminal's side of session set-up (`docs/slacp.md`, Session set-up).

use core::time::Duration;
use std::net::SocketAddr;

use units::Instant;

use crate::endpoint::{Core, Owner};
use crate::session::{Peer, Session};
use crate::setup::handshake::{HandshakeError, Initiator, Params};
use crate::setup::knock::Mac;
use crate::wire::packet::{self, Echo, Header, Index, VERSION};
use crate::{Notice, SessionId};

/// How long a terminal waits after a refusal by the hub, and how long it ignores further hints that
/// its session is unknown.
const PAUSE: Duration = Duration::from_secs(5);

/// A terminal's session, and the handshake for the next one.
pub(crate) struct Terminal {
    /// Possible addresses of the hub, tried in turn by handshake messages.
    addresses: Vec<SocketAddr>,
    turn: usize,
    initiator: Option<Initiator>,
    session: Option<SessionId>,
    /// The hub seems not to know the session.
    doubted: bool,
    hint_again: Instant,
    not_before: Instant,
    last_notice: Option<Notice>,
}

impl Terminal {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            turn: 0,
            initiator: None,
            session: None,
            doubted: false,
            hint_again: Instant::ZERO,
            not_before: Instant::ZERO,
            last_notice: None,
        }
    }

    /// Number of handshakes in progress, 0 or 1.
    pub(crate) fn handshakes(&self) -> usize {
        usize::from(self.initiator.is_some())
    }

    /// Whether a handshake is needed: there is no session, the hub does not answer on it, or the
    /// hub says that it has none.
    fn wants_handshake(&self, core: &Core) -> bool {
        let session = self.session.and_then(|id| core.session(id));
        !core.shut && (self.doubted || !session.is_some_and(Session::is_reachable))
    }

    pub(crate) fn poll_timeout(&self, core: &Core) -> Option<Instant> {
        match &self.initiator {
            Some(initiator) => Some(initiator.due()),
            None => self.wants_handshake(core).then_some(self.not_before),
        }
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        let wanted = self.wants_handshake(core);
        if let Some(old) = self.initiator.take_if(|old| !wanted || old.is_stale(now)) {
            self.doubted = false;
            core.release_index(old.index);
        }
        if wanted && self.initiator.is_none() && now >= self.not_before {
            self.initiator = self.initiate(core, now);
        }
        if let Some(datagram) = self.initiator.as_mut().and_then(|initiator| initiator.poll(now)) {
            if let Some(address) = self.address() {
                core.send_later(address, datagram);
            }
            self.turn += 1;
        }
    }

    /// Destination of the next handshake message.
    fn address(&self) -> Option<SocketAddr> {
        self.addresses.get(self.turn % self.addresses.len().max(1)).copied()
    }

    fn present(&self, core: &Core) -> Option<u64> {
        self.session.and_then(|id| core.session(id)).map(|session| session.name)
    }

    fn initiate(&self, core: &mut Core, now: Instant) -> Option<Initiator> {
        let index = core.claim_index(Owner::Initiator)?;
        let params = core.params(self.present(core));
        Some(Initiator::new(now, &core.identity, &core.knock_key, index, &params, &mut core.rng))
    }

    /// The handshake that a short answer belongs to.
    fn answered(&mut self, core: &Core, answer: &[u8]) -> Option<&mut Initiator> {
        let initiator = self.initiator.as_mut()?;
        initiator.is_answered_by(&core.knock_key, answer).then_some(initiator)
    }

    pub(crate) fn handle_cookie(
        &mut self,
        core: &mut Core,
        now: Instant,
        receiver: Index,
        cookie: &Mac,
        answer: &[u8],
    ) {
        let params = core.params(self.present(core));
        match self.answered(core, answer).filter(|initiator| initiator.index == receiver) {
            Some(initiator) => {
                let (identity, knock_key) = (&core.identity, &core.knock_key);
                initiator.take_cookie(now, identity, knock_key, &params, cookie, &mut core.rng);
                // The cookie came from the address the last message went to, so use that one again.
                self.turn = self.turn.wrapping_sub(1);
            }
            None => core.ignore(),
        }
    }

    /// Handles a hub that does not speak our version. It may be upgraded, so the handshake goes on.
    pub(crate) fn handle_versions(&mut self, core: &mut Core, echo: Echo, answer: &[u8]) {
        let answered = self.answered(core, answer);
        if answered.is_none_or(|initiator| packet::echo_of(initiator.index) != echo) {
            return core.ignore();
        }
        let theirs = packet::spoken(answer).to_vec();
        self.notice(core, Notice::OtherVersion { ours: VERSION, theirs });
    }

    /// Handles a hint that the session is unknown. It comes from the hub or from somebody who knows
    /// its key, so it is only a reason to ask: the session lives until the hub confirms the loss in
    /// a handshake.
    pub(crate) fn handle_unknown(
        &mut self,
        core: &mut Core,
        now: Instant,
        header: &Header,
        hint: &[u8],
    ) {
        let session = self.session.and_then(|id| core.session(id));
        let sent = session.is_some_and(|session| session.may_have_sent(header));
        if !sent || now < self.hint_again || !core.knock_key.is_answer(hint, None) {
            return core.ignore();
        }
        self.doubted = true;
        self.hint_again = now + PAUSE;
        // The hub is there again, so there is no need to wait for the next retry.
        if let Some(initiator) = &mut self.initiator {
            initiator.send_now(now);
        }
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
        let params = match initiator.answer(body) {
            Ok(params) => params,
            Err(HandshakeError::Refused { parameter }) => {
                return self.give_up(core, now, receiver, Notice::Refused { parameter });
            }
            Err(HandshakeError::Unsupported(unsupported)) => {
                let notice = Notice::Unsupported { parameter: unsupported.parameter };
                return self.give_up(core, now, receiver, notice);
            }
            Err(_) => {
                self.initiator = Some(initiator);
                return core.ignore();
            }
        };
        self.doubted = false;
        let present = self.present(core);
        if present.is_some() && params.present == present {
            // The hub still has our session: the link was down, not the hub.
            return core.release_index(receiver);
        }
        let rtt = initiator.first_rtt(now);
        let key = core.knock_key.hub;
        // From an address other than the one asked: perhaps a copy of the answer.
        let asked = self.addresses.get(self.turn.wrapping_sub(1) % self.addresses.len().max(1));
        let known = self.addresses.contains(&from);
        let address = asked.copied().filter(|_| !known).unwrap_or(from);
        let Params { limits, rate, times, ecn, link_layer, .. } = params;
        let peer = Peer { key, address, index: sender, limits, rate, times, ecn, link_layer };
        let keys = initiator.into_keys(params.cipher(&core.params(None)));
        let seed = core.seed();
        let mut session = Session::new(now, &core.config, keys, peer, false, Some(rtt), &seed);
        session.ping();
        if let Some(old) = self.session.take() {
            core.replace(old);
        }
        self.last_notice = None;
        self.session = Some(core.establish(receiver, session));
    }

    /// The two sides are incompatible, which will not change soon.
    fn give_up(&mut self, core: &mut Core, now: Instant, index: Index, notice: Notice) {
        core.release_index(index);
        self.doubted = false;
        self.not_before = now + PAUSE;
        self.notice(core, notice);
    }

    fn notice(&mut self, core: &mut Core, notice: Notice) {
        if self.last_notice.as_ref() != Some(&notice) {
            self.last_notice = Some(notice.clone());
            core.notices.push_back(notice);
        }
    }
}
