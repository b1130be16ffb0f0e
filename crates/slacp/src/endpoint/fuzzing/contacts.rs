//! The sessions of an adversary.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::contact::HostileSession;
use crate::wire::packet::{self, Datagram, Index};

/// Sessions, found by position or by index. Positions change only when a session ends.
#[derive(Default)]
pub(super) struct HostileSessions {
    all: Vec<HostileSession>,
    /// Positions by index. If two sessions have the same index, that of the later one.
    positions: BTreeMap<Index, usize>,
}

impl HostileSessions {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HostileSession> {
        self.all.iter()
    }

    pub(super) fn get_mut(&mut self, nth: usize) -> Option<&mut HostileSession> {
        self.all.get_mut(nth)
    }

    pub(super) fn push(&mut self, contact: HostileSession) {
        self.positions.insert(contact.forger.index, self.all.len());
        self.all.push(contact);
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.positions.clear();
    }

    /// Hands a packet to its session. Returns whether there is one, and the session if the
    /// packet ended it.
    pub(super) fn receive(
        &mut self,
        at: SocketAddr,
        datagram: &mut [u8],
    ) -> (bool, Option<HostileSession>) {
        let Some(Datagram::Data(header)) = packet::parse(datagram) else { return (false, None) };
        let place = self.positions.get(&header.receiver).copied();
        let Some((place, contact)) = place.and_then(|at| Some((at, self.all.get_mut(at)?))) else {
            return (false, None);
        };
        let taken = contact.receive(at, datagram);
        let ended = contact.closed.then(|| self.remove(place));
        (taken, ended)
    }

    fn remove(&mut self, place: usize) -> HostileSession {
        let gone = self.all.swap_remove(place);
        self.positions.remove(&gone.forger.index);
        if let Some(moved) = self.all.get(place) {
            self.positions.insert(moved.forger.index, place);
        }
        gone
    }
}
