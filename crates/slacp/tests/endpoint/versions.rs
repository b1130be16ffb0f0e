//! Different versions of the protocol: each side is refused in terms it understands.

use std::net::SocketAddr;

use slacp::{Config, Endpoint, EndpointFootprint, EndpointNotice, KeyPair};
use units::{BitRate, Instant};

fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

/// A value recorded from version 1.
fn recorded(name: &str) -> Vec<u8> {
    let lines = include_str!("../vectors/version-1.toml").lines();
    let value = lines.filter_map(|line| line.split_once(" = ")).find(|(key, _)| *key == name);
    let hex = value.unwrap().1.trim_matches('"');
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn hub() -> Endpoint {
    let config = Config::new(BitRate::from_mbit(10));
    Endpoint::hub(config, key(1), vec![key(2).public()], [3; 32])
}

/// What a hub sends when it gets a datagram.
fn answer(hub: &mut Endpoint, from: SocketAddr, mut datagram: Vec<u8>) -> Vec<u8> {
    let now = Instant::from_nanos(1_000_000_000);
    hub.handle_datagram(now, from, &mut datagram);
    let mut answer = Vec::new();
    hub.poll_transmit(now, &mut answer);
    answer
}

#[test]
fn a_terminal_of_version_1_is_refused_with_the_bytes_that_it_understands() {
    let mut hub = hub();
    let address = SocketAddr::from(([192, 0, 2, 7], 5900));
    let refusal = answer(&mut hub, address, recorded("initiation_1"));
    assert_eq!(refusal, recorded("answered_with_2"));
    let notice = hub.poll_notice().unwrap();
    assert_eq!(notice, EndpointNotice::ForeignTerminal { address, ours: 2, theirs: 1 });
    assert_eq!(
        notice.to_string(),
        "a terminal at 192.0.2.7:5900 speaks SLACP version 1; this hub speaks 2"
    );
    assert_eq!(hub.footprint(), EndpointFootprint::default());
}

#[test]
fn strangers_cannot_fill_the_log_of_a_hub_with_other_versions() {
    let mut hub = hub();
    for n in 0..1000u32 {
        let address = SocketAddr::from(((n << 8).to_be_bytes(), 5900));
        answer(&mut hub, address, recorded("initiation_1"));
    }
    let notices = std::iter::from_fn(|| hub.poll_notice()).count();
    assert_eq!(notices, 64);
}
