//! What is known about paths survives sessions, and follows the peer's address.

use core::time::Duration;
use std::net::SocketAddr;

use crate::path::{Path, TERMINAL, Transfer, at, ms, queue_of};
use link::{LinkConfig, LossModel};
use slacp::{Config, KeyPair, PathKey, PathMemory, Rate, RateState};
use units::{BitRate, Instant};

const ELSEWHERE: SocketAddr = address([10, 9, 9, 9], 2);

const fn address([a, b, c, d]: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)), port)
}

fn key(address: SocketAddr) -> PathKey {
    PathKey::new(KeyPair::from_private([1; 32]).public(), address.ip())
}

/// A hub that measures its rate sends indefinitely over 50/10 Mbit/s.
fn path(rate: Rate) -> Path {
    let link = |mbit| {
        let rate = BitRate::from_mbit(mbit);
        LinkConfig::new(rate, ms(300), LossModel::None, queue_of(rate.bytes_in(ms(600)).get()))
    };
    let mut path = Path::new(link(50), link(10), 1);
    let config = [Config::new(rate), Config::new(BitRate::from_mbit(10))];
    path.add(Transfer::new(config, 1 << 40, at(2.0), 1));
    path
}

fn close(rate: BitRate, mbit: f64) -> bool {
    (rate.bits_per_second() as f64 / (mbit * 1e6) - 1.0).abs() < 0.1
}

/// Runs until the hub's session is up and its rate is in `state`.
fn wait_for(path: &mut Path, state: RateState, most: Duration) -> Instant {
    let (mut now, end) = (path.now, path.now + most);
    while path.transfer(0).hub_state() != Some(state) {
        assert!(now < end, "not {state:?} after {most:?}");
        now += ms(1);
        path.run(now);
    }
    now
}

#[test]
fn the_next_session_resumes_from_what_the_last_one_learnt() {
    let mut path = path(Rate::auto());
    path.run(at(10.0));
    let (now, terminal) = (path.now, path.transfer(0));
    let known = terminal.hub.memories(now);
    assert_eq!(known.len(), 1);
    assert!(known[0].0 == key(TERMINAL) && close(known[0].1.capacity, 50.0), "{known:?}");
    terminal.renew(now, 1 << 40);
    path.run(at(10.2));
    let after = wait_for(&mut path, RateState::Resuming, ms(3000));
    let now = path.now;
    assert_eq!(path.transfer(0).hub.memories(now).len(), 1, "the ended session's");
    let found = wait_for(&mut path, RateState::Cruising, ms(3000));
    assert!(found.saturating_since(after) < ms(750), "{after} to {found}");
}

#[test]
fn what_the_owner_kept_is_resumed_after_a_restart() {
    let mut before = path(Rate::auto());
    before.run(at(10.0));
    let now = before.now;
    let kept = before.transfer(0).hub.memories(now);
    let mut path = path(Rate::auto());
    let hub = &mut path.transfer(0).hub;
    for (path, memory) in kept {
        // A quarter of an hour passes.
        let age = memory.age + Duration::from_secs(900);
        hub.remember(Instant::ZERO, path, PathMemory { age, ..memory });
    }
    assert_eq!(hub.memories(Instant::ZERO).len(), 1);
    wait_for(&mut path, RateState::Resuming, ms(3000));
}

#[test]
fn a_new_address_is_a_new_path_and_the_old_one_is_remembered() {
    let mut path = path(Rate::auto());
    path.run(at(10.0));
    // Another port is the same path.
    path.transfer(0).place = address([10, 0, 0, 2], 77);
    path.run(at(15.0));
    assert_eq!(path.transfer(0).moves, 1);
    let known =
        matches!(path.transfer(0).hub_state(), Some(RateState::Cruising | RateState::Draining));
    assert!(known, "{:?}", path.transfer(0).hub_state());
    // Another network is a different path, and here a slower one.
    path.transfer(0).place = ELSEWHERE;
    wait_for(&mut path, RateState::Blind, ms(5000));
    path.set_rate(BitRate::from_mbit(10));
    let found = wait_for(&mut path, RateState::Cruising, ms(3000));
    path.run(found + ms(10_000));
    let rate = path.arrived(0, found + ms(600), found + ms(10_000));
    assert!(rate > 9.0, "{rate}");
    let now = path.now;
    let known = path.transfer(0).hub.memories(now);
    let of = |place| known.iter().find(|(path, _)| *path == key(place)).unwrap().1;
    assert!(close(of(TERMINAL).capacity, 50.0) && close(of(ELSEWHERE).capacity, 10.0), "{known:?}");
    assert!(of(TERMINAL).age > ms(10_000) && of(ELSEWHERE).age < ms(100), "{known:?}");
    // Back on the first path, everything is as before.
    path.transfer(0).place = TERMINAL;
    path.set_rate(BitRate::from_mbit(50));
    let back = wait_for(&mut path, RateState::Resuming, ms(3000));
    path.run(back + ms(5000));
    let rate = path.arrived(0, back + ms(1000), back + ms(5000));
    assert!(rate > 45.0, "{rate}");
}

#[test]
fn a_ceiling_holds() {
    let mut path = path(Rate::Auto { ceiling: Some(BitRate::from_mbit(20)), probe: true });
    path.run(at(20.0));
    let rate = path.arrived(0, at(5.0), at(20.0));
    assert!((19.0..20.2).contains(&rate), "{rate}");
}
