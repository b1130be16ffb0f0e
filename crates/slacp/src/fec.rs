//! The erasure code across packets: Reed–Solomon repairs of blocks of packets
//! (SLACP paper §2, Figure 1; `docs/slacp.md`, FEC).
//!
//! A block is every `stride`-th packet number from `base` on, `count` of them;
//! interleaved blocks share a burst of losses among them. Packets that are no
//! FEC sources (acknowledgements, probes, repairs) count as empty. A shard is
//! a packet's length in two bytes, its frames, and zeros up to the longest of
//! the block; the zeros are never sent.

use std::collections::BTreeMap;

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::frame::Repair;

/// The most sources of a block: bounds the work of one decoding.
pub(crate) const MAX_BLOCK: usize = 255;

/// The most repairs of a block.
pub(crate) const MAX_REPAIRS: usize = 255;

/// The greatest distance between neighbours of a block.
pub(crate) const MAX_STRIDE: u64 = (1 << 14) - 1;

/// The bytes of a repair frame before its shard, at most: type, distance,
/// stride, count, repairs, index.
pub(crate) const REPAIR_HEAD: usize = 1 + 4 + 2 + 1 + 1 + 1;

/// By how much a shard is longer than its packet, at least: the length, and a
/// byte that makes its size even.
pub(crate) const SHARD_OVERHEAD: usize = LENGTH + 1;

/// The bytes of a shard that say how long the packet is.
const LENGTH: usize = 2;

/// The packets of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    pub(crate) base: u64,
    pub(crate) stride: u64,
    pub(crate) count: usize,
}

impl Block {
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |i| self.base + i * self.stride)
    }

    pub(crate) fn last(self) -> u64 {
        self.base + (self.count as u64 - 1) * self.stride
    }
}

/// A repair that waits to be sent.
#[derive(Debug)]
pub(crate) struct PendingRepair {
    pub(crate) block: Block,
    pub(crate) repairs: usize,
    pub(crate) index: usize,
    pub(crate) shard: Vec<u8>,
}

/// Makes `repairs` repairs of a block whose packets `source` gives; none if the
/// block is empty.
pub(crate) fn encode<'a>(
    block: Block,
    repairs: usize,
    source: impl Fn(u64) -> &'a [u8],
) -> Vec<PendingRepair> {
    let longest = block.numbers().map(|number| source(number).len()).max().unwrap_or(0);
    if longest == 0 || repairs == 0 {
        return Vec::new();
    }
    let size = (LENGTH + longest).next_multiple_of(2);
    let mut encoder = ReedSolomonEncoder::new(block.count, repairs, size)
        .expect("blocks of at most 255 + 255 packets are supported");
    let mut shard = vec![0; size];
    for number in block.numbers() {
        fill(&mut shard, source(number)).expect("the longest fits");
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

/// The receiving side: keeps recent packets, and restores missing ones when
/// enough repairs have come.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Recent packets; empty for those that are no sources.
    recent: BTreeMap<u64, Box<[u8]>>,
    held: usize,
    memory: usize,
    blocks: BTreeMap<Block, Repairs>,
}

#[derive(Debug)]
struct Repairs {
    total: usize,
    size: usize,
    shards: BTreeMap<usize, Vec<u8>>,
}

impl Decoder {
    /// A decoder that keeps at most `memory` bytes of packets.
    pub(crate) fn new(memory: usize) -> Self {
        Self { recent: BTreeMap::new(), held: 0, memory, blocks: BTreeMap::new() }
    }

    /// Keeps a packet that came; `source` is empty if it is no FEC source.
    pub(crate) fn keep(&mut self, number: u64, source: &[u8]) {
        self.held += source.len();
        self.recent.insert(number, source.into());
        while self.held > self.memory {
            let Some((_, oldest)) = self.recent.pop_first() else { break };
            self.held -= oldest.len();
        }
    }

    /// The sender has no use for packets below `floor`.
    pub(crate) fn settle(&mut self, floor: u64) {
        while let Some(entry) = self.recent.first_entry()
            && *entry.key() < floor
        {
            self.held -= entry.remove().len();
        }
        self.blocks.retain(|block, _| block.last() >= floor);
    }

    /// Takes a repair that came in packet `number`; gives the packets of its
    /// block that are thereby restored. One that makes no sense is dropped.
    pub(crate) fn repair(&mut self, number: u64, repair: &Repair) -> Vec<(u64, Vec<u8>)> {
        let Some(block) = check(number, repair) else { return Vec::new() };
        let missing = self.missing(block);
        if missing == 0 {
            self.blocks.remove(&block);
            return Vec::new();
        }
        let size = repair.shard.len();
        let known = self.blocks.entry(block).or_insert_with(|| Repairs {
            total: repair.repairs,
            size,
            shards: BTreeMap::new(),
        });
        if known.total != repair.repairs || known.size != size {
            return Vec::new();
        }
        known.shards.insert(repair.index, repair.shard.to_vec());
        self.restore(block, missing)
    }

    /// Tries the blocks that packet `number`, which just came, belongs to.
    pub(crate) fn retry(&mut self, number: u64) -> Vec<(u64, Vec<u8>)> {
        let contains = |block: &Block| {
            (block.base..=block.last()).contains(&number)
                && (number - block.base).is_multiple_of(block.stride)
        };
        let Some(block) = self.blocks.keys().copied().find(contains) else { return Vec::new() };
        let missing = self.missing(block);
        self.restore(block, missing)
    }

    fn missing(&self, block: Block) -> usize {
        block.numbers().filter(|number| !self.recent.contains_key(number)).count()
    }

    fn restore(&mut self, block: Block, missing: usize) -> Vec<(u64, Vec<u8>)> {
        if self.blocks.get(&block).is_none_or(|repairs| repairs.shards.len() < missing) {
            return Vec::new();
        }
        let Some(repairs) = self.blocks.remove(&block) else { return Vec::new() };
        let restored = self.decode(block, &repairs).unwrap_or_default();
        for (number, source) in &restored {
            self.keep(*number, source);
        }
        restored
    }

    /// `None` if the shards contradict what is kept.
    fn decode(&self, block: Block, repairs: &Repairs) -> Option<Vec<(u64, Vec<u8>)>> {
        let mut decoder = ReedSolomonDecoder::new(block.count, repairs.total, repairs.size).ok()?;
        let mut shard = vec![0; repairs.size];
        for (index, number) in block.numbers().enumerate() {
            let Some(source) = self.recent.get(&number) else { continue };
            fill(&mut shard, source)?;
            decoder.add_original_shard(index, &shard).ok()?;
        }
        for (index, shard) in &repairs.shards {
            decoder.add_recovery_shard(*index, shard).ok()?;
        }
        let decoded = decoder.decode().ok()?;
        let at = |index: usize| block.base + index as u64 * block.stride;
        let restored = decoded.restored_original_iter();
        restored.map(|(index, shard)| Some((at(index), packet(shard)?))).collect()
    }
}

/// Makes a shard of a packet; `None` if it is too long.
fn fill(shard: &mut [u8], packet: &[u8]) -> Option<()> {
    let (length, rest) = shard.split_first_chunk_mut::<LENGTH>()?;
    *length = u16::try_from(packet.len()).ok()?.to_be_bytes();
    rest.get_mut(..packet.len())?.copy_from_slice(packet);
    rest[packet.len()..].fill(0);
    Some(())
}

/// The packet in a shard; `None` if its length is impossible.
fn packet(shard: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = shard.split_first_chunk::<LENGTH>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length))).map(<[u8]>::to_vec)
}

/// The block that a repair speaks of, if it could be one.
fn check(number: u64, repair: &Repair) -> Option<Block> {
    let base = number.checked_sub(repair.distance)?;
    let block = Block { base, stride: repair.stride, count: repair.count };
    let sizes = (1..=MAX_BLOCK).contains(&repair.count)
        && (1..=MAX_REPAIRS).contains(&repair.repairs)
        && repair.index < repair.repairs
        && (1..=MAX_STRIDE).contains(&repair.stride)
        && repair.shard.len() >= 2
        && repair.shard.len().is_multiple_of(2);
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

    fn frame(number: u64, pending: &PendingRepair) -> Repair<'_> {
        Repair {
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
            let block = Block { base: 5, stride, count };
            let all = packets(5 + 60 * 4);
            let pending = encode(block, repairs, |n| &all[&n]);
            let lost: Vec<u64> = block.numbers().enumerate()
                .filter(|(i, _)| lost.contains(i)).map(|(_, n)| n).collect();
            prop_assume!(!lost.is_empty() && !pending.is_empty());
            let mut decoder = Decoder::new(1 << 20);
            let last = block.last();
            for number in block.numbers().filter(|n| !(lost.contains(n) || late && *n == last)) {
                decoder.keep(number, &all[&number]);
            }
            let mut restored = Vec::new();
            for (i, repair) in pending.iter().enumerate() {
                let number = last + 1 + i as u64;
                restored.extend(decoder.repair(number, &frame(number, repair)));
            }
            if late && !lost.contains(&last) && restored.is_empty() {
                decoder.keep(last, &all[&last]);
                restored.extend(decoder.retry(last));
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
            let mut decoder = Decoder::new(1000);
            for (number, packet) in packets(100) {
                decoder.keep(number, &packet);
            }
            let repair = Repair { distance, stride, count, repairs, index, shard: &shard };
            decoder.repair(number, &repair);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut decoder = Decoder::new(100);
        for number in 0..50 {
            decoder.keep(number, &[1; 30]);
        }
        assert_eq!(decoder.held, 90);
        decoder.settle(100);
        assert_eq!(decoder.held, 0);
    }
}
