//! The threshold of the first slow start, from the spacing of the first
//! acknowledgements.

use core::time::Duration;

use units::Instant;

/// Number of acknowledgements used for the estimate, with three gaps between them.
const SPAN: u32 = 4;

/// Hoe ("Improving the Start-up Behavior of a Congestion Control Scheme for TCP", SIGCOMM 1996):
/// acknowledgements of segments sent together are spaced by the bottleneck, and their rate times
/// the RTT is the capacity of the path. Acknowledgements more than half an RTT apart belong to
/// different flights.
#[derive(Debug, Clone, Default)]
pub(super) struct ThresholdEstimate {
    first: Option<FirstAck>,
    last: Instant,
    seen: u32,
    is_done: bool,
}

#[derive(Debug, Clone, Copy)]
struct FirstAck {
    at: Instant,
    /// Bytes delivered in total until then.
    delivered: u64,
}

impl ThresholdEstimate {
    /// Handles an acknowledgement after which `delivered` bytes have been delivered in total.
    /// Returns the threshold in bytes, once.
    pub(super) fn on_ack(&mut self, now: Instant, delivered: u64, rtt: Duration) -> Option<u64> {
        if self.is_done {
            return None;
        }
        // Only acknowledgements of one flight show the rate; a gap begins another flight.
        let together = now.saturating_since(self.last) < rtt / 2;
        self.last = now;
        let Some(first) = self.first.filter(|_| together) else {
            self.first = Some(FirstAck { at: now, delivered });
            self.seen = 1;
            return None;
        };
        self.seen += 1;
        let time = now.saturating_since(first.at);
        if self.seen < SPAN || time.is_zero() {
            return None;
        }
        self.is_done = true;
        let bytes = u128::from(delivered - first.delivered) * rtt.as_nanos() / time.as_nanos();
        u64::try_from(bytes).ok()
    }

    /// Stops estimating: a loss has set the threshold.
    pub(super) fn give_up(&mut self) {
        self.is_done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_rate_of_the_bottleneck_times_the_rtt() {
        let mut estimate = ThresholdEstimate::default();
        // 1500 bytes every 2 ms is 6 Mbit/s, or 450,000 bytes in 600 ms.
        for n in 0..3 {
            assert_eq!(estimate.on_ack(at(600 + 2 * n), 1500 * (n + 1), RTT), None);
        }
        assert_eq!(estimate.on_ack(at(606), 6000, RTT), Some(450_000));
        assert_eq!(estimate.on_ack(at(608), 7500, RTT), None);
    }

    #[test]
    fn flights_are_not_mixed() {
        let mut estimate = ThresholdEstimate::default();
        for n in 0..3 {
            assert_eq!(estimate.on_ack(at(600 * (n + 1)), 1000 * (n + 1), RTT), None);
        }
        for n in 0..3 {
            assert_eq!(estimate.on_ack(at(2400 + n), 4000 + 1000 * n, RTT), None);
        }
        assert_eq!(estimate.on_ack(at(2403), 7000, RTT), Some(600_000));
    }

    #[test]
    fn a_loss_knows_better() {
        let mut estimate = ThresholdEstimate::default();
        estimate.give_up();
        assert!((0..9).all(|n| estimate.on_ack(at(600 + n), 1000 * n, RTT).is_none()));
    }
}
