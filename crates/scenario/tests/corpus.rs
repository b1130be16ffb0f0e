//! Replays what the fuzzers have found worth keeping (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn every_corpus_is_harmless() {
    for (name, target) in scenario::fuzzing::TARGETS {
        replay(name, target);
    }
}
