//! Replays the inputs found by the fuzzer (`fuzz/corpus`).

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
fn the_corpus_of_captures_is_harmless() {
    replay("capture", meter::trace::fuzzing::capture);
}

#[test]
fn the_corpus_of_requests_is_harmless() {
    replay("meter", meter::fuzzing::request);
}
