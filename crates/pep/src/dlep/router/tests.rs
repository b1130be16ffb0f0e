//! Sessions step by step, each with the section of RFC 8175 that it tests.

use proptest::prelude::*;
use units::BitRate;

use super::super::fuzzing::converse;
use super::super::item::{LinkAddress, code};
use super::super::message::{LONGEST, emit, response};
use super::*;

const HEARTBEAT: Duration = Duration::from_secs(5);
const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 854);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A router and a clock.
struct Script {
    router: Router,
    now: u64,
}

impl Script {
    fn discovering() -> Self {
        Self { router: Router::new(at(0), None, HEARTBEAT), now: 0 }
    }

    fn configured() -> Self {
        Self { router: Router::new(at(0), Some(FROM), HEARTBEAT), now: 0 }
    }

    /// With a session whose modem sends heartbeats every 10 s, at this rate.
    fn up() -> Self {
        let mut script = Self::configured();
        script.time(0);
        script.router.handle_connected(at(0));
        script.done();
        assert_eq!(
            script.hear(MessageKind::SessionInitializationResponse, &response(20_000_000)),
            []
        );
        assert_eq!(script.report().phase, DlepPhase::Up);
        script
    }

    fn done(&mut self) -> Vec<DlepOutput> {
        std::iter::from_fn(|| self.router.poll_output()).collect()
    }

    /// Advances to this time; returns the actions, of which none may be due earlier.
    fn time(&mut self, ms: u64) -> Vec<DlepOutput> {
        if ms > 0 {
            self.router.handle_timeout(at(ms - 1));
            assert_eq!(self.done(), [], "before {ms} ms");
        }
        self.now = ms;
        self.router.handle_timeout(at(ms));
        self.done()
    }

    /// Advances to this time; returns all messages sent and all other actions.
    fn until(&mut self, ms: u64) -> Vec<DlepOutput> {
        let mut done = Vec::new();
        while let Some((due, _)) = self.router.poll_timeout().filter(|(due, _)| *due <= at(ms)) {
            self.router.handle_timeout(due);
            done.extend(self.done());
        }
        self.now = ms;
        done
    }

    fn hear(&mut self, kind: MessageKind, items: &[DataItem]) -> Vec<DlepOutput> {
        self.router.handle_bytes(at(self.now), &emit(kind, items));
        self.done()
    }

    fn offer(&mut self, items: &[DataItem]) -> Vec<DlepOutput> {
        let mut signal = message::discovery(items);
        signal[5] = 2;
        self.router.handle_offer(at(self.now), FROM, &signal);
        self.done()
    }

    fn report(&self) -> DlepReport {
        self.router.report.clone()
    }

    fn rate(&self) -> Option<BitRate> {
        self.report().base.rate([203, 0, 113, 1].into(), true)
    }

    fn trouble(&self) -> String {
        self.report().trouble.unwrap_or_default()
    }
}

fn said(kind: MessageKind, items: &[DataItem]) -> DlepOutput {
    DlepOutput::Send(emit(kind, items))
}

fn status(status: DlepStatusCode) -> DataItem {
    DataItem::Status(status, String::new())
}

fn terminated(why: DlepStatusCode) -> [DlepOutput; 1] {
    [said(MessageKind::SessionTermination, &[status(why)])]
}

fn mac(last: u8) -> DataItem {
    DataItem::MacAddress(LinkAddress::new(&[2, 0, 0, 0, 0, last]).unwrap())
}

fn rate(mbit: u64) -> DataItem {
    DataItem::Metric(code::CURRENT_DATA_RATE_TRANSMIT, mbit * 1_000_000)
}

fn point(address: [u8; 4], port: Option<u16>, tls: bool) -> DataItem {
    DataItem::ConnectionPoint { address: address.into(), port, tls }
}

/// §7.1, §12.3
#[test]
fn a_modem_is_looked_for_every_five_seconds() {
    let mut script = Script::discovering();
    let signal = message::discovery(&[DataItem::PeerType("skyhop".into())]);
    for ms in [0, 5_000, 10_000] {
        assert_eq!(script.time(ms), [DlepOutput::Signal(signal.clone())]);
    }
    assert!(script.router.wants_offers());
}

/// §7.1, §12.4: at the connection points of the offer, otherwise at its source.
#[test]
fn an_offer_is_taken_up_where_it_says() {
    for (items, modem) in [
        (vec![], "192.0.2.1:854"),
        (vec![point([192, 0, 2, 9], None, false)], "192.0.2.9:854"),
        (
            vec![point([192, 0, 2, 8], None, true), point([192, 0, 2, 9], Some(99), false)],
            "192.0.2.9:99",
        ),
    ] {
        let mut script = Script::discovering();
        script.time(0);
        assert_eq!(script.offer(&items), [DlepOutput::Connect(modem.parse().unwrap())]);
        assert_eq!(script.offer(&items), [], "one at a time");
    }
    let mut script = Script::discovering();
    assert_eq!(script.offer(&[point([192, 0, 2, 8], None, true)]), []);
    assert!(script.trouble().contains("TLS"), "{}", script.trouble());
    // §12.1: invalid signals are ignored.
    assert_eq!(script.offer(&[mac(1)]), []);
}

#[test]
fn a_link_local_address_is_on_the_link_of_the_offer() {
    let from: SocketAddr = "[fe80::1%7]:854".parse().unwrap();
    let mut router = Router::new(at(0), None, HEARTBEAT);
    let address = "fe80::2".parse().unwrap();
    let mut signal =
        message::discovery(&[DataItem::ConnectionPoint { address, port: None, tls: false }]);
    signal[5] = 2;
    router.handle_offer(at(0), from, &signal);
    assert_eq!(router.poll_output(), Some(DlepOutput::Connect("[fe80::2%7]:854".parse().unwrap())));
}

#[test]
fn points_are_tried_in_turn_and_then_another_modem_is_looked_for() {
    let mut script = Script::discovering();
    script.time(0);
    let points = [point([192, 0, 2, 8], None, false), point([192, 0, 2, 9], None, false)];
    let connect = |host: u8| DlepOutput::Connect(SocketAddr::from(([192, 0, 2, host], 854)));
    assert_eq!(script.offer(&points), [connect(8)]);
    script.router.handle_closed(at(0), "refused");
    assert_eq!(script.done(), [connect(9)]);
    // No answer.
    assert_eq!(script.time(10_000), [DlepOutput::Close]);
    assert!(matches!(script.time(15_000)[..], [DlepOutput::Signal(_)]));
    assert_eq!(script.trouble(), "cannot connect: no answer");
}

/// §7.2, §12.5, §12.6
#[test]
fn a_session_begins() {
    let mut script = Script::configured();
    assert_eq!(script.time(0), [DlepOutput::Connect(FROM)]);
    script.router.handle_connected(at(0));
    let items = [DataItem::HeartbeatInterval(HEARTBEAT), DataItem::PeerType("skyhop".into())];
    assert_eq!(script.done(), [said(MessageKind::SessionInitialization, &items)]);
    assert_eq!(script.rate(), None);
    assert_eq!(script.hear(MessageKind::SessionInitializationResponse, &response(20_000_000)), []);
    let report = script.report();
    assert_eq!((report.phase, report.modem, report.sessions), (DlepPhase::Up, Some(FROM), 1));
    assert_eq!((report.peer_type.as_str(), report.until), ("test modem", Some(at(25_000))));
    assert_eq!(script.rate(), Some(BitRate::from_mbit(20)));
}

#[test]
fn a_modem_that_does_not_answer_or_refuses_is_tried_again() {
    let mut script = Script::configured();
    script.time(0);
    script.router.handle_connected(at(0));
    script.done();
    assert_eq!(script.time(10_000), [DlepOutput::Close]);
    assert_eq!(script.time(11_000), [DlepOutput::Connect(FROM)]);
    script.router.handle_connected(at(11_000));
    script.done();
    let refusal = [DataItem::Status(DlepStatusCode::from(2), "no room".into())];
    let denied = DlepStatusCode::from(2);
    assert_eq!(
        script.hear(MessageKind::SessionInitializationResponse, &refusal),
        terminated(denied)
    );
    assert!(script.trouble().contains("request denied"), "{}", script.trouble());
    assert_eq!(script.hear(MessageKind::SessionTerminationResponse, &[]), [DlepOutput::Close]);
}

#[test]
fn a_modem_that_refuses_at_once_is_tried_ever_more_rarely_until_a_session_lasts() {
    let mut script = Script::configured();
    script.time(0);
    let refuse = |script: &mut Script| {
        let refused_at = script.now;
        script.router.handle_connected(at(refused_at));
        script.router.handle_closed(at(refused_at), "by the modem");
        script.done();
        let (next, _) = script.router.poll_timeout().unwrap();
        script.now = (next.saturating_since(at(0))).as_millis() as u64;
        script.router.handle_timeout(next);
        assert_eq!(script.done(), [DlepOutput::Connect(FROM)]);
        (script.now - refused_at) / 1000
    };
    let pauses: Vec<u64> = (0..8).map(|_| refuse(&mut script)).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    // One that lasts a minute, with a heartbeat every 10 s.
    let begin = script.now;
    script.router.handle_connected(at(begin));
    script.hear(MessageKind::SessionInitializationResponse, &response(20_000_000));
    for second in [10, 20, 30, 40, 50, 60] {
        script.until(begin + second * 1000);
        script.hear(MessageKind::Heartbeat, &[]);
    }
    assert_eq!(refuse(&mut script), 1);
}

/// §12.1
#[test]
fn what_must_not_come_ends_the_session() {
    for (kind, items, why) in [
        (MessageKind::SessionInitialization, vec![], DlepStatusCode::UNEXPECTED_MESSAGE),
        (
            MessageKind::SessionInitializationResponse,
            response(1),
            DlepStatusCode::UNEXPECTED_MESSAGE,
        ),
        (
            MessageKind::SessionUpdateResponse,
            vec![status(DlepStatusCode::SUCCESS)],
            DlepStatusCode::UNEXPECTED_MESSAGE,
        ),
        (MessageKind::DestinationUp, vec![rate(1)], DlepStatusCode::INVALID_DATA),
        (
            MessageKind::DestinationUpdate,
            vec![mac(1), rate(1)],
            DlepStatusCode::INVALID_DESTINATION,
        ),
        (MessageKind::DestinationDown, vec![mac(1)], DlepStatusCode::INVALID_DESTINATION),
    ] {
        let mut script = Script::up();
        assert_eq!(script.hear(kind, &items), terminated(why), "{kind:?}");
        assert_eq!((script.report().phase, script.rate()), (DlepPhase::Ending, None));
    }
    let mut script = Script::up();
    script.router.handle_bytes(at(0), &[0xf0, 0, 0, 0]);
    assert_eq!(script.done(), terminated(DlepStatusCode::UNKNOWN_MESSAGE));
    // §7.4: for four heartbeats everything except the response is ignored.
    assert_eq!(script.hear(MessageKind::DestinationUp, &[mac(1)]), []);
    script.router.handle_bytes(at(0), &[0xf0, 0, 0, 0]);
    assert_eq!(script.time(20_000), [DlepOutput::Close]);
    assert_eq!(script.time(21_000), [DlepOutput::Connect(FROM)]);
}

/// §12.7, §12.8, §12.11 to §12.17
#[test]
fn rates_follow_the_session_and_the_destination() {
    let mut script = Script::up();
    let good = [status(DlepStatusCode::SUCCESS)];
    let mbit = |rate| Some(BitRate::from_mbit(rate));
    assert_eq!(
        script.hear(MessageKind::SessionUpdate, &[rate(15)]),
        [said(MessageKind::SessionUpdateResponse, &good)]
    );
    assert_eq!(script.rate(), mbit(15));
    let answer = |kind| [said(kind, &[mac(1), status(DlepStatusCode::SUCCESS)])];
    let up = script.hear(MessageKind::DestinationUp, &[mac(1), rate(10)]);
    assert_eq!((up, script.rate()), (answer(MessageKind::DestinationUpResponse).into(), mbit(10)));
    assert_eq!(script.hear(MessageKind::DestinationUpdate, &[mac(1), rate(5)]), []);
    assert_eq!(script.rate(), mbit(5));
    assert_eq!(script.hear(MessageKind::DestinationUpdate, &[mac(1), DataItem::Metric(16, 1)]), []);
    assert_eq!(script.rate(), mbit(5), "what is not told stays");
    let down = script.hear(MessageKind::DestinationDown, &[mac(1)]);
    assert_eq!(
        (down, script.rate()),
        (answer(MessageKind::DestinationDownResponse).into(), mbit(0))
    );
    // A destination that was not announced again.
    let update = script.hear(MessageKind::DestinationUpdate, &[mac(1), rate(5)]);
    assert_eq!(update, terminated(DlepStatusCode::INVALID_DESTINATION));
}

/// §12.11: a router may decline.
#[test]
fn more_destinations_than_there_is_room_for_are_declined() {
    let mut script = Script::up();
    let up = |script: &mut Script, number: u16| {
        let [high, low] = number.to_be_bytes();
        let mac = DataItem::MacAddress(LinkAddress::new(&[2, 0, 0, 0, high, low]).unwrap());
        let done = script.hear(MessageKind::DestinationUp, std::slice::from_ref(&mac));
        let answer = |status| [said(MessageKind::DestinationUpResponse, &[mac.clone(), status])];
        assert!(
            done == answer(status(DlepStatusCode::SUCCESS))
                || done == answer(status(DlepStatusCode::NOT_INTERESTED))
        );
        done == answer(status(DlepStatusCode::SUCCESS))
    };
    let taken = (0..5000).filter(|number| up(&mut script, *number)).count();
    assert_eq!((taken, script.report().base.rows().count()), (4096, 4096));
}

/// §7.3.1, §12.20
#[test]
fn both_sides_give_signs_of_life() {
    let mut script = Script::up();
    let heartbeat = said(MessageKind::Heartbeat, &[]);
    assert_eq!(script.time(5_000), std::slice::from_ref(&heartbeat));
    assert_eq!(script.until(24_999), [heartbeat.clone(), heartbeat.clone(), heartbeat.clone()]);
    // Any message counts.
    script.hear(MessageKind::Heartbeat, &[]);
    assert_eq!(script.report().until, Some(at(49_999)));
    script.hear(MessageKind::SessionUpdate, &[]);
    assert_eq!(script.until(49_998).len(), 5);
    assert_eq!(script.time(49_999), terminated(DlepStatusCode::TIMED_OUT));
    assert_eq!((script.rate(), script.report().until), (None, None));
}

/// §12.9, §12.10, §7.5: reports are dropped, and discovery starts again.
#[test]
fn a_modem_that_ends_the_session_is_found_again() {
    let mut script = Script::up();
    script.hear(MessageKind::DestinationUp, &[mac(1), rate(10)]);
    let last = [DataItem::Status(DlepStatusCode::SHUTTING_DOWN, "reboot".into())];
    let done = script.hear(MessageKind::SessionTermination, &last);
    assert_eq!(done, [said(MessageKind::SessionTerminationResponse, &[]), DlepOutput::Close]);
    assert_eq!((script.report().phase, script.rate()), (DlepPhase::Looking, None));
    assert_eq!(script.trouble(), "the modem ended the session: shutting down reboot");
    assert_eq!(script.time(1_000), [DlepOutput::Connect(FROM)]);
    script.router.handle_connected(at(1_000));
    script.done();
    script.hear(MessageKind::SessionInitializationResponse, &response(7_000_000));
    assert_eq!(script.rate(), Some(BitRate::from_mbit(7)));
    let report = script.report();
    assert_eq!((report.sessions, report.trouble, report.base.rows().count()), (2, None, 0));
    script.router.handle_closed(at(2_000), "reset");
    assert_eq!((script.done(), script.rate()), (vec![DlepOutput::Close], None));
}

#[test]
fn a_router_that_stops_takes_leave() {
    let mut script = Script::up();
    script.router.stop(at(0));
    assert_eq!(script.done(), terminated(DlepStatusCode::SHUTTING_DOWN));
    assert_eq!(script.hear(MessageKind::SessionTerminationResponse, &[]), [DlepOutput::Close]);
    assert_eq!((script.report().phase, script.router.poll_timeout()), (DlepPhase::Stopped, None));
    let mut script = Script::discovering();
    script.router.stop(at(0));
    assert_eq!(script.report().phase, DlepPhase::Stopped);
}

/// A stream of messages from a modem, some of them nonsense.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let item = prop_oneof![
        (0u8..4).prop_map(mac),
        (0u64..50).prop_map(rate),
        (0u8..3).prop_map(|code| status(DlepStatusCode::from(code))),
        Just(DataItem::HeartbeatInterval(Duration::from_secs(1))),
    ];
    let kinds = [
        MessageKind::SessionUpdate,
        MessageKind::DestinationUp,
        MessageKind::DestinationDown,
        MessageKind::DestinationUpdate,
        MessageKind::Heartbeat,
        MessageKind::SessionTermination,
        MessageKind::LinkCharacteristicsResponse,
    ];
    let message = (prop::sample::select(kinds.to_vec()), prop::collection::vec(item, 0..3))
        .prop_map(|(kind, items)| emit(kind, &items));
    let garbage = prop::collection::vec(any::<u8>(), 0..40);
    let part = prop_oneof![9 => message, 1 => garbage];
    prop::collection::vec(part, 0..20).prop_map(|parts| {
        let first = emit(MessageKind::SessionInitializationResponse, &response(1_000_000));
        [vec![first], parts].concat().concat()
    })
}

proptest! {
    /// Outputs do not depend on how the stream is cut, and are the same each time.
    #[test]
    fn pieces_make_no_difference(stream in stream(), size in 1usize..200) {
        let whole = converse(&[], &stream, stream.len());
        prop_assert_eq!(whole, converse(&[], &stream, size));
    }

    #[test]
    fn foreign_bytes_never_panic_nor_stay(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let half = bytes.len() / 2;
        converse(&bytes[..half], &bytes[half..], 7);
        let mut script = Script::up();
        script.router.handle_bytes(at(0), &bytes);
        prop_assert!(script.router.held() < LONGEST);
    }
}
