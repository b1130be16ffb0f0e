//! Contention blocks, bursts and the slots of their replicas.

use thiserror::Error;

use super::AccessScheme;
use crate::Dice;

/// Greatest number of replicas of a burst.
pub const MAX_REPLICAS: usize = 8;

/// The contention block of a frame: its access scheme and its slots, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentionBlock {
    scheme: AccessScheme,
    slots: u16,
}

/// The reason why a scheme and a number of slots do not form a [`ContentionBlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The number of replicas is out of range.
    #[error("{scheme}: expected 2 to {MAX_REPLICAS} replicas")]
    Replicas {
        /// The scheme that was given.
        scheme: AccessScheme,
    },
    /// Without iterations the receiver would never decode a block.
    #[error("{scheme}: expected at least 1 iteration")]
    Iterations {
        /// The scheme that was given.
        scheme: AccessScheme,
    },
    /// A burst has more replicas than the block has slots.
    #[error("{scheme} in {slots} slots: expected at least {} slots", scheme.replicas())]
    Slots {
        /// The scheme that was given.
        scheme: AccessScheme,
        /// The number of slots that was given.
        slots: u16,
    },
}

impl ContentionBlock {
    /// A block of `slots` slots.
    ///
    /// # Errors
    /// If the scheme has fewer than 2 (slotted ALOHA: 1) or more than [`MAX_REPLICAS`] replicas, or
    /// no iterations, or more replicas than there are slots.
    pub fn new(scheme: AccessScheme, slots: u16) -> Result<Self, BlockError> {
        let replicas = scheme.replicas();
        let least = if scheme == AccessScheme::SlottedAloha { 1 } else { 2 };
        if replicas < least || usize::from(replicas) > MAX_REPLICAS {
            return Err(BlockError::Replicas { scheme });
        }
        if scheme.passes() == 0 {
            return Err(BlockError::Iterations { scheme });
        }
        if u16::from(replicas) > slots {
            return Err(BlockError::Slots { scheme, slots });
        }
        Ok(Self { scheme, slots })
    }

    /// Returns the access scheme.
    pub const fn scheme(self) -> AccessScheme {
        self.scheme
    }

    /// Returns the number of slots, at least that of the replicas.
    pub const fn slots(self) -> u16 {
        self.slots
    }

    /// Draws the slots of a burst: distinct, every set of them equally likely. Draws one number for
    /// each replica (R. Floyd's sampling; J. Bentley, CACM 30(9), 1987).
    pub fn draw(self, dice: &mut Dice) -> BurstSlots {
        let replicas = u16::from(self.scheme.replicas());
        let mut drawn = BurstSlots { len: 0, slots: [0; MAX_REPLICAS] };
        for last in self.slots - replicas..self.slots {
            let slot = dice.below(u64::from(last) + 1) as u16;
            // A slot drawn before stands for the newest candidate, which cannot have been drawn.
            drawn.push(if drawn.as_slice().contains(&slot) { last } else { slot });
        }
        drawn
    }
}

impl ContentionBlock {
    /// Draws the slots of a burst from those that are `free`, and removes them there; every set of
    /// them is equally likely. `None` if there are too few. For a terminal that sends several
    /// bursts in a block, or has other slots at the same time. Draws one number for each replica.
    pub fn draw_among(self, free: &mut Vec<u16>, dice: &mut Dice) -> Option<BurstSlots> {
        let replicas = self.scheme.replicas();
        if free.len() < usize::from(replicas) {
            return None;
        }
        let mut drawn = BurstSlots { len: 0, slots: [0; MAX_REPLICAS] };
        for _ in 0..replicas {
            let place = dice.below(free.len() as u64) as usize;
            // The order of `free` does not matter to a uniform draw.
            drawn.push(free.swap_remove(place));
        }
        Some(drawn)
    }
}

/// The slots of a burst's replicas: 1 to [`MAX_REPLICAS`], distinct.
#[derive(Debug, Clone, Copy)]
pub struct BurstSlots {
    len: u8,
    slots: [u16; MAX_REPLICAS],
}

/// The reason why slots are not those of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SlotsError {
    /// There are no slots, or too many.
    #[error("a burst in {slots} slots: expected 1 to {MAX_REPLICAS}")]
    Number {
        /// The number of slots that was given.
        slots: usize,
    },
    /// A slot is given twice, so the burst would collide with itself.
    #[error("slot {slot} twice in a burst")]
    Twice {
        /// The slot that is given twice.
        slot: u16,
    },
}

impl BurstSlots {
    /// Creates a burst in the given slots.
    ///
    /// # Errors
    /// If there are none, or more than [`MAX_REPLICAS`], or one is given twice.
    pub fn new(slots: &[u16]) -> Result<Self, SlotsError> {
        if slots.is_empty() || slots.len() > MAX_REPLICAS {
            return Err(SlotsError::Number { slots: slots.len() });
        }
        let mut distinct = Self { len: 0, slots: [0; MAX_REPLICAS] };
        for &slot in slots {
            if distinct.as_slice().contains(&slot) {
                return Err(SlotsError::Twice { slot });
            }
            distinct.push(slot);
        }
        Ok(distinct)
    }

    /// Returns the slots, in the order in which they were given or drawn.
    pub fn as_slice(&self) -> &[u16] {
        &self.slots[..usize::from(self.len)]
    }

    fn push(&mut self, slot: u16) {
        self.slots[usize::from(self.len)] = slot;
        self.len += 1;
    }
}

impl PartialEq for BurstSlots {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for BurstSlots {}

/// A burst in a contention block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentionBurst {
    /// The number that the receiver reports if it decodes the burst; unique in a block.
    pub id: u32,
    /// The slots of its replicas.
    pub slots: BurstSlots,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_blocks_are_refused() {
        let crdsa = |replicas, iterations| AccessScheme::Crdsa { replicas, iterations };
        let error = |scheme, slots| ContentionBlock::new(scheme, slots).unwrap_err().to_string();
        assert_eq!(error(crdsa(1, 5), 9), "crdsa 1 iterations=5: expected 2 to 8 replicas");
        assert_eq!(error(crdsa(9, 5), 9), "crdsa 9 iterations=5: expected 2 to 8 replicas");
        assert_eq!(error(crdsa(2, 0), 9), "crdsa 2 iterations=0: expected at least 1 iteration");
        let dsa = AccessScheme::Dsa { replicas: 3 };
        assert_eq!(error(dsa, 2), "dsa 3 in 2 slots: expected at least 3 slots");
        assert!(ContentionBlock::new(AccessScheme::SlottedAloha, 0).is_err());
        assert!(ContentionBlock::new(dsa, 3).is_ok());
    }

    #[test]
    fn slots_of_a_burst_are_distinct() {
        assert_eq!(BurstSlots::new(&[]), Err(SlotsError::Number { slots: 0 }));
        assert_eq!(BurstSlots::new(&[0; 9]), Err(SlotsError::Number { slots: 9 }));
        assert_eq!(BurstSlots::new(&[4, 1, 4]), Err(SlotsError::Twice { slot: 4 }));
        assert_eq!(BurstSlots::new(&[4, 1]).unwrap().as_slice(), [4, 1]);
    }

    #[test]
    fn bursts_drawn_together_share_no_slot() {
        let block = ContentionBlock::new(AccessScheme::Dsa { replicas: 2 }, 9).unwrap();
        let mut dice = Dice::new(1);
        let mut free = vec![0, 2, 3, 5, 7];
        let mut drawn = Vec::new();
        while let Some(burst) = block.draw_among(&mut free, &mut dice) {
            drawn.extend_from_slice(burst.as_slice());
        }
        drawn.append(&mut free);
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 2, 3, 5, 7]);
    }

    /// Of 5 slots there are 10 pairs. χ² with 9 degrees of freedom is above 27.9 in one of 1,000
    /// seeds.
    #[test]
    fn every_pair_of_slots_is_equally_likely() {
        const DRAWS: u32 = 100_000;
        let block = ContentionBlock::new(AccessScheme::Dsa { replicas: 2 }, 5).unwrap();
        let mut dice = Dice::new(1);
        let mut pairs = [[0u32; 5]; 5];
        for _ in 0..DRAWS {
            let drawn = block.draw(&mut dice);
            let [a, b] = *drawn.as_slice() else { panic!("{drawn:?}") };
            pairs[usize::from(a.min(b))][usize::from(a.max(b))] += 1;
        }
        let expected = f64::from(DRAWS) / 10.0;
        let above = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
        let chi: f64 =
            above.map(|(a, b)| (f64::from(pairs[a][b]) - expected).powi(2) / expected).sum();
        assert!(chi < 27.9, "{chi}: {pairs:?}");
        assert!((0..5).all(|slot| pairs[slot][slot] == 0));
    }
}
