//! The lab's clock: `CLOCK_MONOTONIC`, as the time that machines are handed.

use core::time::Duration;

use nix::time::{ClockId, clock_gettime};
use units::Instant;

/// The time now.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(nanos(ClockId::CLOCK_MONOTONIC))
}

/// How long it is until `at`; zero once it has passed.
pub(crate) fn until(at: Instant) -> Duration {
    at.saturating_since(now())
}

/// Turns the kernel's packet time stamps, which are wall-clock times, into
/// times of this clock.
#[derive(Clone, Copy)]
pub(crate) struct WallClock {
    wall: u64,
    monotonic: u64,
}

impl WallClock {
    /// The two clocks as they stand now.
    pub(crate) fn read() -> Self {
        let wall = nanos(ClockId::CLOCK_REALTIME);
        Self { wall, monotonic: nanos(ClockId::CLOCK_MONOTONIC) }
    }

    /// When it was `wall` nanoseconds since the epoch; never later than the
    /// reading of the clocks.
    pub(crate) fn instant(self, wall: u64) -> Instant {
        let age = self.wall.saturating_sub(wall);
        Instant::from_nanos(self.monotonic.saturating_sub(age))
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("both clocks exist on every Linux");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_as_old_on_both_clocks() {
        let clocks = WallClock { wall: 5_000, monotonic: 700 };
        assert_eq!(clocks.instant(4_900), Instant::from_nanos(600));
    }

    #[test]
    fn a_stamp_from_the_future_is_now() {
        let clocks = WallClock { wall: 5_000, monotonic: 700 };
        assert_eq!(clocks.instant(6_000), Instant::from_nanos(700));
    }
}
