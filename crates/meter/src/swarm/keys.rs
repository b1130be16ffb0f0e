//! Keys of a swarm's terminals.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use slacp::KeyPair;

/// Derives the key of terminal `number` of the swarm with this seed, the same on every machine.
/// Everybody who knows the seed has the key, so a hub should serve these terminals only while it is
/// measured.
pub fn terminal_key(seed: u64, number: u32) -> KeyPair {
    let mut whole = [0; 32];
    whole[..8].copy_from_slice(&seed.to_be_bytes());
    whole[8..12].copy_from_slice(&number.to_be_bytes());
    let mut private = [0; 32];
    ChaCha20Rng::from_seed(whole).fill_bytes(&mut private);
    KeyPair::from_private(private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_seed_and_number_only() {
        let public = |seed, number| terminal_key(seed, number).public();
        assert_eq!(public(1, 2), public(1, 2));
        assert!(public(1, 2) != public(1, 3) && public(1, 2) != public(2, 2));
    }
}
