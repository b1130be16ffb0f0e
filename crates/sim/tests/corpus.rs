//! Replays the inputs found by the fuzzer (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn every_corpus_is_harmless() {
    for (name, target) in sim::fuzzing::TARGETS {
        replay(name, target);
    }
}
