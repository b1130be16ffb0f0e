//! The source of an adversary's choices: a seed, or the bytes of a fuzzer.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::wire::varint;

/// A deterministic source of choices.
pub struct Choices(ChoiceSource);

enum ChoiceSource {
    Seeded(Box<ChaCha8Rng>),
    /// Zeros follow the last byte.
    Bytes(VecDeque<u8>),
}

impl Choices {
    /// An endless source of pseudo-random choices.
    pub fn seeded(seed: u64) -> Self {
        Self(ChoiceSource::Seeded(Box::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    /// Choices that a fuzzer makes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self(ChoiceSource::Bytes(bytes.iter().copied().collect()))
    }

    /// Returns `true` if the fuzzer's bytes are used up: every further choice is zero.
    pub fn is_spent(&self) -> bool {
        matches!(&self.0, ChoiceSource::Bytes(rest) if rest.is_empty())
    }

    /// A number of this many random bits, at most 64.
    pub fn bits(&mut self, bits: u32) -> u64 {
        let all = match &mut self.0 {
            ChoiceSource::Seeded(rng) if bits <= 32 => rng.next_u32().into(),
            ChoiceSource::Seeded(rng) => rng.next_u64(),
            ChoiceSource::Bytes(rest) => {
                let few = rest.len().min(bits.div_ceil(8) as usize);
                rest.drain(..few).fold(0, |number, byte| number << 8 | u64::from(byte))
            }
        };
        all & u64::MAX.checked_shr(64 - bits).unwrap_or(0)
    }

    /// A number below `end`; zero if `end` is.
    pub fn below(&mut self, end: u64) -> u64 {
        match end {
            0 | 1 => 0,
            // A fuzzer learns faster if a choice takes no more bytes than it must.
            _ => self.bits((64 - (end - 1).leading_zeros()).next_multiple_of(8)) % end,
        }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// One of the given values.
    ///
    /// # Panics
    /// If `from` is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A number that a varint can hold, of any size, often at a limit.
    pub fn extreme(&mut self) -> u64 {
        let width = self.below(63) as u32;
        let number = match self.below(4) {
            0 => self.bits(width),
            1 => (1u64 << width) - 1,
            2 => 1 << width,
            _ => varint::MAX - self.bits(width.min(8)),
        };
        number.min(varint::MAX)
    }

    /// A number close to `n`, or any number.
    pub fn near(&mut self, n: u64) -> u64 {
        let number = match self.below(4) {
            0 => n.saturating_sub(self.below(300)),
            1 => n.saturating_add(self.below(300)),
            2 => n,
            _ => self.extreme(),
        };
        number.min(varint::MAX)
    }
}
