//! The second stage: bits leave at the link rate, one packet at a time.
//!
//! This is exact. Departure times are rounded up to the nanosecond, but what rounding adds to one
//! packet is subtracted from the next. So the n-th packet of a busy period leaves at the start of
//! the period plus the time for all bits so far, rounded up once.
//!
//! The rate may change while a packet is being sent: bits that have left stay sent, and the rest
//! leaves at the new rate.
//!
//! A packet takes the time of its encapsulated size.
//!
//! Not modelled: waiting for a frame, slot or grant to start.

use units::Instant;

use crate::encapsulation::Framer;
use crate::payload::NumberedPacket;
use crate::rate::{WORK_PER_BIT, WorkCapacity, WorkCompletion};
use crate::{Encapsulation, Rate};

/// Sends one packet at a time.
#[derive(Debug)]
pub(crate) struct Serialiser<P> {
    capacity: WorkCapacity,
    framer: Framer,
    current: Option<PacketInService<P>>,
    /// Time at which the last packet had left.
    free_since: Instant,
    /// Work left over in the last, partial nanosecond before `free_since`, or in the opportunity at
    /// that time.
    credit: u64,
}

#[derive(Debug)]
struct PacketInService<P> {
    frame: NumberedPacket<P>,
    /// Time at which its first bit left.
    begun: Instant,
    /// The work that remained at `since`.
    left: u128,
    since: Instant,
    /// Time at which the last bit will have left; `None` if it never will, as at rate 0.
    finish: Option<WorkCompletion>,
}

/// A packet that has left.
#[derive(Debug)]
pub(crate) struct SerialisedPacket<P> {
    /// Time at which its last bit left.
    pub(crate) at: Instant,
    pub(crate) frame: NumberedPacket<P>,
    /// Serialisation time in nanoseconds; 0 at a delivery opportunity.
    pub(crate) airtime: u64,
}

impl<P> Serialiser<P> {
    pub(crate) fn new(origin: Instant, rate: Rate, encapsulation: Encapsulation) -> Self {
        let capacity = WorkCapacity::new(rate, origin);
        let framer = Framer::new(encapsulation);
        Self { capacity, framer, current: None, free_since: Instant::ZERO, credit: 0 }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the time at which the last bit of the current packet will have left.
    #[inline]
    pub(crate) fn finish(&self) -> Option<Instant> {
        self.current.as_ref()?.finish.map(|finish| finish.at)
    }

    /// Returns the time at which the current packet will have left, with the packet's number.
    pub(crate) fn departure(&self) -> Option<(Instant, u64)> {
        let current = self.current.as_ref()?;
        current.finish.map(|finish| (finish.at, current.frame.number))
    }

    /// Changes the rate at `now`, after everything due has been taken. What has left of the current
    /// packet stays sent; the rest leaves at the new rate.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: Rate) {
        let next = WorkCapacity::new(rate, now);
        if let Some(current) = &mut self.current {
            let done = self.capacity.work_between(current.since, now);
            // Bits that have left stay sent.
            current.left = current.left.saturating_sub(done);
            current.since = current.since.max(now);
            current.finish = next.time_for(current.since, current.left);
        }
        self.capacity = next;
    }

    /// Changes the encapsulation of packets started from now on.
    pub(crate) fn set_encapsulation(&mut self, encapsulation: Encapsulation) {
        self.framer = Framer::new(encapsulation);
    }

    /// Starts to send `frame` at `at`. The serialiser must be free.
    #[inline(always)]
    pub(crate) fn begin(&mut self, at: Instant, mut frame: NumberedPacket<P>) {
        debug_assert!(self.is_free(), "two packets in the serialiser");
        let pause = at > self.free_since;
        if pause {
            self.free_since = at;
            // Capacity that was not used during the pause is lost.
            self.credit = 0;
        }
        let since = self.free_since;
        // RFC 4326 §6.3: packing needs a packet that is already waiting.
        let carried = self.framer.charge(frame.len, !pause);
        frame.carried = u64::try_from(carried).unwrap_or(u64::MAX);
        let work = carried * 8 * WORK_PER_BIT;
        let left = work.saturating_sub(self.credit.into());
        // `left` is at most `work`, and their difference at most the credit.
        self.credit -= (work - left) as u64;
        let finish = self.capacity.time_for(since, left);
        self.current = Some(PacketInService { frame, begun: since, left, since, finish });
    }

    /// Takes the current packet if it has left by `now`.
    #[inline]
    pub(crate) fn pop_finished(&mut self, now: Instant) -> Option<SerialisedPacket<P>> {
        let current = self
            .current
            .take_if(|current| current.finish.is_some_and(|finish| finish.at <= now))?;
        let finish = current.finish?;
        self.free_since = finish.at;
        self.credit += finish.spare;
        // An opportunity carries its packets in no time.
        let begun = if self.capacity.is_instant() { finish.at } else { current.begun };
        let airtime = finish.at.as_nanos().saturating_sub(begun.as_nanos());
        Some(SerialisedPacket { at: finish.at, frame: current.frame, airtime })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;
    use units::BitRate;

    use super::*;
    use crate::{Opportunities, Trace};

    fn serialiser(rate: BitRate) -> Serialiser<usize> {
        Serialiser::new(Instant::ZERO, rate.into(), Encapsulation::None)
    }

    fn frame(len: usize) -> NumberedPacket<usize> {
        NumberedPacket { packet: len, len, carried: 0, number: 0 }
    }

    fn send(serialiser: &mut Serialiser<usize>, at: Instant, len: usize) -> Instant {
        serialiser.begin(at, frame(len));
        serialiser.pop_finished(Instant::MAX).unwrap().at
    }

    #[test]
    fn a_packet_at_50_mbit_takes_240_microseconds() {
        let mut serialiser = serialiser(BitRate::from_mbit(50));
        let at = Instant::from_nanos(7);
        assert_eq!(send(&mut serialiser, at, 1500), at + Duration::from_micros(240));
    }

    #[test]
    fn nothing_finishes_early() {
        let mut serialiser = serialiser(BitRate::from_mbit(50));
        serialiser.begin(Instant::ZERO, frame(1500));
        assert!(serialiser.pop_finished(Instant::from_nanos(239_999)).is_none());
        assert!(!serialiser.is_free());
        assert!(serialiser.pop_finished(Instant::from_nanos(240_000)).is_some());
        assert!(serialiser.is_free());
    }

    #[test]
    fn rate_zero_never_sends() {
        let mut serialiser = serialiser(BitRate::from_bits_per_second(0));
        serialiser.begin(Instant::ZERO, frame(0));
        assert_eq!(serialiser.finish(), None);
        assert!(serialiser.pop_finished(Instant::MAX).is_none());
    }

    #[test]
    fn what_has_left_stays_sent_when_the_rate_changes() {
        let mut serialiser = serialiser(BitRate::from_mbit(50));
        serialiser.begin(Instant::ZERO, frame(1500));
        let half = Instant::from_nanos(120_000);
        let pause = Instant::from_nanos(500_000);
        serialiser.set_rate(half, BitRate::from_bits_per_second(0).into());
        assert_eq!(serialiser.finish(), None);
        serialiser.set_rate(pause, BitRate::from_mbit(25).into());
        assert_eq!(serialiser.finish(), Some(Instant::from_nanos(740_000)));
        let sent = serialiser.pop_finished(Instant::MAX).unwrap();
        assert_eq!(sent.airtime, 740_000);
    }

    #[test]
    fn a_third_of_a_nanosecond_does_not_add_up() {
        // 3 Gbit/s: a byte takes 2 ⅔ ns.
        let mut serialiser = serialiser(BitRate::from_bits_per_second(3_000_000_000));
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
        let mut serialiser = serialiser(BitRate::from_bits_per_second(3_000_000_000));
        assert_eq!(send(&mut serialiser, Instant::ZERO, 1).as_nanos(), 3);
        assert_eq!(send(&mut serialiser, Instant::from_nanos(4), 1).as_nanos(), 7);
    }

    fn traced(rate: Rate) -> Serialiser<usize> {
        Serialiser::new(Instant::from_nanos(1_000_000), rate, Encapsulation::None)
    }

    /// 240 µs at 50 Mbit/s, but the rate is halved after 120 of them.
    #[test]
    fn a_trace_changes_the_rate_within_a_packet() {
        let trace = Trace::parse("0s 50 Mbit/s\n120us 25 Mbit/s\n1s 0 bit/s").unwrap();
        let mut serialiser = traced(Rate::Trace(trace));
        let origin = Instant::from_nanos(1_000_000);
        assert_eq!(send(&mut serialiser, origin, 1500), origin + Duration::from_micros(360));
        assert_eq!(send(&mut serialiser, origin, 1500), origin + Duration::from_micros(840));
        serialiser.begin(origin + Duration::from_secs(1), frame(1));
        assert_eq!(serialiser.finish(), None);
    }

    /// Three opportunities, at 1, 4 and 5 ms of the trace, which starts at 1 ms.
    #[test]
    fn opportunities_deliver_1500_bytes_each() {
        let trace = Opportunities::parse("1\n4\n5").unwrap();
        let mut serialiser = traced(Rate::Opportunities(trace));
        let ms = |nanos: Instant| nanos.as_nanos() / 1_000_000;
        let origin = Instant::from_nanos(1_000_000);
        // Two short packets and most of a third leave at the first.
        let times = [700, 700, 200, 1400].map(|len| ms(send(&mut serialiser, origin, len)));
        assert_eq!(times, [2, 2, 5, 5]);
        // After a pause nothing of that is left; 1500 bytes and one more take two.
        let later = Instant::from_nanos(5_500_000);
        assert_eq!(ms(send(&mut serialiser, later, 1501)), 7);
        assert_eq!(ms(send(&mut serialiser, later, 1499)), 7);
        assert_eq!(ms(send(&mut serialiser, later, 1)), 10);
    }

    #[test]
    fn cells_take_the_time_of_cells() {
        let aal5 = Encapsulation::Aal5 { llc_snap: false };
        let mut serialiser = Serialiser::new(Instant::ZERO, BitRate::from_mbit(53).into(), aal5);
        // 32 cells of 53 bytes at 53 Mbit/s.
        assert_eq!(send(&mut serialiser, Instant::ZERO, 1500), Instant::from_nanos(256_000));
        serialiser.set_encapsulation(Encapsulation::None);
        assert_eq!(send(&mut serialiser, Instant::ZERO, 53), Instant::from_nanos(264_000));
    }

    #[test]
    fn packing_ends_when_the_link_falls_idle() {
        let packed = "ule packed".parse().unwrap();
        let mut serialiser = Serialiser::new(Instant::ZERO, BitRate::from_mbit(188).into(), packed);
        let times = [0, 8_000, 8_000, 20_000]
            .map(|at| send(&mut serialiser, Instant::from_nanos(at), 40).as_nanos());
        assert_eq!(times, [8_000, 8_000, 8_000, 28_000]);
    }

    proptest! {
        /// Whatever the rates and whenever they change, the work done in between is that of the
        /// packet, to the nanosecond.
        #[test]
        fn changes_of_rate_neither_add_nor_lose_bits(
            len in 1usize..10_000,
            first in 0u64..10_000_000,
            changes in prop::collection::vec((1u64..10_000_000, 0u64..10_000_000), 0..20),
        ) {
            let mut serialiser = serialiser(BitRate::from_bits_per_second(first));
            serialiser.begin(Instant::ZERO, frame(len));
            let mut now = 0u64;
            let mut rate = first;
            let mut done = 0u128;
            let work = len as u128 * 8 * WORK_PER_BIT;
            for (gap, next) in changes {
                let step = u128::from(gap) * u128::from(rate);
                if serialiser.pop_finished(Instant::from_nanos(now + gap)).is_some() {
                    prop_assert!(done + step >= work);
                    return Ok(());
                }
                (now, done) = (now + gap, done + step);
                prop_assert!(done < work);
                let at = Instant::from_nanos(now);
                serialiser.set_rate(at, BitRate::from_bits_per_second(next).into());
                rate = next;
            }
            let expected = (rate > 0)
                .then(|| now + (work - done).div_ceil(u128::from(rate)) as u64)
                .map(Instant::from_nanos);
            prop_assert_eq!(serialiser.finish(), expected);
        }

        #[test]
        fn a_busy_period_is_rounded_once(
            rate in 1..=u64::MAX,
            lens in prop::collection::vec(0usize..10_000, 1..50),
        ) {
            let mut serialiser = serialiser(BitRate::from_bits_per_second(rate));
            let mut at = Instant::ZERO;
            let mut bits = 0u128;
            for len in lens {
                at = send(&mut serialiser, at, len);
                bits += len as u128 * 8;
                let exact = (bits * WORK_PER_BIT).div_ceil(u128::from(rate));
                prop_assert_eq!(u128::from(at.as_nanos()), exact.min(u128::from(u64::MAX)));
            }
        }
    }
}
