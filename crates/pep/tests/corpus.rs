//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

use std::fs;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs: Vec<_> = fs::read_dir(corpus).unwrap().collect();
    assert!(inputs.len() >= 20, "the corpus has only {} inputs", inputs.len());
    for input in inputs {
        let path = input.unwrap().path();
        println!("{}", path.display());
        run(&fs::read(path).unwrap());
    }
}

#[test]
fn the_corpus_of_intercepted_packets_is_harmless() {
    replay("intercepted", pep::fuzzing::intercepted);
}

#[test]
fn the_corpus_of_compressed_streams_is_harmless() {
    replay("compressed", pep::fuzzing::compressed);
}

#[test]
fn the_corpus_of_dlep_is_harmless() {
    replay("dlep", pep::fuzzing::dlep);
}

#[test]
fn the_corpus_of_names_is_harmless() {
    replay("names", pep::fuzzing::names);
}

#[test]
fn the_corpus_of_the_proxy_is_harmless() {
    replay("proxy", pep::fuzzing::proxy);
}
