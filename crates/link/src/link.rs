//! The three stages joined.

#[cfg(test)]
mod tests;

use units::{Instant, Machine};

use crate::payload::Frame;
use crate::propagate::{Arrival, Propagation};
use crate::queue::Queue;
use crate::serialise::Serialiser;
use crate::{Counters, Dice, LinkConfig, Payload, Tally};

/// Why a link wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A packet is at the far end (where it may turn out to be lost).
    Arrival,
}

/// One direction of a link.
///
/// Hand packets over with [`Link::handle_packet`]; after it and after
/// [`Machine::handle_timeout`], drain [`Link::poll_delivery`]. Then wait until
/// [`Machine::poll_timeout`].
///
/// A driver may be late: whatever was due happens with the time at which it was
/// due, so a packet that should have begun to be serialised at *t* did begin at
/// *t*, and lateness delays the packets that are late but never adds up. For
/// the same reason the link asks to be woken only for arrivals: all that
/// happens before can be caught up with exactly.
///
/// One random number is drawn for each packet when it is offered, in every loss
/// model and even if the queue drops it. So the n-th packet offered meets the
/// same luck whatever the rate, the delay and the queue are.
#[derive(Debug)]
pub struct Link<P> {
    dice: Dice,
    queue: Queue<P>,
    serialiser: Serialiser<P>,
    propagation: Propagation<P>,
    counters: Counters,
}

impl<P: Payload> Link<P> {
    /// An empty link. Every configuration is accepted (see [`LinkConfig`]).
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            queue: Queue::new(config.queue),
            serialiser: Serialiser::new(config.rate),
            propagation: Propagation::new(config.delay, config.loss),
            counters: Counters::default(),
        }
    }

    /// Offers a packet to the link at `now`: it is sent, queued, or dropped and
    /// counted.
    pub fn handle_packet(&mut self, now: Instant, packet: P) {
        self.advance(now);
        let frame = Frame { len: packet.wire_len(), packet, chance: self.dice.chance() };
        self.counters.offered.add(frame.len);
        let len = frame.len;
        if self.serialiser.is_free() {
            self.serialiser.begin(now, frame);
        } else if let Err(frame) = self.queue.push(frame) {
            self.counters.dropped_queue.add(frame.len);
            return;
        }
        self.counters.inside.add(len);
    }

    /// The next packet that has arrived by `now`, in the order of arrival.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<P> {
        self.poll_arrival(now).map(|(_, packet)| packet)
    }

    /// Like [`Link::poll_delivery`], with the time at which the packet arrived:
    /// before `now` if the driver is late.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.advance(now);
        loop {
            match self.propagation.pop_arrival(now)? {
                Arrival::Lost(frame) => {
                    self.counters.inside.remove(frame.len);
                    self.counters.lost.add(frame.len);
                }
                Arrival::Delivered(at, frame) => {
                    self.counters.inside.remove(frame.len);
                    self.counters.delivered.add(frame.len);
                    return Some((at, frame.packet));
                }
            }
        }
    }

    /// What the link has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What waits in the queue, as of the last time that the link was handed.
    pub fn queued(&self) -> Tally {
        Tally { packets: self.queue.len() as u64, bytes: self.queue.bytes() }
    }

    /// Serialises everything that is due by `now`.
    fn advance(&mut self, now: Instant) {
        while let Some((at, frame)) = self.serialiser.pop_finished(now) {
            self.propagation.depart(at, frame);
            if let Some(next) = self.queue.pop() {
                self.serialiser.begin(at, next);
            }
        }
    }
}

impl<P: Payload> Machine for Link<P> {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let at = self.propagation.next_arrival(self.serialiser.finish())?;
        Some((at, Wake::Arrival))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }
}
