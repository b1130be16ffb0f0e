//! The time during which a packet is received.

use core::ops::Range;
use core::time::Duration;

use units::Instant;

/// The time from a packet's first bit at the far end to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceptionTime {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl ReceptionTime {
    /// Returns the end. A reception of zero duration counts as one nanosecond, so that it is in the
    /// period that contains its instant.
    pub(crate) fn until(self) -> Instant {
        self.until.max(self.from + Duration::from_nanos(1))
    }

    /// Returns true if any part of it is in `period`.
    pub(crate) fn overlaps(self, period: &Range<Instant>) -> bool {
        period.start < self.until() && period.end > self.from
    }
}
