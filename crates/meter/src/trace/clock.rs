//! The time stamps of a capture, which may step back.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Instant;

/// Time stamps that lie this little before earlier ones are in the wrong order in the file, as
/// those of several queues of a network card are; others show that the clock was set.
const DISORDER_MAX: Duration = Duration::from_millis(1);
/// Maximum number of interfaces that are told apart.
const INTERFACES_MAX: usize = 4096;

/// Makes the clock of each interface go forward only.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    interfaces: BTreeMap<u32, Clock>,
    /// The last time of any packet.
    last: Instant,
    /// Number of time stamps that lie before the previous one.
    pub(super) backward: u64,
    /// The largest step back of a time stamp.
    pub(super) step_max: Duration,
    /// Number of times that the clock of an interface was set back.
    pub(super) set_back: u64,
}

/// The clock of an interface.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    /// The last time stamp.
    last: Instant,
    /// Sum of the steps by which the clock was set back.
    behind: Duration,
}

impl Clocks {
    /// Returns the time of a packet with this time stamp. After a step back the clock goes on from
    /// where it was, because the length of the pause is unknown. A packet without a stamp has the
    /// last time.
    pub(super) fn time(&mut self, interface: u32, stamp: Option<Instant>) -> Instant {
        let Some(stamp) = stamp else { return self.last };
        let has_room = self.interfaces.len() < INTERFACES_MAX;
        // Further interfaces share one clock, to bound the memory.
        let own = has_room || self.interfaces.contains_key(&interface);
        let place = if own { interface } else { u32::MAX };
        let fresh = Clock { last: stamp, behind: Duration::ZERO };
        let clock = self.interfaces.entry(place).or_insert(fresh);
        let step = clock.last.saturating_since(stamp);
        if !step.is_zero() {
            self.backward += 1;
            self.step_max = self.step_max.max(step);
        }
        // A small step is disorder in the file, a larger one a clock that was set.
        if step > DISORDER_MAX {
            clock.behind += step;
            self.set_back += 1;
        }
        if step.is_zero() || step > DISORDER_MAX {
            clock.last = stamp;
        }
        let behind = u64::try_from(clock.behind.as_nanos()).unwrap_or(u64::MAX);
        let time = Instant::from_nanos(stamp.as_nanos().saturating_add(behind));
        self.last = self.last.max(time);
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on() {
        let mut clocks = Clocks::default();
        let mut time = |micros| clocks.time(0, Some(at(micros)));
        assert_eq!([time(5_000_000), time(5_100_000)], [at(5_000_000), at(5_100_000)]);
        assert_eq!([time(1_100_000), time(1_200_000)], [at(5_100_000), at(5_200_000)]);
        assert_eq!([time(900_000), time(1_000_000)], [at(5_200_000), at(5_300_000)]);
        assert_eq!((clocks.backward, clocks.set_back), (2, 2));
        assert_eq!(clocks.step_max, Duration::from_secs(4));
    }

    #[test]
    fn an_interface_keeps_its_clock_when_further_ones_share_one() {
        let mut clocks = Clocks::default();
        for interface in 0..=INTERFACES_MAX as u32 {
            clocks.time(interface, Some(at(1_000_000)));
        }
        assert_eq!(clocks.time(u32::MAX - 1, Some(at(5_000_000))), at(5_000_000));
        assert_eq!(clocks.time(0, Some(at(1_000_001))), at(1_000_001));
        assert_eq!((clocks.backward, clocks.interfaces.len()), (0, INTERFACES_MAX + 1));
    }

    #[test]
    fn packets_in_the_wrong_order_keep_their_times() {
        let mut clocks = Clocks::default();
        let times = [100, 90, 95, 110].map(|micros| clocks.time(0, Some(at(micros))));
        assert_eq!(times, [at(100), at(90), at(95), at(110)]);
        assert_eq!((clocks.backward, clocks.set_back), (2, 0));
        // Another interface has a clock of its own; without a stamp the last time counts.
        assert_eq!([clocks.time(1, Some(at(3))), clocks.time(1, None)], [at(3), at(110)]);
    }
}
