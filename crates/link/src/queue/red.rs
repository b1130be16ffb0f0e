//! RED: drops at random, with a probability that grows with the average queue length.
//!
//! S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (IEEE/ACM
//! ToN, August 1993), Figure 2, with the correction for idle times (§4), and "gentle" (S. Floyd,
//! 2000): between the upper threshold and its double the probability rises to 1, and above that
//! everything is dropped. ECN-capable packets are marked instead, but not above double the upper
//! threshold (RFC 3168 §7).
//!
//! Not modelled: queues measured in bytes, and the adaptation of `max_p`.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant, Probability};

use crate::Dice;

/// The parameters of RED, named as in the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    /// Average number of waiting packets below which no packet is dropped.
    pub min_threshold: f64,
    /// Average number of waiting packets at which the probability is `max_p`.
    pub max_threshold: f64,
    /// Probability at the upper threshold, before the count of packets since the last drop spreads
    /// the drops evenly.
    pub max_p: Probability,
    /// Weight of the current queue length in the average: w_q.
    pub weight: Probability,
    /// Serialisation time of a typical packet: s. While the link is idle, the average decays as if
    /// packets arrived at this interval to an empty queue.
    pub packet_time: Duration,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl Red {
    /// Floyd's recommendation for a link of `rate` with packets of `packet` bytes: thresholds of 5
    /// and 15 packets, `max_p` 0.1, weight 0.002; no ECN.
    pub fn recommended(rate: BitRate, packet: ByteCount) -> Self {
        let p = |value| Probability::new(value).unwrap_or_default();
        Self {
            min_threshold: 5.0,
            max_threshold: 15.0,
            max_p: p(0.1),
            weight: p(0.002),
            packet_time: rate.time_to_send(packet),
            ecn: false,
        }
    }
}

/// The decision about an arriving packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedAdvice {
    Accept,
    /// Mark it, or drop it if it cannot be marked.
    Early,
    Drop,
}

/// The state of RED: the variables of Figure 2.
#[derive(Debug)]
pub(super) struct RedState {
    pub(super) red: Red,
    dice: Dice,
    average: f64,
    /// Packets since the last drop; `None` below the lower threshold.
    count: Option<u64>,
    /// Time since which the queue has been empty.
    empty_since: Instant,
}

impl RedState {
    pub(super) fn new(red: Red, now: Instant, seed: u64) -> Self {
        Self { red, dice: Dice::new(seed), average: 0.0, count: None, empty_since: now }
    }

    /// Records that the queue is empty at `now`: its last packet has left, or one has bypassed it.
    pub(super) fn empty(&mut self, now: Instant) {
        self.empty_since = now;
    }

    /// Decides about a packet that arrives at `now` and finds `queued` others waiting.
    pub(super) fn advise(&mut self, now: Instant, queued: usize) -> RedAdvice {
        self.update_average(now, queued);
        let Some(probability) = self.probability() else {
            self.count = Some(0);
            return RedAdvice::Drop;
        };
        if self.average < self.red.min_threshold {
            self.count = None;
            return RedAdvice::Accept;
        }
        let count = self.count.map_or(0, |count| count + 1);
        // p_a = p_b / (1 − count · p_b): spreads drops evenly instead of in clusters.
        let rest = 1.0 - count as f64 * probability;
        let early = rest <= 0.0 || self.dice.chance() < probability / rest;
        self.count = Some(if early { 0 } else { count });
        if early { RedAdvice::Early } else { RedAdvice::Accept }
    }

    fn update_average(&mut self, now: Instant, queued: usize) {
        let keep = 1.0 - self.red.weight.get();
        if queued > 0 {
            self.average = keep * self.average + self.red.weight.get() * queued as f64;
            return;
        }
        let idle = now.saturating_since(self.empty_since).as_nanos();
        // With a packet time of zero, any pause resets the average.
        let missed = idle.checked_div(self.red.packet_time.as_nanos()).unwrap_or(u128::MAX);
        // One more for the arriving packet, which finds the queue empty as well.
        self.average *= power(keep, missed.saturating_add(1));
    }

    /// Returns p_b of Figure 2; `None` where everything is dropped.
    fn probability(&self) -> Option<f64> {
        let Red { min_threshold: min, max_threshold: max, max_p, .. } = self.red;
        let max_p = max_p.get();
        if self.average < min {
            return Some(0.0);
        }
        if self.average < max {
            return Some(max_p * (self.average - min) / (max - min));
        }
        // The "gentle" variant (Floyd, 2000).
        if self.average < 2.0 * max {
            return Some(max_p + (1.0 - max_p) * (self.average - max) / max);
        }
        None
    }
}

/// `base` to the power of `exponent` by multiplications only, because `powf` differs between
/// platforms.
fn power(base: f64, exponent: u128) -> f64 {
    let mut result = 1.0;
    let mut square = base;
    let mut rest = exponent;
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(min: f64, max: f64, max_p: f64, weight: f64) -> RedState {
        let p = |value| Probability::new(value).unwrap();
        let red = Red {
            min_threshold: min,
            max_threshold: max,
            max_p: p(max_p),
            weight: p(weight),
            packet_time: Duration::from_micros(240),
            ecn: false,
        };
        RedState::new(red, Instant::ZERO, 1)
    }

    #[test]
    fn the_average_follows_the_queue_slowly() {
        let mut red = state(5.0, 15.0, 0.1, 0.002);
        // The paper's equation 2: 1 − 0.998^50 after 50 packets.
        for _ in 0..50 {
            assert_eq!(red.advise(Instant::ZERO, 20), RedAdvice::Accept);
        }
        assert!((red.average / 20.0 - (1.0 - power(0.998, 50))).abs() < 1e-12);
    }

    #[test]
    fn an_idle_time_counts_as_small_packets() {
        let mut red = state(5.0, 15.0, 0.1, 0.5);
        red.average = 64.0;
        red.empty(Instant::from_nanos(1000));
        // Slightly more than three packet times, and the packet itself.
        red.advise(Instant::from_nanos(1000 + 3 * 240_000 + 100), 0);
        assert!((red.average - 4.0).abs() < 1e-12, "{}", red.average);
    }

    #[test]
    fn a_link_without_packet_time_forgets_at_once() {
        let mut red = state(5.0, 15.0, 0.1, 0.5);
        red.red.packet_time = Duration::ZERO;
        red.average = 64.0;
        red.advise(Instant::ZERO, 0);
        assert!(red.average < 1e-12);
    }

    /// With a weight of 1 the average is the queue, so the gentle curve can be
    /// read off.
    #[test]
    fn the_probability_has_three_pieces() {
        let at = |queued: f64| {
            let mut red = state(5.0, 15.0, 0.1, 1.0);
            red.average = queued;
            red.probability()
        };
        assert_eq!(at(4.9), Some(0.0));
        assert_eq!(at(5.0), Some(0.0));
        assert!((at(10.0).unwrap() - 0.05).abs() < 1e-12);
        assert!((at(15.0).unwrap() - 0.1).abs() < 1e-12);
        assert!((at(22.5).unwrap() - 0.55).abs() < 1e-12);
        assert_eq!(at(30.0), None);
    }

    /// With p_a the distance between two drops is uniform (§7 of the paper). Figure 2 starts with a
    /// count of 1 after a drop, so it is in 1 … 1 / p_b − 1.
    #[test]
    fn drops_are_spread_evenly() {
        let mut red = state(0.0, 20.0, 0.1, 1.0);
        let mut gaps = Vec::new();
        let mut gap = 0;
        while gaps.len() < 20_000 {
            gap += 1;
            // p_b = 0.05.
            if red.advise(Instant::ZERO, 10) == RedAdvice::Early {
                gaps.push(gap);
                gap = 0;
            }
        }
        let mean = gaps[1..].iter().sum::<u64>() as f64 / 19_999.0;
        assert!((mean - 10.0).abs() < 0.2, "{mean}");
        assert!(gaps[1..].iter().all(|gap| (1..=19).contains(gap)));
    }

    #[test]
    fn beyond_twice_the_upper_threshold_nothing_enters() {
        let mut red = state(5.0, 15.0, 0.1, 1.0);
        assert!((0..100).all(|_| red.advise(Instant::ZERO, 30) == RedAdvice::Drop));
    }
}
