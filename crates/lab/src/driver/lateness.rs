//! Lateness of the driver: for each packet, the time between its delivery by the link and the
//! moment the kernel has accepted it.

use core::time::Duration;

/// Bucket width of the histogram.
const STEP: Duration = Duration::from_micros(10);
/// Number of buckets; the last one holds everything from 10 ms on.
const BUCKETS: usize = 1001;

/// A histogram of lateness in steps of 10 µs.
#[derive(Debug, Clone)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
    packets: u64,
    worst: Duration,
}

impl Lateness {
    /// Returns the number of packets counted.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the maximum lateness of a packet.
    pub fn worst(&self) -> Duration {
        self.worst
    }

    /// Returns the lateness at `quantile` (0 to 1), rounded up to 10 µs and capped at 10 ms.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let wanted = (quantile.clamp(0.0, 1.0) * self.packets as f64).ceil() as u64;
        let mut seen = 0;
        let full = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        let bucket = self.buckets.iter().position(full).unwrap_or(BUCKETS - 1);
        if self.packets == 0 { Duration::ZERO } else { STEP * (bucket as u32 + 1) }
    }

    /// Returns a histogram of the packets counted since `earlier`, a copy of this one. The maximum
    /// is only known to one bucket, unless it is the overall maximum.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut rest = self.clone();
        for (count, before) in rest.buckets.iter_mut().zip(earlier.buckets.iter()) {
            *count = count.saturating_sub(*before);
        }
        rest.packets = self.packets.saturating_sub(earlier.packets);
        if self.worst <= earlier.worst {
            rest.worst = rest.quantile(1.0).min(self.worst);
        }
        rest
    }

    /// Counts a packet that was sent `late`.
    pub(crate) fn add(&mut self, late: Duration) {
        let bucket = late.as_nanos() / STEP.as_nanos();
        self.buckets[usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)] += 1;
        self.packets += 1;
        self.worst = self.worst.max(late);
    }
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), packets: 0, worst: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_rounded_up_to_a_step() {
        let mut lateness = Lateness::default();
        (0..100).for_each(|micros| lateness.add(Duration::from_micros(micros)));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(50));
        assert_eq!(lateness.quantile(0.99), Duration::from_micros(100));
        assert_eq!(lateness.worst(), Duration::from_micros(99));
    }

    #[test]
    fn nothing_seen_is_not_late() {
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn what_came_since_is_counted_alone() {
        let mut lateness = Lateness::default();
        lateness.add(Duration::from_millis(5));
        let earlier = lateness.clone();
        (0..100).for_each(|_| lateness.add(Duration::from_micros(95)));
        let since = lateness.since(&earlier);
        assert_eq!((since.packets(), since.worst()), (100, Duration::from_micros(100)));
        assert_eq!(since.quantile(0.5), Duration::from_micros(100));
        lateness.add(Duration::from_millis(7));
        assert_eq!(lateness.since(&earlier).worst(), Duration::from_millis(7));
    }

    #[test]
    fn the_very_late_are_counted_too() {
        let mut lateness = Lateness::default();
        lateness.add(Duration::MAX);
        assert_eq!(lateness.quantile(1.0), STEP * BUCKETS as u32);
    }
}
