//! When and what to protect with FEC (`docs/slacp.md`, FEC): the tail of what
//! was sent, once nothing follows it. In mid-flight a loss is repaired by
//! retransmission without anybody waiting for it; at the tail it would cost a
//! round trip, while the link has nothing else to carry.

use core::time::Duration;
use std::collections::VecDeque;

use units::{BitRate, ByteCount, Instant};

use crate::fec::{Block, MAX_REPAIRS, PendingRepair, encode};
use crate::loss::LossMeter;
use crate::pacer::Pacer;
use crate::sent::SentPackets;

/// How long nothing may follow before what was sent counts as a tail.
const QUIET: Duration = Duration::from_millis(3);
/// The sources of one block, about: more make repairs cheaper, fewer make
/// decoding cheaper.
const BLOCK: u64 = 200;
/// Repairs take at most one in so many bits of the rate …
const BUDGET_SHARE: u64 = 20;
/// … averaged over this time.
const BUDGET_TIME: Duration = Duration::from_secs(3);

/// Decides on repairs.
#[derive(Debug)]
pub(crate) struct Planner {
    /// When the last source left that is not protected.
    unprotected: Option<Instant>,
    /// Packets below this number have been dealt with.
    dealt_with: u64,
    budget: Pacer,
    queue: VecDeque<PendingRepair>,
}

impl Planner {
    /// A planner for a link of `rate`.
    pub(crate) fn new(rate: BitRate) -> Self {
        let share = BitRate::from_bits_per_second(rate.bits_per_second() / BUDGET_SHARE);
        Self {
            unprotected: None,
            dealt_with: 0,
            budget: Pacer::new(share, BUDGET_TIME),
            queue: VecDeque::new(),
        }
    }

    pub(crate) fn sent_source(&mut self, now: Instant) {
        self.unprotected = Some(now);
    }

    /// When [`Self::plan`] is due, if nothing is sent until then.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.unprotected.map(|last| last + QUIET)
    }

    /// Makes repairs for everything under way that is not protected yet.
    pub(crate) fn plan(&mut self, now: Instant, sent: &SentPackets, loss: &LossMeter) {
        self.unprotected = None;
        let start = core::mem::replace(&mut self.dealt_with, sent.next_number());
        let source = |number| sent.source(number).unwrap_or_default();
        let mut planned: Vec<_> = blocks(start.max(sent.kept_from()), sent.next_number())
            .flat_map(|block| encode(block, loss.repairs_for(block.count).min(MAX_REPAIRS), source))
            .collect();
        // The first repair of every block before the second of any.
        planned.sort_by_key(|repair| (repair.index, repair.block));
        planned.retain(|repair| self.afford(now, repair.shard.len()));
        self.queue.extend(planned);
    }

    /// The repair to be sent next.
    pub(crate) fn next(&self) -> Option<&PendingRepair> {
        self.queue.front()
    }

    /// Takes [`Self::next`] out.
    pub(crate) fn take(&mut self) -> Option<PendingRepair> {
        self.queue.pop_front()
    }

    /// The peer must keep packets from this number on until it has the repairs.
    pub(crate) fn floor(&self) -> Option<u64> {
        self.queue.iter().map(|repair| repair.block.base).min()
    }

    fn afford(&mut self, now: Instant, size: usize) -> bool {
        let affordable = self.budget.ready_at() <= now;
        if affordable {
            self.budget.sent(now, ByteCount::new(size as u64));
        }
        affordable
    }
}

/// Interleaved blocks that cover `start..end`.
fn blocks(start: u64, end: u64) -> impl Iterator<Item = Block> {
    let stride = (end - start).div_ceil(BLOCK);
    (start..start + stride).map(move |base| Block {
        base,
        stride,
        count: (end - base).div_ceil(stride) as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_everything_once() {
        for (start, end) in [(7, 7), (7, 8), (0, 200), (3, 204), (0, 2503)] {
            let mut numbers: Vec<u64> = blocks(start, end).flat_map(Block::numbers).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (start..end).collect::<Vec<_>>());
            assert!(blocks(start, end).all(|block| block.count <= BLOCK as usize));
        }
    }
}
