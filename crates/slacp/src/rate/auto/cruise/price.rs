//! The queue as a price. All sessions on a link see the same queue, so each can read from it how
//! many there are and what its fair share is ([`Law::share`]); and all let the queue be where it
//! has been for some time, so that they do not work against each other.
//!
//! The price follows the queue slowly, and the *inflow*: if the sessions together are growing
//! towards their fair shares, those are too large, and the price rises until they are not.

use crate::rate::law::Law;

/// Gain per feedback time of the loop from queue to price to shares and back to the queue. It acts
/// a feedback time late, together with the observer's gain of 0.67, and both must stay below π/2.
/// With 1.5, two sessions on a GEO hop oscillated with a period of four feedback times.
const GAIN: f64 = 0.5;
/// Minimum time constant of the price, in feedback times.
const SLOW: f64 = 2.0;
/// A queue above this multiple of the longest that is a price is an accident: many sessions begin at
/// once. Earlier queues are no measure then, and the price counts as this many feedback times old.
const ACCIDENT: f64 = 3.0;
const DOUBT: f64 = 6.0;
/// Time constant of its reaction to the inflow, in feedback times; the inflow itself is known after
/// about two.
const BALANCE: f64 = 4.0;
/// A session with less than this part of its fair share grows as fast as one with this part.
/// Otherwise one that has lost nearly all would grow by a few percent of nearly nothing, whatever
/// the law allows it. Least share of 32 sessions, worst of four seeds: 0.24, 0.64, 0.83 and 0.78
/// with 0, 0.33, 0.5 and 1 (bench `rate -- crowds 4`); two that begin together share less evenly
/// with 1.
const BACK: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Price {
    /// The queue that has stood for some time, in seconds.
    queue: f64,
    /// The delay variation in that time, in seconds.
    noise: f64,
    /// For how long the queue has been followed, in seconds.
    age: f64,
}

/// A session's view of the queue at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Queueing delay and delay variation, in seconds.
    pub(super) queue: f64,
    pub(super) noise: f64,
    /// Growth of the queue beyond what this session causes, in seconds per second.
    pub(super) inflow: f64,
    /// The longest queue that counts, in seconds.
    pub(super) most: f64,
}

impl Price {
    pub(super) fn new(queue: f64) -> Self {
        Self { queue, noise: 0.0, age: 0.0 }
    }

    /// The queue to let stand, in seconds.
    pub(super) fn queue(&self) -> f64 {
        self.queue
    }

    /// Starts from this queue, in seconds.
    pub(super) fn reset(&mut self, queue: f64) {
        (self.queue, self.age) = (queue, 0.0);
    }

    /// Follows the queue that was seen for `passed` seconds, with a feedback time in seconds.
    pub(super) fn follow(&mut self, law: &Law, seen: Seen, passed: f64, feedback: f64) {
        // A price that is too low lets all sessions grow, which shows as inflow.
        let balance = law.slope / (BALANCE * law.fairness * feedback);
        self.queue = (self.queue + balance * seen.inflow * passed).max(law.alone);
        let accident = seen.queue > ACCIDENT * seen.most;
        self.age = if accident { DOUBT * feedback } else { self.age + passed };
        let part = (passed / self.time_constant(law, feedback)).min(1.0);
        self.queue += (seen.queue.min(seen.most) - self.queue) * part;
        self.noise += (seen.noise - self.noise) * part;
        // Beyond the price of the least share, more changes nothing, and would take long to forget
        // (an integrator that winds up): slow sessions kept prices of 90 ms for half a minute.
        self.queue = self.queue.min(law.dearest() + self.noise);
    }

    /// Time constant in seconds with which the price follows the queue. A price that is off by δ
    /// lets the queue grow by `fairness` δ / `slope` per second until the change is seen. A new
    /// price is the mean of what was seen so far.
    fn time_constant(&self, law: &Law, feedback: f64) -> f64 {
        let slow = law.fairness * feedback * feedback / (law.slope * GAIN);
        slow.min(self.age).max(SLOW * feedback)
    }

    /// Each session's fair share of a link, both in bit/s.
    pub(super) fn fair_share(&self, law: &Law, link: f64) -> f64 {
        law.share(link, self.queue - self.noise)
    }

    /// Reference for the growth in a round, for a session whose best capacity is `best`; all in
    /// bit/s.
    pub(super) fn growth_reference(&self, law: &Law, link: f64, best: f64) -> f64 {
        best.max(BACK * self.fair_share(law, link))
    }

    /// The share after `part` of a feedback time, lowered towards the fair one if it is larger;
    /// rates in bit/s.
    pub(super) fn lowered(&self, law: &Law, link: f64, share: f64, part: f64) -> f64 {
        let more = (share - self.fair_share(law, link)).max(0.0);
        share - more * (law.fairness * part).min(1.0)
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

    /// What may be a queue and what jitter counts up to [`Seen::most`], which is longer the more there is.
    #[test]
    fn a_high_price_is_forgotten_in_the_same_time_whatever_the_jitter_was() {
        let law = Law::default();
        let later = |noise: f64| {
            let mut price = Price::new(0.02);
            let noisy = Seen { queue: 0.14, noise, inflow: 0.0, most: law.dearest() + 4.0 * noise };
            (0..6000).for_each(|_| price.follow(&law, noisy, 0.1, 1.0));
            (0..300).for_each(|_| price.follow(&law, seen(0.035, 0.0), 0.1, 1.0));
            price.fair_share(&law, LINK)
        };
        assert!((later(0.03) / later(0.0) - 1.0).abs() < 0.05, "{} {}", later(0.03), later(0.0));
    }

    #[test]
    fn shares_fall_to_the_fair_one_and_do_not_rise() {
        let (law, price) = (Law::default(), after(0.02, 0.0));
        let fair = price.fair_share(&law, LINK);
        let later = |share| (0..500).fold(share, |share, _| price.lowered(&law, LINK, share, 0.1));
        assert!((later(LINK) / fair - 1.0).abs() < 0.01);
        assert_eq!(later(fair / 2.0), fair / 2.0);
    }

    #[test]
    fn a_session_that_has_lost_all_has_half_of_its_share_after_34_rounds() {
        let (law, price) = (Law::default(), after(0.02, 0.0));
        let fair = price.fair_share(&law, LINK);
        let round = |share: f64, _| share + 0.03 * price.growth_reference(&law, LINK, share);
        let share = (0..34).fold(0.0, round);
        assert!((0.5..0.6).contains(&(share / fair)), "{share} {fair}");
    }

    #[test]
    fn inflow_makes_shares_smaller() {
        let law = Law::default();
        let [more, same] = [0.05, 0.0].map(|inflow| after(0.02, inflow).fair_share(&law, LINK));
        assert!(more < 0.8 * same, "{more} {same}");
    }

    /// The price after a step of the queue from 20 to 50 ms, so long before and after it.
    fn stepped(before: u32, after: u32) -> f64 {
        let mut price = Price::new(0.02);
        for (queue, tenths) in [(0.02, before), (0.05, after)] {
            (0..tenths).for_each(|_| price.follow(&Law::default(), seen(queue, 0.0), 0.1, 1.0));
        }
        price.queue()
    }

    #[test]
    fn a_new_price_is_found_sooner_than_an_old_one_is_left() {
        assert!(stepped(0, 60) > 0.045);
        assert!(stepped(600, 60) < 0.03);
    }

    #[test]
    fn an_accident_makes_the_price_doubtful() {
        let mut price = after(0.02, 0.0);
        price.follow(&Law::default(), seen(0.6, 0.0), 0.1, 1.0);
        (0..100).for_each(|_| price.follow(&Law::default(), seen(0.05, 0.0), 0.1, 1.0));
        assert!(price.queue() > 0.035, "{price:?}");
    }

    #[test]
    fn an_accident_is_no_price() {
        let price = after(0.6, 0.0);
        assert!(price.queue() <= 0.06, "{price:?}");
    }
}
