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
fn the_corpus_of_keys_is_harmless() {
    replay("keys", gateway::fuzzing::keys);
}

#[test]
fn the_corpus_of_datagrams_over_tcp_is_harmless() {
    replay("tcp_frames", gateway::fuzzing::tcp_frames);
}

#[test]
fn the_corpus_of_the_control_socket_is_harmless() {
    replay("control", gateway::fuzzing::control);
}
