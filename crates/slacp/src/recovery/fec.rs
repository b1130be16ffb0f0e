//! Erasure coding across packets: Reed–Solomon repairs of blocks of packets (SLACP paper §2, Figure
//! 1; `docs/slacp.md`, FEC).
//!
//! A block is every `stride`-th packet number from `base` on, `count` of them. Interleaving spreads
//! a burst of losses over several blocks. Packets that are not FEC sources (acknowledgements,
//! probes, repairs) count as empty. A shard is a packet's length in two bytes, its frames, and
//! zeros up to the longest of the block; the zeros are never sent.

use std::collections::{BTreeMap, BTreeSet};

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use units::RangeSet;

use crate::spare::{ENTRY, FreeSpare as _};
use crate::wire::frame::RepairFrame;

/// Maximum number of sources per block, which bounds the work of one decoding. The count takes one
/// byte in a REPAIR frame.
pub(crate) const MAX_BLOCK: usize = 255;

/// Maximum number of repairs per block.
pub(crate) const MAX_REPAIRS: usize = 255;

/// Maximum distance between neighbours of a block, in packet numbers.
pub(crate) const MAX_STRIDE: u64 = (1 << 14) - 1;

/// Maximum size of a repair frame before its shard, in bytes: type, distance, stride, count,
/// repairs, index.
pub(crate) const REPAIR_HEAD: usize = 1 + 4 + 2 + 1 + 1 + 1;

/// Minimum number of bytes by which a shard exceeds its packet: the length, and one byte of padding
/// to an even size.
pub(crate) const SHARD_OVERHEAD: usize = LENGTH + 1;

/// Size of the length field of a shard, in bytes.
const LENGTH: usize = 2;

/// The packets of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FecBlock {
    pub(crate) base: u64,
    pub(crate) stride: u64,
    pub(crate) count: usize,
}

impl FecBlock {
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |i| self.base + i * self.stride)
    }

    pub(crate) fn last(self) -> u64 {
        self.base + (self.count as u64 - 1) * self.stride
    }
}

/// A repair waiting to be sent.
#[derive(Debug)]
pub(crate) struct PendingRepair {
    pub(crate) block: FecBlock,
    pub(crate) repairs: usize,
    pub(crate) index: usize,
    pub(crate) shard: Vec<u8>,
}

/// Computes `repairs` repairs of a block. `source` returns the frames of a packet, empty if the
/// packet is not a source. Returns an empty vector if the block has no sources.
pub(crate) fn encode<'a>(
    block: FecBlock,
    repairs: usize,
    source: impl Fn(u64) -> &'a [u8],
) -> Vec<PendingRepair> {
    let longest = block.numbers().map(|number| source(number).len()).max().unwrap_or(0);
    if longest == 0 || repairs == 0 {
        return Vec::new();
    }
    // The code works on elements of 16 bits (docs/slacp.md, The erasure code).
    let size = (LENGTH + longest).next_multiple_of(2);
    let mut encoder = ReedSolomonEncoder::new(block.count, repairs, size)
        .expect("blocks of at most 255 + 255 packets are supported");
    let mut shard = vec![0; size];
    for number in block.numbers() {
        // With its length: a stream frame without one reaches to the end of its packet, so that the
        // zeros after it would become data.
        write_shard(&mut shard, source(number)).expect("the longest fits");
        encoder.add_original_shard(&shard).expect("the shards have one size");
    }
    let encoded = encoder.encode().expect("all originals were added");
    let pending = |(index, shard): (usize, &[u8])| PendingRepair {
        block,
        repairs,
        index,
        shard: shard.to_vec(),
    };
    encoded.recovery_iter().enumerate().map(pending).collect()
}

/// The receiving side: keeps recent packets, and restores missing ones as soon as enough repairs
/// have arrived.
///
/// Everything kept counts towards `memory`, plus [`ENTRY`] bytes per entry; beyond that, the oldest
/// is dropped. The blocks that wait for a packet are found in O(log n), and the decoding that a
/// packet triggers is bounded by [`WORK_PER_PACKET`].
#[derive(Debug)]
pub(crate) struct FecDecoder {
    /// Frames of the sources received or restored, by packet number.
    sources: BTreeMap<u64, Box<[u8]>>,
    /// Packets received that are not sources, and those restored as such.
    empty: RangeSet,
    /// Incomplete blocks with the repairs received, by the last packet number of the block.
    blocks: BTreeMap<(u64, FecBlock), BlockRepairs>,
    /// The missing packets of these blocks: packet number and block.
    waiting: BTreeSet<(u64, FecBlock)>,
    /// Memory of all fields above except `empty`, in bytes.
    bytes: usize,
    memory: usize,
    /// Number of shards that may still be decoded; rises by [`WORK_PER_PACKET`] with each packet received.
    work: usize,
    /// Number of times that a block was checked for decoding.
    #[cfg(test)]
    looks: usize,
}

#[derive(Debug)]
struct BlockRepairs {
    total: usize,
    size: usize,
    /// Number of packets of the block that were neither received nor restored.
    missing: usize,
    /// Repair shards with their indices.
    shards: Vec<(usize, Box<[u8]>)>,
}

/// Memory of a block besides its shards and missing packets: key and value are 104 bytes in a
/// half-full node, and the first four slots for shards.
const BLOCK_ENTRY: usize = 5 * ENTRY;

/// Maximum number of blocks that wait for one packet. A sender protects a packet in at most three
/// blocks: in the tail, as sparse, and as promised.
const MAX_WAITING: usize = 8;

/// Shards, original and repair, that may be decoded per received packet. An honest block has hardly
/// more repairs than originals, and a packet is in at most the three blocks above: six.
const WORK_PER_PACKET: usize = 8;
/// Maximum decoding work saved up, in shards: the repairs of a flight arrive together, and a flight
/// is 12,500 packets at 250 Mbit/s and 600 ms.
const MAX_WORK: usize = 12_500 * WORK_PER_PACKET;

/// Maximum number of decodings per received packet; each takes up to a millisecond. Further blocks
/// wait for another of their packets.
const MAX_DECODINGS: usize = 16;

impl FecDecoder {
    /// A decoder that uses at most `memory` bytes.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            sources: BTreeMap::new(),
            empty: RangeSet::default(),
            blocks: BTreeMap::new(),
            waiting: BTreeSet::new(),
            bytes: 0,
            memory,
            work: MAX_WORK,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Memory in use, in bytes, entries included.
    pub(crate) fn held(&self) -> usize {
        self.bytes + self.empty.count() * ENTRY
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.sources.free_spare();
        self.empty.free_spare();
        self.blocks.free_spare();
        self.waiting.free_spare();
    }

    /// Stores a received packet; `source` is empty if the packet is not a FEC source. Returns the
    /// packets that this restores, with their numbers.
    pub(crate) fn store(&mut self, number: u64, source: &[u8]) -> Vec<(u64, Vec<u8>)> {
        // Received packets pay for decoding, or a peer could cause a decoding with every datagram.
        self.work = (self.work + WORK_PER_PACKET).min(MAX_WORK);
        self.insert(number, source);
        let completed = self.mark_present(number);
        let restored = self.restore(completed);
        self.keep_within_memory();
        restored
    }

    /// Drops everything below `floor`, which the sender no longer needs.
    pub(crate) fn settle(&mut self, floor: u64) {
        while let Some(entry) = self.sources.first_entry()
            && *entry.key() < floor
        {
            self.bytes -= ENTRY + entry.remove().len();
        }
        self.empty.remove(0..floor);
        // The sender settles no packet of a block whose repairs are yet to come.
        while let Some((&(last, block), _)) = self.blocks.first_key_value()
            && last < floor
        {
            self.forget(block);
        }
    }

    /// Processes a repair that came in packet `number` and returns the packets it restores. Invalid
    /// repairs are dropped.
    pub(crate) fn repair(&mut self, number: u64, repair: &RepairFrame) -> Vec<(u64, Vec<u8>)> {
        let Some(block) = validate(number, repair) else { return Vec::new() };
        if !self.add_repair(block, repair) {
            return Vec::new();
        }
        let restored = self.restore(vec![block]);
        self.keep_within_memory();
        restored
    }

    /// Stores a repair. Returns `false` if it is a duplicate, contradicts others of its block, or
    /// its block needs none.
    fn add_repair(&mut self, block: FecBlock, repair: &RepairFrame) -> bool {
        if !self.blocks.contains_key(&key(block)) && !self.add_block(block, repair) {
            return false;
        }
        let Some(known) = self.blocks.get_mut(&key(block)) else { return false };
        // All repairs of a block agree in their number and size (docs/slacp.md, FEC).
        let contradicts = known.total != repair.repairs || known.size != repair.shard.len();
        if contradicts || known.shards.iter().any(|(index, _)| *index == repair.index) {
            return false;
        }
        known.shards.push((repair.index, repair.shard.into()));
        self.bytes += ENTRY + repair.shard.len();
        true
    }

    /// Registers an incomplete block. Returns `false` if the block is complete, or if
    /// [`MAX_WAITING`] blocks already wait for one of its packets.
    fn add_block(&mut self, block: FecBlock, repair: &RepairFrame) -> bool {
        let missing: Vec<u64> =
            block.numbers().filter(|number| !self.is_present(*number)).collect();
        let wanted = |number: &u64| self.waiting_blocks(*number).count() < MAX_WAITING;
        if missing.is_empty() || !missing.iter().all(wanted) {
            return false;
        }
        let total = repair.repairs;
        let size = repair.shard.len();
        let repairs = BlockRepairs { total, size, missing: missing.len(), shards: Vec::new() };
        self.blocks.insert(key(block), repairs);
        self.bytes += BLOCK_ENTRY + missing.len() * ENTRY;
        self.waiting.extend(missing.into_iter().map(|number| (number, block)));
        true
    }

    fn is_present(&self, number: u64) -> bool {
        self.sources.contains_key(&number) || self.empty.contains(number)
    }

    fn insert(&mut self, number: u64, source: &[u8]) {
        if source.is_empty() {
            self.empty.insert_one(number);
            return;
        }
        self.bytes += ENTRY + source.len();
        if let Some(other) = self.sources.insert(number, source.into()) {
            self.bytes -= ENTRY + other.len();
        }
    }

    /// The blocks that wait for a packet.
    fn waiting_blocks(&self, number: u64) -> impl Iterator<Item = FecBlock> {
        // Sorts before every valid block, so the range covers exactly those of this packet.
        let first = FecBlock { base: 0, stride: 0, count: 0 };
        self.waiting.range((number, first)..(number + 1, first)).map(|(_, block)| *block)
    }

    /// Marks a packet as present. Returns the blocks that waited for it.
    fn mark_present(&mut self, number: u64) -> Vec<FecBlock> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let blocks: Vec<FecBlock> = self.waiting_blocks(number).collect();
        for block in &blocks {
            self.waiting.remove(&(number, *block));
            self.bytes -= ENTRY;
            if let Some(repairs) = self.blocks.get_mut(&key(*block)) {
                repairs.missing -= 1;
            }
        }
        blocks
    }

    /// Decodes those of the blocks that have enough repairs, and the blocks that this completes in
    /// turn, up to [`MAX_DECODINGS`].
    fn restore(&mut self, mut blocks: Vec<FecBlock>) -> Vec<(u64, Vec<u8>)> {
        let mut restored = Vec::new();
        let mut decodings = 0;
        while let Some(block) = blocks.pop() {
            if decodings == MAX_DECODINGS {
                break;
            }
            let Some(found) = self.decode_if_complete(block) else { continue };
            decodings += 1;
            for (number, source) in &found {
                self.insert(*number, source);
                blocks.extend(self.mark_present(*number));
            }
            restored.extend(found);
        }
        restored
    }

    /// Drops a block that needs no more repairs and returns its missing packets. `None` while it
    /// has too few repairs, or if it cannot or need not be decoded.
    fn decode_if_complete(&mut self, block: FecBlock) -> Option<Vec<(u64, Vec<u8>)>> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let repairs = self.blocks.get(&key(block))?;
        if repairs.shards.len() < repairs.missing {
            return None;
        }
        let repairs = self.forget(block)?;
        // All packets arrived after the first repair: there is nothing to decode.
        if repairs.missing == 0 {
            return None;
        }
        // A block beyond the budget stays dropped (docs/slacp.md, Violations).
        self.work = self.work.checked_sub(block.count + repairs.total)?;
        self.decode(block, &repairs)
    }

    fn forget(&mut self, block: FecBlock) -> Option<BlockRepairs> {
        let repairs = self.blocks.remove(&key(block))?;
        let missing = block.numbers().filter(|number| self.waiting.remove(&(*number, block)));
        self.bytes -= BLOCK_ENTRY + missing.count() * ENTRY;
        self.bytes -= repairs.shards.iter().map(|(_, shard)| ENTRY + shard.len()).sum::<usize>();
        Some(repairs)
    }

    fn keep_within_memory(&mut self) {
        while self.held() > self.memory && self.forget_oldest() {}
    }

    /// Drops the entry with the lowest packet number; `false` if there was none.
    fn forget_oldest(&mut self) -> bool {
        let block = self.blocks.first_key_value().map(|((_, block), _)| *block);
        let empty = self.empty.first();
        let source = self.sources.first_key_value().map(|(number, _)| *number);
        let oldest =
            [block.map(|block| block.base), empty.as_ref().map(|range| range.start), source];
        let oldest = oldest.into_iter().flatten().min();
        match (block, empty) {
            (Some(block), _) if Some(block.base) == oldest => _ = self.forget(block),
            (_, Some(range)) if Some(range.start) == oldest => self.empty.remove(range),
            _ => match self.sources.pop_first() {
                Some((_, source)) => self.bytes -= ENTRY + source.len(),
                None => return false,
            },
        }
        true
    }

    /// Decodes the missing packets of a block; `None` if the shards contradict the stored packets,
    /// or if stored packets were dropped.
    fn decode(&self, block: FecBlock, repairs: &BlockRepairs) -> Option<Vec<(u64, Vec<u8>)>> {
        // The repairs of a single packet are copies of it, and decoding takes up to a millisecond.
        if let (1, [(_, shard), ..]) = (block.count, &repairs.shards[..]) {
            return Some(vec![(block.base, read_shard(shard)?)]);
        }
        let mut decoder = ReedSolomonDecoder::new(block.count, repairs.total, repairs.size).ok()?;
        let mut shard = vec![0; repairs.size];
        for (index, number) in block.numbers().enumerate() {
            let source = match self.sources.get(&number) {
                Some(source) => &source[..],
                // Packets of the range that are not sources count as empty (docs/slacp.md, FEC).
                None if self.empty.contains(number) => &[],
                None => continue,
            };
            write_shard(&mut shard, source)?;
            decoder.add_original_shard(index, &shard).ok()?;
        }
        for (index, shard) in &repairs.shards {
            decoder.add_recovery_shard(*index, shard).ok()?;
        }
        let decoded = decoder.decode().ok()?;
        let at = |index: usize| block.base + index as u64 * block.stride;
        let restored = decoded.restored_original_iter();
        restored.map(|(index, shard)| Some((at(index), read_shard(shard)?))).collect()
    }
}

/// Sort key of a block. Its last packet comes first, because blocks are settled in that order.
fn key(block: FecBlock) -> (u64, FecBlock) {
    (block.last(), block)
}

/// Writes a packet into a shard; `None` if the packet is too long for it.
fn write_shard(shard: &mut [u8], packet: &[u8]) -> Option<()> {
    let (length, rest) = shard.split_first_chunk_mut::<LENGTH>()?;
    *length = u16::try_from(packet.len()).ok()?.to_be_bytes();
    rest.get_mut(..packet.len())?.copy_from_slice(packet);
    rest[packet.len()..].fill(0);
    Some(())
}

/// Reads the packet from a shard; `None` if its length is invalid.
fn read_shard(shard: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = shard.split_first_chunk::<LENGTH>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length))).map(<[u8]>::to_vec)
}

/// Validates a repair that came in packet `number` and returns its block.
fn validate(number: u64, repair: &RepairFrame) -> Option<FecBlock> {
    let base = number.checked_sub(repair.distance)?;
    let block = FecBlock { base, stride: repair.stride, count: repair.count };
    let sizes = (1..=MAX_BLOCK).contains(&repair.count)
        && (1..=MAX_REPAIRS).contains(&repair.repairs)
        && repair.index < repair.repairs
        && (1..=MAX_STRIDE).contains(&repair.stride)
        && repair.shard.len() >= 2
        && repair.shard.len().is_multiple_of(2);
    // Repairs are computed when all packets of their block have left.
    (sizes && block.last() < number).then_some(block)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets(count: u64) -> BTreeMap<u64, Vec<u8>> {
        let packet = |n: u64| (0..(n * 37 % 90)).map(|i| (n * 31 + i * 7) as u8 | 1).collect();
        (0..count).map(|n| (n, packet(n))).collect()
    }

    fn frame(number: u64, pending: &PendingRepair) -> RepairFrame<'_> {
        RepairFrame {
            distance: number - pending.block.base,
            stride: pending.block.stride,
            count: pending.block.count,
            repairs: pending.repairs,
            index: pending.index,
            shard: &pending.shard,
        }
    }

    proptest! {
        #[test]
        fn as_many_losses_as_repairs_are_restored(
            count in 1usize..60, stride in 1u64..4, repairs in 1usize..8,
            lost in prop::collection::btree_set(0usize..60, 1..8), late: bool
        ) {
            let block = FecBlock { base: 5, stride, count };
            let all = packets(5 + 60 * 4);
            let pending = encode(block, repairs, |n| &all[&n]);
            let lost: Vec<u64> = block.numbers().enumerate()
                .filter(|(i, _)| lost.contains(i)).map(|(_, n)| n).collect();
            prop_assume!(!lost.is_empty() && !pending.is_empty());
            let mut decoder = FecDecoder::new(1 << 20);
            let last = block.last();
            for number in block.numbers().filter(|n| !(lost.contains(n) || late && *n == last)) {
                decoder.store(number, &all[&number]);
            }
            let mut restored = Vec::new();
            for (i, repair) in pending.iter().enumerate() {
                let number = last + 1 + i as u64;
                restored.extend(decoder.repair(number, &frame(number, repair)));
            }
            if late && !lost.contains(&last) && restored.is_empty() {
                restored.extend(decoder.store(last, &all[&last]));
            }
            for (number, bytes) in &restored {
                prop_assert_eq!(bytes, &all[number]);
            }
            if lost.len() <= repairs {
                let found: Vec<u64> = restored.iter().map(|(n, _)| *n).collect();
                prop_assert!(lost.iter().all(|n| found.contains(n)));
            } else {
                prop_assert!(restored.is_empty());
            }
        }

        #[test]
        fn nonsense_is_dropped(
            number in 0u64..300, distance in 0u64..400, stride in 0u64..5, count in 0usize..300,
            repairs in 0usize..80, index in 0usize..80,
            shard in prop::collection::vec(any::<u8>(), 0..20)
        ) {
            let mut decoder = FecDecoder::new(1000);
            for (number, packet) in packets(100) {
                decoder.store(number, &packet);
            }
            let repair = RepairFrame { distance, stride, count, repairs, index, shard: &shard };
            decoder.repair(number, &repair);
        }
    }

    #[test]
    fn the_repairs_of_a_single_packet_are_copies_of_it() {
        for repairs in 1..=MAX_REPAIRS {
            let encoded = encode(FecBlock { base: 1, stride: 1, count: 1 }, repairs, |_| &[7; 301]);
            assert_eq!(encoded.len(), repairs);
            assert!(encoded.iter().all(|repair| read_shard(&repair.shard) == Some(vec![7; 301])));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut decoder = FecDecoder::new(1000);
        for number in 0..50 {
            decoder.store(number, &[1; 30]);
        }
        assert_eq!(decoder.held(), 1000 / (ENTRY + 30) * (ENTRY + 30));
        decoder.settle(100);
        assert_eq!(decoder.held(), 0);
    }

    /// The decoder's memory, counted from scratch.
    fn recount(decoder: &FecDecoder) -> usize {
        let sources = decoder.sources.values().map(|source| ENTRY + source.len());
        let shards = decoder.blocks.values().flat_map(|repairs| &repairs.shards);
        let shards = shards.map(|(_, shard)| ENTRY + shard.len());
        let entries = decoder.waiting.len() + decoder.empty.count();
        let blocks = decoder.blocks.len() * BLOCK_ENTRY + entries * ENTRY;
        sources.chain(shards).sum::<usize>() + blocks
    }

    #[derive(Debug, Clone)]
    enum Step {
        Keep(u64, usize),
        Settle(u64),
        Repair { base: u64, stride: u64, count: usize, repairs: usize, index: usize, size: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..500, 0usize..60).prop_map(|(number, size)| Step::Keep(number, size)),
            1 => (0u64..500).prop_map(Step::Settle),
            8 => (0u64..400, 1u64..5, 1usize..20, 1usize..9, 0usize..8, 1usize..40).prop_map(
                |(base, stride, count, repairs, index, half)| {
                    Step::Repair { base, stride, count, repairs, index, size: 2 * half }
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn whatever_repairs_come_memory_stays_within_its_bound_and_the_count_is_right(
            steps in prop::collection::vec(step(), 1..300), memory in 500usize..20_000
        ) {
            let mut decoder = FecDecoder::new(memory);
            for step in steps {
                match step {
                    Step::Keep(number, size) => _ = decoder.store(number, &vec![1; size]),
                    Step::Settle(floor) => decoder.settle(floor),
                    Step::Repair { base, stride, count, repairs, index, size } => {
                        let shard = vec![0; size];
                        let repair = RepairFrame { distance: 600 - base, stride, count, repairs, index, shard: &shard };
                        decoder.repair(600, &repair);
                    }
                }
                prop_assert_eq!(decoder.held(), recount(&decoder));
                prop_assert!(decoder.held() <= memory, "{} of {memory} bytes", decoder.held());
            }
            decoder.settle(600);
            prop_assert_eq!(decoder.held(), 0);
        }
    }

    #[test]
    fn repairs_of_blocks_that_never_complete_take_no_memory_without_end() {
        let mut decoder = FecDecoder::new(100_000);
        let shard = [7; 1200];
        for number in 1000..20_000 {
            // Each belongs to a block of its own that is missing entirely.
            let repair = RepairFrame {
                distance: 500,
                stride: 1,
                count: 200,
                repairs: 9,
                index: 0,
                shard: &shard,
            };
            assert!(decoder.repair(number, &repair).is_empty());
            assert!(decoder.held() <= 100_000);
        }
    }

    #[test]
    fn packets_that_are_no_sources_take_one_entry_together() {
        let mut decoder = FecDecoder::new(1 << 20);
        for number in 0..100_000 {
            decoder.store(number, &[]);
        }
        assert_eq!(decoder.held(), ENTRY);
    }

    #[test]
    fn a_packet_kept_twice_counts_once() {
        let mut decoder = FecDecoder::new(1 << 20);
        (0..100).for_each(|_| _ = decoder.store(7, &[1; 1000]));
        assert_eq!(decoder.held(), ENTRY + 1000);
    }

    /// Rows and columns of a square: each packet is in two blocks.
    fn square(all: &BTreeMap<u64, Vec<u8>>) -> Vec<PendingRepair> {
        let rows = (0..4).map(|row| FecBlock { base: 4 * row, stride: 1, count: 4 });
        let columns = (0..4).map(|column| FecBlock { base: column, stride: 4, count: 4 });
        rows.chain(columns).flat_map(|block| encode(block, 1, |n| &all[&n])).collect()
    }

    #[test]
    fn a_packet_completes_all_its_blocks_and_what_they_restore_completes_others() {
        let all = packets(16);
        // 5 completes its row (6 is missing) and its column (9). 6 then completes the column of 10,
        // 10 the row of 11, and so on.
        let lost = [5, 6, 9, 10, 11];
        let mut decoder = FecDecoder::new(1 << 20);
        for number in (0..16).filter(|number| !lost.contains(number)) {
            decoder.store(number, &all[&number]);
        }
        let mut early = Vec::new();
        for (number, repair) in (16..).zip(&square(&all)) {
            // The column of 7, 11, 15 would restore 11 on its own.
            if repair.block.base != 3 || repair.block.stride == 1 {
                early.extend(decoder.repair(number, &frame(number, repair)));
            }
        }
        assert!(early.is_empty(), "{early:?}");
        let mut restored = decoder.store(5, &all[&5]);
        restored.sort();
        let rest: Vec<u64> = lost.into_iter().filter(|number| *number != 5).collect();
        assert_eq!(restored, rest.iter().map(|n| (*n, all[n].clone())).collect::<Vec<_>>());
        assert!(decoder.blocks.is_empty() && decoder.waiting.is_empty());
    }

    #[test]
    fn a_packet_has_only_the_blocks_looked_at_that_wait_for_it() {
        let mut decoder = FecDecoder::new(1 << 24);
        let shard = [7; 100];
        for block in 0..1000 {
            let (distance, count) = (10_000 - 4 * block, 4);
            let repair =
                RepairFrame { distance, stride: 1, count, repairs: 2, index: 0, shard: &shard };
            decoder.repair(10_000, &repair);
        }
        assert_eq!(decoder.blocks.len(), 1000);
        let before = decoder.looks;
        (4000..5000).for_each(|number| _ = decoder.store(number, &[1; 90]));
        assert_eq!(decoder.looks - before, 0, "no block waits for them");
        decoder.store(17, &[1; 90]);
        assert_eq!(decoder.looks - before, 1);
    }

    #[test]
    fn decoding_is_paid_for_by_packets_that_come() {
        let all = packets(100);
        let mut decoder = FecDecoder::new(1 << 24);
        (1..100).for_each(|number| _ = decoder.store(number, &all[&number]));
        let block = |count| FecBlock { base: 0, stride: 1, count };
        let repairs: Vec<_> =
            (2..100).map(|count| encode(block(count), 1, |n| &all[&n]).remove(0)).collect();
        // Packet 0 is always missing.
        let decode = |decoder: &mut FecDecoder, repair: &PendingRepair| {
            let restored = decoder.repair(400, &frame(400, repair));
            decoder.settle(1);
            restored.iter().map(|_| repair.block.count + 1).sum::<usize>()
        };
        let work = |decoder: &mut FecDecoder| -> usize {
            repairs.iter().cycle().take(3000).map(|repair| decode(decoder, repair)).sum()
        };
        let first = work(&mut decoder);
        assert!((MAX_WORK - 100..=MAX_WORK).contains(&first), "{first} of {MAX_WORK}");
        (200..300).for_each(|number| _ = decoder.store(number, &[]));
        let more = work(&mut decoder);
        assert!((1..=100 * WORK_PER_PACKET + 100).contains(&more), "{more}");
    }
}
