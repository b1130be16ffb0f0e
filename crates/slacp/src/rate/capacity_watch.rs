//! Falls of the measured capacity of a link: for the operator.
//!
//! A fall is reported if for 10 s the capacity is below 70 % of the usual one before: a mean over
//! about 30 s. Noise of a measurement, and the dips of hand-overs, are shorter or smaller. After a
//! report the lower capacity is the usual one. At most one fall a minute is reported, so that a link
//! that varies all the time fills no log.

use core::time::Duration;

use units::{BitRate, Instant};

/// Share of the usual capacity, in percent, below which it has fallen.
const FALLEN: u64 = 70;
/// The capacity must be below that for this time.
const PERSISTENT: Duration = Duration::from_secs(10);
/// Interval of the samples, and how many make the mean.
const SAMPLE: Duration = Duration::from_secs(1);
const SAMPLES: u64 = 30;
/// Least time between two reports.
const SELDOM: Duration = Duration::from_secs(60);

/// A fall of the measured capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CapacityFall {
    pub(crate) from: BitRate,
    pub(crate) to: BitRate,
}

/// Watches the capacity that a session measures.
#[derive(Debug, Default)]
pub(crate) struct CapacityWatch {
    /// The usual capacity in bit/s; `None` before the first sample.
    usual: Option<u64>,
    low_since: Option<Instant>,
    /// Time of the next sample, and the earliest time of the next report.
    next: Instant,
    not_before: Instant,
}

impl CapacityWatch {
    /// Sees the capacity now, as often as there is news.
    pub(crate) fn see(&mut self, now: Instant, capacity: BitRate) -> Option<CapacityFall> {
        if now < self.next {
            return None;
        }
        self.next = now + SAMPLE;
        let present = capacity.bits_per_second();
        let usual = *self.usual.get_or_insert(present);
        if present * 100 >= usual * FALLEN {
            self.low_since = None;
            self.usual = Some((usual * (SAMPLES - 1) + present) / SAMPLES);
            return None;
        }
        let since = *self.low_since.get_or_insert(now);
        if now.saturating_since(since) < PERSISTENT || now < self.not_before {
            return None;
        }
        (self.usual, self.low_since, self.not_before) = (Some(present), None, now + SELDOM);
        Some(CapacityFall { from: BitRate::from_bits_per_second(usual), to: capacity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The falls that are reported if the capacity is that of each second.
    fn falls(capacity: impl Fn(u64) -> u64, seconds: u64) -> Vec<(u64, CapacityFall)> {
        let mut watch = CapacityWatch::default();
        let see = |second| {
            let now = Instant::ZERO + Duration::from_secs(second);
            let fall = watch.see(now, BitRate::from_mbit(capacity(second)))?;
            Some((second, fall))
        };
        (0..seconds).filter_map(see).collect()
    }

    #[test]
    fn a_lasting_fall_is_reported_once() {
        let found = falls(|second| if second < 60 { 50 } else { 20 }, 600);
        let (from, to) = (BitRate::from_mbit(50), BitRate::from_mbit(20));
        assert_eq!(found, [(70, CapacityFall { from, to })]);
    }

    #[test]
    fn noise_and_short_dips_are_no_falls() {
        assert_eq!(falls(|second| 50 - second % 13, 600), []);
        assert_eq!(falls(|second| if second % 30 < 9 { 10 } else { 50 }, 600), []);
    }

    #[test]
    fn a_link_that_varies_all_the_time_is_reported_once_a_minute_at_most() {
        let found = falls(|second| if second % 40 < 20 { 50 } else { 10 }, 1200);
        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 60), "{found:?}");
        assert!(found.len() > 2);
    }
}
