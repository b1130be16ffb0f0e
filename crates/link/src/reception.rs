//! When a packet is being received.

use core::ops::Range;

use units::Instant;

/// The time from a packet's first bit at the far end to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reception {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Reception {
    /// Whether any of it falls into `period`. A reception that takes no time
    /// falls into the period that contains its instant.
    pub(crate) fn overlaps(self, period: &Range<Instant>) -> bool {
        let until = self.until.as_nanos().max(self.from.as_nanos().saturating_add(1));
        period.start.as_nanos() < until && period.end > self.from
    }
}
