//! Session set-up, datagram by datagram.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::BitRate;

mod rotation;
mod several_hubs;
mod siblings;

use super::*;
use crate::keys::handshake::knock::KnockKey;
use crate::keys::handshake::{InitiationMessage, Responder, UnsupportedParameter};
use crate::wire::packet::INITIATION_COOKIE;
use crate::{
    CloseReason, Destination, DownReason, EndpointFootprint, Host, HostName, Rate, ReadOutcome,
    ResetReason, StopAnnouncement, StreamId, StreamOpening,
};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 1))
}

const HUB: u8 = 1;
const TERMINAL: u8 = 2;

fn config() -> Config {
    Config::new(BitRate::from_mbit(100))
}

fn hub(config: Config) -> Endpoint {
    Endpoint::hub(config, key(HUB), vec![key(TERMINAL).public()], [9; 32])
}

fn terminal(life: u8) -> Endpoint {
    let hub = key(HUB).public();
    Endpoint::terminal(config(), key(TERMINAL), hub, vec![address(HUB)], [life; 32])
}

/// Takes everything an endpoint sends now.
fn drain(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let mut buf = Vec::new();
    endpoint.handle_timeout(now);
    while endpoint.poll_transmit(now, &mut buf).is_some() {
        datagrams.push(buf.clone());
    }
    datagrams
}

/// Carries what `from` sends now to `to`; returns the number of datagrams.
fn carry(from: &mut Endpoint, last: u8, to: &mut Endpoint, now: Instant) -> usize {
    let datagrams = drain(from, now);
    let count = datagrams.len();
    for mut datagram in datagrams {
        to.handle_datagram(now, address(last), &mut datagram);
    }
    count
}

fn is_up(endpoint: &mut Endpoint) -> bool {
    matches!(endpoint.poll_event(), Some((_, Event::Up { .. })))
}

fn connect(terminal: &mut Endpoint, hub: &mut Endpoint) {
    carry(terminal, TERMINAL, hub, at(0));
    carry(hub, HUB, terminal, at(1));
    carry(terminal, TERMINAL, hub, at(2));
    assert!(is_up(terminal) && is_up(hub));
}

#[test]
fn without_load_a_session_takes_one_round_trip() {
    connect(&mut terminal(5), &mut hub(config()));
}

#[test]
fn a_hub_that_wants_cookies_gets_them_and_the_terminal_is_up_a_round_trip_later() {
    let mut hub = hub(Config { handshakes_per_second: 0, ..config() });
    let mut terminal = terminal(5);
    let first = drain(&mut terminal, at(0)).remove(0);
    hub.handle_datagram(at(0), address(TERMINAL), &mut first.clone());
    assert_eq!(hub.footprint().handshakes, 0);
    carry(&mut hub, HUB, &mut terminal, at(1));
    let second = drain(&mut terminal, at(1)).remove(0);
    assert_ne!(second[INITIATION_COOKIE], [0; 16]);
    // The cookie is not valid for another address.
    hub.handle_datagram(at(1), address(66), &mut second.clone());
    let asked = drain(&mut hub, at(1)).remove(0);
    assert!(matches!(packet::parse(&asked), Some(Datagram::Cookie { .. })));
    hub.handle_datagram(at(2), address(TERMINAL), &mut second.clone());
    carry(&mut hub, HUB, &mut terminal, at(3));
    assert!(is_up(&mut terminal));
    carry(&mut terminal, TERMINAL, &mut hub, at(4));
    assert!(is_up(&mut hub));
}

#[test]
fn a_cookie_from_anybody_else_is_ignored() {
    let mut terminal = terminal(5);
    let first = drain(&mut terminal, at(0)).remove(0);
    let Some(Datagram::Initiation { sender }) = packet::parse(&first) else { panic!() };
    let right = KnockKey::new(key(HUB).public());
    let knock = right.check(&first).unwrap();
    for mut forged in [
        right.cookie_request(sender, &[7; 16], &[0; 16]),
        right.cookie_request(sender.wrapping_add(1), &[7; 16], &knock),
        KnockKey::new(key(66).public()).cookie_request(sender, &[7; 16], &knock),
    ] {
        terminal.handle_datagram(at(1), address(HUB), &mut forged);
        assert!(drain(&mut terminal, at(1)).is_empty());
    }
    assert_eq!(terminal.ignored(), 3);
}

#[test]
fn an_old_initiation_does_not_push_out_a_fresh_one() {
    let mut hub = hub(config());
    let old: Vec<Vec<u8>> =
        (10..20).map(|life| drain(&mut terminal(life), at(0)).remove(0)).collect();
    let mut terminal = terminal(5);
    let replay = |hub: &mut Endpoint, now: Instant| {
        for from in [TERMINAL, 66] {
            for initiation in &old {
                hub.handle_datagram(now, address(from), &mut initiation.clone());
            }
        }
        let answers = drain(hub, now).into_iter().filter(|datagram| datagram[0] < 0x40);
        answers.for_each(|answer| assert!(answer.len() < old[0].len()));
    };
    replay(&mut hub, at(0));
    carry(&mut terminal, TERMINAL, &mut hub, at(1));
    carry(&mut hub, HUB, &mut terminal, at(2));
    replay(&mut hub, at(3));
    carry(&mut terminal, TERMINAL, &mut hub, at(4));
    carry(&mut hub, HUB, &mut terminal, at(5));
    replay(&mut hub, at(6));
    carry(&mut terminal, TERMINAL, &mut hub, at(7));
    assert!(is_up(&mut terminal) && is_up(&mut hub));
    replay(&mut hub, at(8));
    assert_eq!(hub.poll_event(), None);
    assert_eq!(hub.footprint().sessions, 1);
}

#[test]
fn a_lost_answer_is_given_again_to_the_same_address_alone() {
    let mut hub = hub(config());
    let first = drain(&mut terminal(5), at(0)).remove(0);
    let ask = |hub: &mut Endpoint, now, from| {
        hub.handle_datagram(now, address(from), &mut first.clone());
        drain(hub, now).pop()
    };
    let answer = ask(&mut hub, at(0), TERMINAL);
    assert!(answer.is_some());
    assert_eq!(ask(&mut hub, at(199), TERMINAL), None);
    assert_eq!(ask(&mut hub, at(200), TERMINAL), answer);
    let other = ask(&mut hub, at(900), 66).unwrap();
    assert!(matches!(packet::parse(&other), Some(Datagram::Cookie { .. })));
}

#[test]
fn another_version_hears_which_one_is_spoken_here() {
    let (mut hub, mut terminal) = (hub(config()), terminal(5));
    let mut first = drain(&mut terminal, at(0)).remove(0);
    first[1] = 9;
    hub.handle_datagram(at(0), address(TERMINAL), &mut first.clone());
    assert_eq!(drain(&mut hub, at(0)).len(), 0, "the knock is wrong");
    first.truncate(first.len() - 16);
    KnockKey::new(key(HUB).public()).seal(&mut first);
    hub.handle_datagram(at(0), address(TERMINAL), &mut first.clone());
    let answer = drain(&mut hub, at(0)).remove(0);
    assert_eq!(packet::spoken(&answer), [packet::VERSION]);
    assert!(answer.len() <= first.len());
    assert_eq!(hub.footprint(), EndpointFootprint::default());
}

#[test]
fn a_hub_of_another_version_is_reported_once_and_asked_again() {
    let mut terminal = terminal(5);
    let knock_key = KnockKey::new(key(HUB).public());
    let mut seconds = Vec::new();
    for second in 0..20 {
        for first in drain(&mut terminal, at(second * 1000)) {
            seconds.push(second);
            let knock = knock_key.check(&first).unwrap();
            let answer = packet::versions([first[2], first[3]], &[1, 3]);
            let mut answer = knock_key.seal_answer(answer, Some(&knock));
            terminal.handle_datagram(at(second * 1000), address(HUB), &mut answer);
        }
    }
    let told = terminal.poll_notice().unwrap();
    assert_eq!(told, EndpointNotice::OtherVersion { ours: packet::VERSION, theirs: vec![1, 3] });
    assert_eq!(told.to_string(), "the hub speaks SLACP version 1, 3; this terminal speaks 2");
    assert_eq!(terminal.poll_notice(), None);
    assert!((4..7).contains(&seconds.len()), "{seconds:?}");
}

#[test]
fn a_mandatory_parameter_is_refused_by_name_and_leaves_nothing() {
    let mut hub = hub(config());
    let knock_key = KnockKey::new(key(HUB).public());
    let mut rng = ChaCha20Rng::from_seed([4; 32]);
    // Parameter 33, value 1.
    let message =
        InitiationMessage::new(&key(TERMINAL), &knock_key, 7, &[33, 1], &[0; 16], &mut rng);
    hub.handle_datagram(at(0), address(TERMINAL), &mut message.datagram.clone());
    let answer = drain(&mut hub, at(0)).remove(0);
    assert!(matches!(packet::parse(&answer), Some(Datagram::Response { receiver: 7, .. })));
    assert!(answer.len() <= message.datagram.len());
    assert_eq!(hub.footprint(), EndpointFootprint::default());
}

#[test]
fn a_link_that_the_hub_refuses_is_tried_again_after_a_pause() {
    let two = || Config { links: vec![Rate::Fixed(BitRate::from_mbit(100)); 2], ..config() };
    let hub_key = key(HUB).public();
    let mut terminal =
        Endpoint::terminal(two(), key(TERMINAL), hub_key, vec![address(HUB)], [5; 32]);
    let mut hub = hub(two());
    carry(&mut terminal, TERMINAL, &mut hub, at(0));
    carry(&mut hub, HUB, &mut terminal, at(1));
    // The session goes on over its first link.
    let mut initiation = |terminal: &mut Endpoint, now| {
        let mut found = None;
        for mut datagram in drain(terminal, now) {
            if let Some(Datagram::Initiation { sender }) = packet::parse(&datagram) {
                found = Some((sender, datagram));
            } else {
                hub.handle_datagram(now, address(TERMINAL), &mut datagram);
            }
        }
        carry(&mut hub, HUB, terminal, now);
        found
    };
    let (sender, datagram) = initiation(&mut terminal, at(2)).unwrap();
    let mut rng = ChaCha20Rng::from_seed([4; 32]);
    let responder = Responder::read(&key(HUB), &datagram, &mut rng).unwrap();
    let mut refusal = responder.refusal(sender, UnsupportedParameter { parameter: 33 });
    terminal.handle_datagram(at(600), address(HUB), &mut refusal);
    assert_eq!(terminal.poll_notice(), Some(EndpointNotice::Refused { parameter: 33 }));
    let again = (1..=100).find(|step| initiation(&mut terminal, at(600 + step * 100)).is_some());
    assert_eq!(again, Some(50));
}

#[test]
fn an_opening_carries_the_code_point_and_a_name_to_a_resolving_peer() {
    let resolving =
        Config { names: true, questions: true, exchanges: true, bundles: true, ..config() };
    let (mut terminal, mut hub) = (terminal(5), hub(resolving));
    connect(&mut terminal, &mut hub);
    let ids = [&terminal, &hub].map(session);
    assert!(terminal.peer_resolves(ids[0]) && !hub.peer_resolves(ids[1]));
    assert!(terminal.peer_answers(ids[0]) && !hub.peer_answers(ids[1]));
    assert!(terminal.peer_takes_bundles(ids[0]) && !hub.peer_takes_bundles(ids[1]));
    let name = HostName::new("server.example").unwrap();
    let name = Destination::Name(name, 443);
    assert!(terminal.peer_exchanges(ids[0]) && !hub.peer_exchanges(ids[1]));
    let exchange = Destination::Exchange(Host::Address(address(7)));
    for destination in
        [name, address(9).into(), Destination::Resolver, exchange, Destination::Bundles]
    {
        let open = StreamOpening { destination, source: address(8), dscp: Some(46) };
        terminal.open(at(100), ids[0], open.clone()).unwrap();
        carry(&mut terminal, TERMINAL, &mut hub, at(100));
        let Some((_, Event::Opened { open: told, .. })) = hub.poll_event() else { panic!() };
        assert_eq!(told, open);
    }
}

/// A hub's answer to a packet of a session that it does not know.
fn hint(terminal: &mut Endpoint, now: Instant) -> (Endpoint, Vec<u8>, usize) {
    let id = session(terminal);
    let open = StreamOpening { destination: address(9), source: address(8), dscp: None };
    terminal.open(now, id, open).unwrap();
    let mut packet = drain(terminal, now).remove(0);
    let mut restarted = hub(config());
    restarted.handle_datagram(now, address(TERMINAL), &mut packet);
    let hint = drain(&mut restarted, now).remove(0);
    (restarted, hint, packet.len())
}

#[test]
fn a_restarted_hub_says_so_and_gets_a_handshake_at_once() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let (mut restarted, mut hint, size) = hint(&mut terminal, at(100));
    assert!(hint.len() <= size);
    assert_eq!(restarted.footprint(), EndpointFootprint::default());
    terminal.handle_datagram(at(100), address(HUB), &mut hint);
    carry(&mut terminal, TERMINAL, &mut restarted, at(100));
    carry(&mut restarted, HUB, &mut terminal, at(101));
    carry(&mut terminal, TERMINAL, &mut restarted, at(102));
    assert!(is_up(&mut restarted));
    let events: Vec<Event> = core::iter::from_fn(|| terminal.poll_event()).map(|e| e.1).collect();
    assert!(
        matches!(events[..], [Event::Down(DownReason::Replaced), Event::Up { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_hub_that_comes_back_is_asked_at_once_however_long_it_was_away() {
    for away_ms in (20_000..40_000).step_by(700) {
        let (mut terminal, mut first) = (terminal(5), hub(config()));
        connect(&mut terminal, &mut first);
        drop(first);
        for ms in (10..away_ms).step_by(10) {
            drain(&mut terminal, at(ms));
        }
        let mut restarted = hub(config());
        let mut ms = away_ms;
        while !is_up(&mut restarted) {
            carry(&mut terminal, TERMINAL, &mut restarted, at(ms));
            carry(&mut restarted, HUB, &mut terminal, at(ms));
            ms += 10;
        }
        // By then probes are 2 s apart.
        assert!(ms - away_ms <= 2050, "away for {away_ms} ms: back after {} ms", ms - away_ms);
    }
}

#[test]
fn a_false_hint_costs_a_handshake_and_never_the_session() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let (_, hint, _) = hint(&mut terminal, at(100));
    let mut handshakes = 0;
    for ms in (100..10_100).step_by(10) {
        terminal.handle_datagram(at(ms), address(66), &mut hint.clone());
        handshakes += usize::from(terminal.footprint().handshakes > 0);
        carry(&mut terminal, TERMINAL, &mut hub, at(ms));
        carry(&mut hub, HUB, &mut terminal, at(ms + 1));
    }
    assert!((1..=3).contains(&handshakes), "{handshakes}");
    assert_eq!(terminal.poll_event(), None);
    assert!(matches!(hub.poll_event(), Some((_, Event::Opened { .. }))));
    assert_eq!(hub.poll_event(), None);
}

#[test]
fn a_hint_for_another_session_or_key_is_ignored() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let (_, hint, _) = hint(&mut terminal, at(100));
    let ignored = terminal.ignored();
    for place in 1..hint.len() {
        let mut forged = hint.clone();
        forged[place] ^= 0x10;
        terminal.handle_datagram(at(100), address(HUB), &mut forged);
    }
    assert_eq!(terminal.ignored() - ignored, hint.len() as u64 - 1);
    assert_eq!(terminal.footprint().handshakes, 0);
}

/// The only session of an endpoint.
fn session(endpoint: &Endpoint) -> SessionId {
    endpoint.core.sessions.iter().next().unwrap().0
}

/// A stream of the terminal that received `bytes` from the hub before the hub reset it.
fn reset_after(bytes: usize) -> (Endpoint, SessionId, StreamId) {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let (down, up) = (session(&terminal), session(&hub));
    let open = StreamOpening { destination: address(9), source: address(8), dscp: None };
    let stream = terminal.open(at(10), down, open).unwrap();
    carry(&mut terminal, TERMINAL, &mut hub, at(10));
    assert_eq!(hub.write(up, stream, &vec![7; bytes]), Ok(bytes));
    for ms in 11..20 {
        carry(&mut hub, HUB, &mut terminal, at(ms));
    }
    hub.reset(up, stream, ResetReason::TimedOut).unwrap();
    carry(&mut hub, HUB, &mut terminal, at(20));
    while let Some((_, event)) = terminal.poll_event() {
        assert!(bytes == 0 || !matches!(event, Event::Reset { .. }), "too early");
    }
    (terminal, down, stream)
}

#[test]
fn what_came_before_a_reset_is_read_first() {
    let (mut terminal, session, stream) = reset_after(20_000);
    let mut read = 0;
    while read < 20_000 {
        assert_eq!(terminal.poll_event(), None);
        let Ok(ReadOutcome::Data(count)) = terminal.read(session, stream, &mut [0; 4096]) else {
            panic!()
        };
        read += count;
    }
    let reset = Event::Reset { stream, reason: ResetReason::TimedOut };
    assert_eq!(terminal.poll_event(), Some((session, reset)));
    let stats = terminal.stats(session).unwrap();
    assert_eq!((stats.streams, stats.held_to_read.get()), (0, 0));
}

#[test]
fn a_reset_does_not_wait_for_ever_for_a_reader() {
    let (mut terminal, session, stream) = reset_after(20_000);
    terminal.handle_timeout(at(30_019));
    assert_eq!(terminal.poll_event().map(|event| event.1), Some(Event::Unreachable));
    assert_eq!(terminal.poll_event(), None);
    terminal.handle_timeout(at(30_020));
    let reset = Event::Reset { stream, reason: ResetReason::TimedOut };
    assert_eq!(terminal.poll_event(), Some((session, reset)));
    assert_eq!(terminal.stats(session).unwrap().held_to_read.get(), 0);
}

#[test]
fn a_reader_may_give_up_what_came_before_a_reset() {
    let (mut terminal, session, stream) = reset_after(20_000);
    terminal.reset(session, stream, ResetReason::Reset).unwrap();
    assert_eq!(terminal.poll_event(), None);
    assert_eq!(terminal.stats(session).unwrap().held_to_read.get(), 0);
    assert_eq!(terminal.stats(session).unwrap().streams, 0);
}

#[test]
fn a_closed_session_is_over_on_both_sides_and_another_follows() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let (down, up) = (session(&terminal), session(&hub));
    hub.close(at(10), up, CloseReason::Prohibited).unwrap();
    let closed = Event::Down(DownReason::Closed(CloseReason::Prohibited));
    assert_eq!(hub.poll_event(), Some((up, closed)));
    assert_eq!(hub.finish(up, StreamId(0)), Err(StreamError::NoSession));
    carry(&mut hub, HUB, &mut terminal, at(10));
    let closed = Event::Down(DownReason::ClosedByPeer(CloseReason::Prohibited));
    assert_eq!(terminal.poll_event(), Some((down, closed)));
    carry(&mut terminal, TERMINAL, &mut hub, at(11));
    carry(&mut hub, HUB, &mut terminal, at(12));
    carry(&mut terminal, TERMINAL, &mut hub, at(13));
    assert!(is_up(&mut terminal) && is_up(&mut hub));
    drain(&mut hub, at(20_000));
    assert_eq!(hub.footprint().sessions, 1);
}

#[test]
fn a_terminal_that_is_not_allowed_any_more_is_sent_away_until_it_is() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let (key, up) = (terminal.core.identity.public(), session(&hub));
    hub.set_allowed(at(10), vec![key, PublicKey([9; 32])]);
    assert_eq!(hub.poll_event(), None);
    hub.set_allowed(at(10), vec![PublicKey([9; 32])]);
    let closed = Event::Down(DownReason::Closed(CloseReason::Prohibited));
    assert_eq!(hub.poll_event(), Some((up, closed)));
    carry(&mut hub, HUB, &mut terminal, at(10));
    assert!(terminal.poll_event().is_some_and(|event| matches!(event.1, Event::Down(_))));
    carry(&mut terminal, TERMINAL, &mut hub, at(11));
    carry(&mut hub, HUB, &mut terminal, at(12));
    assert!(!is_up(&mut terminal) && !is_up(&mut hub));
    hub.set_allowed(at(13), vec![key]);
    for second in 1..10 {
        terminal.handle_timeout(at(second * 5000));
        carry(&mut terminal, TERMINAL, &mut hub, at(second * 5000));
        carry(&mut hub, HUB, &mut terminal, at(second * 5000 + 1));
        carry(&mut terminal, TERMINAL, &mut hub, at(second * 5000 + 2));
    }
    assert!(is_up(&mut terminal) && is_up(&mut hub));
}

#[test]
fn a_configured_rate_changes_at_once_and_its_source_with_the_next_session() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let up = session(&hub);
    let rate = |hub: &Endpoint| hub.stats(up).unwrap().rate;
    assert!(hub.configure_rate(at(10), Rate::Fixed(BitRate::from_mbit(7))));
    assert_eq!(rate(&hub), BitRate::from_mbit(7));
    assert!(!hub.configure_rate(at(10), Rate::Modem { initial: BitRate::from_mbit(9) }));
    assert_eq!(rate(&hub), BitRate::from_mbit(7));
    assert_eq!(hub.core.config.rate, Rate::Modem { initial: BitRate::from_mbit(9) });
}

#[test]
fn sessions_keep_how_they_measure() {
    let measured = |rate: fn(Option<BitRate>, bool) -> Rate| {
        let [none, some] = [None, Some(BitRate::from_mbit(9))];
        let (mut terminal, mut hub) =
            (terminal(5), hub(Config { rate: rate(none, true), ..config() }));
        connect(&mut terminal, &mut hub);
        assert!(hub.configure_rate(at(10), rate(none, true)), "nothing changes");
        assert!(!hub.configure_rate(at(10), rate(some, true)));
        assert!(!hub.configure_rate(at(10), rate(none, false)));
        assert!(!hub.configure_rate(at(10), BitRate::from_mbit(9).into()));
    };
    measured(|ceiling, probe| Rate::Auto { ceiling, probe });
    measured(|ceiling, probe| Rate::ModemOrAuto { ceiling, probe });
}

#[test]
fn a_peer_that_breaks_the_protocol_hears_why() {
    let (mut terminal, mut hub) = (terminal(5), hub(config()));
    connect(&mut terminal, &mut hub);
    let id = session(&terminal);
    let frame = crate::wire::frame::Frame::Accept(StreamId(1));
    let broken = crate::wire::frame::Frame::Rekey { generation: 9, key: [9; 32] };
    for frame in [frame, broken] {
        terminal.core.with(id, |session| session.shared.streams.send_control(frame)).unwrap();
    }
    carry(&mut terminal, TERMINAL, &mut hub, at(10));
    let down: Vec<_> = core::iter::from_fn(|| hub.poll_event()).map(|event| event.1).collect();
    assert_eq!(down, [Event::Down(DownReason::Violation)]);
    carry(&mut hub, HUB, &mut terminal, at(11));
    let closed = Event::Down(DownReason::ClosedByPeer(CloseReason::Violation));
    assert_eq!(terminal.poll_event().map(|event| event.1), Some(closed));
}
