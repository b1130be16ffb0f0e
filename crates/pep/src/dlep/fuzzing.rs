//! DLEP sessions with fuzzed peers.

use std::net::SocketAddr;
use std::time::Duration;

use units::{BitRate, Instant};

use super::item::{DataItem, LinkAddress};
use super::message::{LONGEST, MessageKind, emit};
use super::modem::{LinkMetrics, LinkRates, Modem, ModemSettings, ReachableDestination};
use super::router::{DlepOutput, Router};

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
    let mut outputs: Vec<DlepOutput> = std::iter::from_fn(|| router.poll_output()).collect();
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

/// Feeds a modem a discovery, and in a session `said` on its connection in pieces of `size` bytes.
/// Returns its outputs.
///
/// # Panics
/// On a bug in this crate.
pub(crate) fn serve(discovery: &[u8], said: &[u8], size: usize) -> Vec<DlepOutput> {
    let now = Instant::from_nanos(1);
    let rates = LinkRates { transmit: BitRate::from_mbit(9), receive: BitRate::from_mbit(1) };
    let heartbeat = Duration::from_secs(5);
    let settings = ModemSettings { peer_type: "modem".to_owned(), heartbeat, maximum: rates };
    let metrics = LinkMetrics { rates, latency: Duration::ZERO };
    let mut modem = Modem::new(settings, metrics);
    let _ = modem.handle_discovery(discovery, SocketAddr::from(([192, 0, 2, 1], 854)));
    modem.handle_connected(now);
    let items = [DataItem::HeartbeatInterval(heartbeat), DataItem::PeerType(String::new())];
    modem.handle_bytes(now, &emit(MessageKind::SessionInitialization, &items));
    let mac = LinkAddress::new(&[2, 0, 0, 0, 0, 1]).expect("six bytes");
    modem.set_destination(mac, ReachableDestination { metrics, networks: Vec::new() });
    let mut outputs = Vec::new();
    for piece in said.chunks(size) {
        modem.handle_bytes(now, piece);
        assert!(modem.held() < LONGEST, "a message at most");
        outputs.extend(std::iter::from_fn(|| modem.poll_output()));
    }
    outputs
}
