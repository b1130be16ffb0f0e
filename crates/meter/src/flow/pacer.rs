//! The rate cap of a flow's writes.

use std::time::Duration;

use shaping::VirtualSchedule;
use units::{BitRate, ByteCount, Instant};

/// Maximum time that a delayed sender may catch up.
const BURST: Duration = Duration::from_millis(20);
/// Approximate duration of one write at the capped rate.
const BLOCK_TIME: Duration = Duration::from_millis(5);
/// Minimum size of a write, in bytes.
const BLOCK_MIN: u64 = 1000;

/// Keeps the application's sending rate at or below a cap. Times are measured from the start of the
/// flow.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    rate: Option<BitRate>,
    schedule: VirtualSchedule,
}

impl Pacer {
    /// Creates a pacer for `rate`; `None` for no cap.
    pub(crate) fn new(rate: Option<BitRate>) -> Self {
        Self { rate, schedule: VirtualSchedule::default() }
    }

    /// Returns the number of bytes to write at once, at most `most`.
    pub(crate) fn block(&self, most: usize) -> usize {
        let Some(rate) = self.rate else { return most };
        let bytes = rate.bytes_in(BLOCK_TIME).get().max(BLOCK_MIN);
        usize::try_from(bytes).map_or(most, |bytes| bytes.min(most))
    }

    /// Records that `bytes` were written at `now`. Returns the time of the next write; `None`
    /// without a cap.
    pub(crate) fn sent(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        let cost = self.rate?.time_to_send(ByteCount::new(bytes as u64));
        self.schedule.charge(Instant::ZERO + now, BURST, cost);
        Some(self.schedule.free_at().saturating_since(Instant::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::new(None);
        assert_eq!(pacer.block(1 << 16), 1 << 16);
        assert_eq!(pacer.sent(Duration::ZERO, 1 << 16), None);
    }

    #[test]
    fn a_stall_is_not_caught_up() {
        let mut pacer = Pacer::new(Some(BitRate::from_mbit(8)));
        let second = Duration::from_secs(1);
        // 1000 bytes last 1 ms.
        assert_eq!(pacer.sent(Duration::ZERO, 1000), Some(Duration::from_millis(1)));
        assert_eq!(pacer.sent(second, 1000), Some(Duration::from_millis(981)));
    }

    proptest! {
        #[test]
        fn the_rate_is_kept(
            rate in 1_000u64..1_000_000_000,
            steps in prop::collection::vec((1usize..65_536, 0u64..100_000_000), 1..50),
        ) {
            let rate = BitRate::from_bits_per_second(rate);
            let mut pacer = Pacer::new(Some(rate));
            let mut now = Duration::ZERO;
            let mut total = 0;
            for (bytes, late) in steps {
                total += bytes as u64;
                let next = pacer.sent(now, bytes).unwrap();
                // A sender that obeys, but is late sometimes.
                now = now.max(next) + Duration::from_nanos(late);
                let allowed = rate.bytes_in(now + BURST).get() + 1;
                prop_assert!(total <= allowed, "{} of {}", total, allowed);
            }
        }
    }
}
