//! The link: combines queue, serialiser and propagation.

pub(crate) mod config;
mod propagate;
mod serialise;
#[cfg(test)]
mod tests;
pub(crate) mod wake;

use units::{Instant, Machine};

use crate::payload::NumberedPacket;
use crate::policer::PolicerBucket;
use crate::queue::SerialiserQueue;
use crate::{
    CarriedPacket, Delay, Dice, Discipline, Encapsulation, Jitter, LinkConfig, LossModel, Outage,
    PacketCounters, Policer, QueueLimit, Rate, Tally, WakeCause,
};
use propagate::Propagation;
use serialise::Serialiser;

/// The stream of random numbers that RED draws from.
const QUEUE: u64 = 3;

/// One direction of a link.
///
/// Hand packets over with [`Link::handle_packet`]; after it and after
/// [`Machine::handle_timeout`], drain [`Link::poll_delivery`]. Then wait until
/// [`Machine::poll_timeout`].
///
/// A driver may be late: whatever was due happens with the time at which it was
/// due, so a packet that should have begun to be serialised at *t* did begin at
/// *t*, and lateness delays the packets that are late but never adds up. For
/// the same reason the link asks to be woken only for arrivals (with jitter that
/// reorders, also for departures): all that happens before can be caught up with
/// exactly.
///
/// The n-th packet offered has the n-th random number of the seed, in every loss model and even if
/// the queue dropped some before it. Its fate is therefore independent of the rate, the delay and
/// the queue. All other random numbers come from other streams of the seed: bursts come at the same
/// times whatever the traffic is.
///
/// # Changes while it runs
/// The `set_*` methods change a setting at `now`; afterwards ask for
/// [`Machine::poll_timeout`] again. What was due by `now` has happened with the
/// old setting, however late the driver is, so the same calls give the same
/// run. No change loses or reorders a packet; traces begin at `now`:
///
/// | change | effect on packets inside |
/// |---|---|
/// | rate | bits that have left stay sent; the rest of the packet in the serialiser leaves at the new rate |
/// | encapsulation | the packet in the serialiser keeps its own |
/// | delay | packets in propagation arrive as scheduled; packets whose last bit leaves from now on have the new delay, but never arrive before an earlier one |
/// | jitter | as for the delay; only reordering jitter reorders |
/// | loss, outages | apply to packets that arrive after `now`, wherever they are |
/// | queue limit | packets beyond a lower limit stay; none enters until there is room |
/// | policer | starts with a full bucket |
/// | discipline | starts afresh; CoDel judges packets already waiting by their whole wait |
#[derive(Debug)]
pub struct Link<P> {
    policer: Option<PolicerBucket>,
    queue: SerialiserQueue<P>,
    serialiser: Serialiser<P>,
    propagation: Propagation<P>,
    counters: PacketCounters,
}

impl<P: CarriedPacket> Link<P> {
    /// An empty link. Every configuration is valid (see [`LinkConfig`]). Its time starts at
    /// [`Instant::ZERO`].
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self::starting_at(Instant::ZERO, config, seed)
    }

    /// Like [`Link::new`], but its time (that of outages, bursts and traces) starts at `origin`.
    pub fn starting_at(origin: Instant, config: LinkConfig, seed: u64) -> Self {
        let mut queue = SerialiserQueue::new(config.queue, Dice::stream(seed, QUEUE));
        queue.set_discipline(origin, config.discipline);
        Self {
            policer: config.policer.map(|policer| PolicerBucket::new(origin, policer)),
            queue,
            serialiser: Serialiser::new(origin, config.rate.clone(), config.encapsulation),
            propagation: Propagation::new(origin, config, seed),
            counters: PacketCounters::default(),
        }
    }

    /// Changes the rate at `now`; a trace begins then.
    pub fn set_rate(&mut self, now: Instant, rate: impl Into<Rate>) {
        self.advance(now);
        self.serialiser.set_rate(now, rate.into());
    }

    /// Changes the encapsulation of packets that begin from `now` on.
    pub fn set_encapsulation(&mut self, now: Instant, encapsulation: Encapsulation) {
        self.advance(now);
        self.serialiser.set_encapsulation(encapsulation);
    }

    /// Changes the delay of packets that depart from `now` on.
    pub fn set_delay(&mut self, now: Instant, delay: impl Into<Delay>) {
        self.advance(now);
        self.propagation.set_delay(now, delay.into());
    }

    /// Changes the jitter of packets that depart from `now` on.
    pub fn set_jitter(&mut self, now: Instant, jitter: Jitter) {
        self.advance(now);
        self.propagation.set_jitter(jitter);
    }

    /// Changes the loss model of packets that arrive after `now`.
    pub fn set_loss(&mut self, now: Instant, loss: LossModel) {
        self.advance(now);
        self.propagation.set_loss(now, loss);
    }

    /// Changes the policer, which starts with a full bucket, or removes it.
    pub fn set_policer(&mut self, now: Instant, policer: Option<Policer>) {
        self.advance(now);
        self.policer = policer.map(|policer| PolicerBucket::new(now, policer));
    }

    /// Changes the limit of the queue.
    pub fn set_queue(&mut self, now: Instant, limit: QueueLimit) {
        self.advance(now);
        self.queue.set_limit(limit);
    }

    /// Changes the queue's discipline, which starts afresh.
    pub fn set_discipline(&mut self, now: Instant, discipline: Discipline) {
        self.advance(now);
        self.queue.set_discipline(now, discipline);
    }

    /// Adds an outage, with times relative to `now`.
    pub fn add_outage(&mut self, now: Instant, outage: Outage) {
        self.advance(now);
        self.propagation.add_outage(now, outage);
    }

    /// Ends the current outage, if any, and removes later ones.
    pub fn end_outages(&mut self, now: Instant) {
        self.advance(now);
        self.propagation.end_outages(now);
    }

    /// Passes a packet to the link at `now`: it is sent, queued, or dropped and counted.
    pub fn handle_packet(&mut self, now: Instant, packet: P) {
        self.advance(now);
        let len = packet.wire_len();
        // Numbered before anything may drop it, so that drops do not change the losses of later
        // packets.
        let mut frame =
            NumberedPacket { packet, len, carried: 0, number: self.counters.offered.packets };
        self.counters.offered.add(len);
        if self
            .policer
            .as_mut()
            .is_some_and(|policer| !policer.passes(now, len, &mut self.counters))
        {
            return;
        }
        let direct = self.serialiser.is_free();
        // A packet that goes straight to the serialiser is never subject to the queue's limit.
        if !self.queue.admit(now, direct, &mut frame, &mut self.counters) {
            return;
        }
        if direct {
            self.queue.pass(now, &frame);
            self.serialiser.begin(now, frame);
        } else if let Err(frame) = self.queue.push(now, frame) {
            self.counters.dropped_queue.add(frame.len);
            return;
        }
        self.counters.inside.add(len);
    }

    /// Returns the next packet that has arrived by `now`, in order of arrival.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<P> {
        self.poll_arrival(now).map(|(_, packet)| packet)
    }

    /// Like [`Link::poll_delivery`], with the time of arrival, which is before `now` if the driver
    /// is late.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.advance(now);
        loop {
            let arrival = self.propagation.pop_arrival(now)?;
            self.counters.inside.remove(arrival.frame.len);
            // A lost packet stays on the way until it would have arrived.
            if arrival.lost {
                self.counters.lost.add(arrival.frame.len);
                continue;
            }
            self.counters.deliver(&arrival.frame);
            return Some((arrival.at, arrival.frame.packet));
        }
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> &PacketCounters {
        &self.counters
    }

    /// Returns the packets and bytes in the queue, as of the last time passed to the link.
    pub fn queued(&self) -> Tally {
        Tally { packets: self.queue.len() as u64, bytes: self.queue.bytes() }
    }

    /// Returns true if packets may overtake each other. If not, a newly offered packet changes
    /// [`Machine::poll_timeout`] only if the link is empty.
    pub fn reorders(&self) -> bool {
        self.propagation.reorders()
    }

    /// Serialises everything that is due by `now`.
    #[inline]
    fn advance(&mut self, now: Instant) {
        if self.serialiser.finish().is_some_and(|finish| finish <= now) {
            self.serialise(now);
        }
    }

    fn serialise(&mut self, now: Instant) {
        while let Some(sent) = self.serialiser.pop_finished(now) {
            self.propagation.depart(sent.at, sent.frame, sent.airtime);
            if let Some(next) = self.queue.pop(sent.at, &mut self.counters) {
                self.serialiser.begin(sent.at, next);
            }
        }
    }
}

impl<P: CarriedPacket> Machine for Link<P> {
    type Wake = WakeCause;

    #[inline]
    fn poll_timeout(&self) -> Option<(Instant, WakeCause)> {
        self.propagation.next(|| self.serialiser.departure())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }
}
