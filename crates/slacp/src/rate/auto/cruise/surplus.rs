//! The addition of the packets in flight to a queue that several sessions share.
//!
//! A session that is alone compares its data in flight with the link's capacity. One of several
//! compares it with its share at the time, and expects the same of the others: if its share shrinks
//! because another's grows, the queue stays as it is. So it adds up the fractions by which it
//! decided to exceed its share, or to stay below.

use std::collections::VecDeque;

use units::Instant;

use crate::spare::FreeSpare as _;

/// The sum up to a time by which the share was exceeded, in seconds of sending at the share.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    surplus: f64,
}

#[derive(Debug, Default)]
pub(super) struct Surplus {
    sent: VecDeque<Sent>,
    /// The newest entry up to which packets are acknowledged.
    known: Option<Sent>,
}

impl Surplus {
    /// Adds the time since the last call, in which the share was exceeded by this fraction.
    pub(super) fn sent(&mut self, now: Instant, fraction: f64) {
        let before = self.sent.back().or(self.known.as_ref());
        let surplus = before.map_or(0.0, |before| {
            before.surplus + fraction * now.saturating_since(before.at).as_secs_f64()
        });
        self.sent.push_back(Sent { at: now, surplus });
    }

    /// Frees memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.sent.free_spare();
    }

    /// Excess over the share of what was sent after `newest`, in seconds of sending at the share.
    pub(super) fn since(&mut self, newest: Instant) -> f64 {
        while let Some(sent) = self.sent.pop_front_if(|sent| sent.at <= newest) {
            self.known = Some(sent);
        }
        let Some(first) = self.known else { return 0.0 };
        let Some(last) = self.sent.back() else { return 0.0 };
        last.surplus - first.surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Instant {
        Instant::from_nanos(tenths * 100_000_000)
    }

    #[test]
    fn only_what_is_in_flight_counts() {
        let mut surplus = Surplus::default();
        for n in 0..=20 {
            surplus.sent(at(n), if n <= 10 { 0.5 } else { -0.2 });
        }
        let close = |seconds: f64, expected: f64| (seconds - expected).abs() < 1e-9;
        assert!(close(surplus.since(at(5)), 0.25 - 0.2));
        assert!(close(surplus.since(at(10)), -0.2));
        assert!(close(surplus.since(at(20)), 0.0));
    }
}
