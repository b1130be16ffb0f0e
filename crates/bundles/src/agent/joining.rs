//! The parts of bundles for this node, which wait to be joined.

use std::collections::{BTreeMap, BTreeSet};

use units::Instant;

use super::{Agent, Fate, Incoming, JOINING, Part, Place, Record, State};
use crate::parts::{MOST_PARTS, needed};
use crate::{BundleId, Fragment, Refusal, Summary};

/// A whole, and its length: parts that do not agree on that are not of the same.
type Key = (BundleId, u64);
/// Parts in the order of their places, with their lengths.
type Group = BTreeMap<(Fragment, BundleId), u64>;

/// Parts to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The identity of the whole.
    pub whole: BundleId,
    /// The parts that it takes, in the order of their places.
    pub parts: Vec<BundleId>,
    key: Key,
}

/// The parts for this node, by the wholes that they belong to.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<Key, Group>,
    /// Those that may be complete.
    ready: BTreeSet<Key>,
    /// Those that could not be joined, and when to try again.
    later: BTreeSet<(Instant, Key)>,
    joining: Option<Key>,
}

impl Groups {
    fn insert(&mut self, id: BundleId, part: &Part) {
        let key = (part.whole, part.place.total);
        self.groups.entry(key).or_default().insert((part.place, id), part.length);
        self.ready.insert(key);
    }

    pub(super) fn remove(&mut self, id: BundleId, part: &Part) {
        let key = (part.whole, part.place.total);
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.remove(&(part.place, id));
        if group.is_empty() {
            self.groups.remove(&key);
        }
    }

    /// Whether every byte of a part is here.
    fn covers(&self, part: &Part) -> bool {
        let Some(group) = self.groups.get(&(part.whole, part.place.total)) else { return false };
        let (mut until, end) = (part.place.offset, part.place.end(part.length));
        for ((place, _), length) in group {
            if place.offset <= until {
                until = until.max(place.end(*length));
            }
        }
        until >= end
    }

    fn count(&self, part: &Part) -> usize {
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

impl Part {
    /// Which part of which whole a bundle is.
    pub(super) fn of(bundle: &Summary) -> Option<Self> {
        let length = bundle.payload.len() as u64;
        bundle.fragment.map(|place| Self { whole: bundle.whole, place, length })
    }
}

impl Agent {
    /// Whether a part for this node is of use.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn is_new_part(&self, place: Place, bundle: &Summary) -> Result<bool, Refusal> {
        let Some(part) = Part::of(bundle).filter(|_| place == Place::Here) else { return Ok(true) };
        if self.index.knows(&part.whole) || self.groups.covers(&part) {
            return Ok(false);
        }
        if self.groups.count(&part) >= MOST_PARTS {
            return Err(Refusal::TooLarge);
        }
        Ok(true)
    }

    pub(super) fn keep_part(&mut self, record: &Record, place: Place) {
        if let Some(part) = record.part.as_ref().filter(|_| place == Place::Here) {
            self.groups.insert(record.id, part);
        }
    }

    /// Parts to join, one bundle at a time: until [`Self::joined`] or [`Self::not_joined`], or
    /// [`Self::offer_joined`] has none of it. The whole takes room in the store that may be beyond its
    /// limit, until the parts are removed.
    pub fn poll_join(&mut self) -> Option<Join> {
        if self.groups.joining.is_some() {
            return None;
        }
        while let Some(key) = self.groups.ready.pop_first() {
            if self.index.knows(&key.0) {
                self.end_joining(key);
                continue;
            }
            let is_whole = |it: &Incoming| it.place.is_some() && it.id == Some(key.0);
            if self.incoming.values().any(is_whole) {
                // It comes in another way, and the disk may take it or not.
                self.groups.ready.insert(key);
                return None;
            }
            let Some(group) = self.groups.groups.get(&key) else { continue };
            let parts = group.iter().map(|((place, id), length)| (*place, *length, *id));
            let Some(parts) = needed(key.1, parts) else { continue };
            parts.iter().for_each(|id| self.index.set(id, State::Delivering));
            self.groups.joining = Some(key);
            return Some(Join { whole: key.0, parts, key });
        }
        None
    }

    /// Parts have become this bundle. Returns what to store; [`None`] if it is not theirs, or has come in
    /// another way: the parts then leave. `now` is in milliseconds since 1970.
    pub fn offer_joined(&mut self, join: &Join, now: u64, bundle: &Summary) -> Option<Record> {
        let is_theirs = bundle.id == join.whole && bundle.fragment.is_none();
        if !is_theirs || self.index.knows(&bundle.id) {
            self.end_joining(join.key);
            return None;
        }
        Some(Record::new(bundle, now))
    }

    /// The disk has the whole: its parts leave.
    pub fn joined(&mut self, join: &Join, record: Record) {
        self.stats.joined += 1;
        self.place(record);
        self.end_joining(join.key);
    }

    /// The disk did not take the whole, or did not give a part. It is tried again.
    pub fn not_joined(&mut self, now: Instant, join: &Join) {
        join.parts.iter().for_each(|id| self.index.set(id, State::Waiting));
        self.groups.later.insert((now + JOINING, join.key));
        self.groups.joining = None;
    }

    /// Whether parts are becoming this bundle.
    pub(super) fn is_joining(&self, id: &BundleId) -> bool {
        self.groups.joining.is_some_and(|(whole, _)| whole == *id)
    }

    /// The parts of a whole leave: they were delivered with it.
    fn end_joining(&mut self, key: Key) {
        self.groups.joining.take_if(|joining| *joining == key);
        for (_, id) in self.groups.groups.remove(&key).unwrap_or_default().into_keys() {
            self.index.set(&id, State::Leaving(Fate::Delivered));
        }
    }
}
