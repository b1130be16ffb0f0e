#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skyhop_fuzz::timed(bytes, gateway::fuzzing::etcd));
