//! The sessions of an adversary.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::contact::Contact;
use crate::wire::packet::{self, Datagram, Index};

/// Sessions, found by position or by index. Positions change only when a session ends.
#[derive(Default)]
pub(super) struct Contacts {
    all: Vec<Contact>,
    /// Positions by index. If two sessions have the same index, that of the later one.
    places: BTreeMap<Index, usize>,
}

impl Contacts {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Contact> {
        self.all.iter()
    }

    pub(super) fn get_mut(&mut self, nth: usize) -> Option<&mut Contact> {
        self.all.get_mut(nth)
    }

    pub(super) fn push(&mut self, contact: Contact) {
        self.places.insert(contact.forger.index, self.all.len());
        self.all.push(contact);
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.places.clear();
    }

    /// Hands a packet to its session. Returns whether there is one, and the session if the
    /// packet ended it.
    pub(super) fn receive(
        &mut self,
        at: SocketAddr,
        datagram: &mut [u8],
    ) -> (bool, Option<Contact>) {
        let Some(Datagram::Data(header)) = packet::parse(datagram) else { return (false, None) };
        let place = self.places.get(&header.receiver).copied();
        let Some((place, contact)) = place.and_then(|at| Some((at, self.all.get_mut(at)?))) else {
            return (false, None);
        };
        let taken = contact.receive(at, datagram);
        let ended = contact.closed.then(|| self.remove(place));
        (taken, ended)
    }

    fn remove(&mut self, place: usize) -> Contact {
        let gone = self.all.swap_remove(place);
        self.places.remove(&gone.forger.index);
        if let Some(moved) = self.all.get(place) {
            self.places.insert(moved.forger.index, place);
        }
        gone
    }
}
