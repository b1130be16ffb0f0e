//! Every kind of fault of clients, servers, the hop and the gateways goes through a hub and a
//! terminal in virtual time: every byte is accounted for, and every connection ends as its hosts
//! have ended it.
//!
//! `FAULT_SEEDS=first..end` chooses the seeds, so that a failing one can be replayed alone, or a
//! million be run: `FAULT_SEEDS=0..1000000 cargo test --release -p skyhop-sim --test faults`.

mod oracle;
mod plan;

use std::panic::catch_unwind;

use oracle::Counts;
use plan::Plan;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// The seeds to run, by default 10,000.
fn seeds() -> (u64, u64) {
    let range = std::env::var("FAULT_SEEDS").unwrap_or_else(|_| "0..10000".to_owned());
    let (first, end) = range.split_once("..").expect("FAULT_SEEDS is first..end");
    (first.parse().unwrap(), end.parse().unwrap())
}

/// Runs one seed; panics if an ending is wrong.
fn run(seed: u64) -> Counts {
    let plan = Plan::new(seed);
    let (world, network) = plan.play();
    oracle::judge(&plan, &world, &network)
}

/// Runs the seeds on all processors.
///
/// # Errors
/// A seed that has failed.
fn run_all(first: u64, end: u64) -> Result<Counts, u64> {
    (first..end)
        .into_par_iter()
        .map(|seed| catch_unwind(|| run(seed)).map_err(|_| seed))
        .try_reduce(Counts::default, |counts, others| Ok(counts.and(&others)))
}

#[test]
fn every_byte_is_accounted_for_and_every_ending_is_the_right_one() {
    let (first, end) = seeds();
    let counts = run_all(first, end)
        .unwrap_or_else(|seed| panic!("FAULT_SEEDS={seed}..{} replays it", seed + 1));
    println!("{} seeds: {counts:?}", end - first);
    if end - first >= 1000 {
        counts.assert_that_everything_happened();
    }
}

#[test]
fn the_same_seed_gives_the_same_endings() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}
