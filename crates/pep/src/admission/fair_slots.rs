//! Shares few slots fairly among askers: each has a maximum share, and among those waiting the one
//! with fewest slots in use goes first. No I/O, no clock.

use std::collections::{BTreeMap, VecDeque};

/// The slots of askers identified by `K`; `T` represents a waiting request.
#[derive(Debug)]
pub struct FairSlots<K, T> {
    /// Number of slots for all askers together.
    most: usize,
    served: usize,
    askers: BTreeMap<K, Asker<T>>,
    /// Number of requests that have had to wait, for ordering.
    arrivals: u64,
}

/// State of an asker; removed when it has nothing served or waiting.
#[derive(Debug)]
struct Asker<T> {
    /// Its maximum slots, as given last.
    share: usize,
    served: usize,
    waiting: VecDeque<(u64, T)>,
}

/// Result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum SlotOutcome<T> {
    /// Served now, until [`FairSlots::done`].
    Granted(T),
    /// Waiting.
    Queued,
    /// Rejected: too many are waiting.
    Rejected(T),
}

impl<K: Ord + Clone, T> FairSlots<K, T> {
    /// For at most `most` slots in use at once.
    pub fn new(most: usize) -> Self {
        Self { most, served: 0, askers: BTreeMap::new(), arrivals: 0 }
    }

    /// Requests a slot for `key`, which may use at most `share` slots and have as many requests
    /// waiting.
    pub fn request(&mut self, key: K, share: usize, request: T) -> SlotOutcome<T> {
        let none = || Asker { share, served: 0, waiting: VecDeque::new() };
        let asker = self.askers.entry(key).or_insert_with(none);
        asker.share = share;
        if self.served < self.most && asker.served < share {
            (self.served, asker.served) = (self.served + 1, asker.served + 1);
            return SlotOutcome::Granted(request);
        }
        if asker.waiting.len() >= share {
            return SlotOutcome::Rejected(request);
        }
        asker.waiting.push_back((self.arrivals, request));
        self.arrivals += 1;
        SlotOutcome::Queued
    }

    /// Frees a slot of `key`. Returns the waiting request that gets it, if any.
    pub fn done(&mut self, key: &K) -> Option<(K, T)> {
        if let Some(asker) = self.askers.get_mut(key) {
            debug_assert!(asker.served > 0 && self.served > 0, "it was served");
            (self.served, asker.served) = (self.served - 1, asker.served - 1);
        }
        let next = self.next();
        self.askers.retain(|_, asker| asker.served > 0 || !asker.waiting.is_empty());
        next
    }

    /// Drops waiting requests whose requester has gone.
    pub fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        self.askers.values_mut().for_each(|it| it.waiting.retain(|(_, request)| !is_gone(request)));
        self.askers.retain(|_, asker| asker.served > 0 || !asker.waiting.is_empty());
    }

    fn next(&mut self) -> Option<(K, T)> {
        let waiting = self.askers.iter().filter(|(_, asker)| asker.served < asker.share);
        let waiting = waiting
            .filter_map(|(key, asker)| Some(((asker.served, asker.waiting.front()?.0), key)));
        let key = waiting.min_by_key(|(rank, _)| *rank)?.1.clone();
        let asker = self.askers.get_mut(&key)?;
        let (_, request) = asker.waiting.pop_front()?;
        (self.served, asker.served) = (self.served + 1, asker.served + 1);
        Some((key, request))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_asker_with_many_requests_does_not_keep_others_waiting() {
        let mut slots = FairSlots::new(4);
        let served = (0..9)
            .filter(|request| slots.request("many", 3, *request) == SlotOutcome::Granted(*request));
        assert_eq!(served.count(), 3);
        assert_eq!(slots.request("few", 3, 100), SlotOutcome::Granted(100));
        assert_eq!(slots.request("few", 3, 101), SlotOutcome::Queued, "all slots are taken");
        assert_eq!(
            slots.request("many", 3, 102),
            SlotOutcome::Rejected(102),
            "as many wait as are served"
        );
        assert_eq!(slots.done(&"many"), Some(("few", 101)), "it has fewer than the other");
    }

    #[test]
    fn of_those_that_have_as_much_the_first_comes_first() {
        let mut slots = FairSlots::new(1);
        assert_eq!(slots.request("z", 1, 0), SlotOutcome::Granted(0));
        assert_eq!(slots.request("b", 1, 1), SlotOutcome::Queued);
        assert_eq!(slots.request("a", 1, 2), SlotOutcome::Queued);
        assert_eq!(slots.done(&"z"), Some(("b", 1)));
        assert_eq!(slots.done(&"b"), Some(("a", 2)));
        assert_eq!(slots.done(&"a"), None);
        assert!(slots.askers.is_empty());
    }

    #[test]
    fn what_has_gone_makes_room() {
        let mut slots = FairSlots::new(1);
        for (request, turn) in
            [(0, SlotOutcome::Granted(0)), (1, SlotOutcome::Queued), (2, SlotOutcome::Rejected(2))]
        {
            assert_eq!(slots.request("a", 1, request), turn);
        }
        slots.forget(|request| *request == 1);
        assert_eq!(slots.request("a", 1, 3), SlotOutcome::Queued);
    }

    proptest! {
        #[test]
        fn bounds_hold_and_no_place_stays_empty_while_somebody_may_have_it(
            steps in prop::collection::vec((any::<bool>(), 0u8..5), 0..300),
        ) {
            let (most, share) = (6, 3);
            let mut slots = FairSlots::new(most);
            let mut served: Vec<u8> = Vec::new();
            for (asks, key) in steps {
                if asks {
                    if let SlotOutcome::Granted(()) = slots.request(key, share, ()) {
                        served.push(key);
                    }
                } else if let Some(at) = served.iter().position(|it| *it == key) {
                    served.remove(at);
                    served.extend(slots.done(&key).map(|(next, ())| next));
                }
                let of = |key: u8| served.iter().filter(|it| **it == key).count();
                prop_assert!(served.len() <= most && (0..5).all(|key| of(key) <= share));
                let waits = |key: u8| slots.askers.get(&key).map_or(0, |it| it.waiting.len());
                let fits = |key: u8| waits(key) > 0 && of(key) < share;
                prop_assert!(served.len() == most || !(0..5).any(fits));
            }
        }
    }
}
