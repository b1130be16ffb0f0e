//! Replays the inputs found by the fuzzer (`fuzz/corpus/capture`).

#![cfg(feature = "fuzzing")]

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture");
    let inputs: Vec<_> = fs::read_dir(corpus).unwrap().collect();
    assert!(inputs.len() >= 20, "the corpus has only {} inputs", inputs.len());
    for input in inputs {
        let path = input.unwrap().path();
        println!("{}", path.display());
        meter::trace::fuzzing::capture(&fs::read(path).unwrap());
    }
}
