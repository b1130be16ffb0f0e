//! Fragments of bundles for this node, which wait to be joined.

use std::collections::{BTreeMap, BTreeSet};

use units::Instant;

use super::{
    Agent, BundleArrival, BundleFate, BundleRecord, BundleRoute, BundleStage, FragmentRecord,
    JOIN_PAUSE,
};
use crate::parts::{MOST_PARTS, needed};
use crate::{BundleId, BundleRefusal, BundleSummary, FragmentPosition};

/// Identity and total length of a whole: fragments with different totals do not belong together.
type GroupKey = (BundleId, u64);
/// Fragments in the order of their offsets, with their lengths.
type FragmentGroup = BTreeMap<(FragmentPosition, BundleId), u64>;

/// Fragments to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentJoin {
    /// The identity of the whole.
    pub whole: BundleId,
    /// The fragments needed, in the order of their offsets.
    pub parts: Vec<BundleId>,
    key: GroupKey,
}

/// Fragments for this node, grouped by the whole that they belong to.
#[derive(Debug, Default)]
pub(super) struct FragmentGroups {
    groups: BTreeMap<GroupKey, FragmentGroup>,
    /// Groups that may be complete.
    ready: BTreeSet<GroupKey>,
    /// Groups that could not be joined, and the time of the next attempt.
    later: BTreeSet<(Instant, GroupKey)>,
    joining: Option<GroupKey>,
}

impl FragmentGroups {
    fn insert(&mut self, id: BundleId, part: &FragmentRecord) {
        let key = (part.whole, part.place.total);
        self.groups.entry(key).or_default().insert((part.place, id), part.length);
        self.ready.insert(key);
    }

    pub(super) fn remove(&mut self, id: BundleId, part: &FragmentRecord) {
        let key = (part.whole, part.place.total);
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.remove(&(part.place, id));
        if group.is_empty() {
            self.groups.remove(&key);
        }
    }

    /// Returns `true` if every byte of a fragment has arrived already.
    fn covers(&self, part: &FragmentRecord) -> bool {
        let Some(group) = self.groups.get(&(part.whole, part.place.total)) else { return false };
        let mut until = part.place.offset;
        let end = part.place.end(part.length);
        for ((place, _), length) in group {
            if place.offset <= until {
                until = until.max(place.end(*length));
            }
        }
        until >= end
    }

    fn count(&self, part: &FragmentRecord) -> usize {
        self.groups.get(&(part.whole, part.place.total)).map_or(0, BTreeMap::len)
    }

    pub(super) fn first_later(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, key)) = self.later.first().copied()
            && at <= now
        {
            self.later.pop_first();
            self.ready.insert(key);
        }
    }
}

impl FragmentRecord {
    /// Describes a bundle as a fragment, if it is one.
    pub(super) fn of(bundle: &BundleSummary) -> Option<Self> {
        let length = bundle.payload.len() as u64;
        bundle.fragment.map(|place| Self { whole: bundle.whole, place, length })
    }
}

impl Agent {
    /// Returns `true` if a fragment for this node contains new bytes, or the bundle is no such fragment.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn is_new_part(
        &self,
        place: BundleRoute,
        bundle: &BundleSummary,
    ) -> Result<bool, BundleRefusal> {
        // Fragments for other nodes are forwarded as they are.
        let Some(part) = FragmentRecord::of(bundle).filter(|_| place == BundleRoute::Here) else {
            return Ok(true);
        };
        if self.index.knows(&part.whole) || self.groups.covers(&part) {
            return Ok(false);
        }
        if self.groups.count(&part) >= MOST_PARTS {
            return Err(BundleRefusal::TooLarge);
        }
        Ok(true)
    }

    pub(super) fn keep_part(&mut self, record: &BundleRecord, place: BundleRoute) {
        if let Some(part) = record.part.as_ref().filter(|_| place == BundleRoute::Here) {
            self.groups.insert(record.id, part);
        }
    }

    /// Returns fragments to join, of one whole at a time until [`Self::joined`] or [`Self::not_joined`], or
    /// until [`Self::offer_joined`] returns [`None`]. The whole may exceed the limit of the store until its
    /// fragments are removed.
    pub fn poll_join(&mut self) -> Option<FragmentJoin> {
        if self.groups.joining.is_some() {
            return None;
        }
        while let Some(key) = self.groups.ready.pop_first() {
            // The whole has arrived by itself meanwhile.
            if self.index.knows(&key.0) {
                self.end_joining(key);
                continue;
            }
            let is_whole =
                |arrival: &BundleArrival| arrival.place.is_some() && arrival.id == Some(key.0);
            if self.incoming.values().any(is_whole) {
                // The whole is also arriving by itself, and the disk may or may not accept it.
                self.groups.ready.insert(key);
                return None;
            }
            let Some(group) = self.groups.groups.get(&key) else { continue };
            let parts = group.iter().map(|((place, id), length)| (*place, *length, *id));
            let Some(parts) = needed(key.1, parts) else { continue };
            parts.iter().for_each(|id| self.index.set(id, BundleStage::Delivering));
            self.groups.joining = Some(key);
            return Some(FragmentJoin { whole: key.0, parts, key });
        }
        None
    }

    /// Handles the bundle made of the fragments. Returns the record to store; [`None`] if it is not the
    /// expected whole or has arrived by itself: its fragments are then removed. `now` is in milliseconds
    /// since 1970.
    pub fn offer_joined(
        &mut self,
        join: &FragmentJoin,
        now: u64,
        bundle: &BundleSummary,
    ) -> Option<BundleRecord> {
        let is_theirs = bundle.id == join.whole && bundle.fragment.is_none();
        if !is_theirs || self.index.knows(&bundle.id) {
            self.end_joining(join.key);
            return None;
        }
        Some(BundleRecord::new(bundle, now))
    }

    /// Records that the disk has the whole: its fragments are removed.
    pub fn joined(&mut self, join: &FragmentJoin, record: BundleRecord) {
        self.stats.joined += 1;
        self.place(record);
        self.end_joining(join.key);
    }

    /// Handles a whole that could not be stored, or a fragment that could not be read; it is tried again
    /// later.
    pub fn not_joined(&mut self, now: Instant, join: &FragmentJoin) {
        join.parts.iter().for_each(|id| self.index.set(id, BundleStage::Waiting));
        self.groups.later.insert((now + JOIN_PAUSE, join.key));
        self.groups.joining = None;
    }

    /// Returns `true` while fragments of this bundle are being joined.
    pub(super) fn is_joining(&self, id: &BundleId) -> bool {
        self.groups.joining.is_some_and(|(whole, _)| whole == *id)
    }

    /// Removes the fragments of a whole: they were delivered with it.
    fn end_joining(&mut self, key: GroupKey) {
        self.groups.joining.take_if(|joining| *joining == key);
        for (_, id) in self.groups.groups.remove(&key).unwrap_or_default().into_keys() {
            self.index.set(&id, BundleStage::Leaving(BundleFate::Delivered));
        }
    }
}
