//! The first stage: where packets wait for the serialiser.
//!
//! Drop tail: first in, first out; a packet that does not fit is refused and
//! the others stay. Only waiting packets count, never the one that is being
//! serialised.
//!
//! Not modelled: the fixed-size buffers of real modems, where a packet of 100
//! bytes takes the room of a whole cell or block; several queues with
//! priorities.

use std::collections::VecDeque;

use units::ByteCount;

use crate::payload::Frame;

/// How much may wait. Nothing is dropped while the serialiser is free, so even
/// a limit of 0 is a link: one without a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many packets of any size.
    Packets(usize),
    /// So many bytes of packets; a packet enters only whole.
    Bytes(ByteCount),
}

/// Packets that wait.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    limit: QueueLimit,
    frames: VecDeque<Frame<P>>,
    bytes: u64,
}

impl<P> Queue<P> {
    pub(crate) fn new(limit: QueueLimit) -> Self {
        Self { limit, frames: VecDeque::new(), bytes: 0 }
    }

    /// Changes the limit. What waits beyond a lower one stays, and nothing
    /// enters until there is room again.
    pub(crate) fn set_limit(&mut self, limit: QueueLimit) {
        self.limit = limit;
    }

    /// Puts a packet at the tail, or gives it back if there is no room.
    pub(crate) fn push(&mut self, frame: Frame<P>) -> Result<(), Frame<P>> {
        if !self.has_room(frame.len) {
            return Err(frame);
        }
        self.bytes = self.bytes.saturating_add(frame.len as u64);
        self.frames.push_back(frame);
        Ok(())
    }

    /// Takes the packet at the head.
    pub(crate) fn pop(&mut self) -> Option<Frame<P>> {
        let frame = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.len as u64);
        Some(frame)
    }

    /// How many packets wait.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// How many bytes wait.
    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount::new(self.bytes)
    }

    fn has_room(&self, len: usize) -> bool {
        match self.limit {
            QueueLimit::Packets(limit) => self.frames.len() < limit,
            QueueLimit::Bytes(limit) => {
                self.bytes.checked_add(len as u64).is_some_and(|bytes| bytes <= limit.get())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize) -> Frame<usize> {
        Frame::new(len, len, 0.0)
    }

    #[test]
    fn takes_as_many_packets_as_the_limit_says() {
        let mut queue = Queue::new(QueueLimit::Packets(2));
        assert!(queue.push(frame(1500)).is_ok());
        assert!(queue.push(frame(1)).is_ok());
        assert!(queue.push(frame(1)).is_err());
        assert_eq!(queue.pop().unwrap().packet, 1500);
        assert!(queue.push(frame(9000)).is_ok());
    }

    #[test]
    fn takes_as_many_bytes_as_the_limit_says() {
        let mut queue = Queue::new(QueueLimit::Bytes(ByteCount::new(3000)));
        assert!(queue.push(frame(1500)).is_ok());
        assert!(queue.push(frame(1501)).is_err());
        assert!(queue.push(frame(1500)).is_ok());
        assert!(queue.push(frame(1)).is_err());
        assert!(queue.push(frame(0)).is_ok());
        assert_eq!((queue.len(), queue.bytes()), (3, ByteCount::new(3000)));
    }

    #[test]
    fn a_lower_limit_drops_nothing_that_waits() {
        let mut queue = Queue::new(QueueLimit::Packets(3));
        for len in [1, 2, 3] {
            assert!(queue.push(frame(len)).is_ok());
        }
        queue.set_limit(QueueLimit::Packets(1));
        for len in [1, 2, 3] {
            assert!(queue.push(frame(9)).is_err());
            assert_eq!(queue.pop().unwrap().packet, len);
        }
        assert!(queue.push(frame(9)).is_ok());
    }

    #[test]
    fn an_emptied_queue_holds_no_bytes() {
        let mut queue = Queue::new(QueueLimit::Bytes(ByteCount::new(10)));
        assert!(queue.push(frame(10)).is_ok());
        assert!(queue.pop().is_some());
        assert!(queue.pop().is_none());
        assert_eq!(queue.bytes(), ByteCount::ZERO);
    }
}
