//! How long packets are on their way.

use core::time::Duration;

use units::Instant;

use crate::Trace;

/// The delay of a link, one way, from the last bit sent to the last bit
/// received. A packet has the delay of the moment at which its last bit leaves.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// Always the same.
    Constant(Duration),
    /// In steps: satellites that move, hand-overs between them. The trace
    /// begins with the link, or when it is set.
    Trace(Trace<Duration>),
}

impl From<Duration> for Delay {
    fn from(delay: Duration) -> Self {
        Self::Constant(delay)
    }
}

impl From<Trace<Duration>> for Delay {
    fn from(trace: Trace<Duration>) -> Self {
        Self::Trace(trace)
    }
}

impl Delay {
    /// The delay of a packet whose last bit leaves so long after the beginning.
    pub(crate) fn after(&self, elapsed: Duration) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Trace(trace) => *trace.value_at(elapsed),
        }
    }
}

/// What the delay varies by from packet to packet: an extra between zero and
/// the duration, uniform and independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// A packet never arrives before an earlier one: it waits for it. So
    /// arrivals bunch, and the mean extra is above half the duration when
    /// packets follow each other faster than it.
    InOrder(Duration),
    /// Packets overtake each other, also when the delay itself becomes shorter.
    Reordering(Duration),
}

impl Jitter {
    /// The extra of a packet with the random number `luck`.
    pub(crate) fn extra(self, luck: u64) -> Duration {
        let most = match self {
            Self::None => return Duration::ZERO,
            Self::InOrder(most) | Self::Reordering(most) => most,
        };
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let width = u128::from(most) + 1;
        Duration::from_nanos(((u128::from(luck) * width) >> 64) as u64)
    }

    pub(crate) fn reorders(self) -> bool {
        matches!(self, Self::Reordering(_))
    }
}

/// A delay that has begun.
#[derive(Debug)]
pub(crate) struct Path {
    begin: Instant,
    delay: Delay,
    pub(crate) jitter: Jitter,
}

impl Path {
    pub(crate) fn new(delay: Delay, jitter: Jitter, begin: Instant) -> Self {
        Self { begin, delay, jitter }
    }

    pub(crate) fn set_delay(&mut self, delay: Delay, begin: Instant) {
        (self.delay, self.begin) = (delay, begin);
    }

    /// When a packet arrives whose last bit leaves at `departure`, if nothing
    /// holds it up.
    pub(crate) fn arrival(&self, departure: Instant, luck: u64) -> Instant {
        let elapsed = departure.saturating_since(self.begin);
        departure + self.delay.after(elapsed) + self.jitter.extra(luck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_reach_from_zero_to_the_duration() {
        let jitter = Jitter::InOrder(Duration::from_nanos(9));
        assert_eq!(jitter.extra(0), Duration::ZERO);
        assert_eq!(jitter.extra(u64::MAX), Duration::from_nanos(9));
        assert_eq!(jitter.extra(u64::MAX / 2), Duration::from_nanos(4));
        assert_eq!(Jitter::Reordering(Duration::MAX).extra(7), Duration::from_nanos(7));
        assert_eq!(Jitter::None.extra(u64::MAX), Duration::ZERO);
    }
}
