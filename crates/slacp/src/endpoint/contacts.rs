//! A hub that has lost its sessions calls its terminals, instead of waiting until each has something to
//! send (`docs/slacp.md`, Lost sessions).

use super::{Endpoint, Role};
use std::collections::BTreeMap;

use units::Instant;

use crate::{Contact, PublicKey, Sibling};

impl Endpoint {
    /// How each session's peer was last heard. For whoever takes this endpoint's place without its
    /// sessions.
    pub fn contacts(&self) -> Vec<Contact> {
        let usable = self.core.sessions.with_indices().filter(|(_, session)| session.is_usable());
        let contact = |(index, session): (u32, &crate::session::Session)| Contact {
            address: session.peer.address,
            index,
            number: session.last_number(),
        };
        usable.map(contact).collect()
    }

    /// The names of all sessions. Not secret, but no one else's business.
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

    /// Tells a hub which sessions are another process's at its address. Terminals that ask for a new
    /// session hear that theirs is still there, and packets of those sessions get no answer. [`None`]
    /// when that process has ended. Has no effect on a terminal.
    pub fn set_sibling(&mut self, now: Instant, sibling: Option<Sibling>) {
        if let Role::Hub(hub) = &mut self.role {
            hub.set_sibling(now, sibling);
        }
    }

    /// Tells terminals that their sessions with this hub are lost, a thousand a second. Each then asks
    /// for a new one. A terminal whose session is not lost keeps it. Replaces what an earlier call has
    /// not yet said. Has no effect on a terminal.
    pub fn call(&mut self, contacts: Vec<Contact>) {
        if let Role::Hub(hub) = &mut self.role {
            hub.call(contacts);
        }
    }
}
