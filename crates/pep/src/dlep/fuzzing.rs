//! A DLEP session for the fuzzer.

use std::net::SocketAddr;
use std::time::Duration;

use units::Instant;

use super::message::LONGEST;
use super::router::{Output, Router};

/// Feeds a router an offer, then `said` on its connection in pieces of `size` bytes. Returns its
/// outputs and its final state.
///
/// # Panics
/// On a bug in this crate.
pub(crate) fn converse(offer: &[u8], said: &[u8], size: usize) -> impl PartialEq + std::fmt::Debug {
    let now = Instant::from_nanos(1);
    let from = SocketAddr::from(([192, 0, 2, 1], 854));
    let mut router = Router::new(now, None, Duration::from_secs(5));
    router.handle_offer(now, from, offer);
    let mut outputs: Vec<Output> = std::iter::from_fn(|| router.poll_output()).collect();
    if outputs.is_empty() {
        // The fuzzed offer was invalid; send a valid one.
        router.handle_offer(now, from, b"DLEP\x00\x02\x00\x00");
    }
    router.handle_connected(now);
    for piece in said.chunks(size) {
        router.handle_bytes(now, piece);
        assert!(router.held() < LONGEST, "a message at most");
        outputs.extend(std::iter::from_fn(|| router.poll_output()));
    }
    (outputs, router.poll_report())
}
