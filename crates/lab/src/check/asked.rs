//! What was asked of one direction, in the terms in which it is measured.

use core::time::Duration;

use link::{Loss, QueueLimit};
use units::{BitRate, ByteCount};

use crate::Preset;

/// One direction of a preset's link.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) rate: BitRate,
    pub(super) delay: Duration,
    pub(super) loss: Loss,
    pub(super) queue: QueueLimit,
}

impl Asked {
    /// Forward and return.
    pub(super) fn of(preset: &Preset) -> [Self; 2] {
        [&preset.forward, &preset.ret].map(|direction| Self {
            rate: direction.rate,
            delay: direction.delay,
            loss: direction.loss.clone(),
            queue: direction.queue.limit(direction.rate, preset.rtt(), preset.mtu),
        })
    }

    /// How long a packet of `len` bytes takes to be sent.
    pub(super) fn time_of(&self, len: usize) -> Duration {
        self.rate.time_to_send(ByteCount::new(len as u64))
    }

    /// How many packets of `len` bytes fit into the queue.
    pub(super) fn queue_packets(&self, len: usize) -> u64 {
        match self.queue {
            QueueLimit::Packets(packets) => packets as u64,
            QueueLimit::Bytes(bytes) => bytes.get() / len as u64,
        }
    }
}
