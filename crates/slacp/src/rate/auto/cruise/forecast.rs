//! Compares forecasts of the queue with what packets met: a queue that persists although it should
//! have drained is not ours, and one that drains too early means that there is more capacity than
//! known.

use std::collections::VecDeque;

use units::Instant;

use crate::spare::FreeSpare as _;

/// A capacity below this fraction of the earlier one voids older forecasts.
const VOID: f64 = 0.75;

/// Bounds of the inflow, per second: more is an event, not a trend.
const INFLOW: f64 = 0.25;
/// A forecast for less time than this says nothing about it, in seconds.
const SHORTEST: f64 = 0.05;

/// The queue forecast for a packet.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// Sending time of the packet, and of those before the next forecast.
    at: Instant,
    /// The queue that it is to meet, in seconds.
    queue: f64,
    /// Time since the packet by which the queue was last known was sent, in seconds.
    ahead: f64,
}

#[derive(Debug, Default)]
pub(super) struct Forecast {
    made: VecDeque<Made>,
    /// Growth of the queue beyond the forecast, in seconds per second.
    inflow: f64,
    /// The forecast for the newest packet with known arrival.
    current: Option<f64>,
    /// Start of the present time with a queue larger than forecast.
    exceeded_since: Option<Instant>,
    /// The largest capacity since forecasts began, in bit/s.
    capacity: f64,
}

/// Deviations of the queue from its forecast that mean nothing, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    pub(super) below: f64,
    pub(super) above: f64,
}

/// Comparison of the queue with its forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Within the tolerance, or not judged yet.
    Met,
    /// The queue is larger, for the first time.
    Exceeded,
    /// The queue is still larger for packets sent after that was noticed, at this time.
    Stuck(Instant),
    /// The queue has drained earlier than forecast.
    Gone,
    /// The capacity is much lower than at the time of the forecast.
    Void,
}

impl Forecast {
    /// Notes the queue forecast for packets sent now, from one known `ahead` seconds ago.
    pub(super) fn make(&mut self, now: Instant, queue: f64, ahead: f64) {
        self.made.push_back(Made { at: now, queue, ahead });
    }

    /// Growth of the queue that others cause, beyond the forecast, in seconds per second.
    pub(super) fn inflow(&self) -> f64 {
        self.inflow
    }

    /// Learns the inflow from the queue met by a packet sent at `sent`, with this weight. It is part
    /// of the next forecasts (a disturbance observer), so it converges if the weights add up to less
    /// than 1 in a round trip.
    pub(super) fn learn_inflow(&mut self, sent: Instant, queue: f64, weight: f64) {
        let next = self.made.partition_point(|made| made.at <= sent);
        let Some(made) = next.checked_sub(1).and_then(|last| self.made.get(last)) else { return };
        let more = (queue - made.queue) / made.ahead.max(SHORTEST);
        self.inflow = (self.inflow + weight * more).clamp(-INFLOW, INFLOW);
    }

    /// Frees memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.made.free_spare();
    }

    /// Forgets the inflow, on a link without others.
    pub(super) fn forget_inflow(&mut self) {
        self.inflow = 0.0;
    }

    /// Judges the queue in seconds that a packet sent at `sent` has met, at a capacity in bit/s.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        sent: Instant,
        queue: f64,
        tolerance: Tolerance,
        capacity: f64,
    ) -> Outcome {
        if self.is_void(capacity) {
            return Outcome::Void;
        }
        while let Some(made) = self.made.pop_front_if(|made| made.at <= sent) {
            self.current = Some(made.queue);
        }
        let Some(forecast) = self.current else { return Outcome::Met };
        if queue < forecast - tolerance.below {
            return Outcome::Gone;
        }
        if queue <= forecast + tolerance.above {
            self.exceeded_since = None;
            return Outcome::Met;
        }
        let Some(since) = self.exceeded_since else {
            self.exceeded_since = Some(now);
            return Outcome::Exceeded;
        };
        // Packets that were in flight then were sent before the forecast could take it into
        // account.
        if sent <= since { Outcome::Met } else { Outcome::Stuck(since) }
    }

    /// Drops all forecasts and the inflow, at a capacity in bit/s.
    pub(super) fn reset(&mut self, capacity: f64) {
        *self = Self { capacity, ..Self::default() };
    }

    /// Drops all forecasts if they were made for a much larger capacity; returns `true` if so.
    fn is_void(&mut self, capacity: f64) -> bool {
        let void = capacity < VOID * self.capacity;
        if void {
            *self = Self { capacity, ..Self::default() };
        }
        self.capacity = self.capacity.max(capacity);
        void
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that grows by 5 % of the time although it should stay the same, with a round trip of
    /// 600 ms.
    #[test]
    fn the_inflow_is_learned() {
        let mut book = Forecast::default();
        for n in 0..200_u64 {
            let queue = 0.05 * 0.1 * n as f64;
            let known = queue - 0.05 * 0.6;
            book.make(at(n * 100), known + book.inflow() * 0.6, 0.6);
            let sent = at((n * 100).saturating_sub(600));
            book.learn_inflow(sent, known, 0.06);
        }
        assert!((book.inflow() - 0.05).abs() < 0.003, "{}", book.inflow());
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// The outcomes for a queue that is met 600 ms after each forecast of it.
    fn judge(forecast: f64, queue: f64, times: u64) -> Vec<Outcome> {
        let mut book = Forecast::default();
        (0..times)
            .map(|n| {
                book.make(at(n * 100), forecast, 0.6);
                let sent = at((n * 100).saturating_sub(600));
                let tolerance = Tolerance { below: 0.02, above: 0.02 };
                book.judge(at(n * 100), sent, queue, tolerance, 1e6)
            })
            .collect()
    }

    #[test]
    fn a_queue_as_forecast_is_nothing_special() {
        assert!(judge(0.05, 0.06, 20).iter().all(|outcome| *outcome == Outcome::Met));
    }

    #[test]
    fn a_queue_that_stays_for_a_round_trip_is_stuck() {
        let outcomes = judge(0.0, 0.3, 20);
        assert_eq!(
            outcomes.iter().position(|outcome| matches!(outcome, Outcome::Stuck(_))),
            Some(7)
        );
    }

    #[test]
    fn a_queue_that_vanishes_is_noticed_at_once() {
        assert_eq!(judge(0.05, 0.0, 9).last(), Some(&Outcome::Gone));
    }
}
