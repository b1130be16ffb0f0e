//! Index of the bundles in the store and of those remembered.

use std::collections::{BTreeMap, BTreeSet};

use units::Instant;

use super::{BundleFate, BundleRecord, BundleRoute, BundleState, PeerId};
use crate::BundleId;

/// Processing state of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BundleStage {
    Waiting,
    /// The next node does not accept it at present.
    Paused(Instant),
    Sending(PeerId),
    Delivering,
    /// Its file is to be removed.
    Leaving(BundleFate),
    /// Its file is being removed.
    Removing(BundleFate),
    /// Its file could not be removed.
    Stuck(Instant, BundleFate),
}

#[derive(Debug)]
pub(super) struct StoredBundle {
    pub(super) record: BundleRecord,
    place: BundleRoute,
    /// Position in the order of arrival.
    order: u64,
    pub(super) state: BundleStage,
}

/// The bundles in the store and those remembered. Each lookup takes logarithmic time.
#[derive(Debug, Default)]
pub(super) struct BundleIndex {
    held: BTreeMap<BundleId, StoredBundle>,
    known: BTreeMap<BundleId, (BundleFate, u64)>,
    /// Remembered bundles by expiry.
    ends: BTreeSet<(u64, BundleId)>,
    arrivals: BTreeMap<u64, BundleId>,
    waiting: BTreeSet<(BundleRoute, u64, BundleId)>,
    paused: BTreeSet<(Instant, BundleId)>,
    leaving: BTreeSet<BundleId>,
    expiring: BTreeSet<(u64, BundleId)>,
    /// Number and bytes of the bundles for each place.
    shares: BTreeMap<BundleRoute, (usize, u64)>,
    next: u64,
    bytes: u64,
}

impl BundleIndex {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number and bytes of the bundles for a place.
    pub(super) fn share(&self, place: BundleRoute) -> (usize, u64) {
        self.shares.get(&place).copied().unwrap_or_default()
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        let (_, id) = self.arrivals.first_key_value()?;
        Some(self.held[id].record.arrived)
    }

    pub(super) fn remembered(&self) -> usize {
        self.known.len()
    }

    pub(super) fn get(&self, id: &BundleId) -> Option<&StoredBundle> {
        self.held.get(id)
    }

    /// Returns `true` if a bundle is in the store or remembered.
    pub(super) fn knows(&self, id: &BundleId) -> bool {
        self.held.contains_key(id) || self.known.contains_key(id)
    }

    pub(super) fn fate(&self, id: &BundleId) -> Option<BundleFate> {
        self.known.get(id).map(|(fate, _)| *fate)
    }

    pub(super) fn insert(&mut self, record: BundleRecord, place: BundleRoute, state: BundleStage) {
        let id = record.id;
        let order = self.next;
        self.next += 1;
        self.bytes += record.length;
        let share = self.shares.entry(place).or_default();
        *share = (share.0 + 1, share.1 + record.length);
        self.arrivals.insert(order, id);
        self.expiring.insert((record.expires, id));
        // `Delivering` is in none of the ordered sets; `set` enters the bundle into the one of its state.
        let replaced = self
            .held
            .insert(id, StoredBundle { record, place, order, state: BundleStage::Delivering });
        debug_assert!(replaced.is_none(), "a bundle is here once");
        self.set(&id, state);
    }

    /// Moves a bundle to another state, and between the sets that are ordered by state.
    pub(super) fn set(&mut self, id: &BundleId, state: BundleStage) {
        let Some(held) = self.held.get_mut(id) else { return };
        let place = held.place;
        let order = held.order;
        match std::mem::replace(&mut held.state, state) {
            BundleStage::Waiting => drop(self.waiting.remove(&(place, order, *id))),
            BundleStage::Paused(at) | BundleStage::Stuck(at, _) => {
                _ = self.paused.remove(&(at, *id));
            }
            BundleStage::Leaving(_) => drop(self.leaving.remove(id)),
            // Bundles in these stages are found by their identity only.
            BundleStage::Sending(_) | BundleStage::Delivering | BundleStage::Removing(_) => {}
        }
        match state {
            BundleStage::Waiting => drop(self.waiting.insert((place, order, *id))),
            BundleStage::Paused(at) | BundleStage::Stuck(at, _) => {
                _ = self.paused.insert((at, *id));
            }
            BundleStage::Leaving(_) => drop(self.leaving.insert(*id)),
            BundleStage::Sending(_) | BundleStage::Delivering | BundleStage::Removing(_) => {}
        }
    }

    pub(super) fn take(&mut self, id: &BundleId) -> Option<StoredBundle> {
        let state = self.held.get(id)?.state;
        // Removes it from all ordered sets.
        self.set(id, BundleStage::Delivering);
        let held = self.held.remove(id)?;
        self.bytes -= held.record.length;
        let share = self.shares.entry(held.place).or_default();
        *share = (share.0 - 1, share.1 - held.record.length);
        self.arrivals.remove(&held.order);
        self.expiring.remove(&(held.record.expires, *id));
        Some(StoredBundle { state, ..held })
    }

    fn first(&self, place: BundleRoute) -> impl Iterator<Item = &BundleRecord> {
        let first = BundleId([0; 16]);
        let after = self.waiting.range((place, 0, first)..);
        let of_place = after.take_while(move |(its, ..)| *its == place);
        of_place.map(|(_, _, id)| &self.held[id].record)
    }

    pub(super) fn first_for(&self, peer: PeerId) -> Option<&BundleRecord> {
        self.first(BundleRoute::Peer(peer)).next()
    }

    /// The first bundle that waits for a service of this node, or for the node itself (`None`).
    pub(super) fn first_here(&self, service: Option<&str>) -> Option<&BundleRecord> {
        let is_for = |record: &&BundleRecord| {
            record.part.is_none() && record.destination.service().as_deref() == service
        };
        self.first(BundleRoute::Here).find(is_for)
    }

    pub(super) fn first_leaving(&self) -> Option<(&BundleRecord, BundleFate)> {
        let held = self.held.get(self.leaving.first()?)?;
        let BundleStage::Leaving(fate) = held.state else { return None };
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
                Some(BundleStage::Stuck(_, fate)) => self.set(&id, BundleStage::Leaving(fate)),
                _ => self.set(&id, BundleStage::Waiting),
            }
        }
    }

    /// Bundles that have expired and are not being sent or delivered.
    pub(super) fn expired(&self, wall: u64) -> Vec<BundleId> {
        let over = self.expiring.iter().take_while(|(end, _)| *end <= wall);
        let idle = |id: &BundleId| {
            matches!(self.held[id].state, BundleStage::Waiting | BundleStage::Paused(_))
        };
        over.map(|(_, id)| *id).filter(idle).collect()
    }

    pub(super) fn remember(&mut self, id: BundleId, fate: BundleFate, until: u64) {
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

    pub(super) fn all_remembered(&self) -> impl Iterator<Item = (&BundleId, BundleFate, u64)> {
        let ending = self.held.iter().filter_map(|(id, held)| match held.state {
            BundleStage::Removing(fate) | BundleStage::Stuck(_, fate) => {
                Some((id, fate, held.record.expires))
            }
            _ => None,
        });
        let known = self.known.iter().map(|(id, (fate, until))| (id, *fate, *until));
        known.chain(ending)
    }

    pub(super) fn list(&self) -> impl Iterator<Item = (&BundleRecord, BundleState)> {
        self.arrivals.values().map(|id| {
            let held = &self.held[id];
            (&held.record, held.whereabouts())
        })
    }

    pub(super) fn whereabouts(&self, id: &BundleId) -> Option<BundleState> {
        match self.held.get(id) {
            Some(held) => Some(held.whereabouts()),
            None => self.fate(id).map(BundleState::Gone),
        }
    }
}

impl StoredBundle {
    fn whereabouts(&self) -> BundleState {
        match self.state {
            BundleStage::Leaving(fate)
            | BundleStage::Removing(fate)
            | BundleStage::Stuck(_, fate) => BundleState::Gone(fate),
            _ if self.place == BundleRoute::Here => BundleState::Arrived,
            _ => BundleState::Waiting,
        }
    }
}
