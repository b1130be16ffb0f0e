//! Replays the inputs found by the fuzzers (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn every_corpus_is_harmless() {
    for (name, target) in slacp::fuzzing::TARGETS {
        replay(name, target);
    }
}
