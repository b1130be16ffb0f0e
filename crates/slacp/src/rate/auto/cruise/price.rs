//! The queue as a price. All sessions on a link see the same queue, so each can read from it how
//! many there are and what its fair share is ([`Law::share`]); and all let the queue be where it
//! has been for some time, so that they do not work against each other.
//!
//! The price follows the queue slowly, and the *inflow*: if the sessions together are growing
//! towards their fair shares, those are too large, and the price rises until they are not.

use crate::rate::law::Law;

/// Time constant of the price, in feedback times: long against the settling of the queue, so that
/// the two loops do not interact.
const SLOW: f64 = 10.0;
/// Time constant of its reaction to the inflow, in feedback times; the inflow itself is known after
/// about two.
const BALANCE: f64 = 4.0;

#[derive(Debug)]
pub(super) struct Price {
    /// The queue that has stood for some time, in seconds.
    queue: f64,
    /// The delay variation in that time, in seconds.
    noise: f64,
}

/// What a session sees of the queue at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Queueing delay and delay variation, in seconds.
    pub(super) queue: f64,
    pub(super) noise: f64,
    /// How much faster the queue grows than by this session's doing, per second.
    pub(super) inflow: f64,
    /// The longest queue that counts, in seconds.
    pub(super) most: f64,
}

impl Price {
    pub(super) fn new(queue: f64) -> Self {
        Self { queue, noise: 0.0 }
    }

    /// The queue to let stand, in seconds.
    pub(super) fn queue(&self) -> f64 {
        self.queue
    }

    /// Starts from this queue, in seconds.
    pub(super) fn reset(&mut self, queue: f64) {
        self.queue = queue;
    }

    /// Follows what was seen for `passed` seconds, with a feedback time in seconds.
    pub(super) fn follow(&mut self, law: &Law, seen: Seen, passed: f64, feedback: f64) {
        let balance = law.slope / (BALANCE * law.fairness * feedback);
        self.queue = (self.queue + balance * seen.inflow * passed).max(law.alone);
        let part = (passed / (SLOW * feedback)).min(1.0);
        self.queue += (seen.queue.min(seen.most) - self.queue) * part;
        self.noise += (seen.noise - self.noise) * part;
    }

    /// Each session's fair share of a link, both in bit/s.
    pub(super) fn fair_share(&self, law: &Law, link: f64) -> f64 {
        law.share(link, self.queue - self.noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: f64 = 50e6;

    fn seen(queue: f64, inflow: f64) -> Seen {
        Seen { queue, noise: 0.0, inflow, most: 0.06 }
    }

    /// A price after 60 s of the same sight, with a feedback time of 1 s.
    fn after(queue: f64, inflow: f64) -> Price {
        let mut price = Price::new(0.02);
        (0..600).for_each(|_| price.follow(&Law::default(), seen(queue, inflow), 0.1, 1.0));
        price
    }

    #[test]
    fn the_price_is_the_queue_that_has_stood() {
        let law = Law::default();
        let price = after(law.queue(LINK, LINK / 8.0), 0.0);
        assert!((price.fair_share(&law, LINK) / (LINK / 8.0) - 1.0).abs() < 0.01, "{price:?}");
    }

    #[test]
    fn inflow_makes_shares_smaller() {
        let law = Law::default();
        let [more, same] = [0.05, 0.0].map(|inflow| after(0.02, inflow).fair_share(&law, LINK));
        assert!(more < 0.8 * same, "{more} {same}");
    }

    #[test]
    fn an_accident_is_no_price() {
        let price = after(0.6, 0.0);
        assert!(price.queue() <= 0.06, "{price:?}");
    }
}
