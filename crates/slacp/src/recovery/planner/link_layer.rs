//! FEC of a link layer. It protects retransmissions, because each packet has only one, and the
//! acknowledgements that report losses (SLACP paper, §2 and Fig. 4). New data is repaired by ARQ.
//!
//! While data waits, each repair delays it, on a slow link noticeably. The number of repairs then
//! follows the measured loss of retransmissions, which differs from that of packets in general:
//! where bursts are rare, the next one hits few retransmissions, or none. When nothing waits,
//! repairs cost nothing, and some loss is assumed. A burst that destroys a retransmission usually
//! destroys its neighbours too, so the repairs leave when the burst would be over.

use core::ops::Range;
use core::time::Duration;

use units::Instant;

use super::{GatheredSources, PlanInputs, RepairPlanner, repairs_for, size_of_pending, sources};
use crate::recovery::fec::{FecBlock, PendingRepair, encode};
use crate::recovery::sent::SentPackets;

/// Maximum number of sources per block.
const MAX_SOURCES: u64 = 32;
/// Accepted probability that the repairs of a block do not suffice. The transport protocol repairs
/// the rest.
const UNRESTORED: f64 = 0.02;
/// Minimum loss rate of retransmissions to protect against when nothing else waits.
const ASSUMED: f64 = 0.05;
/// Divisors of the longest source that bound the length classes: up to an eighth, up to a half, and
/// longer. (The paper has three classes and does not say which.)
const CLASSES: [usize; 2] = [8, 2];

impl RepairPlanner {
    /// The time at which gathered retransmissions are protected: at once if no more of them wait,
    /// or if they fill a block.
    pub(super) fn retransmissions_due(&self, again: &GatheredSources, resends: bool) -> Instant {
        let full = again.numbers.end - again.numbers.start >= MAX_SOURCES;
        // More retransmissions join the block, at most for the time in which they would fill it.
        if full || !resends {
            again.last
        } else {
            again.first + self.packet_time * MAX_SOURCES as u32
        }
    }

    /// Makes the repairs of the retransmissions gathered, if they are due.
    pub(super) fn protect_retransmissions(&mut self, now: Instant, outlook: &PlanInputs) {
        let due = self
            .retransmissions
            .as_ref()
            .map(|again| self.retransmissions_due(again, outlook.has_retransmissions));
        if due.is_none_or(|due| due > now) {
            return;
        }
        let Some(again) = self.retransmissions.take() else { return };
        let Some(numbers) = sources(again.numbers, outlook.sent) else { return };
        let repairs = cheapest(&numbers, outlook);
        self.held += repairs.iter().map(size_of_pending).sum::<usize>();
        self.delayed.push((again.last + self.burst(outlook.loss.longest_run()), repairs));
    }

    /// Protects an acknowledgement, the only contents of packet `number`, by a copy of its frames.
    /// The copy leaves after the time of a burst of `run` packets.
    pub(crate) fn protect_report(&mut self, now: Instant, number: u64, frames: &[u8], run: u32) {
        let block = FecBlock { base: number, stride: 1, count: 1 };
        for repair in encode(block, 1, |_| frames) {
            self.held += size_of_pending(&repair);
            self.copies.push_back((now + self.burst(run), repair));
        }
    }

    /// Queues the copies of acknowledgements that are due.
    pub(super) fn release_copies(&mut self, now: Instant) {
        while let Some((_, repair)) = self.copies.pop_front_if(|(time, _)| *time <= now) {
            self.queue.push_back(repair);
        }
    }

    /// Maximum duration of a burst that destroys this many packets.
    fn burst(&self, run: u32) -> Duration {
        self.packet_time * run
    }
}

/// Makes the repairs of a range, as one block or as blocks cut where the length class changes,
/// whichever takes fewer bytes.
fn cheapest(numbers: &Range<u64>, outlook: &PlanInputs) -> Vec<PendingRepair> {
    let of = |ranges: Vec<Range<u64>>| -> Vec<PendingRepair> {
        ranges.into_iter().flat_map(|range| repairs(&range, outlook)).collect()
    };
    let whole = of(vec![numbers.clone()]);
    let cut = of(by_class(numbers, outlook.sent));
    let bytes = |all: &[PendingRepair]| all.iter().map(|repair| repair.shard.len()).sum::<usize>();
    if bytes(&cut) < bytes(&whole) { cut } else { whole }
}

fn repairs(numbers: &Range<u64>, outlook: &PlanInputs) -> Vec<PendingRepair> {
    let count = (numbers.end - numbers.start) as usize;
    let block = FecBlock { base: numbers.start, stride: 1, count };
    let source = |number| outlook.sent.source(number).unwrap_or_default();
    let least = if outlook.idle { ASSUMED } else { 0.0 };
    let lost = outlook.loss.retransmission_loss().max(least);
    // More repairs than sources restore nothing more: a copy of each would do.
    encode(block, repairs_for(count, lost, UNRESTORED).min(count), source)
}

/// Cuts a range where sources of another length class begin. Packets that are not sources stay in
/// the part before them.
fn by_class(numbers: &Range<u64>, sent: &SentPackets) -> Vec<Range<u64>> {
    let length = |number: u64| sent.source(number).map_or(0, <[u8]>::len);
    let longest = numbers.clone().map(length).max().unwrap_or(0);
    let class = |length: usize| CLASSES.iter().filter(|part| length * **part > longest).count();
    let mut ranges: Vec<(usize, Range<u64>)> = Vec::new();
    for number in numbers.clone() {
        let length = length(number);
        match ranges.last_mut() {
            Some((last, range)) if length == 0 || *last == class(length) => range.end = number + 1,
            _ => ranges.push((class(length), number..number + 1)),
        }
    }
    ranges.into_iter().map(|(_, range)| range).collect()
}

#[cfg(test)]
mod tests {
    use units::BitRate;

    use super::*;
    use crate::recovery::LossDetection;
    use crate::recovery::path::loss::LossMeter;
    use crate::recovery::planner::SourceProtection;
    use crate::recovery::sent::SentPacket;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Retransmissions of these lengths, a millisecond apart, and a planner for 12 Mbit/s, on which
    /// a full packet takes a millisecond.
    fn sent(lengths: &[usize]) -> (SentPackets, RepairPlanner) {
        let mut book = SentPackets::new(LossDetection::Ordered);
        let mut planner = RepairPlanner::new(BitRate::from_mbit(12));
        for (number, length) in (0..).zip(lengths) {
            book.push(Some(SentPacket {
                fec_source: Some(vec![7; *length].into()),
                is_control: true,
                ..SentPacket::bare(at(number))
            }));
            let protection =
                SourceProtection { retransmission: true, ..SourceProtection::default() };
            planner.record_source(at(number), number, protection, &LossMeter::default());
        }
        (book, planner)
    }

    /// A link that has lost a burst of four packets, and this many of 100 retransmissions.
    fn lossy(again: u32) -> LossMeter {
        let mut meter = LossMeter::default();
        (0..8).for_each(|number| meter.record(at(number), number < 4));
        (0..100).for_each(|number| meter.record_retransmission(number < again));
        meter
    }

    /// Sizes of the repairs that leave, and when.
    fn repairs(lengths: &[usize], loss: &LossMeter, idle: bool) -> Vec<(u64, usize)> {
        let (book, mut planner) = sent(lengths);
        let mut left = Vec::new();
        for ms in 0..100 {
            let rtt = Duration::from_millis(600);
            let outlook = PlanInputs { sent: &book, loss, rtt, idle, has_retransmissions: false };
            planner.plan(at(ms), &outlook);
            left.extend(core::iter::from_fn(|| Some((ms, planner.take()?.shard.len()))));
        }
        assert_eq!(planner.held(), 0);
        left
    }

    #[test]
    fn repairs_follow_the_measured_loss_of_retransmissions_and_leave_after_a_burst() {
        // The last was sent at 2 ms, and a burst takes four packets of 1 ms.
        assert_eq!(repairs(&[1400; 3], &lossy(10), false), [(6, 1402); 2]);
        assert_eq!(repairs(&[1400; 3], &lossy(0), false), []);
        assert_eq!(repairs(&[1400; 3], &lossy(0), true), [(6, 1402)]);
        // Never more than sources: a copy of each would do.
        assert_eq!(repairs(&[1400], &lossy(100), false), [(4, 1402)]);
    }

    #[test]
    fn repairs_of_short_packets_are_short_unless_one_block_is_cheaper() {
        assert_eq!(repairs(&[60, 60, 1400], &lossy(10), false), [(6, 62), (6, 62), (6, 1402)]);
        assert_eq!(repairs(&[1400, 60, 1400, 60, 1400], &lossy(10), false), [(8, 1402); 3]);
    }

    #[test]
    fn while_retransmissions_wait_their_block_stays_open() {
        let (book, mut planner) = sent(&[1400; 3]);
        let loss = lossy(10);
        let rtt = Duration::from_millis(600);
        let outlook = |resends| PlanInputs {
            sent: &book,
            loss: &loss,
            rtt,
            idle: false,
            has_retransmissions: resends,
        };
        planner.plan(at(10), &outlook(true));
        assert!(planner.has_unprotected() && planner.due(false, true) > Some(at(10)));
        planner.plan(at(10), &outlook(false));
        assert!(!planner.has_unprotected() && planner.next().is_some());
    }

    #[test]
    fn a_report_is_sent_twice_a_burst_apart() {
        let mut planner = RepairPlanner::new(BitRate::from_mbit(12));
        planner.protect_report(at(1), 9, &[2, 3, 4], 4);
        assert_eq!((planner.due(false, false), planner.floor()), (Some(at(5)), Some(9)));
        planner.release_copies(at(4));
        assert!(planner.next().is_none());
        planner.release_copies(at(5));
        let copy = planner.take().unwrap();
        assert_eq!(
            (copy.block.numbers().collect::<Vec<_>>(), &copy.shard[..5]),
            (vec![9], &[0, 3, 2, 3, 4][..])
        );
        assert_eq!(planner.held(), 0);
    }
}
