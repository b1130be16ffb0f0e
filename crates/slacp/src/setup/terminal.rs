//! The terminal's side of session set-up (`docs/slacp.md`, Session set-up): one association per
//! hub.

use std::net::SocketAddr;

use units::Instant;

use crate::session::group::EndpointCore;
use crate::setup::association::HubAssociation;
use crate::wire::packet::{Echo, Index, Mac, PacketHeader};
use crate::{PublicKey, SessionId};

/// The hubs of a terminal. A datagram is matched to an association by its index, by the initiation
/// that it answers, or by the packet that it refers to.
pub(crate) struct Terminal {
    hubs: Vec<HubAssociation>,
}

impl Terminal {
    /// Creates a terminal with one hub, with which it sets up a session.
    pub(crate) fn new(hub: PublicKey, addresses: Vec<SocketAddr>) -> Self {
        Self { hubs: vec![HubAssociation::new(hub, addresses, true)] }
    }

    /// Adds a hub without a session, or replaces the addresses of a known one.
    pub(crate) fn set_addresses(&mut self, hub: PublicKey, addresses: Vec<SocketAddr>) {
        match self.find(&hub) {
            Some(known) => known.set_addresses(addresses),
            None => self.hubs.push(HubAssociation::new(hub, addresses, false)),
        }
    }

    /// Sets whether the owner wants a session with a hub. Unknown hubs are ignored.
    pub(crate) fn set_wanted(&mut self, core: &mut EndpointCore, hub: PublicKey, wanted: bool) {
        if let Some(known) = self.find(&hub) {
            known.set_wanted(core, wanted);
        }
    }

    /// Sets the key that will replace a hub's, if any. Unknown hubs are ignored.
    pub(crate) fn set_next_key(&mut self, hub: PublicKey, next: Option<PublicKey>) {
        if let Some(known) = self.find(&hub) {
            known.set_next_key(next);
        }
    }

    fn find(&mut self, hub: &PublicKey) -> Option<&mut HubAssociation> {
        self.hubs.iter_mut().find(|known| known.is_known_as(hub))
    }

    /// The links that are still to be added to a session.
    pub(crate) fn missing_links(&self, session: SessionId) -> Vec<u8> {
        self.hubs.iter().flat_map(|hub| hub.missing_links(session)).collect()
    }

    /// Number of handshakes in progress, at most one for each hub.
    pub(crate) fn handshakes(&self) -> usize {
        self.hubs.iter().filter(|hub| hub.has_handshake()).count()
    }

    pub(crate) fn poll_timeout(&self, core: &EndpointCore) -> Option<Instant> {
        self.hubs.iter().filter_map(|hub| hub.poll_timeout(core)).min()
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut EndpointCore, now: Instant) {
        self.hubs.iter_mut().for_each(|hub| hub.handle_timeout(core, now));
    }

    pub(crate) fn handle_cookie(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        receiver: Index,
        cookie: &Mac,
        answer: &[u8],
    ) {
        match self.initiating_with(receiver) {
            Some(hub) => hub.handle_cookie(core, now, receiver, cookie, answer),
            None => core.count_ignored(),
        }
    }

    pub(crate) fn handle_versions(&mut self, core: &mut EndpointCore, echo: Echo, answer: &[u8]) {
        match self.hubs.iter_mut().find(|hub| hub.is_refused_by(echo, answer)) {
            Some(hub) => hub.handle_versions(core, answer),
            None => core.count_ignored(),
        }
    }

    pub(crate) fn handle_unknown(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        header: &PacketHeader,
        hint: &[u8],
    ) {
        match self.hubs.iter_mut().find(|hub| hub.may_have_sent(core, header)) {
            Some(hub) => hub.handle_unknown(core, now, hint),
            None => core.count_ignored(),
        }
    }

    pub(crate) fn handle_response(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        sender: Index,
        receiver: Index,
        body: &[u8],
    ) {
        match self.initiating_with(receiver) {
            Some(hub) => hub.handle_response(core, now, from, sender, receiver, body),
            None => core.count_ignored(),
        }
    }

    /// The association with a handshake in progress that uses this index.
    fn initiating_with(&mut self, index: Index) -> Option<&mut HubAssociation> {
        self.hubs.iter_mut().find(|hub| hub.initiates_with(index))
    }
}
