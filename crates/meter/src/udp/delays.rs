//! Variation of one-way delays, measured by clocks that need not agree.

use std::collections::BTreeMap;
use std::time::Duration;

/// Width of a bin in nanoseconds.
const BIN: i128 = 100_000;
/// Delays further than this many bins (10 s) from the first one share a bin: false sending times
/// cannot make more bins than that.
const REACH: i128 = 100_000;

/// A histogram of datagrams by delay.
#[derive(Debug, Default)]
pub(crate) struct DelayHistogram {
    /// The first delay, in bins.
    first: Option<i128>,
    /// Number of datagrams by the difference to the first delay, in bins.
    bins: BTreeMap<i128, u64>,
    count: u64,
}

impl DelayHistogram {
    /// Adds the difference of an arrival time to a sending time, in nanoseconds.
    pub(crate) fn add(&mut self, delay: i128) {
        let bin = delay.div_euclid(BIN);
        let first = *self.first.get_or_insert(bin);
        *self.bins.entry((bin - first).clamp(-REACH, REACH)).or_default() += 1;
        self.count += 1;
    }

    /// Returns the most by which 99 % of the delays exceed the shortest; `None` with fewer than
    /// two.
    pub(crate) fn variation(&self) -> Option<Duration> {
        let (shortest, _) = self.bins.first_key_value().filter(|_| self.count > 1)?;
        let wanted = (self.count * 99).div_ceil(100);
        let mut below = 0;
        let bin = self.bins.iter().find_map(|(bin, count)| {
            below += count;
            (below >= wanted).then_some(bin)
        });
        let bins = bin.map_or(0, |bin| bin - shortest);
        Some(Duration::from_nanos((bins * BIN) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variation(delays: impl IntoIterator<Item = i128>) -> Option<Duration> {
        let mut all = DelayHistogram::default();
        delays.into_iter().for_each(|micros| all.add(micros * 1000));
        all.variation()
    }

    #[test]
    fn one_in_a_hundred_does_not_count() {
        assert_eq!(variation([]), None);
        assert_eq!(variation([7]), None);
        assert_eq!(variation([7, 7]), Some(Duration::ZERO));
        let spread = (0..100).map(|number| -5_000_000 + number * 1000);
        assert_eq!(variation(spread), Some(Duration::from_millis(98)));
        let outlier = (0..100).map(|number| if number == 50 { 900_000 } else { 300_000 });
        assert_eq!(variation(outlier), Some(Duration::ZERO));
    }

    #[test]
    fn times_of_any_size_are_bounded() {
        let extremes = [0, i128::from(u64::MAX), -i128::from(u64::MAX)];
        assert_eq!(variation(extremes), Some(Duration::from_secs(20)));
    }
}
