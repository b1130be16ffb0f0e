//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_bundles_is_harmless() {
    replay("bundles", bundles::fuzzing::bundles);
}
