//! The third stage: packets propagate, and some are lost.
//!
//! Any number of packets propagate at the same time without affecting each other. Each arrives
//! after the delay, counted from its last bit. Arrivals are ordered by (time, sequence number), so
//! packets that arrive at the same instant keep their order. The delay is that at the time the last
//! bit leaves. When it decreases, packets that would overtake others arrive together with the last
//! of those.
//!
//! The loss of a packet is decided when it arrives: by the random number it got when it was
//! offered, by the state of the loss model, and by outages. Its reception takes as long as its
//! serialisation, and starts no earlier than the end of the previous one.
//!
//! Packets overtake each other only with jitter that reorders.
//!
//! Not modelled: decoding time in receivers, and Doppler shift: packets sent within a step of the
//! delay arrive at the rate at which they were sent.

use std::collections::VecDeque;

use units::{Instant, earliest};

use crate::WakeCause;
use crate::dice::IndexedDice;
use crate::payload::NumberedPacket;
use crate::propagation::delay::PropagationPath;
use crate::propagation::loss::LossProcess;
use crate::propagation::outage::{Outage, Outages};
use crate::propagation::reception::ReceptionTime;
use crate::propagation::schedule::DueSchedule;
use crate::{Delay, Dice, Jitter, LinkConfig, LossModel};

/// A packet at the far end.
#[derive(Debug)]
pub(crate) struct PacketArrival<P> {
    /// Time at which its last bit arrived.
    pub(crate) at: Instant,
    pub(crate) frame: NumberedPacket<P>,
    /// True if it was lost on the way.
    pub(crate) lost: bool,
}

/// A packet on its way.
#[derive(Debug)]
struct PropagatingPacket<P> {
    frame: NumberedPacket<P>,
    /// Serialisation time in nanoseconds, for its reception.
    airtime: u64,
}

/// The stream of random numbers that loss models draw, except for those of single packets.
const CHANNEL: u64 = 1;
/// The stream of random numbers for jitter.
const JITTER: u64 = 2;

/// The packets on their way, and the models that decide their arrival and loss.
#[derive(Debug)]
pub(crate) struct Propagation<P> {
    path: PropagationPath,
    channel: LossProcess,
    /// A packet is lost if its loss probability exceeds its chance.
    loss_numbers: IndexedDice,
    /// Random numbers for jitter, per packet.
    jitter_numbers: IndexedDice,
    /// Seeds for the loss models, one after the other.
    seeds: Dice,
    outages: Outages,
    flying: DueSchedule<PropagatingPacket<P>>,
    /// Packets that arrived before the last change of loss model or outages, and were not taken
    /// yet.
    decided: VecDeque<PacketArrival<P>>,
    /// The latest arrival time assigned so far.
    last: Instant,
    /// Time at which the last reception ended.
    received: Instant,
}

impl<P> Propagation<P> {
    pub(crate) fn new(origin: Instant, config: LinkConfig, seed: u64) -> Self {
        // The order of the draws is part of the published results.
        let mut seeds = Dice::stream(seed, CHANNEL);
        Self {
            path: PropagationPath::new(config.delay, config.jitter, origin),
            channel: LossProcess::new(config.loss, origin, seeds.bits()),
            loss_numbers: IndexedDice::new(Dice::new(seed)),
            jitter_numbers: IndexedDice::new(Dice::stream(seed, JITTER)),
            seeds,
            outages: Outages::new(origin, config.outages),
            flying: DueSchedule::new(),
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

    /// Changes the loss model for packets that arrive after `now`.
    pub(crate) fn set_loss(&mut self, now: Instant, loss: LossModel) {
        self.decide(now);
        self.channel = LossProcess::new(loss, now, self.seeds.bits());
    }

    /// Adds an outage for packets that arrive after `now`.
    pub(crate) fn add_outage(&mut self, now: Instant, outage: Outage) {
        self.decide(now);
        self.outages.add(now, outage);
    }

    /// Ends the current outage and removes later ones.
    pub(crate) fn end_outages(&mut self, now: Instant) {
        self.decide(now);
        self.outages.end(now);
    }

    /// Takes over a packet whose last bit was sent at `at`, after `airtime` nanoseconds of
    /// serialisation.
    #[inline]
    pub(crate) fn depart(&mut self, at: Instant, frame: NumberedPacket<P>, airtime: u64) {
        let arrival = self.path.arrival(at, || self.jitter_numbers.bits(frame.number));
        let arrival = if self.reorders() { arrival } else { arrival.max(self.last) };
        self.last = self.last.max(arrival);
        self.flying.insert(arrival, PropagatingPacket { frame, airtime });
    }

    /// Returns true if packets may overtake each other.
    pub(crate) fn reorders(&self) -> bool {
        self.path.jitter.reorders()
    }

    /// Takes the next packet that has arrived by `now`.
    #[inline]
    pub(crate) fn pop_arrival(&mut self, now: Instant) -> Option<PacketArrival<P>> {
        if self.decided.is_empty() { self.decide_next(now) } else { self.decided.pop_front() }
    }

    /// Returns the next event, given the time of the next departure and the packet's number.
    #[inline(always)]
    pub(crate) fn next(
        &self,
        departure: impl FnOnce() -> Option<(Instant, u64)>,
    ) -> Option<(Instant, WakeCause)> {
        let first = match self.decided.front() {
            Some(arrival) => Some(arrival.at),
            None => self.flying.first(),
        };
        match first {
            // A later departure arrives no earlier.
            Some(at) if !self.reorders() => Some((at, WakeCause::Arrival)),
            _ => self.next_with(first, departure()),
        }
    }

    #[inline(never)]
    fn next_with(
        &self,
        first: Option<Instant>,
        departure: Option<(Instant, u64)>,
    ) -> Option<(Instant, WakeCause)> {
        let arrival = first.map(|at| (at, WakeCause::Arrival));
        let Some((at, number)) = departure else { return arrival };
        if self.reorders() {
            // A packet that departs later may still arrive before this one.
            return earliest(arrival, Some((at, WakeCause::Departure)));
        }
        let later = self.path.arrival(at, || self.jitter_numbers.clone().bits(number));
        earliest(arrival, Some((later.max(self.last), WakeCause::Arrival)))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.flying.len() + self.decided.len()
    }

    /// Decides for every packet that arrives by `now` if it is lost.
    fn decide(&mut self, now: Instant) {
        while let Some(arrival) = self.decide_next(now) {
            self.decided.push_back(arrival);
        }
    }

    #[inline]
    fn decide_next(&mut self, now: Instant) -> Option<PacketArrival<P>> {
        let (at, PropagatingPacket { frame, airtime }) = self.flying.pop_due(now)?;
        let begin = Instant::from_nanos(at.as_nanos().saturating_sub(airtime));
        let reception = ReceptionTime { from: self.received.max(begin), until: at };
        self.received = at;
        // Both are evaluated for every packet, so that an outage does not affect the random numbers
        // of later packets.
        let chance = || self.loss_numbers.chance(frame.number);
        let lost = self.channel.loses(frame.len, reception, chance);
        let silent = self.outages.hit(reception);
        Some(PacketArrival { at, frame, lost: lost || silent })
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;
    use core::time::Duration;

    use units::{BitRate, Probability};

    use super::*;
    use crate::QueueLimit;

    fn frame(number: usize) -> NumberedPacket<usize> {
        NumberedPacket { packet: number, len: 100, carried: 100, number: number as u64 }
    }

    fn depart(propagation: &mut Propagation<usize>, departure: u64, number: usize) {
        propagation.depart(at(departure), frame(number), 0);
    }

    fn propagation(delay: u64, loss: LossModel) -> Propagation<usize> {
        let rate = BitRate::from_mbit(1);
        let queue = QueueLimit::Packets(1);
        let config = LinkConfig::new(rate, Duration::from_nanos(delay), loss, queue);
        Propagation::new(Instant::ZERO, config, 1)
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
        let mut propagation = propagation(5, LossModel::None);
        for packet in 0..100 {
            depart(&mut propagation, 0, packet);
        }
        assert_eq!(order(&mut propagation), (0..100).map(|i| (5, i)).collect::<Vec<_>>());
    }

    #[test]
    fn a_period_loses_every_nth_packet() {
        let mut propagation = propagation(0, LossModel::Periodic(NonZeroU64::new(3).unwrap()));
        (0..7).for_each(|packet| depart(&mut propagation, 0, packet));
        let lost = core::iter::from_fn(|| propagation.pop_arrival(Instant::ZERO));
        let lost: Vec<_> = lost.map(|arrival| arrival.lost).collect();
        assert_eq!(lost, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn a_packet_is_lost_when_its_chance_is_below_the_probability() {
        let mut dice = Dice::new(1);
        let chances: Vec<_> = (0..20).map(|_| dice.chance()).collect();
        let mut propagation = propagation(0, LossModel::Per(Probability::new(chances[7]).unwrap()));
        (0..20).for_each(|packet| depart(&mut propagation, 0, packet));
        for chance in &chances {
            let lost = propagation.pop_arrival(Instant::ZERO).unwrap().lost;
            assert_eq!(lost, *chance < chances[7]);
        }
    }

    #[test]
    fn the_next_arrival_may_still_be_departing() {
        let mut propagation = propagation(5, LossModel::None);
        assert_eq!(propagation.next(|| None), None);
        assert_eq!(propagation.next(|| Some((at(3), 0))), Some((at(8), WakeCause::Arrival)));
        depart(&mut propagation, 1, 0);
        assert_eq!(propagation.next(|| Some((at(3), 1))), Some((at(6), WakeCause::Arrival)));
    }

    #[test]
    fn a_shorter_delay_overtakes_nothing() {
        let mut propagation = propagation(100, LossModel::None);
        depart(&mut propagation, 0, 0);
        propagation.set_delay(at(1), Duration::from_nanos(10).into());
        depart(&mut propagation, 1, 1);
        assert_eq!(propagation.next(|| Some((at(2), 2))), Some((at(100), WakeCause::Arrival)));
        depart(&mut propagation, 95, 2);
        assert_eq!(order(&mut propagation), [(100, 0), (100, 1), (105, 2)]);
    }

    /// Three packets with maximum, zero and again maximum jitter.
    fn lucky(jitter: Jitter) -> [usize; 3] {
        let mut lucks = Dice::stream(1, JITTER);
        let all: Vec<_> = (0..1000).map(|_| jitter.extra(lucks.bits())).collect();
        let next = |from: usize, extra| {
            (from..).find(|&packet| all[packet] == extra).expect("one of a thousand")
        };
        let first = next(0, jitter.greatest());
        let second = next(first, Duration::ZERO);
        [first, second, next(second, jitter.greatest())]
    }

    #[test]
    fn jitter_keeps_the_order_or_not() {
        let spread = Duration::from_nanos(9);
        let [a, b, c] = lucky(Jitter::InOrder(spread));
        for (jitter, expected) in [
            (Jitter::InOrder(spread), [(109, a), (109, b), (111, c)]),
            (Jitter::Reordering(spread), [(101, b), (109, a), (111, c)]),
        ] {
            let mut propagation = propagation(100, LossModel::None);
            propagation.set_jitter(jitter);
            let next = propagation.next(|| Some((at(0), a as u64)));
            let wake = if jitter.reorders() { WakeCause::Departure } else { WakeCause::Arrival };
            assert_eq!(next, Some((at(if jitter.reorders() { 0 } else { 109 }), wake)));
            for (departure, packet) in [a, b, c].into_iter().enumerate() {
                depart(&mut propagation, departure as u64, packet);
            }
            assert_eq!(order(&mut propagation), expected);
        }
    }

    /// A hand-over from 125 to 10 ms. Packets sent before it arrive later, and packets sent after
    /// it wait for them.
    #[test]
    fn a_hand_over_changes_the_delay_of_what_departs_after_it() {
        let mut propagation = propagation(0, LossModel::None);
        let trace = crate::Trace::parse("0ns 10ns\n100ns 125ns\n380ns 10ns").unwrap();
        propagation.set_delay(at(1000), trace.into());
        for (packet, departure) in [1000, 1099, 1100, 1379, 1380, 1500].into_iter().enumerate() {
            depart(&mut propagation, departure, packet);
        }
        let expected = [(1010, 0), (1109, 1), (1225, 2), (1504, 3), (1504, 4), (1510, 5)];
        assert_eq!(order(&mut propagation), expected);
    }

    #[test]
    fn new_losses_do_not_reach_back() {
        let mut propagation = propagation(0, LossModel::None);
        depart(&mut propagation, 1, 0);
        depart(&mut propagation, 2, 1);
        propagation.set_loss(at(1), LossModel::Per(Probability::ONE));
        assert_eq!(propagation.next(|| None), Some((at(1), WakeCause::Arrival)));
        assert!(!propagation.pop_arrival(at(2)).unwrap().lost);
        assert!(propagation.pop_arrival(at(2)).unwrap().lost);
    }
}
