//! A hub that takes the place of another process, which keeps the sessions that it has until they end
//! (`docs/slacp.md`, Two processes at one address).

use core::time::Duration;

use units::Instant;

use super::Hub;
use crate::keys::handshake::Responder;
use crate::{PublicKey, SiblingProcess};

/// Time for which a terminal's place is kept for the machine that has its session with the process
/// before: longer than that process lets idle terminals stay (10 s).
const RESERVED: Duration = Duration::from_secs(15);

/// The process before, and the time until which its terminals' places are kept.
pub(super) struct Succession {
    pub(super) sibling: SiblingProcess,
    reserved_until: Instant,
}

impl Hub {
    pub(crate) fn set_sibling(&mut self, now: Instant, sibling: Option<SiblingProcess>) {
        let reserved_until = now + RESERVED;
        self.succession = sibling.map(|sibling| Succession { sibling, reserved_until });
    }

    /// Returns `true` if the process before has a session of this name.
    pub(super) fn is_of_sibling(&self, name: u64) -> bool {
        let sibling = self.succession.as_ref().map(|succession| &succession.sibling);
        sibling.is_some_and(|sibling| sibling.sessions.contains(&name))
    }

    /// Returns `true` if a key's place is kept for another machine than the one with this token.
    /// Without a session of its own, this process cannot ask which of two machines was here first.
    pub(super) fn is_reserved(&self, now: Instant, key: &PublicKey, token: Option<u64>) -> bool {
        let Some(succession) = &self.succession else { return false };
        let has_session = self.peers.get(key).is_some_and(|known| known.session.is_some());
        // A token, not the session's name, which can be computed from packets.
        let owner = succession.sibling.tokens.get(key);
        let is_other = owner.is_some_and(|owner| token != Some(*owner));
        is_other && !has_session && now < succession.reserved_until
    }

    /// Returns `true` if an initiation may be answered, as far as the process before is concerned.
    /// A terminal that asks about its session there has no token, but learns that the session is
    /// alive.
    pub(super) fn may_succeed(&self, now: Instant, responder: &Responder) -> bool {
        let Ok(params) = &responder.params else { return true };
        if !self.is_reserved(now, &responder.peer, params.succeeds) {
            return true;
        }
        let asks = params.present.is_some_and(|name| self.is_of_sibling(name));
        let key = &responder.peer;
        let tentative = self.tentative(key);
        let awaited =
            tentative.is_some_and(|session| !self.is_reserved(now, key, session.succeeds));
        asks && !awaited
    }
}
