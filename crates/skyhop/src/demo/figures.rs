//! The arithmetic behind the table.

use std::time::Duration;

use serde::Serialize;
use units::{BitRate, ByteCount, Probability};

use super::plan::{Task, Work};

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

    /// The least time in seconds for so much of a task: that of its bytes, or,
    /// if it consists of pieces, that of the pieces which have to follow each
    /// other. 0 for nothing.
    pub(crate) fn least_seconds(&self, task: Task, done: u64) -> f64 {
        match task.work() {
            _ if done == 0 => 0.0,
            Work::Flow(_) => self.seconds(done),
            Work::Pieces { size, at_a_time, .. } => {
                done.div_ceil(at_a_time.into()) as f64 * self.seconds(size.get())
            }
        }
    }
}

/// What a measurement came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Whether everything arrived, verified.
    pub(crate) complete: bool,
    /// Bytes, objects or replies that arrived.
    pub(crate) done: u64,
    /// Payload bytes of these.
    pub(crate) moved_bytes: u64,
    /// From before the first connect until the last byte, or until it was given
    /// up.
    pub(crate) seconds: f64,
    /// From before connect until the first payload byte; the latest, if there
    /// are several flows. `None` if a flow had none, and for pieces.
    pub(crate) first_byte_seconds: Option<f64>,
    /// Of pieces: their times. `None` if none came.
    pub(crate) response: Option<Response>,
    /// Bytes moved over the time, in bit/s.
    pub(crate) goodput: f64,
    /// Goodput over rate × (1 − PER).
    pub(crate) of_limit: f64,
    /// The least time for what was done, over the time it took.
    pub(crate) share: f64,
}

/// The times of all objects of a page or of all requests, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Response {
    /// Half of them took no longer.
    pub(crate) median_seconds: f64,
    /// 99 % of them took no longer.
    pub(crate) p99_seconds: f64,
}

impl Figures {
    /// Of so many bytes, objects or replies in that time, without first byte
    /// and responses.
    pub(crate) fn new(task: Task, done: u64, seconds: f64, limit: &Limit) -> Self {
        let size = match task.work() {
            Work::Flow(_) => ByteCount::new(1),
            Work::Pieces { size, .. } => size,
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
            share: limit.least_seconds(task, done) / seconds,
        }
    }

    /// The same, with the times of the pieces.
    pub(crate) fn with_responses(self, seconds: &[f64]) -> Self {
        let response = stats::Summary::of(seconds)
            .map(|times| Response { median_seconds: times.median, p99_seconds: times.p99 });
        Self { response, ..self }
    }
}

/// How many times better `ours` is than the best of `plain`, where more is
/// better. `None` if there is nothing to compare with.
pub(crate) fn gain(ours: f64, plain: impl Iterator<Item = f64>) -> Option<f64> {
    let best = plain.reduce(f64::max)?;
    (best > 0.0).then(|| ours / best)
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
        let least = limit.seconds(20_000_000);
        let figures = Figures::new(Task::Download, 20_000_000, least, &limit);
        assert!(figures.complete && near(figures.share, 1.0));
        // The first RTT moves nothing, which the plain ratio holds against it.
        assert!(figures.of_limit > 0.84 && figures.of_limit < 0.85);
    }

    #[test]
    fn half_as_fast_is_half_the_share() {
        let limit = limit(10, 0.0);
        let figures = Figures::new(Task::Upload, 3_000_000, 2.0 * limit.seconds(3_000_000), &limit);
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
        let half = Figures::new(Task::Page, 20, 10.0, &limit);
        assert!(!half.complete && half.moved_bytes == 1_000_000 && near(half.goodput, 800e3));
        assert!(near(half.share, row * 4.0 / 7.0 / 10.0));
        assert_eq!(half.response, None);
        let response = half.with_responses(&[1.0, 2.0, 3.0]).response.unwrap();
        assert!(near(response.median_seconds, 2.0) && near(response.p99_seconds, 2.98));
    }

    #[test]
    fn nothing_moved_is_no_share() {
        let figures = Figures::new(Task::Download, 0, 20.0, &limit(50, 0.01));
        assert_eq!((figures.goodput, figures.of_limit, figures.share), (0.0, 0.0, 0.0));
    }

    #[test]
    fn gain_is_over_the_better_plain_one() {
        assert_eq!(gain(36.0, [0.6, 12.0].into_iter()), Some(3.0));
        assert_eq!(gain(36.0, [].into_iter()), None);
        assert_eq!(gain(36.0, [0.0].into_iter()), None);
    }
}
