//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use replay::{inputs, replay};

#[test]
fn the_corpus_of_bundles_is_harmless() {
    replay("bundles", pep::fuzzing::bundles);
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
fn the_corpus_of_http_is_harmless() {
    replay("http", pep::fuzzing::http);
}

#[test]
fn the_corpus_of_merged_requests_is_harmless() {
    replay("flights", pep::fuzzing::flights);
}

#[test]
fn the_corpus_of_dns_over_https_is_harmless() {
    replay("doh", pep::fuzzing::doh);
}

#[test]
fn changes_to_the_corpora_of_http_are_harmless() {
    change("http", 200_000, pep::fuzzing::http);
    change("flights", 20_000, pep::fuzzing::flights);
    change("doh", 20_000, pep::fuzzing::doh);
}

/// What a fuzzer would try first: bytes changed, cut, repeated and exchanged, with seeds.
fn change(target: &str, seeds: u64, run: fn(&[u8])) {
    let inputs = inputs(target);
    for seed in 0..seeds {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: usize| (random.next_u64() % bound.max(1) as u64) as usize;
        let mut bytes = inputs[below(inputs.len())].1.clone();
        for _ in 0..=below(4) {
            if bytes.is_empty() {
                break;
            }
            let (at, length) = (below(bytes.len()), below(20));
            let end = bytes.len().min(at + length);
            let (_, other) = &inputs[below(inputs.len())];
            let from = below(other.len());
            let piece = other[from..other.len().min(from + below(30))].to_vec();
            match below(4) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes.truncate(at.max(4)),
                2 => drop(bytes.splice(at..end, piece)),
                _ => drop(bytes.splice(at..at, b"\r\n: ,;=\"/<>0"[below(12)..][..1].to_vec())),
            }
        }
        println!("{target}: seed {seed}");
        run(&bytes);
    }
}

#[test]
fn the_corpus_of_names_is_harmless() {
    replay("names", pep::fuzzing::names);
}

#[test]
fn the_corpus_of_the_proxy_is_harmless() {
    replay("proxy", pep::fuzzing::proxy);
}
