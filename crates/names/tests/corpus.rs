//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/change.rs"]
mod change;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use change::change;
use replay::replay;

#[test]
fn the_corpus_of_names_is_harmless() {
    replay("names", names::fuzzing::names);
}

#[test]
fn the_corpus_of_dns_over_https_is_harmless() {
    replay("doh", names::fuzzing::doh);
}

#[test]
fn changes_to_the_corpus_of_dns_over_https_are_harmless() {
    change("doh", 20_000, names::fuzzing::doh);
}
