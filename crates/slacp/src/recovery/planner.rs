//! Decides when FEC protects which packets (`docs/slacp.md`, FEC): those whose loss would delay
//! their receiver by a round trip. In the middle of a large transfer, retransmission repairs a loss
//! while the rest goes on. At the tail, or in a short exchange beside large ones, it costs a round
//! trip.

mod link_layer;

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use units::{BitRate, ByteCount, Instant};

use crate::recovery::fec::{FecBlock, MAX_REPAIRS, MAX_STRIDE, PendingRepair, encode};
use crate::recovery::path::loss::{BurstStats, LossMeter};
use crate::recovery::sent::SentPackets;
use crate::scheduler::pacer::Pacer;
use crate::spare::FreeSpare as _;

/// Sources count as the tail of a transfer if nothing follows them for this long.
const QUIET: Duration = Duration::from_millis(3);
/// Maximum delay of promised repairs: half the deadline of a channel with FEC, so that they arrive
/// in time.
const PROMISE: Duration = Duration::from_millis(50);
/// Maximum time that the repairs of sparse packets wait for more sparse packets to share them.
const GATHER: Duration = Duration::from_millis(6);
/// Approximate number of sources per block: more make repairs cheaper, fewer make decoding cheaper.
const BLOCK: u64 = 200;
/// Repairs take at most one bit in this many …
const BUDGET_SHARE: u64 = 20;
/// … averaged over this time.
const BUDGET_TIME: Duration = Duration::from_secs(3);
/// On a loaded link, repairs per source are at most this multiple of the loss rate …
const LOADED_SHARE: f64 = 2.5;
/// … of which at most this many repairs are saved up.
const LOADED_SAVED: f64 = 40.0;
/// Accepted probability that the repairs of a range do not suffice for its isolated losses.
const RESIDUAL: f64 = 5e-3;
/// Repairs cover bursts only if one is at least this probable.
const IMPROBABLE: f64 = 1e-3;
/// Approximate size of a repair's headers on the link, in bytes: IP and UDP, packet header, tag and
/// REPAIR frame.
const HEADERS: usize = 28 + 5 + 16 + 10;

/// Size of a full packet on the link, in bytes.
const PACKET: usize = 1500;

/// Decides which repairs to make and when to send them.
#[derive(Debug)]
pub(crate) struct RepairPlanner {
    /// Send time of the last source that is not protected yet.
    tail: Option<Instant>,
    /// Packets below this number were part of an earlier tail.
    tail_start: u64,
    /// Packets of sparse streams that are not protected yet.
    sparse: Option<GatheredSources>,
    /// Packets to be protected whatever follows them.
    promised: Option<GatheredSources>,
    /// Retransmissions of a link layer that are not protected yet.
    pub(super) retransmissions: Option<GatheredSources>,
    budget: Pacer,
    /// Number of repairs that may be sent on a loaded link.
    loaded_repairs: f64,
    /// Repairs to be sent, in order.
    queue: VecDeque<PendingRepair>,
    /// Repairs held back until a burst has passed.
    delayed: Vec<(Instant, Vec<PendingRepair>)>,
    /// Copies of acknowledgements of a link layer, held back likewise.
    pub(super) copies: VecDeque<(Instant, PendingRepair)>,
    /// Size of `queue`, `later` and `copies`, in bytes. Bounded by `budget`, a twentieth of the
    /// rate for 3 s, and by the retransmissions and acknowledgements sent during a burst.
    pub(super) held: usize,
    /// Time that a full packet takes on the link.
    pub(super) packet_time: Duration,
}

/// A range of sources to be protected together, and the send times of the first and the last.
#[derive(Debug)]
pub(super) struct GatheredSources {
    numbers: Range<u64>,
    first: Instant,
    last: Instant,
}

impl GatheredSources {
    fn add(gathered: &mut Option<Self>, now: Instant, number: u64) {
        let first = Self { numbers: number..number, first: now, last: now };
        let gathered = gathered.get_or_insert(first);
        gathered.numbers.end = number + 1;
        gathered.last = now;
    }

    fn sparse_due(&self) -> Instant {
        (self.last + QUIET).min(self.first + GATHER)
    }

    fn promise_due(&self) -> Instant {
        self.first + PROMISE
    }
}

/// The cases in which a source is to be protected.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SourceProtection {
    /// If it turns out to be the tail of a transfer.
    pub(crate) tail: bool,
    /// Soon, as data of a sparse stream, which a user probably waits for.
    pub(crate) sparse: bool,
    /// In every case, within [`PROMISE`].
    pub(crate) promised: bool,
    /// As a retransmission on a link layer, which is not retransmitted again.
    pub(crate) retransmission: bool,
}

/// The state of a session that [`RepairPlanner::plan`] decides by.
pub(crate) struct PlanInputs<'a> {
    pub(crate) sent: &'a SentPackets,
    pub(crate) loss: &'a LossMeter,
    pub(crate) rtt: Duration,
    /// Set if nothing else waits to be sent.
    pub(crate) idle: bool,
    /// Set if more retransmissions wait to be sent.
    pub(crate) has_retransmissions: bool,
}

impl RepairPlanner {
    /// A planner for a link of `rate`.
    pub(crate) fn new(rate: BitRate) -> Self {
        Self {
            tail: None,
            tail_start: 0,
            sparse: None,
            promised: None,
            retransmissions: None,
            budget: Pacer::new(share(rate), BUDGET_TIME),
            loaded_repairs: 0.0,
            queue: VecDeque::new(),
            delayed: Vec::new(),
            copies: VecDeque::new(),
            held: 0,
            packet_time: packet_time(rate),
        }
    }

    /// Size of the waiting repairs, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.queue.free_spare();
        self.delayed.free_spare();
        self.copies.free_spare();
    }

    /// Adapts the budget and the time of a packet to a new link rate.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.budget.set_rate(now, share(rate));
        self.packet_time = packet_time(rate);
    }

    /// Records that source `number` was sent.
    pub(crate) fn record_source(
        &mut self,
        now: Instant,
        number: u64,
        protection: SourceProtection,
        loss: &LossMeter,
    ) {
        if protection.tail {
            self.tail = Some(now);
        }
        // The budget of a loaded link grows with each source, so it is a share of the packets.
        self.loaded_repairs = (self.loaded_repairs + LOADED_SHARE * loss.rate()).min(LOADED_SAVED);
        if protection.sparse {
            GatheredSources::add(&mut self.sparse, now, number);
        }
        if protection.promised {
            GatheredSources::add(&mut self.promised, now, number);
        }
        if protection.retransmission {
            GatheredSources::add(&mut self.retransmissions, now, number);
        }
    }

    /// Returns `true` if sources were sent that may yet be protected.
    pub(crate) fn has_unprotected(&self) -> bool {
        let gathered = [&self.sparse, &self.promised, &self.retransmissions];
        self.tail.is_some() || gathered.into_iter().any(Option::is_some)
    }

    /// The time at which [`Self::plan`] is due if nothing is sent before then.
    pub(crate) fn due(&self, idle: bool, resends: bool) -> Option<Instant> {
        let tail = self.tail.filter(|_| idle).map(|last| last + QUIET);
        let sparse = self.sparse.as_ref().map(GatheredSources::sparse_due);
        let promised = self.promised.as_ref().map(GatheredSources::promise_due);
        let later = self.delayed.iter().map(|(time, _)| *time).min();
        let again =
            self.retransmissions.as_ref().map(|again| self.retransmissions_due(again, resends));
        let copy = self.copies.front().map(|(time, _)| *time);
        [tail, sparse, promised, later, again, copy].into_iter().flatten().min()
    }

    /// Makes the repairs that are due.
    pub(crate) fn plan(&mut self, now: Instant, outlook: &PlanInputs) {
        // Tails, and below sparse and promised data, but not bulk in mid-flight: only a loss in the
        // last round trip costs another one. 20 MB at a PER of 1 % take 3.97 instead of 4.55 s.
        if outlook.idle && self.tail.is_some_and(|last| last + QUIET <= now) {
            // The range of the tail includes the packets gathered for the other two.
            (self.tail, self.sparse, self.promised) = (None, None, None);
            let end = outlook.sent.next_number();
            let start = core::mem::replace(&mut self.tail_start, end);
            self.protect(now, start..end, outlook);
        }
        if let Some(sparse) = self.sparse.take_if(|sparse| sparse.sparse_due() <= now) {
            self.protect(now, sparse.numbers, outlook);
        }
        if let Some(promised) = self.promised.take_if(|promised| promised.promise_due() <= now) {
            self.protect(now, promised.numbers, outlook);
        }
        self.protect_retransmissions(now, outlook);
        self.release_delayed(now, outlook.sent);
        self.release_copies(now);
    }

    /// Queues the repairs held back for a burst whose time has come. Those of blocks without an
    /// outstanding packet are dropped.
    fn release_delayed(&mut self, now: Instant, sent: &SentPackets) {
        let needed =
            |repair: &PendingRepair| repair.block.numbers().any(|n| sent.sent_at(n).is_some());
        let (due, later): (Vec<_>, Vec<_>) =
            self.delayed.drain(..).partition(|(time, _)| *time <= now);
        self.delayed = later;
        for repair in due.into_iter().flat_map(|(_, repairs)| repairs) {
            if needed(&repair) {
                self.queue.push_back(repair);
            } else {
                self.held -= size_of_pending(&repair);
            }
        }
    }

    /// Makes the repairs of a range: those against isolated losses leave at once, those against
    /// bursts after the longest recent burst.
    fn protect(&mut self, now: Instant, numbers: Range<u64>, outlook: &PlanInputs) {
        let Some(numbers) = sources(numbers, outlook.sent) else { return };
        let Some(span) = span(&numbers, outlook.sent) else { return };
        let stride = (numbers.end - numbers.start).div_ceil(BLOCK);
        // The peer ignores repairs with a larger stride.
        if stride > MAX_STRIDE {
            return;
        }
        let threat =
            outlook.loss.bursts().filter(|bursts| is_coverable(bursts, &span, outlook.rtt));
        let struck = threat.map_or(0, |bursts| {
            self.affordable(now, burst_sizes(&bursts, &span, &numbers), outlook)
        });
        let source = |number| outlook.sent.source(number).unwrap_or_default();
        let mut at_once = Vec::new();
        let mut later = Vec::new();
        for block in blocks(numbers.start, numbers.end) {
            // There are `stride` blocks, and each may fail.
            let lone =
                repairs_for(block.count, outlook.loss.isolated_rate(), RESIDUAL / stride as f64);
            // As many repairs as packets restore all of them.
            let more = struck.div_ceil(stride as usize).min(block.count);
            let mut repairs = encode(block, (lone + more).min(MAX_REPAIRS), source);
            later.extend(repairs.split_off(lone.min(repairs.len())));
            at_once.extend(repairs);
        }
        self.enqueue(now, at_once, outlook.idle);
        if !later.is_empty() {
            // `affordable` has held these against the budget.
            for repair in &later {
                self.spend(now, repair.shard.len(), outlook.idle);
                self.held += size_of_pending(repair);
            }
            // A burst that outlasts the sending of the sources would destroy the repairs as well.
            let passed = threat.filter(|bursts| span.duration() < bursts.length);
            let release = passed.map_or(now, |bursts| span.end + bursts.length);
            self.delayed.push((release, interleaved(later)));
        }
    }

    /// The largest of the given burst sizes, in packets, that the budget covers; 0 if none. Fewer
    /// repairs than a burst takes packets restore nothing.
    fn affordable(&self, now: Instant, struck: Vec<usize>, outlook: &PlanInputs) -> usize {
        let left = self.budget.burst_left(now).get() as usize / PACKET;
        let loaded = if outlook.idle { usize::MAX } else { self.loaded_repairs as usize };
        struck.into_iter().filter(|struck| *struck <= left.min(loaded)).max().unwrap_or(0)
    }

    /// Queues repairs as far as the budget allows.
    fn enqueue(&mut self, now: Instant, repairs: Vec<PendingRepair>, idle: bool) {
        for repair in interleaved(repairs) {
            if self.try_spend(now, repair.shard.len(), idle) {
                self.held += size_of_pending(&repair);
                self.queue.push_back(repair);
            }
        }
    }

    /// The next repair to send.
    pub(crate) fn next(&self) -> Option<&PendingRepair> {
        self.queue.front()
    }

    /// Queues a repair as if it had been planned.
    #[cfg(test)]
    pub(crate) fn push(&mut self, repair: PendingRepair) {
        self.held += size_of_pending(&repair);
        self.queue.push_back(repair);
    }

    /// Takes the repair returned by [`Self::next`].
    pub(crate) fn take(&mut self) -> Option<PendingRepair> {
        let repair = self.queue.pop_front()?;
        self.held -= size_of_pending(&repair);
        Some(repair)
    }

    /// The lowest packet number of which repairs wait. The peer must keep packets from there on.
    pub(crate) fn floor(&self) -> Option<u64> {
        let later = self.delayed.iter().flat_map(|(_, repairs)| repairs);
        let copies = self.copies.iter().map(|(_, repair)| repair);
        self.queue.iter().chain(later).chain(copies).map(|repair| repair.block.base).min()
    }

    /// Spends `size` bytes of redundancy if the budget allows; `false` if it does not.
    pub(crate) fn try_spend(&mut self, now: Instant, size: usize, idle: bool) -> bool {
        let affordable = self.budget.ready_at() <= now && (idle || self.loaded_repairs >= 1.0);
        if affordable {
            self.spend(now, size, idle);
        }
        affordable
    }

    fn spend(&mut self, now: Instant, size: usize, idle: bool) {
        self.budget.charge(now, ByteCount::new((size + HEADERS) as u64));
        if !idle {
            self.loaded_repairs -= 1.0;
        }
    }
}

/// Memory of a waiting repair, in bytes.
fn size_of_pending(repair: &PendingRepair) -> usize {
    size_of::<PendingRepair>() + repair.shard.len()
}

/// Time that a full packet takes on a link of this rate; at most [`BUDGET_TIME`], also at rate 0.
fn packet_time(rate: BitRate) -> Duration {
    let rate = rate.bits_per_second().max(1);
    Duration::from_nanos((PACKET as u64 * 8).saturating_mul(1_000_000_000) / rate).min(BUDGET_TIME)
}

/// The part of a link's rate that repairs may take.
fn share(rate: BitRate) -> BitRate {
    BitRate::from_bits_per_second(rate.bits_per_second() / BUDGET_SHARE)
}

/// The period in which the packets of a range were sent.
struct SendPeriod {
    begin: Instant,
    end: Instant,
}

impl SendPeriod {
    fn duration(&self) -> Duration {
        self.end.saturating_since(self.begin)
    }
}

/// Trims a range to its first and last source, because other packets at its ends would only use up
/// repairs. `None` if there is no source.
fn sources(numbers: Range<u64>, sent: &SentPackets) -> Option<Range<u64>> {
    let is_source = |number: &u64| sent.source(*number).is_some_and(|source| !source.is_empty());
    // A repair needs the frames of every packet of its block.
    let mut numbers = numbers.start.max(sent.kept_from())..numbers.end;
    let first = numbers.find(is_source)?;
    let last = numbers.rfind(is_source).unwrap_or(first);
    Some(first..last + 1)
}

/// The period in which the outstanding packets of the range were sent; `None` if there are none.
fn span(numbers: &Range<u64>, sent: &SentPackets) -> Option<SendPeriod> {
    let begin = numbers.clone().find_map(|number| sent.sent_at(number))?;
    let end = numbers.clone().rev().find_map(|number| sent.sent_at(number))?;
    Some(SendPeriod { begin, end })
}

/// Returns `true` if a burst is probable enough, and short enough for repairs after it to arrive
/// before a retransmission.
fn is_coverable(bursts: &BurstStats, span: &SendPeriod, rtt: Duration) -> bool {
    let exposed = span.duration() + bursts.length;
    bursts.per_second * exposed.as_secs_f64() >= IMPROBABLE && bursts.length * 4 < rtt * 3
}

/// Numbers of packets of the range that one burst, two bursts and so on destroy, for as many bursts
/// as are probable. Each is taken as an eighth longer than those measured, because future bursts
/// may be.
fn burst_sizes(bursts: &BurstStats, span: &SendPeriod, numbers: &Range<u64>) -> Vec<usize> {
    let count = (numbers.end - numbers.start) as usize;
    let length = bursts.length.as_secs_f64();
    let duration = span.duration().as_secs_f64();
    if length >= duration {
        return vec![count];
    }
    let one = (count as f64 * length / duration * 1.125) as usize + 1;
    let expected = bursts.per_second * (duration + length);
    let most = (expected + expected.sqrt()).ceil() as usize;
    (1..=most.clamp(1, 8)).map(|bursts| (one * bursts).min(count)).collect()
}

/// Number of repairs that a block of `count` packets needs if each packet, repairs included, is
/// lost with probability `p`, so that more than that many are lost with a probability of at most
/// `residual`. 0 on a clean link.
fn repairs_for(count: usize, p: f64, residual: f64) -> usize {
    if p <= 0.0 {
        return 0;
    }
    (1..MAX_REPAIRS)
        .find(|repairs| probability_of_more(count + repairs, *repairs, p) <= residual)
        .unwrap_or(MAX_REPAIRS)
}

/// The probability that more than `most` of `n` packets are lost (binomial). Uses basic arithmetic
/// only, whose results are the same on every platform.
fn probability_of_more(n: usize, most: usize, p: f64) -> f64 {
    let mut term = 1.0;
    for _ in 0..n {
        term *= 1.0 - p;
    }
    let mut sum = term;
    let odds = p / (1.0 - p);
    for k in 1..=most.min(n) {
        term *= odds * (n - k + 1) as f64 / k as f64;
        sum += term;
    }
    1.0 - sum
}

/// Orders repairs so that the first one of every block precedes the second of any.
fn interleaved(mut repairs: Vec<PendingRepair>) -> Vec<PendingRepair> {
    repairs.sort_by_key(|repair| (repair.index, repair.block));
    repairs
}

/// Interleaved blocks that cover `start..end`.
fn blocks(start: u64, end: u64) -> impl Iterator<Item = FecBlock> {
    let stride = (end - start).div_ceil(BLOCK);
    (start..start + stride).map(move |base| FecBlock {
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
            let mut numbers: Vec<u64> = blocks(start, end).flat_map(FecBlock::numbers).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (start..end).collect::<Vec<_>>());
            assert!(blocks(start, end).all(|block| block.count <= BLOCK as usize));
        }
    }

    #[test]
    fn repairs_hold_the_residual_loss() {
        assert_eq!(repairs_for(1, 0.0, RESIDUAL), 0);
        assert_eq!(repairs_for(1, 0.01, RESIDUAL), 1);
        assert_eq!(repairs_for(8, 0.01, RESIDUAL), 1);
        assert_eq!(repairs_for(200, 0.01, RESIDUAL), 7);
        assert_eq!(repairs_for(200, 0.1, RESIDUAL), 36);
        // Exact: 1 - 0.99^9 - 9 · 0.01 · 0.99^8.
        assert!((probability_of_more(9, 1, 0.01) - 0.003_435_7).abs() < 1e-6);
    }

    #[test]
    fn a_burst_strikes_its_share_of_a_long_flight_and_all_of_a_short_one() {
        let bursts = BurstStats { length: Duration::from_millis(50), per_second: 1.0 };
        let span = |ms: u64| SendPeriod {
            begin: Instant::ZERO,
            end: Instant::ZERO + Duration::from_millis(ms),
        };
        assert_eq!(burst_sizes(&bursts, &span(3), &(0..8)), [8]);
        assert_eq!(burst_sizes(&bursts, &span(500), &(0..1000)), [113, 226]);
        let rtt = Duration::from_millis(600);
        assert!(is_coverable(&bursts, &span(3), rtt));
        assert!(!is_coverable(&bursts, &span(3), Duration::from_millis(20)));
        assert!(!is_coverable(&BurstStats { per_second: 1e-3, ..bursts }, &span(3), rtt));
    }
}
