//! Index of the bundles in the store and of those remembered.

use std::collections::{BTreeMap, BTreeSet};

use units::Instant;

use super::{Fate, PeerId, Place, Record, Whereabouts};
use crate::BundleId;

/// Processing state of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    /// The next node does not accept it at present.
    Paused(Instant),
    Sending(PeerId),
    Delivering,
    /// Its file is to be removed.
    Leaving(Fate),
    /// Its file is being removed.
    Removing(Fate),
    /// Its file could not be removed.
    Stuck(Instant, Fate),
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) record: Record,
    place: Place,
    /// Position in the order of arrival.
    order: u64,
    pub(super) state: State,
}

/// The bundles in the store and those remembered. Each lookup takes logarithmic time.
#[derive(Debug, Default)]
pub(super) struct Index {
    held: BTreeMap<BundleId, Held>,
    known: BTreeMap<BundleId, (Fate, u64)>,
    /// Remembered bundles by expiry.
    ends: BTreeSet<(u64, BundleId)>,
    arrivals: BTreeMap<u64, BundleId>,
    waiting: BTreeSet<(Place, u64, BundleId)>,
    paused: BTreeSet<(Instant, BundleId)>,
    leaving: BTreeSet<BundleId>,
    expiring: BTreeSet<(u64, BundleId)>,
    /// Number and bytes of the bundles for each place.
    shares: BTreeMap<Place, (usize, u64)>,
    next: u64,
    bytes: u64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number and bytes of the bundles for a place.
    pub(super) fn share(&self, place: Place) -> (usize, u64) {
        self.shares.get(&place).copied().unwrap_or_default()
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        let (_, id) = self.arrivals.first_key_value()?;
        Some(self.held[id].record.arrived)
    }

    pub(super) fn remembered(&self) -> usize {
        self.known.len()
    }

    pub(super) fn get(&self, id: &BundleId) -> Option<&Held> {
        self.held.get(id)
    }

    /// Returns `true` if a bundle is in the store or remembered.
    pub(super) fn knows(&self, id: &BundleId) -> bool {
        self.held.contains_key(id) || self.known.contains_key(id)
    }

    pub(super) fn fate(&self, id: &BundleId) -> Option<Fate> {
        self.known.get(id).map(|(fate, _)| *fate)
    }

    pub(super) fn insert(&mut self, record: Record, place: Place, state: State) {
        let (id, order) = (record.id, self.next);
        self.next += 1;
        self.bytes += record.length;
        let share = self.shares.entry(place).or_default();
        *share = (share.0 + 1, share.1 + record.length);
        self.arrivals.insert(order, id);
        self.expiring.insert((record.expires, id));
        // `Delivering` is in none of the ordered sets; `set` enters the bundle into the one of its state.
        let replaced =
            self.held.insert(id, Held { record, place, order, state: State::Delivering });
        debug_assert!(replaced.is_none(), "a bundle is here once");
        self.set(&id, state);
    }

    /// Moves a bundle to another state, and between the sets that are ordered by state.
    pub(super) fn set(&mut self, id: &BundleId, state: State) {
        let Some(held) = self.held.get_mut(id) else { return };
        let (place, order) = (held.place, held.order);
        match std::mem::replace(&mut held.state, state) {
            State::Waiting => drop(self.waiting.remove(&(place, order, *id))),
            State::Paused(at) | State::Stuck(at, _) => drop(self.paused.remove(&(at, *id))),
            State::Leaving(_) => drop(self.leaving.remove(id)),
            State::Sending(_) | State::Delivering | State::Removing(_) => {}
        }
        match state {
            State::Waiting => drop(self.waiting.insert((place, order, *id))),
            State::Paused(at) | State::Stuck(at, _) => drop(self.paused.insert((at, *id))),
            State::Leaving(_) => drop(self.leaving.insert(*id)),
            State::Sending(_) | State::Delivering | State::Removing(_) => {}
        }
    }

    pub(super) fn take(&mut self, id: &BundleId) -> Option<Held> {
        let state = self.held.get(id)?.state;
        // Removes it from all ordered sets.
        self.set(id, State::Delivering);
        let held = self.held.remove(id)?;
        self.bytes -= held.record.length;
        let share = self.shares.entry(held.place).or_default();
        *share = (share.0 - 1, share.1 - held.record.length);
        self.arrivals.remove(&held.order);
        self.expiring.remove(&(held.record.expires, *id));
        Some(Held { state, ..held })
    }

    fn first(&self, place: Place) -> impl Iterator<Item = &Record> {
        let first = BundleId([0; 16]);
        let after = self.waiting.range((place, 0, first)..);
        let of_place = after.take_while(move |(its, ..)| *its == place);
        of_place.map(|(_, _, id)| &self.held[id].record)
    }

    pub(super) fn first_for(&self, peer: PeerId) -> Option<&Record> {
        self.first(Place::Peer(peer)).next()
    }

    /// The first bundle that waits for a service of this node, or for the node itself (`None`).
    pub(super) fn first_here(&self, service: Option<&str>) -> Option<&Record> {
        let is_for =
            |it: &&Record| it.part.is_none() && it.destination.service().as_deref() == service;
        self.first(Place::Here).find(is_for)
    }

    pub(super) fn first_leaving(&self) -> Option<(&Record, Fate)> {
        let held = self.held.get(self.leaving.first()?)?;
        let State::Leaving(fate) = held.state else { return None };
        Some((&held.record, fate))
    }

    pub(super) fn first_paused(&self) -> Option<Instant> {
        self.paused.first().map(|(at, _)| *at)
    }

    /// Ends the pauses that are over.
    pub(super) fn unpause(&mut self, now: Instant) {
        while let Some((at, id)) = self.paused.first().copied()
            && at <= now
        {
            match self.held.get(&id).map(|held| held.state) {
                Some(State::Stuck(_, fate)) => self.set(&id, State::Leaving(fate)),
                _ => self.set(&id, State::Waiting),
            }
        }
    }

    /// Bundles that have expired and are not being sent or delivered.
    pub(super) fn expired(&self, wall: u64) -> Vec<BundleId> {
        let over = self.expiring.iter().take_while(|(end, _)| *end <= wall);
        let idle = |id: &BundleId| matches!(self.held[id].state, State::Waiting | State::Paused(_));
        over.map(|(_, id)| *id).filter(idle).collect()
    }

    pub(super) fn remember(&mut self, id: BundleId, fate: Fate, until: u64) {
        if let Some((_, before)) = self.known.insert(id, (fate, until)) {
            self.ends.remove(&(before, id));
        }
        self.ends.insert((until, id));
    }

    /// Forgets bundles that have expired: nodes that respect lifetimes do not send them again.
    pub(super) fn forget(&mut self, wall: u64) {
        while let Some((end, id)) = self.ends.first().copied()
            && end <= wall
        {
            self.ends.pop_first();
            self.known.remove(&id);
        }
    }

    pub(super) fn all_remembered(&self) -> impl Iterator<Item = (&BundleId, Fate, u64)> {
        let ending = self.held.iter().filter_map(|(id, held)| match held.state {
            State::Removing(fate) | State::Stuck(_, fate) => Some((id, fate, held.record.expires)),
            _ => None,
        });
        let known = self.known.iter().map(|(id, (fate, until))| (id, *fate, *until));
        known.chain(ending)
    }

    pub(super) fn list(&self) -> impl Iterator<Item = (&Record, Whereabouts)> {
        self.arrivals.values().map(|id| {
            let held = &self.held[id];
            (&held.record, held.whereabouts())
        })
    }

    pub(super) fn whereabouts(&self, id: &BundleId) -> Option<Whereabouts> {
        match self.held.get(id) {
            Some(held) => Some(held.whereabouts()),
            None => self.fate(id).map(Whereabouts::Gone),
        }
    }
}

impl Held {
    fn whereabouts(&self) -> Whereabouts {
        match self.state {
            State::Leaving(fate) | State::Removing(fate) | State::Stuck(_, fate) => {
                Whereabouts::Gone(fate)
            }
            _ if self.place == Place::Here => Whereabouts::Arrived,
            _ => Whereabouts::Waiting,
        }
    }
}
