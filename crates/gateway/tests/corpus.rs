//! Replays the fuzzing corpus (`fuzz/corpus`).

#![cfg(feature = "fuzzing")]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

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

#[test]
fn the_corpus_of_etcd_s_answers_is_harmless() {
    replay("etcd", gateway::fuzzing::etcd);
}
