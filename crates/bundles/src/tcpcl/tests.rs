use core::time::Duration;

use pep::work::cost;
use proptest::prelude::*;
use units::{Instant, Machine};

use super::*;

const LARGEST: u64 = 300_000;

fn session(role: ConnectionRole, node: &str) -> TcpclConnection {
    session_with(role, node, false)
}

fn session_with(role: ConnectionRole, node: &str, tls: bool) -> TcpclConnection {
    let config = SessionConfig { node: node.parse().unwrap(), largest: LARGEST, tls };
    TcpclConnection::new(Instant::ZERO, role, config)
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Two sessions that talk in pieces of this size.
struct Talk {
    sides: [TcpclConnection; 2],
    size: usize,
    events: [Vec<SessionEvent>; 2],
    now: Instant,
}

impl Talk {
    fn new(size: usize) -> Self {
        let sides = [
            session(ConnectionRole::Active, "ipn:1.0"),
            session(ConnectionRole::Passive, "dtn://ship/"),
        ];
        Self { sides, size, events: Default::default(), now: Instant::ZERO }
    }

    /// Carries what there is to say, until there is nothing.
    fn carry(&mut self) {
        loop {
            let mut idle = true;
            for side in 0..2 {
                let said = self.sides[side].take_output();
                idle &= said.is_empty();
                for piece in said.chunks(self.size) {
                    self.sides[1 - side].handle_bytes(self.now, piece);
                    self.drain(1 - side);
                }
                self.drain(side);
            }
            if idle {
                return;
            }
        }
    }

    fn drain(&mut self, side: usize) {
        while let Some(event) = self.sides[side].poll_event() {
            if let SessionEvent::Peer(_) = event {
                self.sides[side].accept(self.now);
            }
            self.events[side].push(event);
        }
    }

    fn take(&mut self, side: usize) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events[side])
    }

    fn open(size: usize) -> Self {
        let mut talk = Self::new(size);
        talk.carry();
        let node = |text: &str| vec![SessionEvent::Peer(Some(text.parse().unwrap()))];
        assert_eq!(talk.take(0), node("dtn://ship/"));
        assert_eq!(talk.take(1), node("ipn:1.0"));
        assert!(talk.sides.iter().all(TcpclConnection::is_open));
        talk
    }

    /// Sends a bundle as far as the peer lets it.
    fn send(&mut self, side: usize, bundle: &[u8]) {
        assert!(self.sides[side].send(bundle.len() as u64));
        while let Some((from, length)) = self.sides[side].wanted_range() {
            let part = &bundle[from as usize..(from + length) as usize];
            self.sides[side].send_part(self.now, part);
            self.carry();
        }
        self.carry();
    }
}

/// The bytes of a bundle that came, and what else was said.
fn came(events: Vec<SessionEvent>) -> (Vec<u8>, Vec<SessionEvent>) {
    let (mut bytes, mut others) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            SessionEvent::Data(data) => bytes.extend(data),
            other => others.push(other),
        }
    }
    (bytes, others)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn bundles_cross_both_ways_in_pieces_of_any_size(
        size in 1usize..5000, length in 1usize..200_000, second in 1usize..3000,
    ) {
        let mut talk = Talk::open(size);
        for (side, length) in [(0, length), (1, second), (0, second)] {
            let bundle: Vec<u8> = (0..length).map(|it| it as u8 ^ side as u8).collect();
            talk.send(side, &bundle);
            let (bytes, others) = came(talk.take(1 - side));
            prop_assert!(bytes == bundle);
            prop_assert_eq!(others, [SessionEvent::BundleStarted(length as u64), SessionEvent::BundleComplete]);
            prop_assert!(talk.take(side).is_empty(), "not before it is stored");
            talk.sides[1 - side].stored(talk.now);
            talk.carry();
            prop_assert_eq!(talk.take(side), [SessionEvent::Stored]);
            prop_assert!(talk.sides[side].can_send());
        }
    }

    #[test]
    fn a_peer_may_say_anything(
        known in any::<bool>(), said in prop::collection::vec(any::<u8>(), 0..400),
        kind in 1u8..9, size in 1usize..50,
    ) {
        let mut session = session(ConnectionRole::Passive, "ipn:1.0");
        session.handle_bytes(at(0), &ContactHeader::OURS.encode());
        if known {
            session.handle_bytes(at(0), &init("ipn:2.0"));
            session.accept(at(0));
        }
        session.handle_bytes(at(0), &[kind]);
        for piece in said.chunks(size) {
            session.handle_bytes(at(0), piece);
            let mut held = 0;
            while let Some(event) = session.poll_event() {
                match event {
                    SessionEvent::BundleComplete => session.stored(at(0)),
                    SessionEvent::Data(data) => held += data.len(),
                    _ => {}
                }
            }
            prop_assert!(held <= said.len() && session.input_held() <= 9 << 10);
        }
    }
}

const OFFER: ContactHeader = ContactHeader { can_tls: true, ..ContactHeader::OURS };

/// RFC 9174 §4.4: after the contact headers, and before anything else.
#[test]
fn tls_comes_between_the_contact_headers_and_the_rest() {
    let mut sides = [(ConnectionRole::Active, "ipn:1.0"), (ConnectionRole::Passive, "ipn:2.0")]
        .map(|(role, node)| session_with(role, node, true));
    let mut said = sides[0].take_output();
    for side in [1, 0] {
        assert_eq!(said, OFFER.encode());
        sides[side].handle_bytes(at(0), &said);
        assert_eq!(sides[side].poll_event(), Some(SessionEvent::Tls));
        assert!(!sides[side].wants_bytes());
        said = sides[side].take_output();
    }
    assert_eq!(said, b"", "nothing is said outside of TLS");
    sides.iter_mut().for_each(|side| side.handle_tls_established(at(0)));
    let said = sides[0].take_output();
    sides[1].handle_bytes(at(0), &said);
    assert_eq!(sides[1].poll_event(), Some(SessionEvent::Peer("ipn:1.0".parse().ok())));
}

#[test]
fn a_peer_without_tls_is_told_so_if_it_is_required() {
    for role in [ConnectionRole::Active, ConnectionRole::Passive] {
        let mut session = session_with(role, "ipn:1.0", true);
        session.handle_bytes(at(0), &ContactHeader::OURS.encode());
        assert_eq!(session.poll_event(), Some(SessionEvent::Finished(SessionEnd::NoTls)));
        // SESS_TERM, contact failure.
        assert!(session.take_output().ends_with(&[5, 0, 4]));
        session.handle_tls_established(at(0));
        assert_eq!((session.poll_event(), session.take_output()), (None, Vec::new()));
    }
    // One that could and need not goes on without.
    let mut session = session(ConnectionRole::Passive, "ipn:1.0");
    session.handle_bytes(at(0), &[&OFFER.encode()[..], &init("ipn:2.0")].concat());
    assert!(matches!(session.poll_event(), Some(SessionEvent::Peer(Some(_)))));
    assert_eq!(session.take_output(), ContactHeader::OURS.encode());
}

/// What somebody on the way adds before TLS begins is not taken for the peer's word within it.
#[test]
fn what_comes_before_tls_does_not_count() {
    let mut session = session_with(ConnectionRole::Passive, "ipn:1.0", true);
    session.handle_bytes(at(0), &[&OFFER.encode()[..], &init("ipn:2.0")].concat());
    assert_eq!(session.poll_event(), Some(SessionEvent::Tls));
    session.handle_tls_established(at(0));
    let Some(SessionEvent::Finished(SessionEnd::Violation(_))) = session.poll_event() else {
        panic!("it is a violation")
    };
}

fn init(node: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (segment_mru, transfer_mru) = (1000, 100_000);
    let message =
        TcpclMessage::SessInit { keepalive: 10, segment_mru, transfer_mru, node, critical: false };
    message.write(&mut out);
    out
}

/// A passive session that has accepted a peer with a keepalive of 10 s.
fn accepted() -> TcpclConnection {
    let mut session = session(ConnectionRole::Passive, "ipn:1.0");
    session.handle_bytes(at(0), &ContactHeader::OURS.encode());
    session.handle_bytes(at(0), &init("ipn:2.0"));
    assert_eq!(session.poll_event(), Some(SessionEvent::Peer(Some("ipn:2.0".parse().unwrap()))));
    session.accept(at(0));
    session.take_output();
    session
}

fn ends_with_violation(session: &mut TcpclConnection, message: &TcpclMessage<'_>) {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    session.handle_bytes(at(1), &bytes);
    let mut last = None;
    while let Some(event) = session.poll_event() {
        last = Some(event);
    }
    assert!(matches!(last, Some(SessionEvent::Finished(SessionEnd::Violation(_)))), "{last:?}");
    assert!(!session.wants_bytes());
}

fn segment(start: bool, end: bool, id: u64, length: u64) -> TcpclMessage<'static> {
    TcpclMessage::XferSegment { start, end, id, total: None, critical: false, length }
}

#[test]
fn a_violation_ends_the_session() {
    for message in [
        segment(false, true, 1, 5),
        segment(true, true, 1, (64 << 10) + 1),
        TcpclMessage::MsgReject { reason: 1, header: 1 },
        TcpclMessage::SessInit {
            keepalive: 1,
            segment_mru: 1,
            transfer_mru: 1,
            node: "",
            critical: false,
        },
    ] {
        ends_with_violation(&mut accepted(), &message);
    }
    let mut session = accepted();
    let mut bytes = Vec::new();
    segment(true, false, 1, 1).write(&mut bytes);
    session.handle_bytes(at(1), &[&bytes[..], b"x"].concat());
    ends_with_violation(&mut session, &segment(true, false, 2, 1));
    // Nothing was sent, so nothing can be acknowledged.
    let mut session = accepted();
    assert!(session.send(10));
    ends_with_violation(
        &mut session,
        &TcpclMessage::XferAck { start: true, end: true, id: 0, length: 10 },
    );

    let mut foreign = session_that_hears(b"GET / HTTP/1.1\r\n");
    assert_eq!(foreign.poll_event(), Some(SessionEvent::Finished(SessionEnd::Foreign)));
    let mut old = session_that_hears(b"dtn!\x03\x00");
    assert_eq!(old.poll_event(), Some(SessionEvent::Finished(SessionEnd::Foreign)));
    assert_eq!(old.take_output(), ContactHeader::OURS.encode(), "it learns our version");
}

fn session_that_hears(bytes: &[u8]) -> TcpclConnection {
    let mut session = session(ConnectionRole::Passive, "ipn:1.0");
    session.handle_bytes(at(0), bytes);
    session
}

#[test]
fn an_unknown_message_is_rejected_by_its_type() {
    let mut session = accepted();
    session.handle_bytes(at(1), &[99]);
    let said = session.take_output();
    assert!(said.starts_with(&[6, 1, 99]), "{said:?}");
}

#[test]
fn a_bundle_that_is_too_large_is_refused_and_the_next_one_is_taken() {
    let mut session = accepted();
    let mut bytes = Vec::new();
    let total = Some(LARGEST + 1);
    TcpclMessage::XferSegment { start: true, end: false, id: 7, total, critical: false, length: 3 }
        .write(&mut bytes);
    bytes.extend(b"abc");
    // Under way when the refusal is sent; then the peer gives up.
    segment(false, false, 7, 2).write(&mut bytes);
    bytes.extend(b"de");
    segment(true, true, 8, 2).write(&mut bytes);
    bytes.extend(b"ok");
    session.handle_bytes(at(1), &bytes);
    let said = session.take_output();
    assert_eq!(said, [&[3, 4][..], &7u64.to_be_bytes()].concat());
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    let data = SessionEvent::Data(b"ok".to_vec());
    assert_eq!(events, [SessionEvent::BundleStarted(LARGEST), data, SessionEvent::BundleComplete]);
    session.refuse(at(1), true);
    assert_eq!(session.take_output(), [&[3, 2][..], &8u64.to_be_bytes()].concat());

    // It lies about the length: what comes is counted.
    let mut session = accepted();
    for number in 0..6 {
        let mut bytes = Vec::new();
        segment(number == 0, false, 1, 64 << 10).write(&mut bytes);
        bytes.resize(bytes.len() + (64 << 10), 0);
        session.handle_bytes(at(1), &bytes);
    }
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    assert_eq!(events.last(), Some(&SessionEvent::BundleAborted));
    assert!(came(events).0.len() as u64 <= LARGEST);
}

#[test]
fn refusals_tell_whether_the_bundle_may_come_again() {
    for (reason, expected) in [
        (1, SessionEvent::Stored),
        (2, SessionEvent::Refused { passing: true }),
        (4, SessionEvent::Refused { passing: false }),
        (0, SessionEvent::Refused { passing: true }),
    ] {
        let mut session = accepted();
        assert!(!session.send(100_001), "more than the peer takes");
        assert!(session.send(5000));
        assert_eq!(session.wanted_range(), Some((0, 1000)), "the peer's segments");
        session.send_part(at(1), &[0; 1000]);
        let mut bytes = Vec::new();
        TcpclMessage::XferRefuse { reason, id: 0 }.write(&mut bytes);
        session.handle_bytes(at(1), &bytes);
        assert_eq!(session.poll_event(), Some(expected));
        assert_eq!((session.wanted_range(), session.can_send()), (None, true));
    }
}

#[test]
fn a_silent_peer_is_left_and_a_quiet_session_is_kept() {
    let mut waiting = session(ConnectionRole::Active, "ipn:1.0");
    assert_eq!(waiting.poll_timeout(), Some((at(30), SessionWake::Silence)));
    waiting.handle_timeout(at(30));
    assert_eq!(waiting.poll_event(), Some(SessionEvent::Finished(SessionEnd::Silent)));

    let mut session = accepted();
    assert_eq!(session.poll_timeout(), Some((at(5), SessionWake::Keepalive)));
    session.handle_timeout(at(5));
    assert_eq!(session.take_output(), [4]);
    session.handle_bytes(at(6), &[4]);
    session.handle_timeout(at(20));
    assert!(session.is_open());
    session.handle_timeout(at(26));
    assert_eq!(session.poll_event(), Some(SessionEvent::Finished(SessionEnd::Silent)));
}

#[test]
fn either_side_may_end_it() {
    let mut talk = Talk::open(100);
    talk.sides[0].end(talk.now, TermReason::IdleTimeout);
    talk.carry();
    assert_eq!(talk.take(0), [SessionEvent::Finished(SessionEnd::Ended)]);
    let by_peer = SessionEnd::ByPeer(TermReason::IdleTimeout);
    assert_eq!(talk.take(1), [SessionEvent::Finished(by_peer)]);

    // A connection that breaks within a bundle.
    let mut session = accepted();
    let mut bytes = Vec::new();
    segment(true, true, 1, 9).write(&mut bytes);
    session.handle_bytes(at(1), &[&bytes[..], b"half"].concat());
    session.handle_close();
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).skip(2).collect();
    assert_eq!(events, [SessionEvent::BundleAborted, SessionEvent::Finished(SessionEnd::Closed)]);
}

/// A message per byte, in whatever pieces they are read.
#[test]
fn the_work_of_small_messages_grows_with_their_bytes_only() {
    const KEEPALIVE: u8 = 4;
    for size in [1, 1000, 64 << 10] {
        let [_, mut passive] = Talk::open(1000).sides;
        let said = vec![KEEPALIVE; 256 << 10];
        let ((), cost) = cost::of(|| {
            said.chunks(size).for_each(|piece| passive.handle_bytes(at(1), piece));
        });
        // They are counted when they come and when they are used, so that both work within what counts.
        let each = cost as f64 / said.len() as f64;
        assert!((2.0..=4.0).contains(&each), "in pieces of {size}: {each}");
        assert!(passive.is_open() && passive.input_held() == 0);
    }
}
