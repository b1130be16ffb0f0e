//! Replays the corpora, for the tests of the crates whose parsers are fuzzed.

use std::fs;
use std::path::Path;

/// The inputs of a target's corpus: path and contents.
///
/// # Panics
/// If there are fewer than 20.
pub(crate) fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let read = |input: std::io::Result<fs::DirEntry>| {
        let path = input.unwrap().path();
        (path.display().to_string(), fs::read(path).unwrap())
    };
    let inputs: Vec<_> = fs::read_dir(corpora.join(target)).unwrap().map(read).collect();
    assert!(inputs.len() >= 20, "the corpus of {target} has only {} inputs", inputs.len());
    inputs
}

/// Runs a target on each input of its corpus.
pub(crate) fn replay(target: &str, run: fn(&[u8])) {
    for (path, input) in inputs(target) {
        println!("{path}");
        run(&input);
    }
}
