//! Trains in the steady state: when one goes, and the conclusions from its result.

use units::Instant;

use super::super::Plan;
use super::loss::OwnLoss;
use super::overflow::OverflowTest;
use super::policing::Policing;
use super::probe::Found;
use super::{Cruise, MOST_BOOST};
use crate::rate::train::{Bucket, Measured, Unmeasured};

/// A session that gets more than the inverse of `ALONE` of a link has it to itself; so has one beside
/// others that take less than `TAKEN` of it.
const ALONE: f64 = 1.25;
const TAKEN: f64 = 0.25;
/// Maximum growth of the capacity by a train beside senders that fill the queue: what one of them
/// leaves for a moment is not ours.
const BESIDE: f64 = 1.25;
/// A queue that has been too long for this many feedback times is not that of a session alone:
/// after one it sees that its queue is too long, after the next that it drains. Without the wait,
/// two sessions with 600 and 300 ms share with a Jain's index of 0.88 instead of 0.98 (bench `rate
/// -- sharing 32`).
const LASTING: f64 = 2.0;
/// Share of losses from which trains of a crowd are taken to meet in its queue. Without waiting for
/// losses, the lesser of two of which the second begins 8 s later has 0.49 instead of 0.65 of its
/// share (bench `rate -- luck 8`).
const OVERFLOWS: f64 = 0.05;

impl Cruise {
    /// Returns `true` if [`Self::next_train`] need not wait for the previous train.
    pub(in super::super) fn train_is_urgent(&self) -> bool {
        self.probe.is_urgent()
    }

    /// Measures the path with the next packets, whatever train is in flight.
    pub(in super::super) fn search_at_once(&mut self) {
        self.probe.hurry();
    }

    /// Measures the whole link at once, unless a bucket hides it.
    pub(super) fn show_link(&mut self) {
        if self.policing.is_none() {
            self.probe.show_link();
        }
    }

    /// The train due before the next payload, if one is.
    pub(in super::super) fn next_train(&mut self) -> Option<Plan> {
        // At the upper limit there is nothing to search for.
        if self.capacity >= self.most {
            return None;
        }
        let plan = self.probe.next_train(self.share(), self.may_grow());
        if plan.is_some() {
            let now = self.seen_at;
            self.policing.iter_mut().for_each(|policing| policing.train_leaves(now));
        }
        plan
    }

    /// Returns `true` if a train may raise the capacity: free capacity of a shared link belongs to
    /// all sessions, and only a queue that stays empty shows that no other takes it.
    fn may_grow(&self) -> bool {
        !self.shared || self.boost >= MOST_BOOST / 2.0
    }

    /// Processes the result of a train, whose packets are in windows until then.
    pub(in super::super) fn train_came(
        &mut self,
        train: Result<Measured, Unmeasured>,
        until: Instant,
    ) {
        self.policing.iter_mut().for_each(|policing| policing.train_came(until));
        let link = self.probe.whole();
        let shown = train.as_ref().map_or(0.0, |seen| seen.received);
        let found = self.probe.train_came(train, self.capacity, self.noise);
        self.know_crowd(shown);
        // Bursts of many meet in an overflowing queue, and each shows only its part. A session that
        // took it for the whole link believed that it was alone.
        if self.shared && self.crowded && self.loss.excess() > OVERFLOWS {
            self.probe.know_link(link);
        }
        if self.probe.whole() < ALONE * self.capacity {
            self.set_shared(false);
        }
        match found {
            Found::Nothing => {}
            Found::Capacity(rate) => self.grow_to(rate),
            Found::Policed { bucket, capacity } => self.policed(bucket, capacity),
            Found::Link(rate) => self.link_shown(rate),
            Found::Others { taken, capacity } => {
                self.unforeseen.show_taken(taken);
                if taken.is_finite() {
                    self.set_shared(taken > TAKEN * self.probe.whole());
                }
                let beside = self.competition.is_there();
                let most = if beside { BESIDE * self.capacity } else { f64::INFINITY };
                capacity.into_iter().for_each(|capacity| self.grow_to(capacity.min(most)));
            }
        }
    }

    /// Takes `shown`, the rate of a train in bit/s, for the link's in a queue that others keep
    /// full, even if this session believed that its capacity was that of the link.
    fn know_crowd(&mut self, shown: f64) {
        let alone = !self.shared && self.policing.is_none();
        if alone && self.crowded_for >= LASTING && shown > ALONE * self.capacity {
            self.probe.know_link(shown);
            self.set_shared(true);
        }
    }

    /// Records the token bucket that a train has met. It hides the link and what others send.
    fn policed(&mut self, bucket: Bucket, capacity: Option<f64>) {
        self.unforeseen.show_link(f64::INFINITY);
        self.capacity = capacity.map_or(self.capacity, |capacity| capacity.min(self.most));
        self.probe.police(bucket);
        if self.policing.is_none() {
            self.police(self.seen_at);
        }
    }

    /// Follows a bucket's losses instead of the queue from now on: what exceeds the capacity is
    /// lost without a queue. The capacity is in effect from `effect` on.
    pub(super) fn police(&mut self, effect: Instant) {
        // Losses so far may have been the bucket's, and were taken for the link's own.
        if self.policing.is_none() {
            self.loss = OwnLoss::default();
            self.overflow_test = OverflowTest::new();
        }
        self.policing = Some(Policing::new(effect, self.loss.share()));
        self.set_shared(false);
        self.boost = 1.0;
    }

    fn link_shown(&mut self, rate: f64) {
        self.unforeseen.show_link(rate);
        if rate.is_finite() && rate > ALONE * self.capacity && !self.shared {
            self.unforeseen.ask();
            self.probe.show_others(rate);
        }
    }

    fn grow_to(&mut self, capacity: f64) {
        if self.may_grow() {
            self.capacity = capacity.min(self.most);
            self.policing = None;
        }
    }

    fn set_shared(&mut self, shared: bool) {
        if shared && !self.shared {
            self.shared = true;
            self.price.reset(self.target());
        }
        self.shared = shared;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Initial;
    use super::*;
    use crate::rate::law::Law;

    /// A session that takes 2 Mbit/s for the whole link, after a train has come at 20 Mbit/s through a
    /// queue that has been too long for so many feedback times.
    fn shown(crowded_for: f64) -> Cruise {
        let now = Instant::from_nanos(1_000_000_000);
        let mut cruise = Cruise::new(now, Initial::alone(2e6, 1e9), Law::default());
        (cruise.crowded, cruise.crowded_for) = (crowded_for > 0.0, crowded_for);
        cruise.search_at_once();
        cruise.next_train().expect("a train is due");
        let seen = Measured { sent: 1e9, received: 20e6, time: 0.05, error: 0.01 };
        cruise.train_came(Ok(seen), now);
        cruise
    }

    #[test]
    fn behind_a_lasting_queue_a_train_shows_the_link_of_a_crowd() {
        let cruise = shown(2.0 * LASTING);
        assert!(cruise.shared);
        assert_eq!((cruise.capacity, cruise.link()), (2e6, 20e6));
        for short in [0.0, LASTING / 2.0] {
            let cruise = shown(short);
            assert!(!cruise.shared && cruise.capacity > 2e6, "{short}: {}", cruise.capacity);
        }
    }
}
