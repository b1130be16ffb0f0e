//! Items ordered by their due time.

use core::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use units::Instant;

/// Items keyed by (time, order of insertion). Items due at the same time are first in, first out,
/// and never replace each other.
///
/// An item due no earlier than all before it costs O(1) however many are waiting; this is the usual
/// case, as packets on a link rarely overtake each other. All others cost O(log n).
#[derive(Debug)]
pub(crate) struct DueSchedule<T> {
    /// Each is due no earlier than the one before.
    in_order: VecDeque<ScheduledItem<T>>,
    /// Due time of the last item inserted in order.
    latest: Instant,
    /// Each is due before an item inserted in order earlier.
    overtaking: BinaryHeap<ScheduledItem<T>>,
    inserted: u64,
}

impl<T> DueSchedule<T> {
    pub(crate) fn new() -> Self {
        Self {
            in_order: VecDeque::new(),
            latest: Instant::ZERO,
            overtaking: BinaryHeap::new(),
            inserted: 0,
        }
    }

    /// Adds an item that is due at `at`.
    #[inline]
    pub(crate) fn insert(&mut self, at: Instant, item: T) {
        let entry = ScheduledItem { at, sequence: self.inserted, item };
        self.inserted += 1;
        if at >= self.latest {
            self.latest = at;
            self.in_order.push_back(entry);
        } else {
            self.overtake(entry);
        }
    }

    #[inline(never)]
    fn overtake(&mut self, entry: ScheduledItem<T>) {
        self.overtaking.push(entry);
    }

    /// Returns the time at which the first item is due.
    #[inline]
    pub(crate) fn first(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|entry| entry.at);
        if self.overtaking.is_empty() {
            return in_order;
        }
        let other = self.overtaking.peek().map(|entry| entry.at);
        in_order.into_iter().chain(other).min()
    }

    /// Takes the first item if it is due by `now`, with the time it was due.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        let entry = if self.overtaking.is_empty() {
            self.in_order.pop_front_if(|entry| entry.at <= now)?
        } else {
            self.pop_due_of_both(now)?
        };
        Some((entry.at, entry.item))
    }

    #[inline(never)]
    fn pop_due_of_both(&mut self, now: Instant) -> Option<ScheduledItem<T>> {
        if self.first()? > now {
            return None;
        }
        // Of items due at the same time, the one inserted first leaves first.
        let overtakes = self
            .overtaking
            .peek()
            .is_some_and(|other| self.in_order.front().is_none_or(|next| other.key() < next.key()));
        if overtakes { self.overtaking.pop() } else { self.in_order.pop_front() }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.overtaking.len()
    }
}

#[derive(Debug)]
struct ScheduledItem<T> {
    at: Instant,
    sequence: u64,
    item: T,
}

impl<T> ScheduledItem<T> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

/// Reversed, because [`BinaryHeap`] returns the greatest first.
impl<T> Ord for ScheduledItem<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for ScheduledItem<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for ScheduledItem<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for ScheduledItem<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everything_comes_out_in_order(times in prop::collection::vec(0u64..20, 0..200)) {
            let mut schedule = DueSchedule::new();
            for (index, &time) in times.iter().enumerate() {
                schedule.insert(Instant::from_nanos(time), index);
            }
            let mut expected: Vec<_> =
                times.iter().enumerate().map(|(i, &t)| (Instant::from_nanos(t), i)).collect();
            expected.sort();
            let all: Vec<_> =
                core::iter::from_fn(|| schedule.pop_due(Instant::from_nanos(20))).collect();
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn nothing_comes_out_before_its_time() {
        let mut schedule = DueSchedule::new();
        schedule.insert(Instant::from_nanos(5), 'x');
        assert_eq!(schedule.pop_due(Instant::from_nanos(4)), None);
        assert_eq!(schedule.pop_due(Instant::from_nanos(5)), Some((Instant::from_nanos(5), 'x')));
        assert_eq!(schedule.first(), None);
    }
}
