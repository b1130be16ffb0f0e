//! Seeded random numbers, the same on every platform.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use units::Probability;

/// A random number generator: `ChaCha8`, so that a seed gives the same numbers on every platform.
///
/// Its state of 320 bytes is made when the first number is drawn: most links of a large network
/// never draw one.
#[derive(Debug, Clone)]
pub struct Dice {
    seed: u64,
    stream: u64,
    state: Option<Box<ChaCha8Rng>>,
}

impl Dice {
    /// The sequence of random numbers for `seed`.
    pub fn new(seed: u64) -> Self {
        Self::stream(seed, 0)
    }

    /// Another, independent sequence for `seed`. Stream 0 is that of [`Dice::new`].
    pub(crate) fn stream(seed: u64, stream: u64) -> Self {
        Self { seed, stream, state: None }
    }

    #[inline]
    fn generator(&mut self) -> &mut ChaCha8Rng {
        let seed = self.seed;
        let stream = self.stream;
        self.state.get_or_insert_with(|| Self::start(seed, stream))
    }

    #[cold]
    fn start(seed: u64, stream: u64) -> Box<ChaCha8Rng> {
        let mut generator = Box::new(ChaCha8Rng::seed_from_u64(seed));
        generator.set_stream(stream);
        generator
    }

    /// 64 random bits, suitable as the seed of another [`Dice`].
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.generator().next_u64()
    }

    /// Uniform in `0.0..1.0`, in steps of 2⁻⁵³.
    #[inline]
    pub fn chance(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        (self.bits() >> 11) as f64 * STEP
    }

    /// True with probability `p`. Draws one number whatever `p` is.
    pub fn happens(&mut self, p: Probability) -> bool {
        self.chance() < p.get()
    }

    /// Uniform in `0..n`; 0 if `n` is 0. Draws one number.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high half of the product. Its bias, n / 2⁶⁴, is far below what any experiment here
        // can detect.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Skips to the number after the first `drawn`.
    fn seek(&mut self, drawn: u64) {
        // A number takes two 32-bit words of the generator.
        self.generator().set_word_pos(u128::from(drawn) * 2);
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.generator().fill_bytes(bytes);
    }
}

/// A sequence of random numbers accessed by index, mostly in order. Unused numbers cost little or
/// nothing.
#[derive(Debug, Clone)]
pub(crate) struct IndexedDice {
    dice: Dice,
    /// The index of the next number the dice return, from 0.
    next: u64,
}

impl IndexedDice {
    /// Creates the sequence from dice that have not been used.
    pub(crate) fn new(dice: Dice) -> Self {
        Self { dice, next: 0 }
    }

    /// 64 random bits, always the same for the same index `number`.
    pub(crate) fn bits(&mut self, number: u64) -> u64 {
        self.go_to(number);
        self.dice.bits()
    }

    /// Like [`Dice::chance`], always the same for the same index `number`.
    pub(crate) fn chance(&mut self, number: u64) -> f64 {
        self.go_to(number);
        self.dice.chance()
    }

    fn go_to(&mut self, number: u64) {
        if number != self.next {
            self.seek(number);
        }
        self.next = number.wrapping_add(1);
    }

    #[cold]
    fn seek(&mut self, number: u64) {
        /// Number of values the dice generate at a time.
        const NEAR: u64 = 32;
        match number.checked_sub(self.next) {
            Some(ahead @ ..NEAR) => (0..ahead).for_each(|_| _ = self.dice.bits()),
            _ => self.dice.seek(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_nth_number_is_the_same_in_every_order(
            numbers in prop::collection::vec(0u64..300, 1..50), stream in 0u64..4,
        ) {
            let mut dice = Dice::stream(1, stream);
            let all: Vec<_> = (0..300).map(|_| dice.bits()).collect();
            let mut numbered = IndexedDice::new(Dice::stream(1, stream));
            for number in numbers {
                prop_assert_eq!(numbered.bits(number), all[number as usize]);
            }
        }
    }

    /// Published results refer to seeds, so these numbers must never change.
    #[test]
    fn a_seed_gives_these_numbers_for_ever() {
        let mut dice = Dice::new(1);
        assert_eq!(
            [dice.bits(), dice.bits()],
            [7_424_550_030_962_593_201, 1_482_817_706_323_250_795]
        );
    }

    #[test]
    fn streams_of_a_seed_differ() {
        let first = |stream| Dice::stream(1, stream).bits();
        assert_eq!(first(0), Dice::new(1).bits());
        assert!(first(1) != first(0) && first(1) != first(2));
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut dice = Dice::new(2);
        for _ in 0..10_000 {
            assert!(dice.happens(Probability::ONE));
            assert!(!dice.happens(Probability::ZERO));
        }
    }

    #[test]
    fn below_stays_below() {
        let mut dice = Dice::new(3);
        assert_eq!(dice.below(0), 0);
        let mut seen = [false; 6];
        for _ in 0..1000 {
            seen[dice.below(6) as usize] = true;
        }
        assert_eq!(seen, [true; 6]);
    }
}
