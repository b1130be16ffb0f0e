//! A bounded set of byte ranges of a stream.

use std::collections::BTreeMap;

/// Maximum number of separate ranges; beyond it the two lowest are merged. A direction has as many
/// as it has holes, which are losses waiting for repair.
const RANGES_MAX: usize = 4096;

/// A set of bytes, as ranges that do not touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    /// Start → end; the ranges do not touch.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `start..end`. Returns how many of these bytes are new.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let mut from = start;
        let mut to = end;
        let mut new = end - start;
        // From right to left, all ranges that overlap or touch.
        while let Some((&low, &high)) = self.ranges.range(..=to).next_back() {
            if high < from {
                break;
            }
            new -= high.min(end).saturating_sub(low.max(start));
            from = from.min(low);
            to = to.max(high);
            self.ranges.remove(&low);
        }
        self.ranges.insert(from, to);
        if self.ranges.len() > RANGES_MAX {
            self.join_lowest();
        }
        new
    }

    /// Returns the number of bytes of `start..end` in the set.
    pub(super) fn overlap(&self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let mut bytes = 0;
        for (&low, &high) in self.ranges.range(..end).rev() {
            if high <= start {
                break;
            }
            bytes += high.min(end) - low.max(start);
        }
        bytes
    }

    /// Removes all bytes before `end`.
    pub(super) fn forget_before(&mut self, end: u64) {
        while let Some(lowest) = self.ranges.first_entry().filter(|entry| *entry.key() < end) {
            let high = lowest.remove();
            if high > end {
                self.ranges.insert(end, high);
            }
        }
    }

    fn join_lowest(&mut self) {
        let second = self.ranges.pop_first().and_then(|(low, _)| {
            let (_, high) = self.ranges.pop_first()?;
            Some((low, high))
        });
        self.ranges.extend(second);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_many_holes_close_from_below() {
        let mut ranges = Ranges::default();
        for index in 0..RANGES_MAX as u64 + 1 {
            assert_eq!(ranges.insert(index * 10, index * 10 + 5), 5);
        }
        assert_eq!(ranges.ranges.len(), RANGES_MAX);
        assert_eq!(ranges.overlap(0, 15), 15);
        assert_eq!(ranges.overlap(15, 25), 5);
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(
            inserts in proptest::collection::vec((0u64..200, 0u64..30), 0..40),
            asked in (0u64..200, 0u64..60), forgotten in 0u64..200,
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (start, length) in inserts {
                let new = (start..start + length).filter(|&byte| bytes.insert(byte)).count();
                prop_assert_eq!(ranges.insert(start, start + length), new as u64);
            }
            let within = |bytes: &std::collections::BTreeSet<u64>| {
                bytes.range(asked.0..asked.0 + asked.1).count() as u64
            };
            prop_assert_eq!(ranges.overlap(asked.0, asked.0 + asked.1), within(&bytes));
            ranges.forget_before(forgotten);
            bytes.retain(|&byte| byte >= forgotten);
            prop_assert_eq!(ranges.overlap(asked.0, asked.0 + asked.1), within(&bytes));
        }
    }
}
