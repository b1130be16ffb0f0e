//! A hub that is replaced by another process at its address.

use super::*;
use crate::{IndexShare, SiblingProcess, TerminalContact};

fn half(second: bool) -> Endpoint {
    hub(Config { index_share: IndexShare::WHOLE.half(second), ..config() })
}

fn sibling_of(before: &Endpoint) -> SiblingProcess {
    let sessions = before.names().into_iter().collect();
    let (indices, tokens) = (IndexShare::WHOLE.half(false), before.succession_tokens());
    SiblingProcess { indices, sessions, tokens }
}

/// Everything that the terminal sends in a while, none of which arrives.
fn lost(terminal: &mut Endpoint, from: &mut u64, ms: u64) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for _ in 0..ms / 10 {
        *from += 10;
        sent.extend(drain(terminal, at(*from)));
    }
    sent
}

#[test]
fn what_belongs_to_the_process_before_is_left_to_it() {
    let (mut before, mut after, mut terminal) = (half(false), half(true), terminal(5));
    connect(&mut terminal, &mut before);
    after.set_sibling(at(10), Some(sibling_of(&before)));

    // The terminal's packets get no answer there, neither a hint.
    let mut now = 10;
    let sent = lost(&mut terminal, &mut now, 20_000);
    let data = |it: &&Vec<u8>| matches!(packet::parse(it), Some(Datagram::Data(_)));
    assert!(sent.iter().filter(data).count() > 0);
    for packet in sent.iter().filter(data) {
        after.handle_datagram(at(now), address(TERMINAL), &mut packet.clone());
    }
    assert_eq!(drain(&mut after, at(now)), [] as [Vec<u8>; 0]);

    // It asks, hears that its session is there, and keeps it.
    let event = |terminal: &mut Endpoint| terminal.poll_event().map(|(_, event)| event);
    assert_eq!(event(&mut terminal), Some(Event::Unreachable));
    for _ in 0..3_000 {
        now += 10;
        carry(&mut terminal, TERMINAL, &mut after, at(now));
        carry(&mut after, HUB, &mut terminal, at(now));
    }
    assert_eq!((event(&mut terminal), after.footprint().sessions), (None, 0));
    for _ in 0..500 {
        now += 10;
        carry(&mut terminal, TERMINAL, &mut before, at(now));
        carry(&mut before, HUB, &mut terminal, at(now));
    }
    assert_eq!(event(&mut terminal), Some(Event::Reachable));

    // The process before has ended without a word.
    after.set_sibling(at(now), None);
    for _ in 0..6_000 {
        now += 10;
        carry(&mut terminal, TERMINAL, &mut after, at(now));
        carry(&mut after, HUB, &mut terminal, at(now));
    }
    let events: Vec<Event> = core::iter::from_fn(|| event(&mut terminal)).collect();
    assert!(matches!(events.last(), Some(Event::Up { .. })), "{events:?}");
    assert_eq!(after.footprint().sessions, 1);
}

fn only(endpoint: &Endpoint) -> SessionId {
    let mut all = endpoint.core.sessions.iter();
    all.next().map(|(id, _)| id).filter(|_| all.next().is_none()).expect("one session")
}

fn request() -> StreamOpening {
    StreamOpening { destination: address(9), source: address(8), dscp: None }
}

/// Carries everything for a while. Like the kernel it sorts the terminal's packets by their first bytes.
fn carry_all(terminal: &mut Endpoint, mut hubs: [&mut Endpoint; 2], now: &mut u64) {
    for _ in 0..50 {
        *now += 10;
        carry_once(terminal, hubs.each_mut().map(|hub| &mut **hub), *now);
    }
}

fn carry_once(terminal: &mut Endpoint, hubs: [&mut Endpoint; 2], now: u64) {
    let first = IndexShare::WHOLE.half(false);
    for mut datagram in drain(terminal, at(now)) {
        let of_first = matches!(packet::parse(&datagram), Some(Datagram::Data(header)) if first.contains(header.receiver));
        hubs[usize::from(!of_first)].handle_datagram(at(now), address(TERMINAL), &mut datagram);
    }
    for hub in hubs {
        carry(hub, HUB, terminal, at(now));
    }
}

#[test]
fn a_terminal_comes_to_the_next_process_at_once_and_keeps_what_it_has() {
    let (mut before, mut after, mut terminal) = (half(false), half(true), terminal(5));
    connect(&mut terminal, &mut before);
    let old = only(&terminal);
    let stream = terminal.open(at(90), old, request()).unwrap();
    after.set_sibling(at(90), Some(sibling_of(&before)));
    let mut now = 100;
    carry_all(&mut terminal, [&mut before, &mut after], &mut now);

    for _ in 0..2 {
        before.announce(at(now), StopAnnouncement::Successor);
    }
    carry_all(&mut terminal, [&mut before, &mut after], &mut now);
    let events: Vec<_> = core::iter::from_fn(|| terminal.poll_event()).collect();
    assert!(events.len() == 2 && events.contains(&(old, Event::Succeeded)), "{events:?}");
    let up = |(id, event): &_| matches!(event, Event::Up { .. }).then_some(*id);
    let new = events.iter().find_map(up).expect("a second session");
    assert_eq!((before.footprint().sessions, after.footprint().sessions), (1, 1));

    // Both sessions carry data.
    for (session, hub) in [(old, &mut before), (new, &mut after)] {
        assert!(is_up(hub) || session == old);
    }
    let other = terminal.open(at(now), new, request()).unwrap();
    terminal.write(old, stream, b"to the old one").unwrap();
    terminal.write(new, other, b"to the new one").unwrap();
    carry_all(&mut terminal, [&mut before, &mut after], &mut now);
    for hub in [&mut before, &mut after] {
        let events: Vec<_> = core::iter::from_fn(|| hub.poll_event()).collect();
        assert!(events.iter().any(|(_, it)| matches!(it, Event::Readable(_))), "{events:?}");
    }

    // The old session ends, and the terminal does not mourn it.
    terminal.close(at(now), old, CloseReason::Shutdown).unwrap();
    carry_all(&mut terminal, [&mut before, &mut after], &mut now);
    assert_eq!((before.footprint().sessions, terminal.footprint().sessions), (0, 1));
    assert_eq!(terminal.footprint().handshakes, 0);
}

#[test]
fn a_peer_that_knows_no_successors_hears_that_the_hub_leaves() {
    let (mut before, mut terminal) = (half(false), terminal(5));
    connect(&mut terminal, &mut before);
    let session = only(&before);
    before.core.with(session, |session| session.peer.successor = false);
    before.announce(at(50), StopAnnouncement::Successor);
    carry(&mut before, HUB, &mut terminal, at(60));
    assert!(matches!(terminal.poll_event(), Some((_, Event::Leaving))));
    assert_eq!(drain(&mut terminal, at(90)).iter().filter(|it| it[0] < 0x40).count(), 0);
}

#[test]
fn a_process_that_is_called_away_calls_its_terminals() {
    let (mut before, mut after, mut terminal) = (half(false), half(true), terminal(5));
    connect(&mut terminal, &mut before);
    drain(&mut terminal, at(100));
    let contact = before.contacts()[0];
    // What does not belong to the terminal's session means nothing to it.
    let initiates = |it: &Vec<u8>| matches!(packet::parse(it), Some(Datagram::Initiation { .. }));
    for (contact, believed) in [
        (TerminalContact { index: contact.index ^ 1, ..contact }, false),
        (TerminalContact { number: contact.number + (1 << 20), ..contact }, false),
        (contact, true),
    ] {
        after.call(vec![contact]);
        assert_eq!(carry(&mut after, HUB, &mut terminal, at(200)), 1);
        let said = drain(&mut terminal, at(200));
        assert_eq!(said.iter().any(initiates), believed, "{contact:?}");
        // A packet of the session would get a true answer.
        for mut datagram in said.into_iter().filter(|it| initiates(it)) {
            after.handle_datagram(at(200), address(TERMINAL), &mut datagram);
        }
    }
    carry(&mut after, HUB, &mut terminal, at(300));
    assert!(matches!(terminal.poll_event(), Some((_, Event::Down(DownReason::Replaced)))));
    assert!(is_up(&mut terminal));
}

/// A thousand a second, also after a pause, and no more than there are.
#[test]
fn calls_are_spread() {
    let mut hub = hub(config());
    let contact = |index| TerminalContact { address: address(7), index, number: 3 };
    hub.call((1..=500).map(contact).collect());
    let mut count = |ms| drain(&mut hub, at(ms)).len();
    assert_eq!([count(0), count(100), count(110)], [51, 51, 10]);
    assert_eq!((0..10).map(|i| count(1_000 + i * 50)).sum::<usize>(), 500 - 51 - 51 - 10);
}

/// A hub that has taken another one's place, and a terminal that has its session there.
fn succeeded() -> (Endpoint, Endpoint, Endpoint) {
    let (mut before, mut after, mut terminal) = (half(false), half(true), terminal(5));
    connect(&mut terminal, &mut before);
    after.set_sibling(at(90), Some(sibling_of(&before)));
    (before, after, terminal)
}

/// Lets a second machine with the terminal's key ask the hub for a session, and use one that it gets.
fn ask_as_thief(thief: &mut Endpoint, hub: &mut Endpoint, now: &mut u64) {
    for _ in 0..20 {
        *now += 10;
        carry(thief, THIEF, hub, at(*now));
        carry(hub, HUB, thief, at(*now));
    }
}

const THIEF: u8 = 66;

fn is_new(endpoint: &Endpoint, old: SessionId) -> bool {
    endpoint.core.sessions.iter().all(|(id, _)| id != old)
}

#[test]
fn a_thief_of_the_key_is_not_taken_for_the_machine_that_comes_over() {
    let (mut before, mut after, mut honest) = succeeded();
    let (mut thief, mut now) = (terminal(66), 100);
    ask_as_thief(&mut thief, &mut after, &mut now);
    assert_eq!((is_up(&mut thief), after.footprint().sessions), (false, 0));

    before.announce(at(now), StopAnnouncement::Successor);
    for _ in 0..2_000 {
        now += 10;
        carry(&mut thief, THIEF, &mut after, at(now));
        // What the hub sends to either reaches both: each ignores what is the other's.
        for mut datagram in drain(&mut after, at(now)) {
            thief.handle_datagram(at(now), address(HUB), &mut datagram.clone());
            honest.handle_datagram(at(now), address(HUB), &mut datagram);
        }
        carry_once(&mut honest, [&mut before, &mut after], now);
    }
    assert!(after.core.notices.iter().any(|it| matches!(it, EndpointNotice::SharedKey { .. })));
    let events: Vec<_> = core::iter::from_fn(|| honest.poll_event()).map(|(_, it)| it).collect();
    assert!(events.len() == 2 && events.contains(&Event::Succeeded), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::Up { .. })), "{events:?}");
    assert!(after.core.sessions.iter().all(|(_, it)| it.address() == address(TERMINAL)));
    assert_eq!(after.footprint().sessions, 1);
}

/// It may have learnt the name of the session, which whoever has seen the handshake can compute.
#[test]
fn a_thief_who_names_the_session_with_the_process_before_is_not_served_either() {
    let (mut before, mut after, mut honest) = succeeded();
    let mut thief = terminal(66);
    connect(&mut thief, &mut half(false));
    let (stolen, name) = (only(&thief), before.names()[0]);
    thief.core.with(stolen, |session| session.name = name);
    let mut now = 100;
    lost(&mut thief, &mut now, 12_000);
    after.set_sibling(at(now), Some(sibling_of(&before)));
    // It uses what it gets, although the answer says that the session is still there.
    thief.core.with(stolen, |session| session.name = 7);
    for _ in 0..30 {
        ask_as_thief(&mut thief, &mut after, &mut now);
    }
    assert!(is_new(&thief, stolen), "it was answered");
    assert_eq!(after.footprint().sessions, 0);

    before.announce(at(now), StopAnnouncement::Successor);
    carry_all(&mut honest, [&mut before, &mut after], &mut now);
    carry_all(&mut honest, [&mut before, &mut after], &mut now);
    assert!(after.core.sessions.iter().all(|(_, it)| it.address() == address(TERMINAL)));
    assert_eq!(after.footprint().sessions, 1);
}

/// It may have restarted, or be too old to know of tokens.
#[test]
fn a_machine_without_a_token_is_served_after_fifteen_seconds() {
    let (_, mut after, _) = succeeded();
    let (mut again, mut now) = (terminal(6), 100);
    for (until, expected) in [(15_000, 0), (21_000, 1)] {
        while now < until {
            ask_as_thief(&mut again, &mut after, &mut now);
        }
        assert_eq!(after.footprint().sessions, expected);
    }
}
