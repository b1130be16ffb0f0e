//! Replays what the fuzzers have found worth keeping (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

use std::fs;
use std::path::Path;

#[test]
fn every_corpus_is_harmless() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in scenario::fuzzing::TARGETS {
        let inputs: Vec<_> = fs::read_dir(corpora.join(name)).unwrap().collect();
        assert!(inputs.len() >= 20, "the corpus of {name} has only {} inputs", inputs.len());
        for input in inputs {
            let path = input.unwrap().path();
            println!("{}", path.display());
            target(&fs::read(path).unwrap());
        }
    }
}
