//! Changes the inputs of a corpus, for the tests of parsers of text.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::replay::inputs;

/// What a fuzzer would try first: bytes changed, cut, repeated and exchanged, with seeds.
pub(crate) fn change(target: &str, seeds: u64, run: fn(&[u8])) {
    let inputs = inputs(target);
    for seed in 0..seeds {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: usize| (random.next_u64() % bound.max(1) as u64) as usize;
        let mut bytes = inputs[below(inputs.len())].1.clone();
        for _ in 0..=below(4) {
            if bytes.is_empty() {
                break;
            }
            let (at, length) = (below(bytes.len()), below(20));
            let end = bytes.len().min(at + length);
            let (_, other) = &inputs[below(inputs.len())];
            let from = below(other.len());
            let piece = other[from..other.len().min(from + below(30))].to_vec();
            match below(4) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes.truncate(at.max(4)),
                2 => drop(bytes.splice(at..end, piece)),
                _ => drop(bytes.splice(at..at, b"\r\n: ,;=\"/<>0"[below(12)..][..1].to_vec())),
            }
        }
        println!("{target}: seed {seed}");
        run(&bytes);
    }
}
