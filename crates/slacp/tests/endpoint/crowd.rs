//! Many terminals behind one address that start together, alone and beside strangers.

use core::time::Duration;
use std::net::SocketAddr;

use crate::star::{Star, config, hub_address, key, public, terminal};
use slacp::Endpoint;
use units::{Instant, Machine};

const DELAY: Duration = Duration::from_millis(300);

/// The shared address of all terminals; each has its own port.
fn behind_one_address(n: u32) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 7], 1024 + n as u16))
}

/// A hub and `terminals` that start at once.
fn crowd(terminals: u32) -> Star {
    let mut star = Star::new(&config(), terminals, DELAY);
    for n in 1..=terminals {
        star.add(terminal(config(), n, 1), behind_one_address(n));
    }
    star
}

/// Number of sessions the hub has reported as up.
fn sessions(star: &Star) -> usize {
    star.nodes[0].sessions()
}

#[test]
fn terminals_behind_one_address_are_up_two_seconds_after_they_started() {
    for terminals in [400, 1000] {
        let mut star = crowd(terminals);
        star.run_for(Duration::from_secs(2));
        assert_eq!(sessions(&star), terminals as usize, "of {terminals}");
        let last = star.nodes.iter().skip(1).filter_map(|node| node.up()).max();
        println!("{terminals} terminals: the last is up at {}", last.unwrap());
    }
}

/// An initiation by a stranger that knows the hub's key but whose own is not served.
fn initiation(n: u32) -> Vec<u8> {
    let mut stranger = terminal(config(), n, 2);
    let (now, mut datagram) = (Instant::from_nanos(1_000_000_000), Vec::new());
    stranger.handle_timeout(now);
    stranger.poll_transmit(now, &mut datagram).unwrap();
    datagram
}

/// How many of 400 terminals are up two seconds after their start, beside a thousand datagrams a
/// second from forged addresses, and 500 strangers a second at true addresses that return their
/// cookies.
fn up_beside_strangers(true_address: impl Fn(u32) -> SocketAddr) -> usize {
    const TERMINALS: u32 = 400;
    let mut star = Star::new(&config(), TERMINALS, DELAY);
    let recorded: Vec<Vec<u8>> = (0..50).map(|n| initiation(100_000 + n)).collect();
    for ms in 0..2100u32 {
        let false_address = SocketAddr::from(((0x0b00_0000 + ms * 977).to_be_bytes(), 9));
        star.send(false_address, hub_address(), recorded[ms as usize % 50].clone());
        if ms % 2 == 0 {
            star.add(terminal(config(), 200_000 + ms, 1), true_address(ms));
        }
        if ms == 100 {
            for n in 1..=TERMINALS {
                star.add(terminal(config(), n, 1), behind_one_address(n));
            }
        }
        star.run_for(Duration::from_millis(1));
    }
    sessions(&star)
}

#[test]
fn strangers_with_true_addresses_elsewhere_do_not_keep_them_out() {
    let elsewhere = |n: u32| SocketAddr::from(([203, 0, 113, (n % 200) as u8], n as u16));
    assert_eq!(up_beside_strangers(elsewhere), 400);
}

#[test]
fn a_stranger_at_a_port_of_their_address_does_not_keep_them_out() {
    let beside = |_: u32| behind_one_address(60_000);
    assert_eq!(up_beside_strangers(beside), 400);
}

/// Time until all terminals behind one address have a session with a hub that has just started.
fn all_up_after(star: &mut Star, terminals: u32) -> Duration {
    let start = star.now;
    while sessions(star) < terminals as usize {
        assert!(star.now < start + Duration::from_secs(30), "{} of {terminals}", sessions(star));
        star.run_for(Duration::from_millis(100));
    }
    star.now.saturating_since(start)
}

#[test]
fn thousands_behind_one_address_are_up_seconds_after_their_hub_has_restarted() {
    const TERMINALS: u32 = 4000;
    let mut star = crowd(TERMINALS);
    let took = all_up_after(&mut star, TERMINALS);
    println!("{TERMINALS} terminals that start at once: all up after {took:?}");
    assert!(took <= Duration::from_secs(10), "{took:?}");
    star.run_for(Duration::from_secs(1));
    let now = star.now;
    star.hub().shut_down(now);
    star.serve(0);
    star.run_for(Duration::from_secs(1));
    let allow = (1..=TERMINALS).map(public).collect();
    star.replace(0, Endpoint::hub(config(), key(0), allow, [10; 32]));
    let took = all_up_after(&mut star, TERMINALS);
    println!("after an orderly restart: {took:?}");
    assert!(took <= Duration::from_secs(10), "{took:?}");
}

/// Time until idle terminals are up again whose hub has crashed. The process that takes its place knows
/// where they were heard.
fn up_after_a_crash(terminals: u32) -> Duration {
    let mut star = crowd(terminals);
    all_up_after(&mut star, terminals);
    // They have had nothing to say for a while: their keepalives are spread over 15 s.
    star.run_for(Duration::from_secs(20));
    let contacts = star.hub().contacts();
    assert_eq!(contacts.len(), terminals as usize);
    let allow = (1..=terminals).map(public).collect();
    let mut next = Endpoint::hub(config(), key(0), allow, [10; 32]);
    next.call(contacts);
    star.replace(0, next);
    let took = all_up_after(&mut star, terminals);
    println!("{terminals} idle terminals are up {took:?} after a crash");
    took
}

#[test]
fn idle_terminals_whose_hub_has_crashed_are_called_by_the_next() {
    assert!(up_after_a_crash(200) <= Duration::from_secs(3));
}

#[test]
#[ignore = "takes a minute; cargo test -p skyhop-slacp --test endpoint crashed -- --ignored --nocapture"]
fn idle_thousands_whose_hub_has_crashed_are_called_by_the_next() {
    assert!(up_after_a_crash(4000) <= Duration::from_secs(8));
}
