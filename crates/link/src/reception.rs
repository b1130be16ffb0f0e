//! When a packet is being received.

use core::ops::Range;
use core::time::Duration;

use units::Instant;

/// The time from a packet's first bit at the far end to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reception {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Reception {
    /// When it is over. A reception that takes no time takes a nanosecond, to
    /// fall into the period that contains its instant.
    pub(crate) fn until(self) -> Instant {
        self.until.max(self.from + Duration::from_nanos(1))
    }

    /// Whether any of it falls into `period`.
    pub(crate) fn overlaps(self, period: &Range<Instant>) -> bool {
        period.start < self.until() && period.end > self.from
    }
}
