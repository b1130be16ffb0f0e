//! The only place in the gateway that reads a clock.

use nix::time::{ClockId, clock_gettime};
use units::Instant;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Current time in nanoseconds of `CLOCK_MONOTONIC`, which a `timerfd` of the same clock takes
/// unconverted.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    let seconds = u64::try_from(time.tv_sec()).expect("CLOCK_MONOTONIC is never negative");
    let nanos = u64::try_from(time.tv_nsec()).expect("CLOCK_MONOTONIC is never negative");
    Instant::from_nanos(seconds * NANOS_PER_SECOND + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let first = now();
        assert!(first > Instant::ZERO && now() >= first);
    }
}
