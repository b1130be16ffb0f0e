//! Points in time that can be constructed from a number.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since an origin chosen by the owner of the clock (such as the
/// start of a simulation or a process). Unlike [`std::time::Instant`] it can be created from a
/// number, so that a virtual clock and the wall clock drive the same code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// The end of time, 584 years after the origin.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates the instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Converts to nanoseconds, saturating. In 64 bits, unlike `as_nanos`, because this runs several
/// times per packet.
const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// Moves forward; saturates at [`Instant::MAX`].
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Moves back; saturates at [`Instant::ZERO`].
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Seconds since the origin, to the microsecond.
impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::ZERO + Duration::MAX, Instant::MAX);
        let longest = Duration::from_nanos(u64::MAX);
        assert_eq!(Instant::ZERO + longest, Instant::MAX);
        assert_eq!(Instant::MAX - longest, Instant::ZERO);
        assert_eq!(Instant::ZERO.saturating_since(Instant::MAX), Duration::ZERO);
    }

    #[test]
    fn prints_seconds() {
        assert_eq!(Instant::from_nanos(1_500_000_999).to_string(), "1.500000s");
    }
}
