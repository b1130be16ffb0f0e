//! The arithmetic behind the table.

use std::time::Duration;

use serde::Serialize;
use units::{BitRate, ByteCount, Probability};

use crate::plan::{Task, TaskWork};

/// Upper bound for one direction of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLimit {
    /// Rate of the link for full packets.
    pub rate: BitRate,
    /// Packet error rate, 0 to 1.
    pub per: Probability,
    /// Round-trip time with empty queues.
    pub rtt: Duration,
}

impl LinkLimit {
    /// Returns the bits per second delivered when the link is never idle: rate × (1 − PER).
    pub fn bits_per_second(&self) -> f64 {
        self.rate.bits_per_second() as f64 * (1.0 - self.per.get())
    }

    /// Returns the minimum time for `bytes`, in seconds: one RTT (request up, first byte down) plus
    /// serialisation at the limit.
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.rtt.as_secs_f64() + bytes as f64 * 8.0 / self.bits_per_second()
    }

    /// Returns the minimum time for `done` units of a task, in seconds: the time of its bytes, or,
    /// for objects and requests, of those that must follow each other. 0 if nothing was done.
    pub fn least_seconds(&self, task: Task, done: u64) -> f64 {
        match task.work() {
            _ if done == 0 => 0.0,
            TaskWork::Flow(_) => self.seconds(done),
            TaskWork::Pieces { size, at_a_time, .. } => {
                done.div_ceil(at_a_time.into()) as f64 * self.seconds(size.get())
            }
        }
    }
}

/// The figures of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TaskFigures {
    /// Set if everything arrived and was verified.
    pub complete: bool,
    /// Bytes, objects or replies received.
    pub done: u64,
    /// Number of payload bytes in `done`.
    pub moved_bytes: u64,
    /// Time from before the first connect to the last byte, or until the measurement gave up.
    pub seconds: f64,
    /// Time from before the connect to the first payload byte; with several flows, the latest one.
    /// `None` if any flow received nothing, and for objects and requests.
    pub first_byte_seconds: Option<f64>,
    /// Response times of objects or requests; `None` if no object or request was complete.
    pub response: Option<ResponseTimes>,
    /// Payload over time, in bit/s.
    pub goodput: f64,
    /// Goodput as a fraction of rate × (1 − PER).
    pub of_limit: f64,
    /// Minimum time for the work done, as a fraction of the time it took.
    pub share: f64,
}

/// Response times of all objects of a page or all requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ResponseTimes {
    /// Median response time, in seconds.
    pub median_seconds: f64,
    /// 99th percentile of the response times, in seconds.
    pub p99_seconds: f64,
}

impl TaskFigures {
    /// Computes the figures for `done` bytes, objects or replies in `seconds`, without first-byte
    /// and response times.
    pub fn new(task: Task, done: u64, seconds: f64, limit: &LinkLimit) -> Self {
        let size = match task.work() {
            TaskWork::Flow(_) => ByteCount::new(1),
            TaskWork::Pieces { size, .. } => size,
        };
        let moved_bytes = done * size.get();
        let goodput = moved_bytes as f64 * 8.0 / seconds;
        Self {
            complete: done == task.total(),
            done,
            moved_bytes,
            seconds,
            first_byte_seconds: None,
            response: None,
            goodput,
            of_limit: goodput / limit.bits_per_second(),
            // Of what was done, so that a task that ran out of time has a share, too.
            share: limit.least_seconds(task, done) / seconds,
        }
    }

    /// Adds the response times of objects or requests.
    pub fn with_responses(self, seconds: &[f64]) -> Self {
        let response = stats::SampleSummary::of(seconds)
            .map(|times| ResponseTimes { median_seconds: times.median, p99_seconds: times.p99 });
        Self { response, ..self }
    }
}

/// Returns the ratio of `ours` to the best of `plain` (higher is better). `None` if `plain` is
/// empty.
pub fn gain(ours: f64, plain: impl Iterator<Item = f64>) -> Option<f64> {
    let best = plain.reduce(f64::max)?;
    // If nothing arrived without the pair, there is nothing to compare with.
    (best > 0.0).then(|| ours / best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEO: Duration = Duration::from_millis(600);

    fn limit(mbit: u64, per: f64) -> LinkLimit {
        LinkLimit { rate: BitRate::from_mbit(mbit), per: Probability::new(per).unwrap(), rtt: GEO }
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
        let least = limit.seconds(20_000_000);
        let figures = TaskFigures::new(Task::Download, 20_000_000, least, &limit);
        assert!(figures.complete && near(figures.share, 1.0));
        // The plain ratio charges the first RTT, in which nothing moves.
        assert!(figures.of_limit > 0.84 && figures.of_limit < 0.85);
    }

    #[test]
    fn half_as_fast_is_half_the_share() {
        let limit = limit(10, 0.0);
        let figures =
            TaskFigures::new(Task::Upload, 3_000_000, 2.0 * limit.seconds(3_000_000), &limit);
        assert!(near(figures.share, 0.5));
        assert!(near(figures.goodput, 24e6 / 6.0));
    }

    #[test]
    fn pieces_follow_each_other() {
        let limit = limit(50, 0.0);
        // 40 objects, 6 at a time: 7 in a row.
        let row = 7.0 * (0.6 + 0.4 / 50.0);
        assert!(near(limit.least_seconds(Task::Page, 40), row));
        assert!(near(limit.least_seconds(Task::Requests, 100), 5.0 * (0.6 + 0.08 / 50.0)));
        let half = TaskFigures::new(Task::Page, 20, 10.0, &limit);
        assert!(!half.complete && half.moved_bytes == 1_000_000 && near(half.goodput, 800e3));
        assert!(near(half.share, row * 4.0 / 7.0 / 10.0));
        assert_eq!(half.response, None);
        let response = half.with_responses(&[1.0, 2.0, 3.0]).response.unwrap();
        assert!(near(response.median_seconds, 2.0) && near(response.p99_seconds, 2.98));
    }

    #[test]
    fn nothing_moved_is_no_share() {
        let figures = TaskFigures::new(Task::Download, 0, 20.0, &limit(50, 0.01));
        assert_eq!((figures.goodput, figures.of_limit, figures.share), (0.0, 0.0, 0.0));
    }

    #[test]
    fn gain_is_over_the_better_plain_one() {
        assert_eq!(gain(36.0, [0.6, 12.0].into_iter()), Some(3.0));
        assert_eq!(gain(36.0, [].into_iter()), None);
        assert_eq!(gain(36.0, [0.0].into_iter()), None);
    }
}
