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
//! Only with jitter that reorders they do overtake.
//!
//! Not modelled: receivers that need time to decode, and a Doppler shift: what
//! is sent within a step of the delay arrives at the rate at which it was sent.

use std::collections::VecDeque;

use units::{Instant, earliest};

use crate::delay::Path;
use crate::link::Wake;
use crate::loss::Channel;
use crate::outage::{Outage, Outages};
use crate::payload::Frame;
use crate::reception::Reception;
use crate::schedule::Schedule;
use crate::{Delay, Dice, Jitter, LinkConfig, Loss};

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
    path: Path,
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
            path: Path::new(config.delay, config.jitter, origin),
            channel: Channel::new(config.loss, origin, seeds.bits()),
            seeds,
            outages: Outages::new(origin, config.outages),
            flying: Schedule::new(),
            decided: VecDeque::new(),
            last: Instant::ZERO,
            received: Instant::ZERO,
        }
    }

    /// Changes the delay of all packets that depart from `now` on.
    pub(crate) fn set_delay(&mut self, now: Instant, delay: Delay) {
        self.path.set_delay(delay, now);
    }

    /// Changes the jitter of all packets that depart from now on.
    pub(crate) fn set_jitter(&mut self, jitter: Jitter) {
        self.path.jitter = jitter;
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
        let arrival = self.arrival_of(at, frame.luck);
        self.last = self.last.max(arrival);
        self.flying.insert(arrival, frame);
    }

    /// Whether a packet is at the far end by `now`.
    pub(crate) fn has_arrived(&self, now: Instant) -> bool {
        self.flying.first().is_some_and(|at| at <= now) || !self.decided.is_empty()
    }

    /// Whether packets overtake each other.
    pub(crate) fn reorders(&self) -> bool {
        self.path.jitter.reorders()
    }

    /// Takes the next packet that is at the far end by `now`.
    pub(crate) fn pop_arrival(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.decided.pop_front().or_else(|| self.decide_next(now))
    }

    /// What happens next, given when the next packet departs and its luck.
    pub(crate) fn next(&self, departure: Option<(Instant, u64)>) -> Option<(Instant, Wake)> {
        let decided = self.decided.front().map(|arrival| arrival.at);
        let arrival = decided.or(self.flying.first()).map(|at| (at, Wake::Arrival));
        // What departs later arrives no earlier.
        if arrival.is_some() && !self.path.jitter.reorders() {
            return arrival;
        }
        let later = departure.map(|(at, luck)| match self.path.jitter.reorders() {
            // One that departs later still may arrive before this one.
            true => (at, Wake::Departure),
            false => (self.arrival_of(at, luck), Wake::Arrival),
        });
        earliest(arrival, later)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.flying.len() + self.decided.len()
    }

    fn arrival_of(&self, departure: Instant, luck: u64) -> Instant {
        let arrival = self.path.arrival(departure, luck);
        if self.path.jitter.reorders() { arrival } else { arrival.max(self.last) }
    }

    /// Decides the fate of everything that arrives by `now`.
    fn decide(&mut self, now: Instant) {
        while let Some(arrival) = self.decide_next(now) {
            self.decided.push_back(arrival);
        }
    }

    fn decide_next(&mut self, now: Instant) -> Option<Arrival<P>> {
        let (at, frame) = self.flying.pop_due(now)?;
        let begin = Instant::from_nanos(at.as_nanos().saturating_sub(frame.airtime));
        let reception = Reception { from: self.received.max(begin), until: at };
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
    use core::num::NonZeroU64;
    use core::time::Duration;

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
    fn a_period_loses_every_nth_packet() {
        let mut propagation = propagation(0, Loss::Periodic(NonZeroU64::new(3).unwrap()));
        (0..7).for_each(|packet| propagation.depart(Instant::ZERO, frame(packet, 0.5)));
        let lost = core::iter::from_fn(|| propagation.pop_arrival(Instant::ZERO));
        let lost: Vec<_> = lost.map(|arrival| arrival.lost).collect();
        assert_eq!(lost, [false, false, true, false, false, true, false]);
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
        assert_eq!(propagation.next(None), None);
        assert_eq!(propagation.next(Some((at(3), 0))), Some((at(8), Wake::Arrival)));
        propagation.depart(at(1), frame(0, 0.0));
        assert_eq!(propagation.next(Some((at(3), 0))), Some((at(6), Wake::Arrival)));
    }

    #[test]
    fn a_shorter_delay_overtakes_nothing() {
        let mut propagation = propagation(100, Loss::None);
        propagation.depart(at(0), frame(0, 0.0));
        propagation.set_delay(at(1), Duration::from_nanos(10).into());
        propagation.depart(at(1), frame(1, 0.0));
        assert_eq!(propagation.next(Some((at(2), 0))), Some((at(100), Wake::Arrival)));
        propagation.depart(at(95), frame(2, 0.0));
        assert_eq!(order(&mut propagation), [(100, 0), (100, 1), (105, 2)]);
    }

    fn lucky(packet: usize, luck: u64) -> Frame<usize> {
        Frame { luck, ..frame(packet, 0.0) }
    }

    #[test]
    fn jitter_keeps_the_order_or_not() {
        let spread = Duration::from_nanos(9);
        for (jitter, expected) in [
            (Jitter::InOrder(spread), [(109, 0), (109, 1), (111, 2)]),
            (Jitter::Reordering(spread), [(101, 1), (109, 0), (111, 2)]),
        ] {
            let mut propagation = propagation(100, Loss::None);
            propagation.set_jitter(jitter);
            propagation.depart(at(0), lucky(0, u64::MAX));
            propagation.depart(at(1), lucky(1, 0));
            propagation.depart(at(2), lucky(2, u64::MAX));
            assert_eq!(order(&mut propagation), expected);
        }
    }

    /// A hand-over from 125 to 10 ms. What was sent before arrives
    /// after, and what was sent after waits for it.
    #[test]
    fn a_hand_over_changes_the_delay_of_what_departs_after_it() {
        let mut propagation = propagation(0, Loss::None);
        let trace = crate::Trace::parse("0ns 10ns\n100ns 125ns\n380ns 10ns").unwrap();
        propagation.set_delay(at(1000), trace.into());
        for (packet, departure) in [1000, 1099, 1100, 1379, 1380, 1500].into_iter().enumerate() {
            propagation.depart(at(departure), frame(packet, 0.0));
        }
        let expected = [(1010, 0), (1109, 1), (1225, 2), (1504, 3), (1504, 4), (1510, 5)];
        assert_eq!(order(&mut propagation), expected);
    }

    #[test]
    fn new_losses_do_not_reach_back() {
        let mut propagation = propagation(0, Loss::None);
        propagation.depart(at(1), frame(0, 0.5));
        propagation.depart(at(2), frame(1, 0.5));
        propagation.set_loss(at(1), Loss::Per(Probability::ONE));
        assert_eq!(propagation.next(None), Some((at(1), Wake::Arrival)));
        assert!(!propagation.pop_arrival(at(2)).unwrap().lost);
        assert!(propagation.pop_arrival(at(2)).unwrap().lost);
    }
}
