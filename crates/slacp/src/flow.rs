//! Credit of a session: how many stream bytes may be under way in all
//! (`docs/slacp.md`, Flow control).

use crate::open::Openings;
use crate::recv_buffer::GAP_COST;

/// Gaps that a session may have however small its memory is: 8 kB of books.
const LEAST_GAPS: usize = 64;

/// What one side allows the other, fixed when the session is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most bytes held for all streams, in each direction.
    pub(crate) memory: u64,
    /// The most bytes held for one stream.
    pub(crate) stream_window: u64,
    /// The most streams that the other side may have open.
    pub(crate) max_streams: u32,
    /// The packet channels that it receives, a bit for each.
    pub(crate) channels: u32,
    /// What it understands in openings.
    pub(crate) openings: Openings,
}

impl Limits {
    pub(crate) fn new(memory: u64, stream_window: u64, max_streams: u32) -> Self {
        let stream_window = stream_window.min(memory);
        Self { memory, stream_window, max_streams, channels: 0, openings: Openings::default() }
    }

    /// The most gaps in all streams together, so that the books of gaps take at most
    /// a sixteenth of the memory. Losses leave one for each packet under way at most;
    /// it takes packets of less than 2 kB at every second one lost to come near.
    pub(crate) fn most_gaps(&self) -> usize {
        usize::try_from(self.memory / 16 / GAP_COST).unwrap_or(usize::MAX).max(LEAST_GAPS)
    }

    /// The most that one stream may hold while all hold `held`: half of what is
    /// left (the dynamic threshold of Choudhury & Hahne, 1998, with α = ½), so
    /// that stalled streams never take all.
    pub(crate) fn share(&self, held: u64) -> u64 {
        self.stream_window.min(self.memory.saturating_sub(held) / 2)
    }
}

/// The bytes that the peer lets this side send.
#[derive(Debug, Default)]
pub(crate) struct SendCredit {
    limit: u64,
    sent: u64,
}

impl SendCredit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, sent: 0 }
    }

    /// As if so many bytes had come and gone.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.limit += bytes;
        self.sent += bytes;
    }

    pub(crate) fn room(&self) -> u64 {
        self.limit - self.sent
    }

    pub(crate) fn spend(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.room());
        self.sent += bytes;
    }

    pub(crate) fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}

/// The bytes that this side lets the peer send.
#[derive(Debug)]
pub(crate) struct RecvCredit {
    memory: u64,
    limit: u64,
    received: u64,
    consumed: u64,
}

impl RecvCredit {
    pub(crate) fn new(memory: u64) -> Self {
        Self { memory, limit: memory, received: 0, consumed: 0 }
    }

    /// As if so many bytes had come and been read.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.limit += bytes;
        self.received += bytes;
        self.consumed += bytes;
    }

    /// Bytes received, or overtaken by received ones, and not read.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// Counts bytes received; `false`, and nothing counted, if they exceed the
    /// credit.
    pub(crate) fn receive(&mut self, bytes: u64) -> bool {
        let allowed = bytes <= self.limit - self.received;
        if allowed {
            self.received += bytes;
        }
        allowed
    }

    pub(crate) fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// The new limit if the peer is worth telling: an eighth of the memory has
    /// become free since the last time.
    pub(crate) fn grant(&mut self) -> Option<u64> {
        let limit = self.consumed + self.memory;
        if limit - self.limit < self.memory.div_ceil(8) {
            return None;
        }
        self.limit = limit;
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_streams_leave_room_for_the_next() {
        let limits = Limits::new(1_000_000, 400_000, 10);
        let mut held = 0;
        for _ in 0..10 {
            let share = limits.share(held);
            assert!(share > 0);
            held += share;
        }
        assert!(held < 1_000_000);
    }

    #[test]
    fn credit_is_granted_in_eighths_and_enforced() {
        let mut credit = RecvCredit::new(800);
        assert!(credit.receive(800));
        credit.consume(99);
        assert_eq!(credit.grant(), None);
        credit.consume(1);
        assert_eq!(credit.grant(), Some(900));
        assert!(credit.receive(100));
        assert!(!credit.receive(1));
    }
}
