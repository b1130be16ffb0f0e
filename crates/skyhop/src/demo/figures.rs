//! The arithmetic behind the table.

use std::time::Duration;

use meter::{BulkReport, Outcome, RrReport, stats};
use serde::Serialize;
use units::{BitRate, Probability};

/// What one direction of the link can carry at best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// Rate of the link.
    pub(crate) rate: BitRate,
    /// Share of the packets that is lost.
    pub(crate) per: Probability,
    /// Round-trip time of the empty link.
    pub(crate) rtt: Duration,
}

impl Limit {
    /// Bits per second that arrive when the link is never idle: rate × (1 − PER).
    pub(crate) fn bits_per_second(&self) -> f64 {
        self.rate.bits_per_second() as f64 * (1.0 - self.per.get())
    }

    /// The time in seconds that `bytes` take at the limit: one RTT (the request
    /// goes up, the first byte comes down) and then bytes at the limit.
    pub(crate) fn seconds(&self, bytes: u64) -> f64 {
        self.rtt.as_secs_f64() + bytes as f64 * 8.0 / self.bits_per_second()
    }
}

/// The figures of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Transfer {
    /// Whether every byte arrived, verified.
    pub(crate) complete: bool,
    /// Bytes that the receiver had.
    pub(crate) moved_bytes: u64,
    /// From before connect until the last byte, or until it was given up.
    pub(crate) seconds: f64,
    /// From before connect until the first payload byte; the latest, if there
    /// are several flows. `None` if a flow had none.
    pub(crate) first_byte_seconds: Option<f64>,
    /// Bytes moved over that time, in bit/s.
    pub(crate) goodput: f64,
    /// Goodput over rate × (1 − PER).
    pub(crate) of_limit: f64,
    /// The time that the moved bytes would have taken at the limit, over the
    /// time they took. 0 if none moved.
    pub(crate) share: f64,
}

impl Transfer {
    /// The figures of `report`; `None` if it failed otherwise than by the time
    /// limit.
    pub(crate) fn of(report: &BulkReport, limit: &Limit) -> Option<Self> {
        if report.flows.iter().any(|flow| is_failure(&flow.outcome)) {
            return None;
        }
        let first_bytes: Option<Vec<Duration>> =
            report.flows.iter().map(|f| f.first_byte).collect();
        let first_byte = first_bytes.and_then(|times| times.into_iter().max());
        let seconds = report.total.as_secs_f64();
        let figures = Self::new(report.is_complete(), report.moved_bytes, seconds, limit);
        Some(Self { first_byte_seconds: first_byte.map(|time| time.as_secs_f64()), ..figures })
    }

    fn new(complete: bool, moved_bytes: u64, seconds: f64, limit: &Limit) -> Self {
        let goodput = moved_bytes as f64 * 8.0 / seconds;
        let share = if moved_bytes == 0 { 0.0 } else { limit.seconds(moved_bytes) / seconds };
        let of_limit = goodput / limit.bits_per_second();
        Self { complete, moved_bytes, seconds, first_byte_seconds: None, goodput, of_limit, share }
    }
}

/// The figures of requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Requests {
    /// Whether every request was answered.
    pub(crate) complete: bool,
    /// How many were answered.
    pub(crate) answered: u64,
    /// From before the first connect until the last reply, or until given up.
    pub(crate) seconds: f64,
    /// Median response time of those that were answered.
    pub(crate) median_seconds: f64,
    /// 99th percentile of the same.
    pub(crate) p99_seconds: f64,
}

impl Requests {
    /// The figures of `report`; `None` if it failed otherwise than by the time
    /// limit, or nothing was answered.
    pub(crate) fn of(report: &RrReport) -> Option<Self> {
        if report.connections.iter().any(|connection| is_failure(&connection.outcome)) {
            return None;
        }
        let times = report.response_seconds?;
        Some(Self {
            complete: report.is_complete(),
            answered: report.answered(),
            seconds: report.total.as_secs_f64(),
            median_seconds: times.median,
            p99_seconds: times.p99,
        })
    }
}

fn is_failure(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Complete | Outcome::Unfinished)
}

/// Median, least and greatest of a figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of all samples; `None` without any.
    pub(crate) fn of(samples: impl Iterator<Item = f64>) -> Option<Self> {
        let samples: Vec<f64> = samples.collect();
        let summary = stats::Summary::of(&samples)?;
        let stats::Summary { median, min, max, .. } = summary;
        Some(Self { median, min, max })
    }
}

/// How many times better `ours` is than the best of `plain`, where more is
/// better. `None` if there is nothing to compare with.
pub(crate) fn gain_of_more(ours: f64, plain: impl Iterator<Item = f64>) -> Option<f64> {
    let best = plain.reduce(f64::max)?;
    (best > 0.0).then(|| ours / best)
}

/// How many times better `ours` is than the best of `plain`, where less is
/// better.
pub(crate) fn gain_of_less(ours: f64, plain: impl Iterator<Item = f64>) -> Option<f64> {
    let best = plain.reduce(f64::min)?;
    (ours > 0.0).then(|| best / ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEO: Duration = Duration::from_millis(600);

    fn limit(mbit: u64, per: f64) -> Limit {
        Limit { rate: BitRate::from_mbit(mbit), per: Probability::new(per).unwrap(), rtt: GEO }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn the_limit_of_20_megabytes_at_50_megabit_and_one_percent() {
        let limit = limit(50, 0.01);
        assert!(near(limit.bits_per_second(), 49.5e6));
        assert!(near(limit.seconds(20_000_000), 0.6 + 160.0 / 49.5));
    }

    #[test]
    fn a_transfer_at_the_limit_has_all_of_it() {
        let limit = limit(50, 0.01);
        let figures = Transfer::new(true, 20_000_000, limit.seconds(20_000_000), &limit);
        assert!(near(figures.share, 1.0));
        // The first RTT moves nothing, which the plain ratio holds against it.
        assert!(figures.of_limit > 0.84 && figures.of_limit < 0.85);
    }

    #[test]
    fn half_as_fast_is_half_the_share() {
        let limit = limit(10, 0.0);
        let figures = Transfer::new(true, 5_000_000, 2.0 * limit.seconds(5_000_000), &limit);
        assert!(near(figures.share, 0.5));
        assert!(near(figures.goodput, 40e6 / 9.2));
    }

    #[test]
    fn nothing_moved_is_no_share() {
        let figures = Transfer::new(false, 0, 20.0, &limit(50, 0.01));
        assert_eq!((figures.goodput, figures.of_limit, figures.share), (0.0, 0.0, 0.0));
    }

    #[test]
    fn gain_is_over_the_better_plain_one() {
        assert_eq!(gain_of_more(36.0, [0.6, 12.0].into_iter()), Some(3.0));
        assert_eq!(gain_of_less(0.6, [1.8, 1.2].into_iter()), Some(2.0));
        assert_eq!(gain_of_more(36.0, [].into_iter()), None);
        assert_eq!(gain_of_more(36.0, [0.0].into_iter()), None);
    }

    #[test]
    fn spread_over_rounds() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter()).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([].into_iter()), None);
    }
}
