//! Compares the library's erasure code with a reference implementation made from `docs/slacp.md`.

use std::collections::BTreeMap;

use crate::by_hand::erasure;
use proptest::prelude::*;

fn library(originals: &[Vec<u8>], repairs: usize) -> Vec<Vec<u8>> {
    reed_solomon_simd::encode(originals.len(), repairs, originals).unwrap()
}

/// Shards of `size` bytes, generated from a number each.
fn shards(count: usize, size: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..count).map(|_| (0..size).map(|_| byte()).collect()).collect()
}

#[test]
fn every_small_block_is_as_specified() {
    for count in 1..=18 {
        for repairs in 1..=18 {
            let originals = shards(count, 70, (count * 100 + repairs) as u64);
            let specified = erasure::repairs(&originals, repairs);
            assert_eq!(library(&originals, repairs), specified, "{count} + {repairs}");
        }
    }
}

#[test]
fn large_blocks_are_as_specified() {
    let counts = [63, 64, 65, 127, 128, 129, 200, 254, 255];
    for count in counts {
        for repairs in [1, 2, 3, 7, 8, 9, 31, 64, 65, 128, 129, 255] {
            let originals = shards(count, 6, (count * 1000 + repairs) as u64);
            let specified = erasure::repairs(&originals, repairs);
            assert_eq!(library(&originals, repairs), specified, "{count} + {repairs}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn shards_of_every_size_are_as_specified(
        count in 1usize..40, repairs in 1usize..40, half in 1usize..700, seed: u64
    ) {
        let originals = shards(count, 2 * half, seed);
        prop_assert_eq!(library(&originals, repairs), erasure::repairs(&originals, repairs));
    }

    #[test]
    fn as_many_repairs_as_losses_restore_a_block_on_either_side(
        count in 1usize..60, repairs in 1usize..30, half in 1usize..40, seed: u64,
        lost in prop::collection::btree_set(0usize..60, 1..12),
        mut order in Just((0usize..30).collect::<Vec<_>>()).prop_shuffle()
    ) {
        let lost: Vec<usize> = lost.into_iter().filter(|i| *i < count).take(repairs).collect();
        prop_assume!(!lost.is_empty());
        order.retain(|index| *index < repairs);
        order.truncate(lost.len());
        let originals = shards(count, 2 * half, seed);
        let kept = |i: usize| (!lost.contains(&i)).then(|| originals[i].clone());
        let kept: Vec<Option<Vec<u8>>> = (0..count).map(kept).collect();

        let theirs = library(&originals, repairs);
        let used: Vec<(usize, Vec<u8>)> = order.iter().map(|i| (*i, theirs[*i].clone())).collect();
        let restored = erasure::restore(&kept, &used, repairs);
        let expected: Vec<Vec<u8>> = lost.iter().map(|i| originals[*i].clone()).collect();
        prop_assert_eq!(&restored, &expected);

        let ours = erasure::repairs(&originals, repairs);
        let known = kept.iter().enumerate().filter_map(|(i, shard)| Some((i, shard.as_ref()?)));
        let used = order.iter().map(|i| (*i, &ours[*i]));
        let restored: BTreeMap<usize, Vec<u8>> =
            reed_solomon_simd::decode(count, repairs, known, used).unwrap().into_iter().collect();
        prop_assert_eq!(restored.into_values().collect::<Vec<_>>(), expected);
    }
}
