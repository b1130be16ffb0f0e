//! The terminal's handshakes for the further links of a session (`docs/slacp.md`, Links).

use core::time::Duration;
use std::net::SocketAddr;

use units::Instant;

use crate::SessionId;
use crate::keys::handshake::knock::KnockKey;
use crate::keys::handshake::{HandshakeError, HandshakeParams, Initiator};
use crate::session::group::{EndpointCore, IndexOwner};
use crate::session::{Peer, SessionPath};
use crate::wire::packet::{Index, Mac};

/// Pause of a terminal after the hub has refused a link.
const PAUSE: Duration = Duration::from_secs(5);

/// Time in which a new link must carry its first acknowledgement. The hub forgets an answered link
/// that was not used after the same time.
const PROOF: Duration = Duration::from_secs(30);

/// The handshake that adds one link to a session.
pub(super) struct LinkHandshake {
    link: u8,
    initiator: Option<Initiator>,
    not_before: Instant,
    state: LinkHandshakeState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkHandshakeState {
    ShakingHands,
    /// The hub has answered; the link must carry an acknowledgement by then.
    Unproven(Instant),
    Joined,
}

/// The session that links are added to, and the address of its hub.
pub(super) struct JoinTarget {
    pub(super) id: SessionId,
    pub(super) name: u64,
    pub(super) address: SocketAddr,
}

impl LinkHandshake {
    pub(super) fn new(now: Instant, link: u8) -> Self {
        Self { link, initiator: None, not_before: now, state: LinkHandshakeState::ShakingHands }
    }

    /// The link, if it is not part of the session yet.
    pub(super) fn missing(&self) -> Option<u8> {
        (self.state == LinkHandshakeState::ShakingHands).then_some(self.link)
    }

    /// Returns whether its handshake uses this index.
    pub(super) fn initiates_with(&self, index: Index) -> bool {
        self.initiator.as_ref().is_some_and(|initiator| initiator.index == index)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            LinkHandshakeState::ShakingHands => {
                Some(self.initiator.as_ref().map_or(self.not_before, Initiator::due))
            }
            LinkHandshakeState::Unproven(until) => Some(until),
            LinkHandshakeState::Joined => None,
        }
    }

    /// Aborts the handshake and releases its index.
    pub(super) fn end(&mut self, core: &mut EndpointCore) {
        if let Some(initiator) = self.initiator.take() {
            core.release_index(initiator.index);
        }
    }

    pub(super) fn handle_timeout(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        hub: &KnockKey,
        target: &JoinTarget,
    ) {
        match self.state {
            LinkHandshakeState::Unproven(until) if until <= now => {
                let session = core.session(target.id);
                let proven = session.is_some_and(|session| session.has_proven(self.link));
                self.state = if proven {
                    LinkHandshakeState::Joined
                } else {
                    LinkHandshakeState::ShakingHands
                };
            }
            _ => {}
        }
        if self.state != LinkHandshakeState::ShakingHands || now < self.not_before {
            return;
        }
        if let Some(old) = self.initiator.take_if(|old| old.is_stale(now)) {
            core.release_index(old.index);
        }
        if self.initiator.is_none() {
            let params = self.params(core, target);
            let index = core.claim_index(IndexOwner::Initiator);
            let new =
                |index| Initiator::new(now, &core.identity, hub, index, &params, &mut core.rng);
            self.initiator = index.map(new);
        }
        if let Some(datagram) = self.initiator.as_mut().and_then(|initiator| initiator.poll(now)) {
            core.queue_datagram_on(self.link, target.address, datagram);
        }
    }

    fn params(&self, core: &EndpointCore, target: &JoinTarget) -> HandshakeParams {
        HandshakeParams { join: Some(target.name), ..core.link_params(self.link, None) }
    }

    pub(super) fn handle_cookie(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        hub: &KnockKey,
        target: &JoinTarget,
        cookie: &Mac,
        answer: &[u8],
    ) {
        let params = self.params(core, target);
        match &mut self.initiator {
            Some(initiator) if initiator.is_answered_by(hub, answer) => {
                initiator.take_cookie(now, &core.identity, hub, &params, cookie, &mut core.rng);
            }
            _ => core.count_ignored(),
        }
    }

    /// Handles the hub's answer to the handshake in progress: the link joins the session, or the
    /// hub refuses it. Returns an error if the two sides are incompatible.
    pub(super) fn handle_response(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        hub: &KnockKey,
        target: &JoinTarget,
        sender: Index,
        body: &[u8],
    ) -> Result<(), HandshakeError> {
        let Some(mut initiator) = self.initiator.take() else {
            core.count_ignored();
            return Ok(());
        };
        let receiver = initiator.index;
        let params = match initiator.answer(body) {
            // A hub that accepts the link confirms the session by name.
            Ok(params) if params.join == Some(target.name) => params,
            Ok(_) => {
                self.pause(core, now, receiver);
                return Ok(());
            }
            Err(error) if error.is_incompatible() => {
                self.pause(core, now, receiver);
                return Err(error);
            }
            // The handshake goes on: an authentic answer may still come.
            Err(_) => {
                self.initiator = Some(initiator);
                core.count_ignored();
                return Ok(());
            }
        };
        self.state = LinkHandshakeState::Unproven(now + PROOF);
        let rtt = initiator.first_rtt(now);
        let peer = Peer::new(hub.hub, target.address, sender, &params);
        let cipher = params.cipher(&core.params(None));
        let keys = initiator.into_keys(cipher);
        let seed = core.seed();
        let config = core.link_config(self.link);
        let mut path = SessionPath::new(now, &config, keys, &peer, true, Some(rtt), &seed);
        path.join(self.link, receiver);
        drop(config);
        core.join(target.id, path);
        Ok(())
    }

    fn pause(&mut self, core: &mut EndpointCore, now: Instant, index: Index) {
        self.not_before = now + PAUSE;
        core.release_index(index);
    }
}
