//! The clock of labs and gateways: `CLOCK_MONOTONIC`, in the form that state machines take; and a timer.

pub(crate) mod timer;

use core::time::Duration;

use nix::time::{ClockId, clock_gettime};
use units::Instant;

/// Returns the current time of `CLOCK_MONOTONIC`.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(ClockId::CLOCK_MONOTONIC))
}

/// Returns the time until `at`; zero once it has passed.
pub fn until(at: Instant) -> Duration {
    at.saturating_since(now())
}

/// Returns the processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::CLOCK_THREAD_CPUTIME_ID))
}

/// Converts the kernel's packet time stamps, which are wall-clock times, to this clock.
#[derive(Clone, Copy)]
pub struct WallClock {
    wall: u64,
    monotonic: u64,
}

/// Maximum time between readings of the two clocks, and the number of attempts: the kernel may
/// schedule another thread in between.
const APART: u64 = 5_000;
const TRIES: usize = 4;
/// A stamp may be later than the reading if its packet arrived while earlier ones were being
/// processed. If it is later by more than this, the wall clock was set.
const LATER: u64 = 50_000_000;

impl WallClock {
    /// Reads both clocks as close together as possible.
    pub fn read() -> Self {
        let read = || {
            let before = nanos(ClockId::CLOCK_MONOTONIC);
            let wall = nanos(ClockId::CLOCK_REALTIME);
            let apart = nanos(ClockId::CLOCK_MONOTONIC) - before;
            // The wall clock was read about half-way between.
            (apart, Self { wall, monotonic: before + apart / 2 })
        };
        let mut best = read();
        for _ in 1..TRIES {
            if best.0 <= APART {
                break;
            }
            let next = read();
            best = if next.0 < best.0 { next } else { best };
        }
        best.1
    }

    /// Converts to wall-clock nanoseconds since the epoch.
    pub fn wall(self, instant: Instant) -> u64 {
        let age = self.monotonic.saturating_sub(instant.as_nanos());
        self.wall.saturating_sub(age)
    }

    /// Converts from wall-clock nanoseconds since the epoch.
    pub fn instant(self, wall: u64) -> Instant {
        let age = self.wall.saturating_sub(wall);
        let later = wall.saturating_sub(self.wall).min(LATER);
        Instant::from_nanos(self.monotonic.saturating_sub(age) + later)
    }
}

/// Returns true if the kernel considers the wall clock synchronised (adjtimex(2)); `None` if
/// unknown.
pub fn is_synchronised() -> Option<bool> {
    // SAFETY: all zeroes is a valid timex that changes nothing.
    let mut timex: libc::timex = unsafe { core::mem::zeroed() };
    // SAFETY: without a mode, the call only writes the state to the address given.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state >= 0).then_some(state != libc::TIME_ERROR)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("these clocks exist on every Linux");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_as_old_on_both_clocks() {
        let clocks = WallClock { wall: 5_000, monotonic: 700 };
        assert_eq!(clocks.instant(4_900), Instant::from_nanos(600));
        assert_eq!(clocks.wall(Instant::from_nanos(600)), 4_900);
    }

    #[test]
    fn a_stamp_after_the_reading_keeps_its_distance() {
        let clocks = WallClock { wall: 5_000, monotonic: 700 };
        assert_eq!(clocks.instant(6_000), Instant::from_nanos(1_700));
    }

    #[test]
    fn a_wall_clock_that_was_set_moves_no_packet_far() {
        let clocks = WallClock { wall: 5_000, monotonic: 700 };
        assert_eq!(clocks.instant(u64::MAX), Instant::from_nanos(700 + LATER));
        assert_eq!(clocks.instant(0), Instant::ZERO);
    }
}
