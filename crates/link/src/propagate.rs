//! The third stage: packets are on their way, and some do not arrive.
//!
//! Any number of packets propagates at once; they hinder nothing. Each arrives
//! the delay after its last bit was sent, in the order of (time, sequence
//! number), so that packets that arrive at the same instant keep their order
//! and none takes another's place. The delay is that of the moment at which the
//! last bit leaves; when it becomes shorter, packets that would overtake others
//! arrive together with the last of those.
//!
//! Whether a packet is lost is decided when it arrives: by the random number it
//! got when it was offered, by the state of the loss model, and by the outages. Its reception takes as long as
//! its serialisation took, and begins no earlier than the one before has ended.
//!
//! Not modelled: a delay that moves on its own (LEO, hand-over, jitter),
//! receivers that need time to decode, and reordering.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use crate::loss::Channel;
use crate::outage::{Outage, Outages};
use crate::payload::Frame;
use crate::reception::Reception;
use crate::schedule::Schedule;
use crate::{Dice, LinkConfig, Loss};

/// A packet at the far end.
#[derive(Debug)]
pub(crate) struct Arrival<P> {
    /// When its last bit was there.
    pub(crate) at: Instant,
    pub(crate) frame: Frame<P>,
    /// Whether it was there in vain.
    pub(crate) lost: bool,
}

/// Packets on their way.
#[derive(Debug)]
pub(crate) struct Propagation<P> {
    delay: Duration,
    channel: Channel,
    /// Gives each channel its seed.
    seeds: Dice,
    outages: Outages,
    flying: Schedule<Frame<P>>,
    /// Arrived before the last change of what is lost, and not taken yet.
    decided: VecDeque<Arrival<P>>,
    /// The last arrival that was given out to a departing packet.
    last: Instant,
    /// When the last reception ended.
    received: Instant,
}

impl<P> Propagation<P> {
    pub(crate) fn new(origin: Instant, config: LinkConfig, mut seeds: Dice) -> Self {
        Self {
            delay: config.delay,
            channel: Channel::new(config.loss, origin, seeds.bits()),
            seeds,
            outages: Outages::new(origin, config.outages),
            flying: Schedule::new(),
            decided: VecDeque::new(),
            last: Instant::ZERO,
            received: Instant::ZERO,
        }
    }

    /// Changes the delay of all packets that depart from now on.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Changes what is lost of that which arrives after `now`.
    pub(crate) fn set_loss(&mut self, now: Instant, loss: Loss) {
        self.decide(now);
        self.channel = Channel::new(loss, now, self.seeds.bits());
    }

    /// Adds an outage, for that which arrives after `now`.
    pub(crate) fn add_outage(&mut self, now: Instant, outage: Outage) {
        self.decide(now);
        self.outages.add(now, outage);
    }

    /// Ends the present outage and forgets the later ones.
    pub(crate) fn end_outages(&mut self, now: Instant) {
        self.decide(now);
        self.outages.end(now);
    }

    /// Takes over a packet whose last bit was sent at `at`.
    pub(crate) fn depart(&mut self, at: Instant, frame: Frame<P>) {
        self.last = self.arrival_of(at);
        self.flying.insert(self.last, frame);
    }

    /// Takes the next packet that is at the far end by `now`.
    pub(crate) fn pop_arrival(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.decided.pop_front().or_else(|| self.decide_next(now))
    }

    /// When the next packet arrives, given that the next one to depart does so
    /// at `departure`.
    pub(crate) fn next_arrival(&self, departure: Option<Instant>) -> Option<Instant> {
        let decided = self.decided.front().map(|arrival| arrival.at);
        let later = departure.map(|at| self.arrival_of(at));
        decided.into_iter().chain(self.flying.first()).chain(later).min()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.flying.len() + self.decided.len()
    }

    fn arrival_of(&self, departure: Instant) -> Instant {
        self.last.max(departure + self.delay)
    }

    /// Decides the fate of everything that arrives by `now`.
    fn decide(&mut self, now: Instant) {
        while let Some(arrival) = self.decide_next(now) {
            self.decided.push_back(arrival);
        }
    }

    fn decide_next(&mut self, now: Instant) -> Option<Arrival<P>> {
        let (at, frame) = self.flying.pop_due(now)?;
        let reception = Reception { from: self.received.max(at - frame.airtime), until: at };
        self.received = at;
        // Both are asked for every packet, so that an outage does not change
        // the luck of the packets after it.
        let (lost, silent) = (self.channel.loses(&frame, reception), self.outages.hit(reception));
        let lost = lost || silent;
        Some(Arrival { at, frame, lost })
    }
}

#[cfg(test)]
mod tests {
    use units::{BitRate, Probability};

    use super::*;
    use crate::QueueLimit;

    fn frame(packet: usize, chance: f64) -> Frame<usize> {
        Frame::new(packet, 100, chance)
    }

    fn propagation(delay: u64, loss: Loss) -> Propagation<usize> {
        let (rate, queue) = (BitRate::from_mbit(1), QueueLimit::Packets(1));
        let config = LinkConfig::new(rate, Duration::from_nanos(delay), loss, queue);
        Propagation::new(Instant::ZERO, config, Dice::new(1))
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn order(propagation: &mut Propagation<usize>) -> Vec<(u64, usize)> {
        core::iter::from_fn(|| propagation.pop_arrival(Instant::MAX))
            .map(|arrival| (arrival.at.as_nanos(), arrival.frame.packet))
            .collect()
    }

    #[test]
    fn packets_of_one_instant_keep_their_order() {
        let mut propagation = propagation(5, Loss::None);
        for packet in 0..100 {
            propagation.depart(Instant::ZERO, frame(packet, 0.5));
        }
        assert_eq!(order(&mut propagation), (0..100).map(|i| (5, i)).collect::<Vec<_>>());
    }

    #[test]
    fn a_packet_is_lost_when_its_chance_is_below_the_probability() {
        let mut propagation = propagation(0, Loss::Per(Probability::new(0.25).unwrap()));
        propagation.depart(Instant::ZERO, frame(0, 0.249));
        propagation.depart(Instant::ZERO, frame(1, 0.25));
        assert!(propagation.pop_arrival(Instant::ZERO).unwrap().lost);
        assert!(!propagation.pop_arrival(Instant::ZERO).unwrap().lost);
    }

    #[test]
    fn the_next_arrival_may_still_be_departing() {
        let mut propagation = propagation(5, Loss::None);
        assert_eq!(propagation.next_arrival(None), None);
        assert_eq!(propagation.next_arrival(Some(at(3))), Some(at(8)));
        propagation.depart(at(1), frame(0, 0.0));
        assert_eq!(propagation.next_arrival(Some(at(3))), Some(at(6)));
    }

    #[test]
    fn a_shorter_delay_overtakes_nothing() {
        let mut propagation = propagation(100, Loss::None);
        propagation.depart(at(0), frame(0, 0.0));
        propagation.set_delay(Duration::from_nanos(10));
        propagation.depart(at(1), frame(1, 0.0));
        assert_eq!(propagation.next_arrival(Some(at(2))), Some(at(100)));
        propagation.depart(at(95), frame(2, 0.0));
        assert_eq!(order(&mut propagation), [(100, 0), (100, 1), (105, 2)]);
    }

    #[test]
    fn new_losses_do_not_reach_back() {
        let mut propagation = propagation(0, Loss::None);
        propagation.depart(at(1), frame(0, 0.5));
        propagation.depart(at(2), frame(1, 0.5));
        propagation.set_loss(at(1), Loss::Per(Probability::ONE));
        assert_eq!(propagation.next_arrival(None), Some(at(1)));
        assert!(!propagation.pop_arrival(at(2)).unwrap().lost);
        assert!(propagation.pop_arrival(at(2)).unwrap().lost);
    }
}
