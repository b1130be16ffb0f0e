//! Pacing at the link rate (`docs/slacp.md`, Rate).

use core::time::Duration;

use shaping::VirtualSchedule;
use units::{BitRate, ByteCount, Instant};

/// Maximum time that one packet occupies the link, whatever the rate: that of a full packet at
/// 1,200 bit/s, slower than any link that carries IP. Sessions of a hub share a pacer, so a wrong
/// rate of one must not stop the others.
const MAX_OCCUPANCY: Duration = Duration::from_secs(10);

/// Maximum burst after a late wake-up: long enough for the timers of a general-purpose kernel,
/// short enough not to build a queue.
pub(crate) const BURST: Duration = Duration::from_millis(4);

/// Size of a full packet, in bytes.
const FULL_PACKET: u64 = 1500;

/// A portion of a rate, rounded down, but at least 1 bit/s of a rate above 0. A portion of 1 and
/// above is the rate itself.
pub(crate) fn portion_of(rate: BitRate, portion: f64) -> BitRate {
    if portion >= 1.0 {
        return rate;
    }
    let bits = rate.bits_per_second();
    BitRate::from_bits_per_second(((bits as f64 * portion) as u64).max(bits.min(1)))
}

/// Spaces packets so that they leave at no more than the rate. After a pause, as much as the rate
/// carries in the time `burst` may leave at once.
///
/// Does not model layer-2 overhead: the rate is that of IP packets.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: BitRate,
    burst: Duration,
    /// Maximum number of bytes that leave at once, whatever the rate.
    max_burst: Option<ByteCount>,
    /// The time at which the link has finished everything sent so far.
    schedule: VirtualSchedule,
}

impl Pacer {
    pub(crate) fn new(rate: BitRate, burst: Duration) -> Self {
        Self { rate, burst, max_burst: None, schedule: VirtualSchedule::default() }
    }

    /// The same pacer with bursts of at most `most` bytes.
    pub(crate) fn with_max_burst(self, most: Option<ByteCount>) -> Self {
        Self { max_burst: most, ..self }
    }

    /// The time at which the next packet may leave.
    pub(crate) fn ready_at(&self) -> Instant {
        self.schedule.free_at()
    }

    /// Changes the rate, also for the bytes that the link has yet to send.
    ///
    /// The pacer ignores rate 0: it stops only the session it applies to, and the others that share
    /// the link go on.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        if rate.bits_per_second() == 0 || rate == self.rate {
            return;
        }
        let old = core::mem::replace(&mut self.rate, rate);
        let backlog = self.ready_at().saturating_since(now);
        if backlog > Duration::ZERO {
            let owed = rate.time_to_send(old.bytes_in(backlog));
            // A new rate that is far too low must not block the link for others.
            self.schedule.set_free_at(now + owed.min(MAX_OCCUPANCY.max(backlog)));
        }
        debug_assert!(self.ready_at() < Instant::MAX, "the link comes free again");
    }

    /// Number of bytes that may leave in one burst at the time `now`.
    pub(crate) fn burst_left(&self, now: Instant) -> ByteCount {
        self.rate.bytes_in(now.saturating_since(self.start(now)))
    }

    /// Takes over the time at which other pacers of the same link expect it to be free.
    pub(crate) fn set_free_at(&mut self, free_at: Instant) {
        self.schedule.set_free_at(free_at);
    }

    /// Limits the burst that the pause has earned so far to what the rate carries in `most`.
    pub(crate) fn limit_burst(&mut self, now: Instant, most: Duration) {
        self.schedule.set_free_at(self.schedule.start(now, most));
    }

    /// Charges an IP packet of `size` bytes that leaves `now`. Returns the time that it occupies
    /// the link.
    pub(crate) fn charge(&mut self, now: Instant, size: ByteCount) -> Duration {
        // Before any rate is known, only handshakes and probes leave; they are not charged.
        if self.rate.bits_per_second() == 0 {
            return Duration::ZERO;
        }
        let time = self.rate.time_to_send(size).min(MAX_OCCUPANCY);
        self.schedule.charge(now, self.earned(), time);
        time
    }

    /// The time from which on a free link earns a burst.
    pub(crate) fn start(&self, now: Instant) -> Instant {
        self.schedule.start(now, self.earned())
    }

    /// Maximum time of a free link that may be made up for later.
    fn earned(&self) -> Duration {
        self.max_burst.map_or(self.burst, |most| {
            // The packet that leaves when the link becomes free belongs to the burst unearned.
            let rest = most.get().saturating_sub(FULL_PACKET);
            self.rate.time_to_send(ByteCount::new(rest)).min(self.burst)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: ByteCount = ByteCount::new(1500);

    fn sent_by(pacer: &mut Pacer, now: Instant) -> u32 {
        let mut count = 0;
        while pacer.ready_at() <= now {
            pacer.charge(now, PACKET);
            count += 1;
        }
        count
    }

    /// A bucket of two packets that is filled at the rate, and drops what finds it empty (RFC 2697
    /// §3).
    #[test]
    fn a_limited_burst_passes_a_policer_of_that_size() {
        for (most, late_us, dropped) in
            [(Some(3000), 300, 0), (Some(3000), 7000, 0), (None, 7000, 1)]
        {
            let pacer = Pacer::new(BitRate::from_mbit(12), Duration::from_millis(4));
            let mut pacer = pacer.with_max_burst(most.map(ByteCount::new));
            // In bits, of which a microsecond brings twelve.
            let (mut bucket, mut last) = (24_000, Instant::from_nanos(1_000_000_000));
            let mut drops = 0;
            for turn in 0..1000 {
                let micros = turn % 3 * late_us;
                last += Duration::from_micros(micros);
                bucket = 24_000.min(bucket + micros * 12);
                for _ in 0..sent_by(&mut pacer, last) {
                    match bucket.checked_sub(12_000) {
                        Some(rest) => bucket = rest,
                        None => drops += 1,
                    }
                }
            }
            assert_eq!(drops.min(1), dropped, "at most {most:?}, {late_us} µs late");
        }
    }

    #[test]
    fn keeps_the_rate_exactly_with_a_late_driver() {
        let mut pacer = Pacer::new(BitRate::from_mbit(12), Duration::from_millis(4)); // 1 packet/ms
        let start = Instant::from_nanos(1_000_000_000);
        sent_by(&mut pacer, start);
        let late = |ms| start + Duration::from_millis(ms);
        let sent: u32 = (1..=1000).map(|i| sent_by(&mut pacer, late(3 * i))).sum();
        assert_eq!(sent, 3000);
    }

    #[test]
    fn a_new_rate_holds_for_what_is_owed() {
        let mut pacer = Pacer::new(BitRate::from_mbit(12), Duration::from_millis(4));
        let start = Instant::from_nanos(1_000_000_000);
        let owed = |pacer: &Pacer| pacer.ready_at().saturating_since(start).as_millis();
        assert_eq!(sent_by(&mut pacer, start), 5);
        assert_eq!(owed(&pacer), 1);
        pacer.set_rate(start, BitRate::from_bits_per_second(1_200_000));
        assert_eq!(owed(&pacer), 10);
        pacer.set_rate(start, BitRate::from_mbit(12));
        assert_eq!(owed(&pacer), 1);
    }

    #[test]
    fn no_rate_holds_the_link_for_longer_than_one_slow_packet() {
        let start = Instant::from_nanos(1_000_000_000);
        for bits in [0, 1, 1000] {
            let mut pacer = Pacer::new(BitRate::from_mbit(12), Duration::from_millis(4));
            sent_by(&mut pacer, start);
            pacer.set_rate(start, BitRate::from_bits_per_second(bits));
            assert!(pacer.ready_at() <= start + MAX_OCCUPANCY, "{bits} bit/s");
            let next = pacer.ready_at();
            pacer.charge(next, PACKET);
            assert!(pacer.ready_at() <= next + MAX_OCCUPANCY, "{bits} bit/s");
        }
    }

    #[test]
    fn a_pause_earns_no_more_than_the_burst() {
        let mut pacer = Pacer::new(BitRate::from_mbit(12), Duration::from_millis(4));
        assert_eq!(sent_by(&mut pacer, Instant::from_nanos(10_000_000_000)), 5);
    }
}
