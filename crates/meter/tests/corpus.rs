//! Replays the inputs found by the fuzzer (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_captures_is_harmless() {
    replay("capture", meter::trace::fuzzing::capture);
}

#[test]
fn the_corpus_of_requests_is_harmless() {
    replay("meter", meter::fuzzing::request);
}
