//! Replays the fuzzer's corpora (`fuzz/corpus/segments` and `packets`, seeded with scripted exchanges),
//! and random bytes of the same form.

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use replay::replay;

#[test]
fn the_corpus_of_segments_is_harmless() {
    replay("segments", tcp::fuzzing::segments);
}

#[test]
fn the_corpus_of_packets_is_harmless() {
    replay("packets", tcp::fuzzing::packets);
}

/// A segment in the form that the target reads, close to what the connections expect.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    let numbers = (any::<u8>(), 0u32..4000, 0u32..4000, any::<u8>(), any::<u16>());
    let rest = (any::<bool>(), prop::collection::vec(any::<u8>(), 0..40), 0usize..60);
    (numbers, rest).prop_map(|((how, seq, ack, flags, window), (likely, options, data))| {
        let flags = if likely { 0x10 | flags & 0xc9 } else { flags };
        let options_len = options.len() / 4 * 4;
        let mut body = Vec::new();
        body.extend_from_slice(&seq.to_be_bytes());
        body.extend_from_slice(&ack.to_be_bytes());
        body.extend_from_slice(&[(((20 + options_len) / 4) as u8) << 4, flags]);
        body.extend_from_slice(&window.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&options[..options_len]);
        body.resize(body.len() + data, 7);
        let mut out = vec![how, body.len() as u8];
        out.append(&mut body);
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn likely_segments_are_harmless(segments in prop::collection::vec(segment(), 0..40)) {
        tcp::fuzzing::segments(&segments.concat());
    }

    #[test]
    fn any_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        tcp::fuzzing::segments(&bytes);
    }
}
