//! Records of received packets: duplicate detection, and the contents and times of
//! acknowledgements.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use units::{Instant, RangeSet};

use crate::recovery::LossDetection;
use crate::recovery::sent::REORDER_THRESHOLD;
use crate::spare::{ENTRY, FreeSpare as _};
use crate::wire::frame::{AckReport, ReportedTimes};
use crate::wire::varint;

/// Maximum delay of an acknowledgement when no packet is missing.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(25);

/// Number of received bytes that are acknowledged at once: those that arrive in [`ACK_DELAY`] at
/// 320 Mbit/s. On a fast link the sender would otherwise hold megabytes that have long arrived, and
/// soon fill its windows with them.
const ACK_BYTES: usize = 1_000_000;

/// Acknowledgements may take one byte for this many bytes received.
const BUDGET: i64 = 100;

/// Maximum acknowledgement budget saved up while idle, in bytes.
const BUDGET_CAP: i64 = 1500;

/// Maximum number of marked packets whose arrival is yet to be reported.
const MAX_MARKS: usize = 24;

/// Number of acknowledgements that report an arrival: more than one, because one may be lost.
const MARK_REPORTS: u8 = 2;

/// Maximum number of separate ranges of received packets, and of restored ones. 1 Gbit/s over 600
/// ms at 10 % loss leaves 5,000 gaps per round trip, and the sender settles them within two. Beyond
/// this the lowest ranges are forgotten.
const MAX_RANGES: usize = 1 << 14;

/// The packets received, and which of them are yet to be reported.
#[derive(Debug)]
pub(crate) struct ReceivedPackets {
    /// Numbers received or restored. All numbers below the floor count as received.
    numbers: RangeSet,
    floor: u64,
    largest_at: Instant,
    /// The part of `numbers` that FEC restored.
    restored: RangeSet,
    /// Marked packets: number, arrival, and number of reports left.
    marks: VecDeque<(u64, Instant, u8)>,
    /// Arrival time of the first unreported packet.
    waiting_since: Option<Instant>,
    /// Total size of the unreported packets, in bytes.
    waiting_bytes: usize,
    /// The highest missing packet whose loss is not yet reported.
    unreported_gap: Option<u64>,
    /// The next acknowledgement must not wait.
    urgent: bool,
    last_report: Instant,
    /// Bytes that may be spent on acknowledgements, times [`BUDGET`].
    budget: i64,
    recovery: LossDetection,
}

impl ReceivedPackets {
    /// Empty records for a link on which `recovery` detects losses.
    pub(crate) fn new(recovery: LossDetection) -> Self {
        Self {
            numbers: RangeSet::default(),
            floor: 0,
            largest_at: Instant::ZERO,
            restored: RangeSet::default(),
            marks: VecDeque::new(),
            waiting_since: None,
            waiting_bytes: 0,
            unreported_gap: None,
            urgent: false,
            last_report: Instant::ZERO,
            budget: BUDGET_CAP * BUDGET,
            recovery,
        }
    }

    /// The number of the next packet in order.
    pub(crate) fn expected(&self) -> u64 {
        self.numbers.last().map_or(self.floor, |last| last.end)
    }

    /// Returns `true` if the packet has not been received yet. Numbers end at the largest varint,
    /// as in RFC 9000 §12.3.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        (self.floor..=varint::MAX).contains(&number) && !self.numbers.contains(number)
    }

    /// Memory in bytes: at most 2 · [`MAX_RANGES`] entries.
    pub(crate) fn held(&self) -> usize {
        (self.numbers.count() + self.restored.count()) * ENTRY
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.restored.free_spare();
        self.marks.free_spare();
    }

    /// Records a packet of `size` bytes for which [`Self::is_new`] is true.
    pub(crate) fn record_arrival(
        &mut self,
        now: Instant,
        number: u64,
        size: usize,
        eliciting: bool,
    ) {
        debug_assert!(self.is_new(number), "a packet counts once");
        if self.recovery == LossDetection::Ordered && self.is_predecessor_missing(number) {
            // Even a packet that elicits no acknowledgement shows the gap before it.
            self.waiting_since.get_or_insert(now);
            self.urgent = true;
        }
        let expected = self.expected();
        if number >= expected {
            self.largest_at = now;
            if number > expected {
                self.unreported_gap = Some(number - 1);
            }
        }
        self.insert(number);
        self.budget = (self.budget + size as i64).min(BUDGET_CAP * BUDGET);
        if eliciting {
            self.waiting_since.get_or_insert(now);
            self.waiting_bytes += size;
        }
        // Three packets later, the missing one is probably lost rather than late.
        if self.unreported_gap.is_some_and(|gap| number >= gap + REORDER_THRESHOLD) {
            self.unreported_gap = None;
            self.urgent = true;
        }
    }

    /// Returns `true` if the packet before this one is missing. It is then lost, or still on its
    /// way if this one belongs to the control channel.
    fn is_predecessor_missing(&self, number: u64) -> bool {
        number > self.floor && !self.numbers.contains(number - 1)
    }

    /// Returns `true` if the next acknowledgement must not wait: usually it is the first to report
    /// a loss.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Records the arrival of a packet with a MARK frame, whose arrival time is to be reported.
    pub(crate) fn record_mark(&mut self, now: Instant, number: u64) {
        // The newest count (docs/slacp.md, Violations).
        if self.marks.len() == MAX_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back((number, now, MARK_REPORTS));
    }

    /// Records a packet restored by FEC.
    pub(crate) fn record_restored(&mut self, now: Instant, number: u64) {
        debug_assert!(self.is_new(number), "a packet counts once");
        if number >= self.expected() {
            self.largest_at = now;
        }
        self.restored.insert_one(number);
        if self.restored.count() > MAX_RANGES {
            self.restored.first().into_iter().for_each(|lowest| self.restored.remove(lowest));
        }
        self.insert(number);
        // No bytes have come, so that neither the budget nor `waiting_bytes` grows.
        self.waiting_since.get_or_insert(now);
    }

    /// Records as arrived, truly or not, all packets up to the largest that has arrived and `ahead`
    /// more.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn acknowledge_ahead(&mut self, now: Instant, ahead: u64) {
        let end = self.expected() + ahead;
        if self.numbers.last().is_none() {
            return;
        }
        if ahead > 0 {
            self.largest_at = now;
        }
        self.numbers.insert(self.floor..end);
        self.waiting_since.get_or_insert(now);
    }

    fn insert(&mut self, number: u64) {
        self.numbers.insert_one(number);
        // The floor rises too, or packets of the forgotten range could be replayed.
        if self.numbers.count() > MAX_RANGES {
            self.numbers.first().into_iter().for_each(|lowest| self.settle(lowest.end));
        }
    }

    /// Forgets everything below `floor`, which the sender no longer needs.
    pub(crate) fn settle(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.numbers.remove(0..floor);
            self.restored.remove(0..floor);
        }
    }

    /// Makes the next acknowledgement due at once.
    pub(crate) fn report_now(&mut self) {
        self.urgent = true;
    }

    /// Returns `true` if a packet waits to be acknowledged.
    pub(crate) fn has_unreported(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// The time at which the next acknowledgement is due, on a hop with this RTT. If it reports no
    /// loss, it waits for `patience`, or until [`ACK_BYTES`] were received.
    pub(crate) fn report_at(&self, rtt: Duration, patience: Duration) -> Option<Instant> {
        let since = self.waiting_since?;
        let prompt = self.urgent || self.waiting_bytes >= ACK_BYTES;
        let due = if prompt { since } else { since + patience };
        // Beyond the budget four acknowledgements per RTT remain (docs/slacp.md, Acknowledgements).
        let earliest = self.last_report + ACK_DELAY.max(rtt / 4);
        // A link layer reports losses whatever the budget says.
        let free = self.urgent && self.recovery == LossDetection::Ordered;
        Some(if self.budget > 0 || free { due } else { due.max(earliest) })
    }

    /// Returns the contents of an acknowledgement: the ranges received and those restored by FEC,
    /// both highest first and empty if nothing was received, and the other fields, with arrival
    /// times if `wanted`.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        wanted: bool,
    ) -> (impl Iterator<Item = Range<u64>>, impl Iterator<Item = Range<u64>>, AckReport) {
        let held = now.saturating_since(self.largest_at);
        let times = wanted.then(|| self.times(now));
        (self.numbers.descending(), self.restored.descending(), AckReport { held, times })
    }

    fn times(&mut self, now: Instant) -> ReportedTimes {
        let age = |(number, time, _): &(u64, Instant, u8)| (*number, now.saturating_since(*time));
        let marks = self.marks.iter().map(age).collect();
        for (_, _, left) in &mut self.marks {
            *left -= 1;
        }
        self.marks.retain(|(_, _, left)| *left > 0);
        // Microseconds modulo 2^32 (docs/slacp.md, Arrival times).
        ReportedTimes { clock: (now.as_nanos() / 1000) as u32, marks }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Records that an acknowledgement of `size` bytes was sent.
    pub(crate) fn record_report(&mut self, now: Instant, size: usize) {
        self.waiting_since = None;
        self.waiting_bytes = 0;
        self.urgent = false;
        self.last_report = now;
        self.budget -= size as i64 * BUDGET;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_loss_is_reported_at_once_and_the_rest_in_time() {
        let mut book = ReceivedPackets::new(LossDetection::Reordering);
        book.record_arrival(at(0), 0, 1500, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(25)));
        for (time, number) in [(1, 2), (2, 3)] {
            book.record_arrival(at(time), number, 1500, true);
            assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(25)));
        }
        book.record_arrival(at(3), 4, 1500, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(0)));
        book.record_report(at(3), 80);
        assert_eq!(book.report_at(RTT, ACK_DELAY), None);
        book.record_arrival(at(4), 5, 1500, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(29)));
    }

    #[test]
    fn on_a_link_that_keeps_order_every_gap_is_reported_at_once() {
        let mut book = ReceivedPackets::new(LossDetection::Ordered);
        // The budget is spent, which delays other reports.
        for _ in 0..20 {
            book.record_report(at(0), 80);
        }
        book.record_arrival(at(1), 0, 1500, true);
        assert!(book.report_at(RTT, ACK_DELAY) > Some(at(1)) && !book.is_urgent());
        book.record_arrival(at(2), 2, 1500, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(1)));
        book.record_report(at(2), 80);
        // Control, number 9, overtakes 3 to 8. Of these 5 is missing, which 6 shows.
        for (time, number, gap) in [(3, 9, true), (4, 3, false), (5, 4, false), (6, 6, true)] {
            book.record_arrival(at(time), number, 1500, true);
            assert_eq!(book.is_urgent(), gap, "{number}");
            book.record_report(at(time), 80);
        }
        // A packet that nobody must acknowledge shows the gap before it too.
        book.record_arrival(at(7), 11, 60, false);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(7)));
    }

    #[test]
    fn a_megabyte_is_reported_at_once() {
        let mut book = ReceivedPackets::new(LossDetection::Reordering);
        for number in 0..100 {
            book.record_arrival(at(0), number, 9_900, true);
        }
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(25)));
        book.record_arrival(at(1), 100, 10_000, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(0)));
        book.record_report(at(1), 80);
        book.record_arrival(at(2), 101, 10_000, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(27)));
    }

    #[test]
    fn reports_take_one_percent_or_four_in_an_rtt() {
        let mut book = ReceivedPackets::new(LossDetection::Reordering);
        for number in 0..20 {
            book.record_report(at(number), 80);
        }
        book.record_arrival(at(20), 0, 1500, true);
        assert_eq!(book.report_at(RTT, ACK_DELAY), Some(at(19 + 150)));
    }

    #[test]
    fn duplicates_and_settled_packets_are_not_new() {
        let mut book = ReceivedPackets::new(LossDetection::Reordering);
        book.record_arrival(at(0), 5, 100, true);
        assert!(!book.is_new(5) && book.is_new(4) && book.is_new(6));
        book.settle(5);
        assert!(!book.is_new(4));
        assert_eq!(book.expected(), 6);
        book.settle(9);
        assert_eq!(book.expected(), 9);
    }

    #[test]
    fn gaps_without_end_take_no_memory_without_end() {
        let mut book = ReceivedPackets::new(LossDetection::Reordering);
        let most = MAX_RANGES as u64;
        // One range of numbers, and every second one restored.
        for n in 0..4 * most {
            book.record_arrival(at(n), 2 * n, 100, true);
            book.record_restored(at(n), 2 * n + 1);
        }
        assert_eq!(book.held(), (1 + MAX_RANGES) * ENTRY);
        let mut book = ReceivedPackets::new(LossDetection::Reordering);
        for n in 0..=most {
            book.record_arrival(at(n), 2 * n, 100, true);
        }
        assert_eq!(book.held(), MAX_RANGES * ENTRY);
        // The lowest range was dropped, and what is missing after it may still arrive.
        assert!(!book.is_new(0) && book.is_new(1) && !book.is_new(2));
        assert_eq!(book.expected(), 2 * most + 1);
    }

    #[test]
    fn numbers_end_where_they_cannot_be_acknowledged_any_more() {
        let book = ReceivedPackets::new(LossDetection::Reordering);
        assert!(book.is_new(varint::MAX) && !book.is_new(varint::MAX + 1));
    }
}
