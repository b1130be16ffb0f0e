//! The third stage: packets are on their way, and some do not arrive.
//!
//! Any number of packets propagates at once; they hinder nothing. Each arrives
//! the delay after its last bit was sent, in the order of (time, sequence
//! number), so that packets that arrive at the same instant keep their order
//! and none takes another's place. Whether a packet is lost is decided when it
//! arrives, by the random number it got when it was offered.
//!
//! Not modelled: a delay that changes (LEO, hand-over, jitter), receivers that
//! need time to decode, and reordering.

use core::time::Duration;

use units::Instant;

use crate::Loss;
use crate::payload::Frame;
use crate::schedule::Schedule;

/// What became of a packet at the far end.
#[derive(Debug)]
pub(crate) enum Arrival<P> {
    /// It arrived then.
    Delivered(Instant, Frame<P>),
    /// It would have arrived by now.
    Lost(Frame<P>),
}

/// Packets on their way.
#[derive(Debug)]
pub(crate) struct Propagation<P> {
    delay: Duration,
    loss: Loss,
    flying: Schedule<Frame<P>>,
}

impl<P> Propagation<P> {
    pub(crate) fn new(delay: Duration, loss: Loss) -> Self {
        Self { delay, loss, flying: Schedule::new() }
    }

    /// Takes over a packet whose last bit was sent at `at`.
    pub(crate) fn depart(&mut self, at: Instant, frame: Frame<P>) {
        self.flying.insert(at + self.delay, frame);
    }

    /// Takes the next packet that is at the far end by `now`.
    pub(crate) fn pop_arrival(&mut self, now: Instant) -> Option<Arrival<P>> {
        let (at, frame) = self.flying.pop_due(now)?;
        if frame.chance < self.loss.probability(frame.len) {
            return Some(Arrival::Lost(frame));
        }
        Some(Arrival::Delivered(at, frame))
    }

    /// When the next packet arrives, given that the next one to depart does so
    /// at `departure`.
    pub(crate) fn next_arrival(&self, departure: Option<Instant>) -> Option<Instant> {
        let later = departure.map(|at| at + self.delay);
        self.flying.first().into_iter().chain(later).min()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.flying.len()
    }
}

#[cfg(test)]
mod tests {
    use units::Probability;

    use super::*;

    fn frame(packet: usize, chance: f64) -> Frame<usize> {
        Frame { packet, len: 100, chance }
    }

    #[test]
    fn packets_of_one_instant_keep_their_order() {
        let mut propagation = Propagation::new(Duration::from_nanos(5), Loss::None);
        for packet in 0..100 {
            propagation.depart(Instant::ZERO, frame(packet, 0.5));
        }
        for packet in 0..100 {
            match propagation.pop_arrival(Instant::from_nanos(5)) {
                Some(Arrival::Delivered(_, frame)) => assert_eq!(frame.packet, packet),
                other => panic!("packet {packet}: {other:?}"),
            }
        }
        assert!(propagation.pop_arrival(Instant::MAX).is_none());
    }

    #[test]
    fn a_packet_is_lost_when_its_chance_is_below_the_probability() {
        let loss = Loss::Per(Probability::new(0.25).unwrap());
        let mut propagation = Propagation::new(Duration::ZERO, loss);
        propagation.depart(Instant::ZERO, frame(0, 0.249));
        propagation.depart(Instant::ZERO, frame(1, 0.25));
        assert!(matches!(propagation.pop_arrival(Instant::ZERO), Some(Arrival::Lost(_))));
        assert!(matches!(propagation.pop_arrival(Instant::ZERO), Some(Arrival::Delivered(..))));
    }

    #[test]
    fn the_next_arrival_may_still_be_departing() {
        let mut propagation = Propagation::new(Duration::from_nanos(5), Loss::None);
        let at = Instant::from_nanos;
        assert_eq!(propagation.next_arrival(None), None);
        assert_eq!(propagation.next_arrival(Some(at(3))), Some(at(8)));
        propagation.depart(at(1), frame(0, 0.0));
        assert_eq!(propagation.next_arrival(Some(at(3))), Some(at(6)));
    }
}
