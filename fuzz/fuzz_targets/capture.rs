#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meter::trace::fuzzing::capture(bytes));
