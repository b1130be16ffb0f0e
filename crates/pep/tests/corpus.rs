//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_intercepted_packets_is_harmless() {
    replay("intercepted", pep::fuzzing::intercepted);
}

#[test]
fn the_corpus_of_dlep_is_harmless() {
    replay("dlep", pep::fuzzing::dlep);
}

#[test]
fn the_corpus_of_the_proxy_is_harmless() {
    replay("proxy", pep::fuzzing::proxy);
}
