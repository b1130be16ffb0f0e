//! The second stage: bits leave at the rate of the link, one packet at a time.
//!
//! Exact: the times at which packets leave are rounded up to the nanosecond,
//! but what rounding adds to one packet is taken from the next, so that the
//! n-th packet of a busy period leaves at its beginning plus the time for all
//! the bits until then, rounded up once.
//!
//! Not modelled: framing and coding (a packet takes the time of its own bits
//! and nothing else), the waiting for a frame, slot or grant to begin, and a
//! rate that changes with the MODCOD.

use core::time::Duration;

use units::{BitRate, Instant};

use crate::payload::Frame;

/// Work is counted in bits × 10⁹: a nanosecond at a rate of `r` bit/s does `r`
/// of it, which makes all sums exact. The longest packet is below 2⁹⁷.
const WORK_PER_BIT: u128 = 1_000_000_000;

/// Sends one packet at a time.
#[derive(Debug)]
pub(crate) struct Serialiser<P> {
    rate: BitRate,
    current: Option<Current<P>>,
    /// When the last packet had left.
    free_since: Instant,
    /// Work that the rounding up of `free_since`, or of the finish of the
    /// current packet, left undone; below one nanosecond's.
    credit: u128,
}

#[derive(Debug)]
struct Current<P> {
    frame: Frame<P>,
    /// When the last bit will have left; never at rate 0.
    finish: Option<Instant>,
}

impl<P> Serialiser<P> {
    pub(crate) fn new(rate: BitRate) -> Self {
        Self { rate, current: None, free_since: Instant::ZERO, credit: 0 }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.current.is_none()
    }

    /// When the last bit of the current packet will have left.
    pub(crate) fn finish(&self) -> Option<Instant> {
        self.current.as_ref()?.finish
    }

    /// Begins to send `frame` at `at`. The serialiser must be free.
    pub(crate) fn begin(&mut self, at: Instant, frame: Frame<P>) {
        debug_assert!(self.is_free(), "two packets in the serialiser");
        if at > self.free_since {
            self.free_since = at;
            self.credit = 0;
        }
        let finish = self.finish_of(frame.len);
        self.current = Some(Current { frame, finish });
    }

    /// Takes the current packet if it has left by `now`, with the time at which
    /// it had.
    pub(crate) fn pop_finished(&mut self, now: Instant) -> Option<(Instant, Frame<P>)> {
        let finish = self.finish().filter(|&finish| finish <= now)?;
        self.free_since = finish;
        self.current.take().map(|current| (finish, current.frame))
    }

    /// When a packet of `len` bytes that begins at `free_since` will have left.
    fn finish_of(&mut self, len: usize) -> Option<Instant> {
        let rate = u128::from(self.rate.bits_per_second());
        let work = len as u128 * 8 * WORK_PER_BIT;
        let done = work.min(self.credit);
        let left = work - done;
        let nanos = if rate == 0 { return None } else { left.div_ceil(rate) };
        self.credit = self.credit - done + (nanos * rate - left);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(self.free_since + time)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(len: usize) -> Frame<usize> {
        Frame { packet: len, len, chance: 0.0 }
    }

    fn send(serialiser: &mut Serialiser<usize>, at: Instant, len: usize) -> Instant {
        serialiser.begin(at, frame(len));
        serialiser.pop_finished(Instant::MAX).unwrap().0
    }

    #[test]
    fn a_packet_at_50_mbit_takes_240_microseconds() {
        let mut serialiser = Serialiser::new(BitRate::from_mbit(50));
        let at = Instant::from_nanos(7);
        assert_eq!(send(&mut serialiser, at, 1500), at + Duration::from_micros(240));
    }

    #[test]
    fn nothing_finishes_early() {
        let mut serialiser = Serialiser::new(BitRate::from_mbit(50));
        serialiser.begin(Instant::ZERO, frame(1500));
        assert!(serialiser.pop_finished(Instant::from_nanos(239_999)).is_none());
        assert!(!serialiser.is_free());
        assert!(serialiser.pop_finished(Instant::from_nanos(240_000)).is_some());
        assert!(serialiser.is_free());
    }

    #[test]
    fn rate_zero_never_sends() {
        let mut serialiser = Serialiser::new(BitRate::from_bits_per_second(0));
        serialiser.begin(Instant::ZERO, frame(0));
        assert_eq!(serialiser.finish(), None);
        assert!(serialiser.pop_finished(Instant::MAX).is_none());
    }

    #[test]
    fn a_third_of_a_nanosecond_does_not_add_up() {
        // 3 Gbit/s: a byte takes 2 ⅔ ns.
        let mut serialiser = Serialiser::new(BitRate::from_bits_per_second(3_000_000_000));
        let mut at = Instant::ZERO;
        let times: Vec<_> = (0..6)
            .map(|_| {
                at = send(&mut serialiser, at, 1);
                at.as_nanos()
            })
            .collect();
        assert_eq!(times, [3, 6, 8, 11, 14, 16]);
    }

    #[test]
    fn an_idle_time_ends_the_accumulation() {
        let mut serialiser = Serialiser::new(BitRate::from_bits_per_second(3_000_000_000));
        assert_eq!(send(&mut serialiser, Instant::ZERO, 1).as_nanos(), 3);
        assert_eq!(send(&mut serialiser, Instant::from_nanos(4), 1).as_nanos(), 7);
    }

    proptest! {
        #[test]
        fn a_busy_period_is_rounded_once(
            rate in 1..=u64::MAX,
            lens in prop::collection::vec(0usize..10_000, 1..50),
        ) {
            let mut serialiser = Serialiser::new(BitRate::from_bits_per_second(rate));
            let (mut at, mut bits) = (Instant::ZERO, 0u128);
            for len in lens {
                at = send(&mut serialiser, at, len);
                bits += len as u128 * 8;
                let exact = (bits * WORK_PER_BIT).div_ceil(u128::from(rate));
                prop_assert_eq!(u128::from(at.as_nanos()), exact.min(u128::from(u64::MAX)));
            }
        }
    }
}
