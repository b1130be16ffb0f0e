//! Calls to the terminals of a hub that has lost its sessions, which would otherwise notice only
//! with their next packet (`docs/slacp.md`, Lost sessions).

use super::{Endpoint, EndpointRole};
use std::collections::BTreeMap;

use units::Instant;

use crate::{PublicKey, SiblingProcess, TerminalContact};

impl Endpoint {
    /// The last contact with each session's peer, for a process that replaces this endpoint without
    /// its sessions.
    pub fn contacts(&self) -> Vec<TerminalContact> {
        let usable = self.core.sessions.with_indices().filter(|(_, session)| session.is_usable());
        let contact = |(index, session): (u32, &crate::session::Session)| TerminalContact {
            address: session.address(),
            index,
            number: session.last_number(),
        };
        usable.map(contact).collect()
    }

    /// The names of all sessions. They are not secret, but only for processes of this hub.
    pub fn names(&self) -> Vec<u64> {
        let usable = self.core.sessions.iter().filter(|(_, session)| session.is_usable());
        usable.map(|(_, session)| session.name).collect()
    }

    /// The secret by which each peer proves to the process that takes this one's place that it has the
    /// session here.
    pub fn succession_tokens(&self) -> BTreeMap<PublicKey, u64> {
        let usable = self.core.sessions.iter().filter(|(_, session)| session.is_usable());
        usable.map(|(_, session)| (session.peer.key, session.token)).collect()
    }

    /// Sets the sessions that another process at a hub's address has. Terminals that ask for a new
    /// session learn that theirs still exists, and packets of those sessions get no answer. `None`
    /// when that process has ended. Has no effect on a terminal.
    pub fn set_sibling(&mut self, now: Instant, sibling: Option<SiblingProcess>) {
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_sibling(now, sibling);
        }
    }

    /// Tells terminals that their sessions with this hub are lost, a thousand a second. Each then
    /// starts a handshake. A terminal whose session is not lost keeps it. Replaces the rest of an
    /// earlier call. Has no effect on a terminal.
    pub fn call(&mut self, contacts: Vec<TerminalContact>) {
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.call(contacts);
        }
    }
}
