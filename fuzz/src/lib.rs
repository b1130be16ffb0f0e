//! What the targets share.

use std::time::Duration;

use nix::time::ClockId;

/// Processor time that an input may take, and that each of its bytes may, with the fuzzer's instrumentation
/// and a sanitizer, which slow everything down tenfold.
const ONCE: Duration = Duration::from_millis(500);
const PER_BYTE: Duration = Duration::from_micros(200);

/// Gives an input to a parser, and fails if that takes too long for its length: a few kilobytes must not
/// keep a gateway busy. What `pep::work::cost` counts is bounded by the targets themselves, exactly.
///
/// # Panics
/// Then, or if the parser does.
pub fn timed(bytes: &[u8], parse: impl FnOnce(&[u8])) {
    let before = thread_time();
    parse(bytes);
    let took = thread_time() - before;
    let most = ONCE + PER_BYTE * bytes.len() as u32;
    assert!(took <= most, "{} bytes took {took:?}, more than {most:?}", bytes.len());
}

fn thread_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
}
