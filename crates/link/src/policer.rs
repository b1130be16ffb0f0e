//! Policing: packets beyond a rate are dropped before they can queue.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;
use units::{BitRate, ByteCount, Instant};

use crate::PacketCounters;

/// A token bucket before the queue (RFC 2697, with one colour): tokens come at `rate`, the bucket
/// holds `burst` of them, and a packet that finds fewer than its size is dropped. Packets that pass
/// go on at the speed of the link, which is usually faster. Text: `"30 Mbit/s burst 15 kB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// The rate that passes in the long run. At 0 the first `burst` is all that ever passes.
    pub rate: BitRate,
    /// Bytes that may pass at once. A packet larger than this never passes.
    pub burst: ByteCount,
}

/// A text that is not a valid policer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a policer: expected \"RATE burst SIZE\", such as \"30 Mbit/s burst 15 kB\""
)]
#[non_exhaustive]
pub struct PolicerError {
    /// The rejected text, as given.
    pub text: String,
}

impl FromStr for Policer {
    type Err = PolicerError;

    fn from_str(text: &str) -> Result<Self, PolicerError> {
        let error = || PolicerError { text: text.to_owned() };
        let (rate, burst) = text.split_once("burst").ok_or_else(error)?;
        let rate = rate.trim().parse().map_err(|_| error())?;
        let burst = burst.trim().parse().map_err(|_| error())?;
        Ok(Self { rate, burst })
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} burst {}", self.rate, self.burst)
    }
}

/// A token in the units of [`PolicerBucket::tokens`]: the product of a bit per second and a nanosecond is a
/// whole number of them.
const BYTE: u128 = 8 * 1_000_000_000;

/// The state of a policer: a token bucket that counts exactly.
#[derive(Debug)]
pub(crate) struct PolicerBucket {
    policer: Policer,
    tokens: u128,
    filled: Instant,
}

impl PolicerBucket {
    /// A bucket that is full at `now`.
    pub(crate) fn new(now: Instant, policer: Policer) -> Self {
        let mut bucket = Self { policer, tokens: 0, filled: now };
        bucket.tokens = bucket.most();
        bucket
    }

    fn most(&self) -> u128 {
        u128::from(self.policer.burst.get()) * BYTE
    }

    /// Returns true if a packet of `len` bytes passes at `now`; if not, counts it as dropped.
    pub(crate) fn passes(
        &mut self,
        now: Instant,
        len: usize,
        counters: &mut PacketCounters,
    ) -> bool {
        let time = now.saturating_since(self.filled).as_nanos();
        // Exact: bit/s times nanoseconds are the units of `tokens`.
        let came = time.saturating_mul(self.policer.rate.bits_per_second().into());
        // Never goes back, or the same time would be paid for twice.
        self.filled = self.filled.max(now);
        self.tokens = self.tokens.saturating_add(came).min(self.most());
        let passes = self.tokens.checked_sub(len as u128 * BYTE);
        self.tokens = passes.unwrap_or(self.tokens);
        if passes.is_none() {
            counters.dropped_queue.add(len);
            counters.dropped_policer.add(len);
        }
        passes.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policer(mbit: u64, burst: u64) -> Policer {
        Policer { rate: BitRate::from_mbit(mbit), burst: ByteCount::new(burst) }
    }

    /// How many of the packets of 1000 bytes pass that come at these times in µs.
    fn passing(policer: Policer, times: impl Iterator<Item = u64>) -> usize {
        let mut bucket = PolicerBucket::new(Instant::ZERO, policer);
        let mut counters = PacketCounters::default();
        let at = |micros| Instant::from_nanos(micros * 1000);
        let mut times = times;
        let mut passes = |time| bucket.passes(at(time), 1000, &mut counters);
        times.by_ref().filter(|time| passes(*time)).count()
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        assert_eq!(passing(policer(8, 5000), [0; 20].into_iter()), 5);
        // Four a millisecond come, one a millisecond passes, and five more at first.
        assert_eq!(passing(policer(8, 5000), (0..4000).map(|n| n * 250)), 1000 + 5 - 1);
    }

    #[test]
    fn what_keeps_to_the_rate_passes() {
        assert_eq!(passing(policer(8, 1000), (0..1000).map(|n| n * 1000)), 1000);
    }

    #[test]
    fn a_pause_earns_no_more_than_the_burst() {
        let times = [0; 10].into_iter().chain([3_600_000_000; 10]);
        assert_eq!(passing(policer(8, 3000), times), 6);
    }

    #[test]
    fn refuses_text_that_is_no_policer() {
        for text in ["", "30 Mbit/s", "burst 15 kB", "30 burst 15 kB", "30 Mbit/s burst"] {
            assert!(text.parse::<Policer>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_policers_read_back(rate in 0u64..1 << 40, burst in 0u64..1 << 40) {
            let policer =
                Policer { rate: BitRate::from_bits_per_second(rate), burst: ByteCount::new(burst) };
            prop_assert_eq!(policer.to_string().parse(), Ok(policer));
        }

        #[test]
        fn no_more_passes_than_burst_and_rate(
            mbit in 1u64..100, burst in 0u64..100_000,
            steps in prop::collection::vec((0u64..2000, 1usize..3000), 1..300),
        ) {
            let mut bucket = PolicerBucket::new(Instant::ZERO, policer(mbit, burst));
            let mut micros = 0;
            let mut passed = 0;
            let mut counters = PacketCounters::default();
            for (step, len) in steps {
                micros += step;
                if bucket.passes(Instant::from_nanos(micros * 1000), len, &mut counters) {
                    passed += len as u64;
                }
                prop_assert!(passed <= burst + mbit * micros / 8);
            }
        }
    }
}
