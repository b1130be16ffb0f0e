//! The first stage: the queue for the serialiser.
//!
//! First in, first out; a packet that does not fit is dropped and the others stay (or, with
//! [`Discipline::DropHead`], the oldest make room for it). A discipline may drop more: RED drops
//! arriving packets at random before the queue is full, CoDel drops packets at the head that have
//! waited too long. Only waiting packets count, not the one being serialised.
//!
//! Not modelled: the fixed-size buffers of real modems, where a packet of 100 bytes occupies a
//! whole cell or block; several queues with priorities.

mod codel;
pub(crate) mod discipline_choice;
mod fifo;
pub(crate) mod queue_size;
mod red;

use units::{ByteCount, Instant};

use crate::payload::NumberedPacket;
use crate::{CarriedPacket, Dice, PacketCounters};
use fifo::Fifo;
use red::RedAdvice;

pub use codel::CoDel;
pub use red::Red;

/// The queue limit. Nothing is dropped while the serialiser is free, so even a limit of 0 works: it
/// is a link without a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// A number of packets of any size.
    Packets(usize),
    /// A number of bytes; only whole packets enter.
    Bytes(ByteCount),
}

/// The rule by which packets are dropped, other than new ones for lack of room.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Discipline {
    /// Only packets that do not fit are dropped.
    #[default]
    DropTail,
    /// A packet that does not fit takes the place of the oldest.
    DropHead,
    /// Random early detection: drops arriving packets at random, by the average queue length. Also
    /// on an idle link, for as long as the average is high.
    Red(Red),
    /// Controlled delay: drops at the head, by waiting time.
    CoDel(CoDel),
}

/// The waiting packets, and the discipline that manages them.
#[derive(Debug)]
pub(crate) struct SerialiserQueue<P> {
    limit: QueueLimit,
    aqm: Aqm,
    fifo: Fifo<P>,
    /// Seeds for RED, one for each time it is set.
    seeds: Dice,
}

/// The state of a discipline.
#[derive(Debug)]
enum Aqm {
    DropTail,
    DropHead,
    Red(Box<red::RedState>),
    CoDel(codel::CoDelState),
}

impl<P: CarriedPacket> SerialiserQueue<P> {
    pub(crate) fn new(limit: QueueLimit, seeds: Dice) -> Self {
        Self { limit, aqm: Aqm::DropTail, fifo: Fifo::new(), seeds }
    }

    /// Changes the limit. Packets beyond a lower limit stay, and none enter until there is room
    /// again.
    pub(crate) fn set_limit(&mut self, limit: QueueLimit) {
        self.limit = limit;
    }

    /// Changes the discipline, which starts afresh at `now`.
    pub(crate) fn set_discipline(&mut self, now: Instant, discipline: Discipline) {
        self.aqm = match discipline {
            Discipline::DropTail => Aqm::DropTail,
            Discipline::DropHead => Aqm::DropHead,
            Discipline::Red(red) => {
                Aqm::Red(Box::new(red::RedState::new(red, now, self.seeds.bits())))
            }
            Discipline::CoDel(codel) => Aqm::CoDel(codel::CoDelState::new(codel)),
        };
    }

    /// Applies the discipline to a packet that arrives at `now`. Returns true if the packet
    /// continues, possibly marked; false if it is dropped and counted. `direct` if the serialiser
    /// is free to take it.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        direct: bool,
        frame: &mut NumberedPacket<P>,
        counters: &mut PacketCounters,
    ) -> bool {
        match self.aqm {
            Aqm::Red(_) => self.admit_early(now, direct, frame, counters),
            Aqm::DropHead if !direct => self.make_room(frame.len, counters),
            _ => true,
        }
    }

    /// Drops the oldest packets until one of `len` bytes fits, or none is left.
    fn make_room(&mut self, len: usize, counters: &mut PacketCounters) -> bool {
        while !self.has_room(len)
            && let Some((_, oldest)) = self.fifo.pop()
        {
            counters.inside.remove(oldest.len);
            counters.dropped_queue.add(oldest.len);
        }
        // A packet longer than the whole queue is refused by `push`.
        true
    }

    #[inline(never)]
    fn admit_early(
        &mut self,
        now: Instant,
        direct: bool,
        frame: &mut NumberedPacket<P>,
        counters: &mut PacketCounters,
    ) -> bool {
        let room = direct || self.has_room(frame.len);
        let Aqm::Red(state) = &mut self.aqm else { return true };
        let admitted = match state.advise(now, self.fifo.len()) {
            RedAdvice::Accept => return true,
            // It is about to be dropped for lack of room, whatever RED advises.
            _ if !room => return true,
            RedAdvice::Early => state.red.ecn && frame.packet.mark_ce(),
            RedAdvice::Drop => false,
        };
        if admitted {
            counters.marked.add(frame.len);
        } else {
            counters.dropped_queue.add(frame.len);
            counters.dropped_early.add(frame.len);
        }
        admitted
    }

    /// Records that a packet bypasses the empty queue to the serialiser.
    pub(crate) fn pass(&mut self, now: Instant, frame: &NumberedPacket<P>) {
        match &mut self.aqm {
            Aqm::DropTail | Aqm::DropHead => {}
            Aqm::Red(state) => state.empty(now),
            Aqm::CoDel(state) => state.pass(frame.len),
        }
    }

    /// Appends a packet, or returns it if there is no room.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        frame: NumberedPacket<P>,
    ) -> Result<(), NumberedPacket<P>> {
        if !self.has_room(frame.len) {
            return Err(frame);
        }
        self.fifo.push(now, frame);
        Ok(())
    }

    /// Takes the next packet to send. Drops by the discipline are counted.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        counters: &mut PacketCounters,
    ) -> Option<NumberedPacket<P>> {
        match self.aqm {
            Aqm::DropTail | Aqm::DropHead => self.fifo.pop().map(|(_, frame)| frame),
            _ => self.pop_managed(now, counters),
        }
    }

    #[inline(never)]
    fn pop_managed(
        &mut self,
        now: Instant,
        counters: &mut PacketCounters,
    ) -> Option<NumberedPacket<P>> {
        let next = match &mut self.aqm {
            Aqm::CoDel(state) => state.pop(&mut self.fifo, now, counters),
            _ => self.fifo.pop().map(|(_, frame)| frame),
        };
        if let Aqm::Red(state) = &mut self.aqm
            && next.is_some()
            && self.fifo.len() == 0
        {
            // The average decays while the queue is empty (§4).
            state.empty(now);
        }
        next
    }

    /// Returns the number of waiting packets.
    pub(crate) fn len(&self) -> usize {
        self.fifo.len()
    }

    /// Returns the length in bytes of the oldest packet; 0 if the queue is empty.
    pub(crate) fn front_len(&self) -> usize {
        self.fifo.front_len()
    }

    /// Returns the number of waiting bytes.
    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount::new(self.fifo.bytes())
    }

    fn has_room(&self, len: usize) -> bool {
        match self.limit {
            QueueLimit::Packets(limit) => self.fifo.len() < limit,
            QueueLimit::Bytes(limit) => {
                self.fifo.bytes().checked_add(len as u64).is_some_and(|bytes| bytes <= limit.get())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(limit: QueueLimit) -> SerialiserQueue<usize> {
        SerialiserQueue::new(limit, Dice::new(1))
    }

    fn push(queue: &mut SerialiserQueue<usize>, len: usize) -> Result<(), NumberedPacket<usize>> {
        queue.push(Instant::ZERO, frame(len))
    }

    fn pop(queue: &mut SerialiserQueue<usize>) -> Option<usize> {
        queue.pop(Instant::ZERO, &mut PacketCounters::default()).map(|frame| frame.packet)
    }

    fn frame(len: usize) -> NumberedPacket<usize> {
        NumberedPacket { packet: len, len, carried: 0, number: 0 }
    }

    #[test]
    fn takes_as_many_packets_as_the_limit_says() {
        let mut queue = queue(QueueLimit::Packets(2));
        assert!(push(&mut queue, 1500).is_ok());
        assert!(push(&mut queue, 1).is_ok());
        assert!(push(&mut queue, 1).is_err());
        assert_eq!(pop(&mut queue).unwrap(), 1500);
        assert!(push(&mut queue, 9000).is_ok());
    }

    #[test]
    fn takes_as_many_bytes_as_the_limit_says() {
        let mut queue = queue(QueueLimit::Bytes(ByteCount::new(3000)));
        assert!(push(&mut queue, 1500).is_ok());
        assert!(push(&mut queue, 1501).is_err());
        assert!(push(&mut queue, 1500).is_ok());
        assert!(push(&mut queue, 1).is_err());
        assert!(push(&mut queue, 0).is_ok());
        assert_eq!((queue.len(), queue.bytes()), (3, ByteCount::new(3000)));
    }

    #[test]
    fn a_lower_limit_drops_nothing_that_waits() {
        let mut queue = queue(QueueLimit::Packets(3));
        for len in [1, 2, 3] {
            assert!(push(&mut queue, len).is_ok());
        }
        queue.set_limit(QueueLimit::Packets(1));
        for len in [1, 2, 3] {
            assert!(push(&mut queue, 9).is_err());
            assert_eq!(pop(&mut queue).unwrap(), len);
        }
        assert!(push(&mut queue, 9).is_ok());
    }

    #[test]
    fn an_emptied_queue_holds_no_bytes() {
        let mut queue = queue(QueueLimit::Bytes(ByteCount::new(10)));
        assert!(push(&mut queue, 10).is_ok());
        assert!(pop(&mut queue).is_some());
        assert!(pop(&mut queue).is_none());
        assert_eq!(queue.bytes(), ByteCount::ZERO);
    }
}
