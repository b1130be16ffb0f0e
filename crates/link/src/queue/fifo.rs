//! Packets in the order in which they came.

use std::collections::VecDeque;

use units::Instant;

use crate::payload::Frame;

/// Packets that wait, with the time since when.
#[derive(Debug)]
pub(super) struct Fifo<P> {
    frames: VecDeque<(Instant, Frame<P>)>,
    bytes: u64,
}

impl<P> Fifo<P> {
    pub(super) fn new() -> Self {
        Self { frames: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, now: Instant, frame: Frame<P>) {
        self.bytes = self.bytes.saturating_add(frame.len as u64);
        self.frames.push_back((now, frame));
    }

    /// The first packet, and since when it has waited.
    pub(super) fn pop(&mut self) -> Option<(Instant, Frame<P>)> {
        let (since, frame) = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.len as u64);
        Some((since, frame))
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
impl<P> Fifo<P> {
    /// What waits, with the time since when, to be changed by a test.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut (Instant, Frame<P>)> {
        self.frames.iter_mut()
    }
}
