//! Pacing at the link's real rate (`docs/slacp.md`, Rate).

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

/// Spaces packets so that no more than the rate leaves, with bursts after a
/// pause of at most what the rate gives in the time `burst`.
///
/// Does not model layer-2 overhead: the rate is that of IP packets.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: BitRate,
    burst: Duration,
    /// When the link is through with everything sent so far.
    free_at: Instant,
}

impl Pacer {
    pub(crate) fn new(rate: BitRate, burst: Duration) -> Self {
        Self { rate, burst, free_at: Instant::ZERO }
    }

    /// When the next packet may leave.
    pub(crate) fn ready_at(&self) -> Instant {
        self.free_at
    }

    /// Charges an IP packet of `size` bytes that leaves `now`.
    pub(crate) fn sent(&mut self, now: Instant, size: ByteCount) {
        self.free_at = self.free_at.max(now - self.burst) + self.rate.time_to_send(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: ByteCount = ByteCount::new(1500);

    fn sent_by(pacer: &mut Pacer, now: Instant) -> u32 {
        let mut count = 0;
        while pacer.ready_at() <= now {
            pacer.sent(now, PACKET);
            count += 1;
        }
        count
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
    fn a_pause_earns_no_more_than_the_burst() {
        let mut pacer = Pacer::new(BitRate::from_mbit(12), Duration::from_millis(4));
        assert_eq!(sent_by(&mut pacer, Instant::from_nanos(10_000_000_000)), 5);
    }
}
