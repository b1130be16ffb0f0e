//! A hub in several parts behaves like one: sessions come up, are replaced and end as ever, wherever
//! their terminals belong.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::net::SocketAddr;

use crate::star::{Star, config, hub_address, public, terminal};
use slacp::{
    CloseReason, DownReason, Endpoint, EndpointNotice, Event, HandshakeEffort, SessionId, part_of,
};
use units::Machine;

const DELAY: Duration = Duration::from_millis(300);
const PARTS: u8 = 3;

fn address(n: u32) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 7], 1024 + n as u16))
}

fn crowd(terminals: u32, handshakes_per_second: u32) -> Star {
    let mut config = config();
    config.handshakes_per_second = handshakes_per_second;
    let mut star = Star::divided(&config, terminals, DELAY, PARTS);
    for n in 1..=terminals {
        star.add(terminal(config.clone(), n, 1), address(n));
    }
    star
}

/// The node of terminal number `n`.
fn node(n: u32) -> usize {
    usize::from(PARTS) - 1 + n as usize
}

/// The events of all parts.
fn events(star: &Star) -> impl Iterator<Item = (SessionId, &Event)> {
    let parts = &star.nodes[..usize::from(PARTS)];
    parts.iter().flat_map(|part| part.events.iter().map(|(_, id, event)| (*id, event)))
}

fn efforts(star: &Star) -> Vec<HandshakeEffort> {
    star.nodes[..usize::from(PARTS)].iter().map(|part| part.endpoint.effort()).collect()
}

#[test]
fn every_part_serves_its_terminals_with_and_without_cookies() {
    for handshakes_per_second in [1000, 0] {
        let mut star = crowd(60, handshakes_per_second);
        star.run_for(Duration::from_secs(3));
        let each = star.nodes[..usize::from(PARTS)].iter().map(|part| part.sessions());
        assert_eq!(each.collect::<Vec<_>>(), [20; 3], "{handshakes_per_second}");
        let mut sessions: Vec<SessionId> = events(&star).map(|(id, _)| id).collect();
        for (part, node) in (0..PARTS).zip(&star.nodes) {
            assert!(node.events.iter().all(|(_, id, _)| id.part(PARTS) == part));
        }
        sessions.sort_unstable();
        sessions.dedup();
        assert_eq!(sessions.len(), 60, "no two sessions have one name");
    }
}

#[test]
fn a_terminal_that_restarts_replaces_its_session_wherever_that_is() {
    let mut star = crowd(6, 1000);
    star.run_for(Duration::from_secs(3));
    for n in 1..=6 {
        star.replace(node(n), terminal(config(), n, 2));
    }
    star.run_for(Duration::from_secs(3));
    let replaced = events(&star)
        .filter(|(_, event)| matches!(event, Event::Down(DownReason::Replaced)))
        .count();
    let up = events(&star).filter(|(_, event)| matches!(event, Event::Up { .. })).count();
    assert_eq!((replaced, up), (6, 12));
    assert!((1..=6).all(|n| star.nodes[node(n)].session().is_some()));
}

#[test]
fn a_repeated_initiation_gets_the_same_answer_and_is_not_read_again() {
    for n in 1..=3 {
        let mut star = Star::divided(&config(), 3, DELAY, PARTS);
        let mut first = Vec::new();
        let mut terminal = terminal(config(), n, 1);
        terminal.handle_timeout(star.now);
        terminal.poll_transmit(star.now, &mut first).unwrap();
        let place = star.add(terminal, address(n));
        star.send(address(n), hub_address(), first.clone());
        star.run_for(DELAY);
        let read = efforts(&star).iter().map(|effort| effort.handshakes).sum::<u64>();
        // Until the terminal's first packet is there.
        for _ in 0..25 {
            star.send(address(n), hub_address(), first.clone());
            star.run_for(Duration::from_millis(10));
        }
        star.run_for(DELAY - Duration::from_millis(10));
        let again = efforts(&star).iter().map(|effort| effort.handshakes).sum::<u64>();
        assert!(read > 0 && read == again, "terminal {n}: {read}, {again}");
        star.run_for(DELAY);
        assert!(star.nodes[place].session().is_some());
        // Now the session is in use, and the message is only a replay.
        for _ in 0..100 {
            star.send(address(n), hub_address(), first.clone());
        }
        star.run_for(DELAY * 2);
        let replayed = efforts(&star).iter().map(|effort| effort.handshakes).sum::<u64>();
        assert!(replayed <= again + 100, "never more than the first part lets pass: {replayed}");
        assert!(star.nodes[place].session().is_some());
    }
}

#[test]
fn a_terminal_that_is_no_longer_served_is_told_by_its_part() {
    let mut star = crowd(6, 1000);
    star.run_for(Duration::from_secs(3));
    permit_only(&mut star, 4..=6);
    star.run_for(Duration::from_secs(1));
    for n in 1..=6 {
        let prohibited = star.nodes[node(n)].events.iter().any(|(.., event)| {
            matches!(event, Event::Down(DownReason::ClosedByPeer(CloseReason::Prohibited)))
        });
        assert_eq!(prohibited, n <= 3, "terminal {n}: {:?}", star.nodes[node(n)].events);
    }
}

#[test]
fn a_terminal_that_is_not_permitted_is_reported_once_wherever_it_belonged() {
    let mut star = crowd(6, 1000);
    star.run_for(Duration::from_secs(3));
    permit_only(&mut star, 4..=6);
    for n in 1..=3 {
        star.replace(node(n), terminal(config(), n, 2));
    }
    star.add(terminal(config(), 7, 1), address(7));
    star.run_for(Duration::from_secs(3));
    let now = star.now;
    let first = &mut star.nodes[0].endpoint;
    let notices = core::iter::from_fn(|| first.poll_notice());
    let mut told: Vec<_> = notices
        .filter_map(|notice| match notice {
            EndpointNotice::Stranger { key, .. } => key,
            _ => None,
        })
        .collect();
    let mut expected = [1, 2, 3, 7].map(public);
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
    let each = star.nodes[..usize::from(PARTS)].iter().map(|it| it.endpoint.strangers(now).len());
    assert_eq!(each.collect::<Vec<_>>(), [4, 0, 0]);
}

/// Withdraws the permits of all other terminals.
fn permit_only(star: &mut Star, terminals: RangeInclusive<u32>) {
    (0..PARTS).for_each(|part| permit_only_in(star, part, terminals.clone()));
}

fn permit_only_in(star: &mut Star, part: u8, terminals: RangeInclusive<u32>) {
    let (now, part) = (star.now, usize::from(part));
    star.nodes[part].endpoint.set_allowed(now, terminals.map(public).collect());
    star.serve(part);
}

/// The parts get a new permit one after the other.
#[test]
fn a_terminal_whose_part_permits_it_after_its_initiation_is_served_by_the_next_repeat() {
    let mut star = Star::divided(&config(), 0, DELAY, PARTS);
    permit_only_in(&mut star, 0, 1..=3);
    let begin = star.now;
    for n in 1..=3 {
        star.add(terminal(config(), n, 1), address(n));
    }
    // The first message and a repeat are there.
    star.run_for(Duration::from_secs(2));
    let first: Vec<bool> = (1..=3).map(|n| star.nodes[node(n)].up().is_some()).collect();
    assert_eq!(first.iter().filter(|is_up| **is_up).count(), 1, "that of the first part");
    permit_only(&mut star, 1..=3);
    star.run_for(Duration::from_secs(30));
    for n in 1..=3 {
        // The next repeat leaves 3 to 3.75 s after the first message.
        let up = star.nodes[node(n)].up().unwrap();
        assert!(up <= begin + Duration::from_millis(3750) + DELAY * 2, "terminal {n}: {up}");
    }
}

#[test]
fn datagrams_that_belong_to_nobody_go_to_the_first_part_and_cost_no_other() {
    let mut star = crowd(3, 1000);
    star.run_for(Duration::from_secs(3));
    let before = efforts(&star);
    for (n, garbage) in [&[][..], &[0x01], &[0xff; 40], &[0x02, 9, 9]].into_iter().enumerate() {
        assert_eq!(part_of(garbage, PARTS), 0);
        star.send(address(100 + n as u32), hub_address(), garbage.to_vec());
    }
    star.run_for(DELAY * 2);
    assert_eq!(efforts(&star)[1..], before[1..]);
}

#[test]
fn a_hub_that_is_not_divided_is_the_one_that_it_was() {
    let keys = [public(1)];
    let identity = crate::star::key(0);
    for parts in [0, 1] {
        let parts = Endpoint::hub_in_parts(&config(), &identity, &keys, [9; 32], parts);
        assert_eq!(parts.len(), 1);
    }
}
