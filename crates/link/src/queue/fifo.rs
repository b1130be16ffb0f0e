//! A first-in, first-out queue that knows its bytes and the waiting times.

use std::collections::VecDeque;

use units::Instant;

use crate::payload::NumberedPacket;

/// Waiting packets with their arrival times.
#[derive(Debug)]
pub(super) struct Fifo<P> {
    frames: VecDeque<(Instant, NumberedPacket<P>)>,
    bytes: u64,
}

impl<P> Fifo<P> {
    pub(super) fn new() -> Self {
        Self { frames: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, now: Instant, frame: NumberedPacket<P>) {
        self.bytes = self.bytes.saturating_add(frame.len as u64);
        self.frames.push_back((now, frame));
    }

    /// Takes the first packet, with its arrival time.
    pub(super) fn pop(&mut self) -> Option<(Instant, NumberedPacket<P>)> {
        let (since, frame) = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.len as u64);
        Some((since, frame))
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the length of the first packet in bytes, 0 if the queue is empty.
    pub(super) fn front_len(&self) -> usize {
        self.frames.front().map_or(0, |(_, frame)| frame.len)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
impl<P> Fifo<P> {
    /// Mutable access to the waiting packets, for tests.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut (Instant, NumberedPacket<P>)> {
        self.frames.iter_mut()
    }
}
