//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/change.rs"]
mod change;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use change::change;
use replay::replay;

#[test]
fn the_corpus_of_http_is_harmless() {
    replay("http", http_cache::fuzzing::http);
}

#[test]
fn the_corpus_of_merged_requests_is_harmless() {
    replay("flights", http_cache::fuzzing::flights);
}

#[test]
fn changes_to_the_corpora_of_http_are_harmless() {
    change("http", 200_000, http_cache::fuzzing::http);
    change("flights", 20_000, http_cache::fuzzing::flights);
}
