//! A queue from which entries can be removed at any position.

use core::num::NonZero;
use std::collections::BTreeMap;

use crate::spare::FreeSpare;

/// A first-in, first-out queue whose entries can be removed by their tickets. All operations cost
/// O(log n), because a peer chooses which streams end, in any number, while others wait.
#[derive(Debug)]
pub(crate) struct RemovableQueue<K> {
    entries: BTreeMap<QueueTicket, K>,
}

/// Identifies an entry while it is in its queue. Non-zero, so that an `Option` of it takes no more
/// memory: each stream has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueTicket(NonZero<u64>);

/// The ticket of the first entry, with half of all numbers on either side of it.
const FIRST: QueueTicket = QueueTicket(NonZero::new(1 << 63).unwrap());

impl QueueTicket {
    fn after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    fn before(self) -> Self {
        Self(NonZero::new(self.0.get() - 1).unwrap_or(self.0))
    }
}

impl<K> Default for RemovableQueue<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<K: Copy> RemovableQueue<K> {
    pub(crate) fn push_back(&mut self, key: K) -> QueueTicket {
        let ticket = self.entries.last_key_value().map_or(FIRST, |(last, _)| last.after());
        self.entries.insert(ticket, key);
        ticket
    }

    pub(crate) fn push_front(&mut self, key: K) -> QueueTicket {
        let ticket = self.entries.first_key_value().map_or(FIRST, |(first, _)| first.before());
        self.entries.insert(ticket, key);
        ticket
    }

    pub(crate) fn front(&self) -> Option<K> {
        self.entries.first_key_value().map(|(_, key)| *key)
    }

    /// Removes an entry if `ticket` names one that is still in the queue.
    pub(crate) fn remove(&mut self, ticket: Option<QueueTicket>) {
        ticket.and_then(|ticket| self.entries.remove(&ticket));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.entries.values().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K> FreeSpare for RemovableQueue<K> {
    fn free_spare(&mut self) {
        self.entries.free_spare();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_leave_in_order_and_those_removed_do_not(
            steps in prop::collection::vec((0..3, any::<prop::sample::Index>()), 0..200),
        ) {
            let (mut queue, mut expected) = (RemovableQueue::default(), VecDeque::new());
            for (number, (step, which)) in steps.into_iter().enumerate() {
                match step {
                    0 => expected.push_back((queue.push_back(number), number)),
                    1 => expected.push_front((queue.push_front(number), number)),
                    _ if expected.is_empty() => {}
                    _ => {
                        let (ticket, _) = expected.remove(which.index(expected.len())).unwrap();
                        queue.remove(Some(ticket));
                    }
                }
                prop_assert!(queue.iter().eq(expected.iter().map(|it| it.1)));
                prop_assert_eq!(queue.front(), expected.front().map(|it| it.1));
                prop_assert_eq!(queue.is_empty(), expected.is_empty());
            }
        }
    }
}
