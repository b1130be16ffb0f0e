//! The hub's receiver of contention blocks.

use super::{ContentionBlock, ContentionBurst};

/// Decodes contention blocks.
///
/// A burst is decoded if one of its replicas is alone in a slot that the channel did not corrupt.
/// With CRDSA the burst, whose header says where its other replicas are, is then removed from all
/// its slots, which may leave another one alone: successive interference cancellation, pass by
/// pass, up to the scheme's limit (Casini et al. 2007). Cancellation is perfect.
///
/// A block costs time linear in the slots and replicas, but for sorting the slots of each pass. The
/// buffers are kept from block to block, so that no block allocates after the largest.
#[derive(Debug)]
pub struct BlockReceiver {
    block: ContentionBlock,
    slots: Vec<SlotOccupancy>,
    /// Slots with a single burst: those of the current pass, and those of the next.
    single: Vec<u16>,
    next: Vec<u16>,
    decoded: Vec<u32>,
}

/// The bursts on the air in a slot.
#[derive(Debug, Clone, Copy, Default)]
struct SlotOccupancy {
    /// Number of bursts that are not decoded yet.
    bursts: u32,
    /// The exclusive or of their positions in the input: that of the burst if there is only one. A
    /// list of the bursts in each slot is not needed.
    positions: u32,
    corrupted: bool,
}

/// The result of receiving a contention block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockReception<'a> {
    /// The ids of the decoded bursts, each once: by the pass that decodes it, then by the slot. The
    /// order does not depend on that of the input.
    pub decoded: &'a [u32],
    /// Slots without a burst and without corruption.
    pub idle: u16,
    /// Slots that the channel did not corrupt: the idle ones, and those with bursts.
    pub intact: u16,
    /// Intact slots in which bursts remain that were not decoded.
    pub unresolved: u16,
    /// Number of passes that decoded any burst.
    pub passes: u16,
}

impl BlockReceiver {
    /// A receiver of blocks like this one.
    pub fn new(block: ContentionBlock) -> Self {
        let slots = vec![SlotOccupancy::default(); block.slots().into()];
        Self { block, slots, single: Vec::new(), next: Vec::new(), decoded: Vec::new() }
    }

    /// Decodes one block. Replicas in `corrupted` slots, given in any order, are not received, nor
    /// those in slots outside of the block.
    pub fn receive(&mut self, bursts: &[ContentionBurst], corrupted: &[u16]) -> BlockReception<'_> {
        self.load(bursts, corrupted);
        let idle = self.count(|slot| slot.bursts == 0);
        let intact = self.count(|_| true);
        self.find_singles();
        let mut passes = 0;
        while passes < self.block.scheme().passes() && !self.single.is_empty() {
            self.pass(bursts);
            passes += 1;
        }
        debug_assert!(self.decoded.len() <= bursts.len(), "a burst decoded twice");
        let unresolved = self.count(|slot| slot.bursts > 0);
        BlockReception { decoded: &self.decoded, idle, intact, unresolved, passes }
    }

    /// Returns the number of intact slots that satisfy `such`.
    fn count(&self, such: impl Fn(&SlotOccupancy) -> bool) -> u16 {
        self.slots.iter().filter(|slot| !slot.corrupted && such(slot)).count() as u16
    }

    /// Puts all replicas on the air.
    fn load(&mut self, bursts: &[ContentionBurst], corrupted: &[u16]) {
        self.decoded.clear();
        self.slots.fill(SlotOccupancy::default());
        for &slot in corrupted {
            if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
                slot.corrupted = true;
            }
        }
        for (position, burst) in bursts.iter().enumerate() {
            for &slot in burst.slots.as_slice() {
                if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
                    slot.bursts += 1;
                    // Once one burst is left, this is its position: no slot needs a list.
                    slot.positions ^= position as u32;
                }
            }
        }
    }

    fn find_singles(&mut self) {
        let single = self.slots.iter().zip(0..).filter(|(slot, _)| slot.is_single());
        self.single.clear();
        self.single.extend(single.map(|(_, number)| number));
    }

    /// Decodes the bursts that are alone in a slot at the start of the pass.
    fn pass(&mut self, bursts: &[ContentionBurst]) {
        for at in 0..self.single.len() {
            let slot = self.slots[usize::from(self.single[at])];
            // Another replica of the same burst may have been decoded earlier in this pass.
            if slot.bursts == 1 {
                self.decoded.push(bursts[slot.positions as usize].id);
                self.remove(slot.positions, &bursts[slot.positions as usize]);
            }
        }
        // A slot that became single in this pass is read in the next, if it is still single.
        let slots = &self.slots;
        self.next.retain(|&slot| slots[usize::from(slot)].is_single());
        self.next.sort_unstable();
        core::mem::swap(&mut self.single, &mut self.next);
        self.next.clear();
    }

    /// Removes a decoded burst from all its slots.
    fn remove(&mut self, position: u32, burst: &ContentionBurst) {
        for &number in burst.slots.as_slice() {
            if let Some(slot) = self.slots.get_mut(usize::from(number)) {
                slot.bursts -= 1;
                slot.positions ^= position;
                if slot.is_single() {
                    self.next.push(number);
                }
            }
        }
    }
}

impl SlotOccupancy {
    fn is_single(&self) -> bool {
        self.bursts == 1 && !self.corrupted
    }
}
