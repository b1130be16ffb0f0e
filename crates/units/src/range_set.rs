//! Sets of mostly contiguous numbers: received packets, acknowledged bytes, closed streams.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64` kept as disjoint, non-adjacent half-open ranges. Operations
/// cost O(log n) in the number of ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// The end of each range, by its start.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Returns true if the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges, which determines the memory.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns true if `value` is in the set.
    pub fn contains(&self, value: u64) -> bool {
        self.before(value).is_some_and(|(_, end)| value < end)
    }

    /// Returns true if all of `range` is in the set.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.before(range.start).is_some_and(|(_, end)| range.end <= end)
    }

    /// Returns the range with the largest start at or below `value`.
    fn before(&self, value: u64) -> Option<(u64, u64)> {
        // Usually it is the last one: packets mostly arrive in order.
        let (start, end) = match self.ranges.last_key_value()? {
            (start, end) if *start <= value => (start, end),
            _ => self.ranges.range(..=value).next_back()?,
        };
        Some((*start, *end))
    }

    /// Adds a number; `false` if it was already in the set.
    pub fn insert_one(&mut self, value: u64) -> bool {
        if self.contains(value) {
            return false;
        }
        self.insert(value..value + 1);
        true
    }

    /// Adds a range, merging it with those it touches.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Usually it is the highest, or continues it.
        if let Some(mut last) = self.ranges.last_entry()
            && *last.key() <= range.start
            && *last.get() >= range.start
        {
            let end = last.get_mut();
            *end = range.end.max(*end);
            return;
        }
        let mut start = range.start;
        let mut end = range.end;
        if self.ranges.last_key_value().is_none_or(|(_, last)| *last < start) {
            self.ranges.insert(start, end);
            return;
        }
        if let Some((before, before_end)) = self.before(start)
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            end = end.max(next_end);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
    }

    /// Removes a range, of which any part may be missing.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() || self.ranges.is_empty() {
            return;
        }
        // The range that begins before may reach into this one, or beyond it.
        if let Some((start, end)) = self.before(range.start)
            && end > range.start
        {
            self.ranges.remove(&start);
            self.keep(start..range.start);
            self.keep(range.end..end);
        }
        while let Some((&start, &end)) = self.ranges.range(range.clone()).next() {
            self.ranges.remove(&start);
            self.keep(range.end..end);
        }
    }

    fn keep(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.ranges.insert(range.start, range.end);
        }
    }

    /// Returns the lowest range, if there is any.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.first_key_value().map(|(start, end)| *start..*end)
    }

    /// Returns the highest range, if there is any.
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges.last_key_value().map(|(start, end)| *start..*end)
    }

    /// Returns all ranges, the highest first.
    pub fn descending(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().rev().map(|(start, end)| *start..*end)
    }

    /// Returns the parts of `range` that are not in the set, in order. Costs O(log n) plus O(log n)
    /// per part.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut from =
            self.before(range.start).map_or(range.start, |(_, end)| end.max(range.start));
        // Usually nothing lies above, which needs no search.
        let any = self.ranges.last_key_value().is_some_and(|(start, _)| *start >= from);
        let mut inside = any.then(|| self.ranges.range(from..range.end.max(from)));
        core::iter::from_fn(move || {
            while from < range.end {
                let next = inside.as_mut().and_then(Iterator::next);
                let (start, end) = next.map_or((range.end, range.end), |(s, e)| (*s, *e));
                let gap = from..start;
                from = end;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    #[cfg(test)]
    fn ascending(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_plain_set(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..60)
        ) {
            let mut plain = BTreeSet::new();
            let mut set = RangeSet::default();
            for (add, start, len) in steps {
                for value in start..start + len {
                    if add { plain.insert(value); } else { plain.remove(&value); }
                }
                if add { set.insert(start..start + len); } else { set.remove(start..start + len); }
            }
            let flat: Vec<u64> = set.ascending().flatten().collect();
            prop_assert_eq!(flat, plain.iter().copied().collect::<Vec<_>>());
            let ranges: Vec<_> = set.ascending().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(set.first().map(|r| r.start), plain.first().copied());
            prop_assert_eq!(set.last().map(|r| r.end - 1), plain.last().copied());
            for value in 0..80 {
                prop_assert_eq!(set.contains(value), plain.contains(&value));
            }
            for start in 0..80 {
                let gaps: Vec<u64> = set.gaps(start..60).flatten().collect();
                let missing: Vec<u64> = (start..60).filter(|v| !plain.contains(v)).collect();
                prop_assert_eq!(gaps, missing.clone());
                prop_assert_eq!(set.covers(&(start..60)), missing.is_empty());
            }
        }
    }
}
