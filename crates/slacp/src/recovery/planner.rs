//! Decides when FEC protects which packets (`docs/slacp.md`, FEC): those whose loss would delay
//! their receiver by a round trip. In the middle of a large transfer, retransmission repairs a loss
//! while the rest goes on. At the tail, or in a short exchange beside large ones, it costs a round
//! trip.

mod link_layer;

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use units::{BitRate, ByteCount, Instant};

use crate::pacer::Pacer;
use crate::path::loss::{Bursts, LossMeter};
use crate::recovery::fec::{Block, MAX_REPAIRS, MAX_STRIDE, PendingRepair, encode};
use crate::recovery::sent::SentPackets;
use crate::spare::Spare as _;

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
pub(crate) struct Planner {
    /// Send time of the last source that is not protected yet.
    tail: Option<Instant>,
    /// Packets below this number were part of an earlier tail.
    dealt_with: u64,
    /// Packets of sparse streams that are not protected yet.
    sparse: Option<Gathered>,
    /// Packets to be protected whatever follows them.
    promised: Option<Gathered>,
    /// Retransmissions of a link layer that are not protected yet.
    pub(super) again: Option<Gathered>,
    budget: Pacer,
    /// Number of repairs that may be sent on a loaded link.
    loaded: f64,
    /// Repairs to be sent, in order.
    queue: VecDeque<PendingRepair>,
    /// Repairs held back until a burst has passed.
    later: Vec<(Instant, Vec<PendingRepair>)>,
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
pub(super) struct Gathered {
    numbers: Range<u64>,
    first: Instant,
    last: Instant,
}

impl Gathered {
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
pub(crate) struct Protection {
    /// If it turns out to be the tail of a transfer.
    pub(crate) tail: bool,
    /// Soon, as data of a sparse stream, which a user probably waits for.
    pub(crate) sparse: bool,
    /// In every case, within [`PROMISE`].
    pub(crate) promised: bool,
    /// As a retransmission on a link layer, which is not retransmitted again.
    pub(crate) again: bool,
}

/// The state of a session that [`Planner::plan`] decides by.
pub(crate) struct Outlook<'a> {
    pub(crate) sent: &'a SentPackets,
    pub(crate) loss: &'a LossMeter,
    pub(crate) rtt: Duration,
    /// Set if nothing else waits to be sent.
    pub(crate) idle: bool,
    /// Set if more retransmissions wait to be sent.
    pub(crate) resends: bool,
}

impl Planner {
    /// A planner for a link of `rate`.
    pub(crate) fn new(rate: BitRate) -> Self {
        Self {
            tail: None,
            dealt_with: 0,
            sparse: None,
            promised: None,
            again: None,
            budget: Pacer::new(share(rate), BUDGET_TIME),
            loaded: 0.0,
            queue: VecDeque::new(),
            later: Vec::new(),
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
        self.later.free_spare();
        self.copies.free_spare();
    }

    /// Adapts the budget and the time of a packet to a new link rate.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.budget.set_rate(now, share(rate));
        self.packet_time = packet_time(rate);
    }

    /// Records that source `number` was sent.
    pub(crate) fn sent_source(
        &mut self,
        now: Instant,
        number: u64,
        protection: Protection,
        loss: &LossMeter,
    ) {
        if protection.tail {
            self.tail = Some(now);
        }
        // The budget of a loaded link grows with each source, so it is a share of the packets.
        self.loaded = (self.loaded + LOADED_SHARE * loss.rate()).min(LOADED_SAVED);
        if protection.sparse {
            Gathered::add(&mut self.sparse, now, number);
        }
        if protection.promised {
            Gathered::add(&mut self.promised, now, number);
        }
        if protection.again {
            Gathered::add(&mut self.again, now, number);
        }
    }

    /// Returns `true` if sources were sent that may yet be protected.
    pub(crate) fn gathers(&self) -> bool {
        let gathered = [&self.sparse, &self.promised, &self.again];
        self.tail.is_some() || gathered.into_iter().any(Option::is_some)
    }

    /// The time at which [`Self::plan`] is due if nothing is sent before then.
    pub(crate) fn due(&self, idle: bool, resends: bool) -> Option<Instant> {
        let tail = self.tail.filter(|_| idle).map(|last| last + QUIET);
        let sparse = self.sparse.as_ref().map(Gathered::sparse_due);
        let promised = self.promised.as_ref().map(Gathered::promise_due);
        let later = self.later.iter().map(|(time, _)| *time).min();
        let again = self.again.as_ref().map(|again| self.again_due(again, resends));
        let copy = self.copies.front().map(|(time, _)| *time);
        [tail, sparse, promised, later, again, copy].into_iter().flatten().min()
    }

    /// Makes the repairs that are due.
    pub(crate) fn plan(&mut self, now: Instant, outlook: &Outlook) {
        if outlook.idle && self.tail.is_some_and(|last| last + QUIET <= now) {
            // The range of the tail includes the packets gathered for the other two.
            (self.tail, self.sparse, self.promised) = (None, None, None);
            let end = outlook.sent.next_number();
            let start = core::mem::replace(&mut self.dealt_with, end);
            self.protect(now, start..end, outlook);
        }
        if let Some(sparse) = self.sparse.take_if(|sparse| sparse.sparse_due() <= now) {
            self.protect(now, sparse.numbers, outlook);
        }
        if let Some(promised) = self.promised.take_if(|promised| promised.promise_due() <= now) {
            self.protect(now, promised.numbers, outlook);
        }
        self.protect_again(now, outlook);
        self.release(now, outlook.sent);
        self.release_copies(now);
    }

    /// Queues the repairs held back for a burst whose time has come. Those of blocks without an
    /// outstanding packet are dropped.
    fn release(&mut self, now: Instant, sent: &SentPackets) {
        let needed =
            |repair: &PendingRepair| repair.block.numbers().any(|n| sent.sent_at(n).is_some());
        let (due, later): (Vec<_>, Vec<_>) =
            self.later.drain(..).partition(|(time, _)| *time <= now);
        self.later = later;
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
    fn protect(&mut self, now: Instant, numbers: Range<u64>, outlook: &Outlook) {
        let Some(numbers) = sources(numbers, outlook.sent) else { return };
        let Some(span) = span(&numbers, outlook.sent) else { return };
        let stride = (numbers.end - numbers.start).div_ceil(BLOCK);
        // The peer ignores repairs with a larger stride.
        if stride > MAX_STRIDE {
            return;
        }
        let threat = outlook.loss.bursts().filter(|bursts| worthwhile(bursts, &span, outlook.rtt));
        let struck = threat
            .map_or(0, |bursts| self.affordable(now, struck(&bursts, &span, &numbers), outlook));
        let source = |number| outlook.sent.source(number).unwrap_or_default();
        let (mut at_once, mut later) = (Vec::new(), Vec::new());
        for block in blocks(numbers.start, numbers.end) {
            // There are `stride` blocks, and each may fail.
            let lone = repairs_for(block.count, outlook.loss.lone_rate(), RESIDUAL / stride as f64);
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
            self.later.push((release, in_turn(later)));
        }
    }

    /// The largest of the given burst sizes, in packets, that the budget covers; 0 if none. Fewer
    /// repairs than a burst takes packets restore nothing.
    fn affordable(&self, now: Instant, struck: Vec<usize>, outlook: &Outlook) -> usize {
        let left = self.budget.left(now).get() as usize / PACKET;
        let loaded = if outlook.idle { usize::MAX } else { self.loaded as usize };
        struck.into_iter().filter(|struck| *struck <= left.min(loaded)).max().unwrap_or(0)
    }

    /// Queues repairs as far as the budget allows.
    fn enqueue(&mut self, now: Instant, repairs: Vec<PendingRepair>, idle: bool) {
        for repair in in_turn(repairs) {
            if self.afford(now, repair.shard.len(), idle) {
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
        let later = self.later.iter().flat_map(|(_, repairs)| repairs);
        let copies = self.copies.iter().map(|(_, repair)| repair);
        self.queue.iter().chain(later).chain(copies).map(|repair| repair.block.base).min()
    }

    /// Spends `size` bytes of redundancy if the budget allows; `false` if it does not.
    pub(crate) fn afford(&mut self, now: Instant, size: usize, idle: bool) -> bool {
        let affordable = self.budget.ready_at() <= now && (idle || self.loaded >= 1.0);
        if affordable {
            self.spend(now, size, idle);
        }
        affordable
    }

    fn spend(&mut self, now: Instant, size: usize, idle: bool) {
        self.budget.sent(now, ByteCount::new((size + HEADERS) as u64));
        if !idle {
            self.loaded -= 1.0;
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
struct Span {
    begin: Instant,
    end: Instant,
}

impl Span {
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
fn span(numbers: &Range<u64>, sent: &SentPackets) -> Option<Span> {
    let begin = numbers.clone().find_map(|number| sent.sent_at(number))?;
    let end = numbers.clone().rev().find_map(|number| sent.sent_at(number))?;
    Some(Span { begin, end })
}

/// Returns `true` if a burst is probable enough, and short enough for repairs after it to arrive
/// before a retransmission.
fn worthwhile(bursts: &Bursts, span: &Span, rtt: Duration) -> bool {
    let exposed = span.duration() + bursts.length;
    bursts.per_second * exposed.as_secs_f64() >= IMPROBABLE && bursts.length * 4 < rtt * 3
}

/// Numbers of packets of the range that one burst, two bursts and so on destroy, for as many bursts
/// as are probable. Each is taken as an eighth longer than those measured, because future bursts
/// may be.
fn struck(bursts: &Bursts, span: &Span, numbers: &Range<u64>) -> Vec<usize> {
    let count = (numbers.end - numbers.start) as usize;
    let (length, duration) = (bursts.length.as_secs_f64(), span.duration().as_secs_f64());
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
        .find(|repairs| more_lost(count + repairs, *repairs, p) <= residual)
        .unwrap_or(MAX_REPAIRS)
}

/// The probability that more than `most` of `n` packets are lost (binomial). Uses basic arithmetic
/// only, whose results are the same on every platform.
fn more_lost(n: usize, most: usize, p: f64) -> f64 {
    let mut term = 1.0;
    for _ in 0..n {
        term *= 1.0 - p;
    }
    let (mut sum, odds) = (term, p / (1.0 - p));
    for k in 1..=most.min(n) {
        term *= odds * (n - k + 1) as f64 / k as f64;
        sum += term;
    }
    1.0 - sum
}

/// Orders repairs so that the first one of every block precedes the second of any.
fn in_turn(mut repairs: Vec<PendingRepair>) -> Vec<PendingRepair> {
    repairs.sort_by_key(|repair| (repair.index, repair.block));
    repairs
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

    #[test]
    fn repairs_hold_the_residual_loss() {
        assert_eq!(repairs_for(1, 0.0, RESIDUAL), 0);
        assert_eq!(repairs_for(1, 0.01, RESIDUAL), 1);
        assert_eq!(repairs_for(8, 0.01, RESIDUAL), 1);
        assert_eq!(repairs_for(200, 0.01, RESIDUAL), 7);
        assert_eq!(repairs_for(200, 0.1, RESIDUAL), 36);
        // Exact: 1 - 0.99^9 - 9 · 0.01 · 0.99^8.
        assert!((more_lost(9, 1, 0.01) - 0.003_435_7).abs() < 1e-6);
    }

    #[test]
    fn a_burst_strikes_its_share_of_a_long_flight_and_all_of_a_short_one() {
        let bursts = Bursts { length: Duration::from_millis(50), per_second: 1.0 };
        let span =
            |ms: u64| Span { begin: Instant::ZERO, end: Instant::ZERO + Duration::from_millis(ms) };
        assert_eq!(struck(&bursts, &span(3), &(0..8)), [8]);
        assert_eq!(struck(&bursts, &span(500), &(0..1000)), [113, 226]);
        let rtt = Duration::from_millis(600);
        assert!(worthwhile(&bursts, &span(3), rtt));
        assert!(!worthwhile(&bursts, &span(3), Duration::from_millis(20)));
        assert!(!worthwhile(&Bursts { per_second: 1e-3, ..bursts }, &span(3), rtt));
    }
}
