//! Divides a few slots fairly among askers, which form groups. Each asker and each group has a maximum
//! share; among those waiting, the group with fewest slots in use is served first, and within it the asker
//! with fewest. No I/O, no clock.

use std::collections::{BTreeMap, VecDeque};

/// Limit on the waiting requests of a group, as a multiple of its share.
const WAITING: usize = 4;

/// Slots of askers identified by `K` in groups identified by `G`; `T` is a waiting request.
#[derive(Debug)]
pub struct FairSlots<G, K, T> {
    /// Number of slots for all askers together.
    most: usize,
    served: usize,
    groups: BTreeMap<G, SlotGroup<K, T>>,
    /// Counter of requests that had to wait, which orders them by arrival.
    arrivals: u64,
}

/// A group that has slots in use or requests waiting.
#[derive(Debug)]
struct SlotGroup<K, T> {
    /// Its maximum number of slots, as last given.
    share: usize,
    served: usize,
    askers: BTreeMap<K, SlotAsker<T>>,
}

/// An asker that has slots in use or requests waiting.
#[derive(Debug)]
struct SlotAsker<T> {
    /// Its maximum number of slots, as last given.
    share: usize,
    served: usize,
    waiting: VecDeque<(u64, T)>,
}

/// Maximum numbers of slots in use at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotShare {
    /// For all askers of a group together.
    pub group: usize,
    /// For one asker, which may also have this many requests waiting.
    pub asker: usize,
}

impl SlotShare {
    /// Gives each asker three quarters of its group's share, so that a lone asker is hardly limited and
    /// still leaves slots for others.
    pub const fn of_group(group: usize) -> Self {
        Self { group, asker: group - group / 4 }
    }

    /// Limits each asker only, not its group.
    pub const fn each(asker: usize) -> Self {
        Self { group: usize::MAX, asker }
    }
}

/// Result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum SlotOutcome<T> {
    /// The slot is in use until [`FairSlots::done`].
    Granted(T),
    /// The request waits until [`FairSlots::done`] returns it.
    Queued,
    /// Rejected: too many are waiting.
    Rejected(T),
}

impl<K: Ord, T> SlotGroup<K, T> {
    fn is_idle(&self) -> bool {
        self.served == 0 && self.askers.is_empty()
    }

    fn waiting(&self) -> usize {
        self.askers.values().map(|asker| asker.waiting.len()).sum()
    }

    /// The asker to serve next: its slots in use, the arrival number of its request, and its key.
    fn next(&self) -> Option<(usize, u64, &K)> {
        let waiting = self.askers.iter().filter(|(_, asker)| asker.served < asker.share);
        let waiting =
            waiting.filter_map(|(key, asker)| Some((asker.served, asker.waiting.front()?.0, key)));
        // Of those with equally many slots, the one that has waited longest.
        waiting.min_by_key(|(served, arrival, _)| (*served, *arrival))
    }

    fn forget_idle(&mut self) {
        self.askers.retain(|_, asker| asker.served > 0 || !asker.waiting.is_empty());
    }
}

impl<G: Ord + Clone, K: Ord + Clone, T> FairSlots<G, K, T> {
    /// Creates `most` slots, all of them free.
    pub fn new(most: usize) -> Self {
        Self { most, served: 0, groups: BTreeMap::new(), arrivals: 0 }
    }

    /// Requests a slot for an asker in a group.
    pub fn request(&mut self, group: G, key: K, share: SlotShare, request: T) -> SlotOutcome<T> {
        let new = || SlotGroup { share: share.group, served: 0, askers: BTreeMap::new() };
        let group = self.groups.entry(group).or_insert_with(new);
        group.share = share.group;
        let waiting = group.waiting();
        let new = || SlotAsker { share: share.asker, served: 0, waiting: VecDeque::new() };
        let asker = group.askers.entry(key).or_insert_with(new);
        asker.share = share.asker;
        if self.served < self.most && group.served < share.group && asker.served < share.asker {
            self.served += 1;
            group.served += 1;
            asker.served += 1;
            return SlotOutcome::Granted(request);
        }
        let is_full = waiting >= share.group.saturating_mul(WAITING);
        if is_full || asker.waiting.len() >= share.asker {
            // This request may have created the group and the asker.
            group.forget_idle();
            self.groups.retain(|_, group| !group.is_idle());
            return SlotOutcome::Rejected(request);
        }
        asker.waiting.push_back((self.arrivals, request));
        self.arrivals += 1;
        SlotOutcome::Queued
    }

    /// Frees a slot of an asker. Returns the waiting request that gets the slot, if any.
    pub fn done(&mut self, group: &G, key: &K) -> Option<((G, K), T)> {
        if let Some(group) = self.groups.get_mut(group)
            && let Some(asker) = group.askers.get_mut(key)
        {
            debug_assert!(asker.served > 0 && self.served > 0, "it was served");
            self.served -= 1;
            group.served -= 1;
            asker.served -= 1;
        }
        // Before the idle are forgotten: the asker served next may be one of this group.
        let next = self.next();
        self.forget_idle();
        next
    }

    /// Drops waiting requests whose requester has gone.
    pub fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        let askers = self.groups.values_mut().flat_map(|group| group.askers.values_mut());
        askers.for_each(|asker| asker.waiting.retain(|(_, request)| !is_gone(request)));
        self.forget_idle();
    }

    fn forget_idle(&mut self) {
        self.groups.values_mut().for_each(SlotGroup::forget_idle);
        self.groups.retain(|_, group| !group.is_idle());
    }

    fn next(&mut self) -> Option<((G, K), T)> {
        let groups = self.groups.iter().filter(|(_, group)| group.served < group.share);
        let waiting = groups.filter_map(|(name, group)| {
            let (served, arrival, key) = group.next()?;
            Some(((group.served, served, arrival), (name, key)))
        });
        let (name, key) = waiting.min_by_key(|(rank, _)| *rank)?.1;
        let next = (name.clone(), key.clone());
        let group = self.groups.get_mut(&next.0)?;
        let asker = group.askers.get_mut(&next.1)?;
        let (_, request) = asker.waiting.pop_front()?;
        self.served += 1;
        group.served += 1;
        asker.served += 1;
        Some((next, request))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EACH: SlotShare = SlotShare { group: usize::MAX, asker: 3 };

    #[test]
    fn one_asker_with_many_requests_does_not_keep_others_waiting() {
        let mut slots = FairSlots::new(4);
        let served = (0..9).filter(|request| {
            slots.request((), "many", EACH, *request) == SlotOutcome::Granted(*request)
        });
        assert_eq!(served.count(), 3);
        assert_eq!(slots.request((), "few", EACH, 100), SlotOutcome::Granted(100));
        assert_eq!(slots.request((), "few", EACH, 101), SlotOutcome::Queued, "all slots are taken");
        assert_eq!(
            slots.request((), "many", EACH, 102),
            SlotOutcome::Rejected(102),
            "as many wait as are served"
        );
        let next = slots.done(&(), &"many");
        assert_eq!(next, Some((((), "few"), 101)), "it has fewer than the other");
    }

    #[test]
    fn of_those_that_have_as_much_the_first_comes_first() {
        let mut slots = FairSlots::new(1);
        let each = SlotShare::each(1);
        assert_eq!(slots.request((), "z", each, 0), SlotOutcome::Granted(0));
        assert_eq!(slots.request((), "b", each, 1), SlotOutcome::Queued);
        assert_eq!(slots.request((), "a", each, 2), SlotOutcome::Queued);
        assert_eq!(slots.done(&(), &"z"), Some((((), "b"), 1)));
        assert_eq!(slots.done(&(), &"b"), Some((((), "a"), 2)));
        assert_eq!(slots.done(&(), &"a"), None);
        assert!(slots.groups.is_empty());
    }

    #[test]
    fn an_asker_leaves_others_of_its_group_slots_and_the_group_leaves_other_groups_theirs() {
        let mut slots = FairSlots::new(100);
        let share = SlotShare::of_group(16);
        let mut granted = |group, key| {
            let is_granted = |request: &i32| {
                slots.request(group, key, share, *request) == SlotOutcome::Granted(*request)
            };
            (0..1000).filter(is_granted).count()
        };
        assert_eq!(granted("ship", 1), 12);
        assert_eq!(granted("ship", 2), 4);
        assert_eq!(granted("rig", 1), 12);
        assert!(slots.groups["ship"].waiting() <= 4 * 16);
        // Of a group, the one with fewer slots comes first.
        assert_eq!(slots.done(&"ship", &1).map(|(asker, _)| asker), Some(("ship", 2)));
        assert_eq!(slots.done(&"rig", &1).map(|(asker, _)| asker), Some(("rig", 1)));
    }

    #[test]
    fn what_has_gone_makes_room() {
        let mut slots = FairSlots::new(1);
        let each = SlotShare::each(1);
        for (request, turn) in
            [(0, SlotOutcome::Granted(0)), (1, SlotOutcome::Queued), (2, SlotOutcome::Rejected(2))]
        {
            assert_eq!(slots.request((), "a", each, request), turn);
        }
        slots.forget(|request| *request == 1);
        assert_eq!(slots.request((), "a", each, 3), SlotOutcome::Queued);
    }

    proptest! {
        #[test]
        fn bounds_hold_and_no_place_stays_empty_while_somebody_may_have_it(
            steps in prop::collection::vec((any::<bool>(), 0u8..5), 0..300),
        ) {
            let (most, share) = (6, SlotShare { group: 4, asker: 3 });
            let mut slots = FairSlots::new(most);
            let mut served: Vec<(u8, u8)> = Vec::new();
            for (asks, key) in steps {
                let key = (key % 2, key);
                if asks {
                    if let SlotOutcome::Granted(()) = slots.request(key.0, key.1, share, ()) {
                        served.push(key);
                    }
                } else if let Some(at) = served.iter().position(|it| *it == key) {
                    served.remove(at);
                    served.extend(slots.done(&key.0, &key.1).map(|(next, ())| next));
                }
                let of = |key: (u8, u8)| served.iter().filter(|it| **it == key).count();
                let of_group = |group: u8| served.iter().filter(|it| it.0 == group).count();
                let keys = (0..5u8).map(|key| (key % 2, key));
                prop_assert!(served.len() <= most && (0..2).all(|it| of_group(it) <= share.group));
                prop_assert!(keys.clone().all(|key| of(key) <= share.asker));
                let waits = |key: &(u8, u8)| {
                    let askers = slots.groups.get(&key.0).map(|group| &group.askers);
                    askers.and_then(|it| it.get(&key.1)).is_some_and(|it| !it.waiting.is_empty())
                };
                let fits = |key: &(u8, u8)| {
                    waits(key) && of(*key) < share.asker && of_group(key.0) < share.group
                };
                prop_assert!(served.len() == most || !keys.clone().any(|key| fits(&key)));
            }
        }
    }
}
