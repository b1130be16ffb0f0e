//! Two machines with the same key, and machines that restart.

use core::time::Duration;
use std::net::SocketAddr;

use crate::star::{Star, config, public, terminal};
use slacp::{EndpointNotice, Event};
use units::Instant;

const DELAY: Duration = Duration::from_millis(300);
/// How long set-up takes in place of a session that is gone: the initiation, then three questions an
/// eighth of the probe delay apart and the time for the last answer. The probe delay is the RTT, 25 ms
/// and four times its variation, which decays while the session is idle.
const RESTARTED: Duration = Duration::from_millis(1200);
/// The same, while the variation is that of a session's first round trip.
const RESTARTED_AGAIN: Duration = Duration::from_millis(1500);

fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, machine], 5900))
}

/// The address of a machine in a network of its own.
fn elsewhere(machine: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, machine, 9], 5900))
}

fn v6(machine: u16) -> SocketAddr {
    SocketAddr::from(([0x2001, 0xdb8, machine, 0, 0, 0, 0, 1], 5900))
}

/// A hub in `parts`, and a machine with key number 1 at an address.
fn served_at(parts: u8, address: SocketAddr) -> (Star, usize) {
    let mut star = Star::divided(&config(), 1, DELAY, parts);
    let place = star.add(terminal(config(), 1, 1), address);
    star.run_for(Duration::from_secs(100));
    assert_eq!(star.nodes[place].sessions(), 1);
    (star, place)
}

fn served() -> Star {
    served_at(1, address(1)).0
}

/// When the hub's sessions came up after `since`.
fn ups(star: &Star, since: Instant) -> Vec<(Duration, SocketAddr)> {
    let events = star.nodes[..usize::from(star.parts())].iter().flat_map(|part| &part.events);
    let up =
        events.filter(|(time, ..)| *time >= since).filter_map(|(time, _, event)| match event {
            Event::Up { address, .. } => Some((time.saturating_since(since), *address)),
            _ => None,
        });
    up.collect()
}

fn notices(star: &mut Star) -> Vec<EndpointNotice> {
    let parts = usize::from(star.parts());
    let each = star.nodes[..parts].iter_mut();
    each.flat_map(|part| core::iter::from_fn(|| part.endpoint.poll_notice())).collect()
}

/// How often a machine has lost its session, or the hub has lost one.
fn downs(star: &Star, place: usize) -> usize {
    let is_down = |event: &&(Instant, _, Event)| matches!(event.2, Event::Down(_));
    star.nodes[place].events.iter().filter(is_down).count()
}

#[test]
fn a_second_machine_with_the_key_displaces_no_session_that_works_and_the_owner_hears_of_it() {
    let thieves = [
        (address(1), address(2)),
        (address(1), elsewhere(1)),
        (address(1), v6(1)),
        (v6(1), v6(1 << 8)),
        (v6(1), v6(2)),
        (v6(1), address(1)),
    ];
    for ((victim, thief), parts) in thieves.into_iter().zip([1, 1, 3, 1, 3, 1]) {
        let (mut star, place) = served_at(parts, victim);
        let begin = star.now;
        star.add(terminal(config(), 1, 2), thief);
        star.run_for(Duration::from_secs(3600));
        assert_eq!(ups(&star, begin), [], "{victim} {thief}");
        assert_eq!(downs(&star, place), 0, "{victim} {thief}");
        let notices = notices(&mut star);
        assert!((10..25).contains(&notices.len()), "{}", notices.len());
        let shared = EndpointNotice::SharedKey { key: public(1), served: victim, refused: thief };
        assert!(notices.iter().all(|notice| *notice == shared), "{notices:?}");
    }
}

#[test]
fn a_session_that_moves_is_not_displaced_on_its_way() {
    let (mut star, place) = served_at(1, address(1));
    let begin = star.now;
    star.add(terminal(config(), 1, 2), elsewhere(7));
    for step in 0..40 {
        // As behind a NAT that forgets, and then in other networks.
        let next = if step % 2 == 0 { elsewhere(100 + step) } else { v6(u16::from(step)) };
        star.move_to(place, next);
        for _ in 0..20 {
            let (now, session) = (star.now, star.nodes[place].session().unwrap());
            star.nodes[place].endpoint.ask(now, session).unwrap();
            star.serve(place);
            star.run_for(Duration::from_secs(1));
        }
    }
    assert_eq!((ups(&star, begin), downs(&star, place)), (vec![], 0));
}

#[test]
fn a_session_in_a_short_fade_is_not_displaced_from_another_network() {
    let (mut star, place) = served_at(1, address(1));
    let begin = star.now;
    for fade in 0..5 {
        let thief = star.add(terminal(config(), 1, 2 + fade), elsewhere(fade as u8));
        star.cut(place, true);
        star.run_for(Duration::from_secs(4));
        star.cut(place, false);
        star.run_for(Duration::from_secs(20));
        star.kill(thief);
    }
    assert_eq!((ups(&star, begin), downs(&star, place)), (vec![], 0));
}

#[test]
fn the_other_machine_is_served_when_the_first_dies() {
    let mut star = served();
    star.add(terminal(config(), 1, 2), address(2));
    star.run_for(Duration::from_secs(600));
    let begin = star.now;
    star.kill(1);
    star.run_for(Duration::from_secs(60));
    let ups = ups(&star, begin);
    assert!(matches!(ups[..], [(_, at)] if at == address(2)), "{ups:?}");
    println!("served {:?} after the other died", ups[0].0);
}

#[test]
fn a_machine_that_restarts_is_served_soon_however_often() {
    for parts in [1, 3] {
        for machine in [address(1), v6(1)] {
            let (mut star, mut place) = served_at(parts, machine);
            for restart in 0..5 {
                let begin = star.now;
                star.kill(place);
                // A NAT may give it another port.
                let port = machine.port() + restart as u16;
                place = star
                    .add(terminal(config(), 1, 2 + restart), SocketAddr::new(machine.ip(), port));
                star.run_for(Duration::from_secs(10));
                let ups = ups(&star, begin);
                println!("restart {restart}: {ups:?}");
                let limit = if restart == 0 { RESTARTED } else { RESTARTED_AGAIN };
                assert!(ups.len() == 1 && ups[0].0 <= limit, "restart {restart}: {ups:?}");
                assert_eq!(star.nodes[place].sessions(), 1, "one handshake was enough");
            }
            assert_eq!(notices(&mut star), []);
        }
    }
}

#[test]
fn a_machine_that_restarts_in_another_network_is_served_once_the_former_session_was_silent() {
    for (pause, limit) in [(0, 5400), (20, 5400)] {
        let mut star = served();
        // It is heard a moment before its end.
        let (now, session) = (star.now, star.nodes[1].session().unwrap());
        star.nodes[1].endpoint.ask(now, session).unwrap();
        star.serve(1);
        star.run_for(DELAY);
        let died = star.now;
        star.kill(1);
        star.run_for(Duration::from_secs(pause));
        let begin = star.now;
        let place = star.add(terminal(config(), 1, 2), elsewhere(3));
        star.run_for(Duration::from_secs(20));
        let ups = ups(&star, died);
        let limit = Duration::from_millis(limit);
        let took = ups[0].0 - begin.saturating_since(died);
        println!("after {pause} s: {took:?}");
        assert!(ups.len() == 1 && took <= limit, "{ups:?}");
        assert_eq!(star.nodes[place].sessions(), 1, "one handshake was enough");
    }
}
