//! Past positions of a stream, so that a compact offset expands correctly however late it arrives
//! (`docs/slacp.md`, Frames).

use std::collections::VecDeque;

use crate::wire::frame::{COMPACT_REACH, TruncatedOffset};

/// Growth of a stream between two milestones, in bytes. 8 MB, so that few streams ever need one and
/// [`COMPACT_SPAN`] exceeds the BDP of most links.
const MILESTONE_STEP: u64 = 1 << 23;

/// Number of milestones kept. A packet that arrives after its stream has grown by 126 MB, two full
/// windows, was declared lost and retransmitted long ago.
const MAX_MILESTONES: usize = 16;

/// Maximum number of bytes that a sender may hold for its next frame to be compact.
pub(crate) const COMPACT_SPAN: u64 = COMPACT_REACH - MILESTONE_STEP;

/// The highest offset of a stream at the time when packets of certain numbers were the newest.
///
/// A compact offset `x` in packet `n` is completed to `x`, by the following proof. The sender of
/// the packet held the bytes from `b`, the first not acknowledged, and had sent those below `s`:
/// `b <= x <= s` and `s - b <= COMPACT_SPAN`. The receiver completes the offset by `h`, of the last
/// milestone `(m, h)` with `m <= n`.
///
/// - The bytes that the receiver had at that milestone were sent in packet `m` or before it, so
///   `h <= s`, and `x >= b >= s - COMPACT_SPAN >= h - COMPACT_SPAN`.
/// - The bytes below `b` were acknowledged before packet `n` was sent. When the receiver
///   acknowledged them its newest packet was below `n`, and its last milestone less than
///   `STEP` below its highest offset, which was `b` or more. That milestone, or a later one,
///   is the chosen one: `h > b - STEP`, and `x <= s <= b + COMPACT_SPAN < h + STEP + COMPACT_SPAN`.
///
/// So `x` is at most `COMPACT_REACH` away from `h`, whatever the windows are, however late the
/// packet comes, and whether or not another packet has brought its bytes.
#[derive(Debug)]
pub(crate) struct OffsetMilestones {
    /// Packet numbers and offsets, both increasing.
    known: VecDeque<(u64, u64)>,
    /// The newest packet that carried data of the stream.
    newest: u64,
}

impl Default for OffsetMilestones {
    fn default() -> Self {
        Self { known: VecDeque::from([(0, 0)]), newest: 0 }
    }
}

impl OffsetMilestones {
    /// Continues as if this many bytes had been received.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.known = VecDeque::from([(0, bytes)]);
    }

    /// Expands an offset that came in packet `number`. `None` if the milestone for it has been
    /// dropped; the packet then counts as lost.
    pub(crate) fn complete(&self, offset: TruncatedOffset, number: u64) -> Option<u64> {
        if offset.is_full() {
            return Some(offset.expand(0));
        }
        let (_, near) = self.known.iter().rfind(|(newest, _)| *newest <= number)?;
        Some(offset.expand(*near))
    }

    /// Records that packet `number` arrived with data of the stream, whose highest offset is now
    /// `highest`.
    pub(crate) fn record(&mut self, number: u64, highest: u64) {
        self.newest = self.newest.max(number);
        if self.known.back().is_none_or(|(_, last)| highest >= last + MILESTONE_STEP) {
            self.known.push_back((self.newest, highest));
        }
        if self.known.len() > MAX_MILESTONES {
            self.known.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame in flight: its packet, its start and its end.
    #[derive(Debug, Clone, Copy)]
    struct Sent {
        number: u64,
        start: u64,
        end: u64,
        compact: bool,
    }

    /// A sender of large frames, and a receiver that gets them in any order, some never and some
    /// twice.
    #[derive(Debug, Default)]
    struct Hop {
        under_way: Vec<Sent>,
        numbers: u64,
        sent: u64,
        /// Contiguous data at the receiver; the sender knows of it up to `acknowledged`.
        have: units::RangeSet,
        highest: u64,
        acknowledged: u64,
        milestones: OffsetMilestones,
        late: u64,
    }

    impl Hop {
        fn send(&mut self, start: u64, end: u64) {
            let compact = self.sent.max(end) - self.acknowledged <= COMPACT_SPAN;
            self.sent = self.sent.max(end);
            self.under_way.push(Sent { number: self.numbers, start, end, compact });
            self.numbers += 1;
        }

        /// Delivers a frame, which may be delivered again later.
        fn receive(&mut self, frame: Sent) {
            let truncate =
                if frame.compact { TruncatedOffset::compact } else { TruncatedOffset::full };
            let Some(start) = self.milestones.complete(truncate(frame.start), frame.number) else {
                self.late += 1;
                return;
            };
            assert_eq!(start, frame.start, "{frame:?} {:?}", self.milestones);
            self.have.insert(frame.start..frame.end);
            self.highest = self.highest.max(frame.end);
            self.milestones.record(frame.number, self.highest);
        }

        /// Delivers the receiver's acknowledgement at once.
        fn acknowledge(&mut self) {
            self.acknowledged =
                self.have.first().filter(|first| first.start == 0).map_or(0, |r| r.end);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn offsets_mean_the_same_in_every_window_and_however_late(
            window in prop::sample::select(vec![1u64 << 20, 20 << 20, 40 << 20, 80 << 20, 300 << 20]),
            steps in prop::collection::vec((0u8..8, 1u64..1 << 22, any::<prop::sample::Index>()), 1..300)
        ) {
            let mut hop = Hop::default();
            for (step, size, which) in steps {
                match step {
                    0..=2 => {
                        let end = (hop.sent + size).min(hop.acknowledged + window);
                        hop.send(hop.sent, end);
                    }
                    3 => {
                        let end = (hop.acknowledged + size).min(hop.sent);
                        hop.send(hop.acknowledged, end);
                    }
                    4 | 5 if !hop.under_way.is_empty() => {
                        let index = which.index(hop.under_way.len().min(4));
                        let frame = hop.under_way.remove(index);
                        hop.receive(frame);
                    }
                    6 if !hop.under_way.is_empty() => {
                        let frame = hop.under_way[which.index(hop.under_way.len())];
                        hop.receive(frame);
                    }
                    _ => hop.acknowledge(),
                }
            }
        }
    }

    #[test]
    fn what_a_stream_has_left_far_behind_counts_as_lost() {
        let mut milestones = OffsetMilestones::default();
        (1..=20u64).for_each(|i| milestones.record(i * 10, i * MILESTONE_STEP));
        let old = TruncatedOffset::compact(7);
        assert_eq!(milestones.complete(old, 9), None);
        assert_eq!(milestones.complete(TruncatedOffset::full(7), 9), Some(7));
        assert_eq!(
            milestones.complete(TruncatedOffset::compact(19 * MILESTONE_STEP), 190),
            Some(19 * MILESTONE_STEP)
        );
    }
}
