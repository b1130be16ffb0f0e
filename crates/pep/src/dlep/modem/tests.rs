//! A modem whose router follows a script, and one that talks to our own router.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::super::message::{LONGEST, emit};
use super::super::{DlepReport, Router};
use super::*;

const HEARTBEAT: Duration = Duration::from_secs(5);
const POINT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4321);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn metrics(mbit: u64) -> LinkMetrics {
    let rates = LinkRates { transmit: BitRate::from_mbit(mbit), receive: BitRate::from_mbit(1) };
    LinkMetrics { rates, latency: Duration::from_millis(300) }
}

fn reachable(mbit: u64, networks: &[&str]) -> ReachableDestination {
    let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
    ReachableDestination { metrics: metrics(mbit), networks }
}

fn settings() -> ModemSettings {
    let maximum = LinkRates { transmit: BitRate::from_mbit(100), receive: BitRate::from_mbit(10) };
    ModemSettings { peer_type: "modem".into(), heartbeat: HEARTBEAT, maximum }
}

fn mac(last: u8) -> LinkAddress {
    LinkAddress::new(&[2, 0, 0, 0, 0, last]).unwrap()
}

fn status(status: DlepStatusCode) -> DataItem {
    DataItem::Status(status, String::new())
}

/// A modem, and what it has done.
struct Script(Modem);

impl Script {
    /// A modem of 50 Mbit/s with a router that has connected.
    fn connected() -> Self {
        let mut script = Self(Modem::new(settings(), metrics(50)));
        assert!(script.0.handle_connected(at(0)));
        script
    }

    /// The same, in a session.
    fn up() -> Self {
        let mut script = Self::connected();
        let heard = script.hear(MessageKind::SessionInitialization, &initialization());
        assert_eq!(heard.len(), 1, "{heard:?}");
        script
    }

    /// Handles a message; returns the messages sent, and `None` for a connection closed.
    fn hear(
        &mut self,
        kind: MessageKind,
        items: &[DataItem],
    ) -> Vec<Option<(MessageKind, Vec<DataItem>)>> {
        self.0.handle_bytes(at(0), &emit(kind, items));
        self.done()
    }

    fn done(&mut self) -> Vec<Option<(MessageKind, Vec<DataItem>)>> {
        let outputs = std::iter::from_fn(|| self.0.poll_output());
        let said = outputs.map(|output| match output {
            DlepOutput::Send(bytes) => Some(parse_unchecked(&bytes)),
            DlepOutput::Close => None,
            other => panic!("{other:?} is no output of a modem"),
        });
        said.collect()
    }

    fn time(&mut self, ms: u64) -> Vec<Option<(MessageKind, Vec<DataItem>)>> {
        self.0.handle_timeout(at(ms));
        self.done()
    }
}

fn initialization() -> [DataItem; 2] {
    [DataItem::HeartbeatInterval(Duration::from_secs(2)), DataItem::PeerType("router".into())]
}

/// Type and items of a message that a modem has sent, whatever they are.
fn parse_unchecked(bytes: &[u8]) -> (MessageKind, Vec<DataItem>) {
    let message = DlepMessage::parse(bytes, |_| true);
    message.map_or_else(|why| panic!("{why:?}: {bytes:?}"), |it| (it.kind, it.items))
}

fn said(
    kind: MessageKind,
    items: impl IntoIterator<Item = DataItem>,
) -> Option<(MessageKind, Vec<DataItem>)> {
    Some((kind, items.into_iter().collect()))
}

/// §7.1, §12.3, §12.4
#[test]
fn a_router_that_looks_for_a_modem_is_offered_a_session() {
    let mut modem = Modem::new(settings(), metrics(50));
    let discovery = message::discovery(&[DataItem::PeerType("router".into())]);
    let offer = modem.handle_discovery(&discovery, POINT).unwrap();
    let point = DataItem::ConnectionPoint { address: POINT.ip(), port: Some(4321), tls: false };
    assert_eq!(message::offer(&offer).unwrap(), [DataItem::PeerType("modem".into()), point]);
    for length in 0..discovery.len() {
        assert_eq!(modem.handle_discovery(&discovery[..length], POINT), None);
    }
    assert_eq!(modem.handle_discovery(&offer, POINT), None, "an offer is no discovery");
    modem.handle_connected(at(0));
    assert_eq!(modem.handle_discovery(&discovery, POINT), None, "it has a router");
    assert!(!modem.handle_connected(at(0)), "one at a time");
}

/// §12.5, §12.6
#[test]
fn a_session_begins_with_all_mandatory_metrics() {
    let mut script = Script::connected();
    let said = script.hear(MessageKind::SessionInitialization, &initialization());
    let [Some((MessageKind::SessionInitializationResponse, items))] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(items[0], status(DlepStatusCode::SUCCESS));
    assert_eq!(items[2], DataItem::HeartbeatInterval(HEARTBEAT));
    let rates: Vec<u64> = items
        .iter()
        .filter_map(|it| if let DataItem::Metric(_, v) = it { Some(*v) } else { None })
        .collect();
    assert_eq!(rates, [10_000_000, 100_000_000, 1_000_000, 50_000_000, 300_000]);
    assert_eq!(script.0.phase(), DlepPhase::Up);
}

/// §12.7, §12.8, and the transactions of §5.
#[test]
fn the_link_is_told_again_when_the_router_has_answered() {
    let mut script = Script::up();
    script.0.set_link(metrics(20));
    assert_eq!(script.done(), [said(MessageKind::SessionUpdate, metrics(20).items())]);
    for mbit in [19, 18, 17] {
        script.0.set_link(metrics(mbit));
        assert_eq!(script.done(), [], "the response is awaited");
    }
    let next = script.hear(MessageKind::SessionUpdateResponse, &[status(DlepStatusCode::SUCCESS)]);
    assert_eq!(
        next,
        [said(MessageKind::SessionUpdate, metrics(17).items())],
        "the last state, once"
    );
    assert_eq!(
        script.hear(MessageKind::SessionUpdateResponse, &[status(DlepStatusCode::SUCCESS)]),
        []
    );
}

/// §12.11 to §12.17
#[test]
fn a_destination_comes_changes_and_goes() {
    let mut script = Script::up();
    let id = || DataItem::MacAddress(mac(1));
    let net = |add, text: &str| DataItem::Network {
        subnet: text.contains('/'),
        add,
        prefix: text.parse().unwrap(),
    };
    script.0.set_destination(mac(1), reachable(5, &["10.1.0.1", "10.2.0.0/16"]));
    let items = [id()].into_iter().chain(metrics(5).items());
    let items = items.chain([net(true, "10.1.0.1"), net(true, "10.2.0.0/16")]);
    assert_eq!(script.done(), [said(MessageKind::DestinationUp, items)]);
    // Changes wait for the answer.
    script.0.set_destination(mac(1), reachable(4, &["10.2.0.0/16", "10.3.0.0/16"]));
    assert_eq!(script.done(), []);
    let good = [id(), status(DlepStatusCode::SUCCESS)];
    let next = script.hear(MessageKind::DestinationUpResponse, &good);
    let items = [id()].into_iter().chain(metrics(4).items());
    let items = items.chain([net(false, "10.1.0.1"), net(true, "10.3.0.0/16")]);
    assert_eq!(next, [said(MessageKind::DestinationUpdate, items)]);
    script.0.remove_destination(mac(1));
    assert_eq!(script.done(), [said(MessageKind::DestinationDown, [id()])]);
    // Back before the router has answered.
    script.0.set_destination(mac(1), reachable(3, &[]));
    let next = script.hear(MessageKind::DestinationDownResponse, &good);
    assert_eq!(
        next,
        [said(MessageKind::DestinationUp, [id()].into_iter().chain(metrics(3).items()))]
    );
}

/// §12.12
#[test]
fn a_destination_that_the_router_declines_is_not_mentioned_again() {
    let mut script = Script::up();
    script.0.set_destination(mac(1), reachable(5, &[]));
    script.done();
    let declined = [DataItem::MacAddress(mac(1)), status(DlepStatusCode::NOT_INTERESTED)];
    assert_eq!(script.hear(MessageKind::DestinationUpResponse, &declined), []);
    script.0.set_destination(mac(1), reachable(4, &[]));
    script.0.remove_destination(mac(1));
    assert_eq!(script.done(), []);
    assert_eq!(script.0.destinations.len(), 0);
}

/// §12.13, §12.14, §12.18, §12.19
#[test]
fn questions_about_a_destination_are_answered() {
    let mut script = Script::up();
    script.0.set_destination(mac(1), reachable(5, &[]));
    script.done();
    for (question, answer) in [
        (MessageKind::DestinationAnnounce, MessageKind::DestinationAnnounceResponse),
        (MessageKind::LinkCharacteristicsRequest, MessageKind::LinkCharacteristicsResponse),
    ] {
        for (last, status_of) in [(1, DlepStatusCode::SUCCESS), (9, DlepStatusCode::REQUEST_DENIED)]
        {
            let id = DataItem::MacAddress(mac(last));
            script.0.handle_bytes(at(0), &emit(question, std::slice::from_ref(&id)));
            let mut items = vec![id, status(status_of)];
            if last == 1 {
                items.extend(metrics(5).items());
            }
            assert_eq!(script.0.poll_output(), Some(DlepOutput::Send(emit(answer, &items))));
        }
    }
}

/// §12.1
#[test]
fn what_must_not_come_ends_the_session() {
    let id = || DataItem::MacAddress(mac(1));
    let good = || status(DlepStatusCode::SUCCESS);
    for (kind, items, why) in [
        (
            MessageKind::SessionInitialization,
            initialization().to_vec(),
            DlepStatusCode::UNEXPECTED_MESSAGE,
        ),
        (MessageKind::DestinationUp, vec![id()], DlepStatusCode::UNEXPECTED_MESSAGE),
        (MessageKind::SessionUpdateResponse, vec![good()], DlepStatusCode::UNEXPECTED_MESSAGE),
        (MessageKind::DestinationUpResponse, vec![good()], DlepStatusCode::INVALID_DATA),
        (
            MessageKind::DestinationUpResponse,
            vec![id(), good()],
            DlepStatusCode::INVALID_DESTINATION,
        ),
    ] {
        let mut script = Script::up();
        let ended = said(MessageKind::SessionTermination, [status(why)]);
        assert_eq!(script.hear(kind, &items), [ended], "{kind:?}");
        assert_eq!(script.0.phase(), DlepPhase::Ending);
        script.0.set_link(metrics(1));
        assert_eq!(script.done(), [], "nothing follows");
        assert_eq!(script.hear(MessageKind::SessionTerminationResponse, &[]), [None]);
        assert!(script.0.handle_connected(at(1)), "a router may connect again");
    }
    let mut script = Script::connected();
    let early = script.hear(MessageKind::Heartbeat, &[]);
    let unexpected = [status(DlepStatusCode::UNEXPECTED_MESSAGE)];
    assert_eq!(early, [said(MessageKind::SessionTermination, unexpected)]);
    assert_eq!(script.time(20_000), [None], "the router does not answer");
}

/// §7.3.1, §12.20
#[test]
fn a_silent_router_is_given_up() {
    let mut script = Script::up();
    // The router promised a heartbeat every 2 s.
    assert_eq!(script.0.poll_timeout(), Some((at(5_000), Wake::GiveUp)));
    script.0.handle_bytes(at(4_000), &emit(MessageKind::Heartbeat, &[]));
    assert_eq!(script.time(5_000), [said(MessageKind::Heartbeat, [])]);
    let ended = said(MessageKind::SessionTermination, [status(DlepStatusCode::TIMED_OUT)]);
    assert_eq!(script.time(9_000), [ended]);
    let mut script = Script::connected();
    assert_eq!(script.time(10_000), [None], "it never said anything");
}

/// §12.9
#[test]
fn both_sides_may_end_the_session() {
    let mut script = Script::up();
    script.0.set_destination(mac(1), reachable(5, &[]));
    script.done();
    let shut = [status(DlepStatusCode::SHUTTING_DOWN)];
    let done = script.hear(MessageKind::SessionTermination, &shut);
    assert_eq!(done, [said(MessageKind::SessionTerminationResponse, []), None]);
    // The next router hears of the destination again.
    script.0.handle_connected(at(1));
    let said_now = script.hear(MessageKind::SessionInitialization, &initialization());
    assert_eq!(said_now.len(), 2, "{said_now:?}");
    script.0.stop(at(2));
    assert_eq!(script.done(), [said(MessageKind::SessionTermination, shut)]);
}

/// A destination: its address, its rate, and its networks.
type Belief = (String, Option<BitRate>, Vec<String>);

/// A connection between a router and a modem, in virtual time: bytes arrive in pieces and late, and
/// it breaks now and then.
struct Wire {
    now: u64,
    rng: ChaCha20Rng,
    router: Router,
    modem: Modem,
    /// Bytes on their way, with the time at which they arrive: to the router, and to the modem.
    flights: [VecDeque<(u64, Vec<u8>)>; 2],
    open: bool,
    report: DlepReport,
}

impl Wire {
    fn new(seed: u64) -> Self {
        Self {
            now: 0,
            rng: ChaCha20Rng::seed_from_u64(seed),
            router: Router::new(at(0), Some(POINT), HEARTBEAT),
            modem: Modem::new(settings(), metrics(50)),
            flights: Default::default(),
            open: false,
            report: DlepReport::default(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.next_u64() % below
    }

    fn close(&mut self) {
        self.flights = Default::default();
        if std::mem::take(&mut self.open) {
            self.router.handle_closed(at(self.now), "broken");
            self.modem.handle_closed();
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.router.poll_output() {
            match output {
                DlepOutput::Connect(_) => {
                    self.close();
                    self.open = self.modem.handle_connected(at(self.now));
                    assert!(self.open, "the modem has no other router");
                    self.router.handle_connected(at(self.now));
                }
                output => self.send(1, output),
            }
        }
        while let Some(output) = self.modem.poll_output() {
            self.send(0, output);
        }
    }

    fn send(&mut self, to: usize, output: DlepOutput) {
        match output {
            DlepOutput::Send(bytes) => {
                let late = self.flights[to].back().map_or(0, |last| last.0);
                let when = (self.now + 1 + self.draw(400)).max(late);
                let cut = self.draw(bytes.len() as u64) as usize;
                let (one, other) = bytes.split_at(cut);
                self.flights[to].extend([(when, one.to_vec()), (when + 1, other.to_vec())]);
            }
            DlepOutput::Close => self.close(),
            other => panic!("{other:?}"),
        }
    }

    /// Lets a time pass.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += 1;
            let now = at(self.now);
            self.router.handle_timeout(now);
            self.modem.handle_timeout(now);
            self.carry_out();
            self.router.poll_report().into_iter().for_each(|report| self.report = report);
            for to in [0, 1] {
                while let Some((_, bytes)) =
                    self.flights[to].pop_front_if(|flight| flight.0 <= self.now)
                {
                    match to {
                        0 => self.router.handle_bytes(now, &bytes),
                        _ => self.modem.handle_bytes(now, &bytes),
                    }
                    self.carry_out();
                }
            }
        }
    }

    /// Changes something on the link, or breaks the connection.
    fn change(&mut self) {
        let (last, mbit) = (self.draw(4) as u8, 1 + self.draw(90));
        match self.draw(8) {
            0 | 1 => self.modem.set_link(metrics(mbit)),
            2 | 3 => {
                let subnet = format!("10.{}.0.0/16", self.draw(9));
                let host = format!("192.0.2.{last}");
                self.modem.set_destination(mac(last), reachable(mbit, &[&subnet, &host]));
            }
            4 | 5 => self.modem.set_destination(mac(last), reachable(mbit, &[])),
            6 => self.modem.remove_destination(mac(last)),
            _ if self.draw(3) == 0 => self.close(),
            _ => self.modem.stop(at(self.now)),
        }
    }

    /// What the router believes and what the modem was told: rates by destination.
    fn beliefs(&self) -> [Vec<Belief>; 2] {
        let rows = self.report.base.rows().filter(|row| row.up);
        let sorted = |mut networks: Vec<String>| {
            networks.sort();
            networks
        };
        let heard = rows.map(|row| (row.mac, row.rate, sorted(row.networks)));
        let wanted = self.modem.destinations.iter().filter_map(|(mac, destination)| {
            let how = destination.current.as_ref()?;
            let networks = how.networks.iter().map(ToString::to_string).collect();
            Some((mac.to_string(), Some(how.metrics.rates.transmit), sorted(networks)))
        });
        [heard.collect(), wanted.collect()]
    }
}

#[test]
fn a_router_learns_what_the_modem_knows_whatever_happens_between_them() {
    for seed in 0..2000 {
        let mut wire = Wire::new(seed);
        for _ in 0..12 {
            wire.change();
            let pause = wire.draw(700);
            wire.run(pause);
        }
        // Long enough for another session.
        wire.run(8_000);
        wire.modem.set_link(metrics(7));
        wire.run(3_000);
        assert_eq!(wire.modem.phase(), DlepPhase::Up, "seed {seed}");
        let rate = wire.report.base.default_rate();
        assert_eq!(rate, Some(BitRate::from_mbit(7)), "seed {seed}");
        let [heard, wanted] = wire.beliefs();
        assert_eq!(heard, wanted, "seed {seed}");
    }
}

/// A rate for what waits, in Mbit/s.
fn wanted(mbit: u64) -> CapacityRequest {
    CapacityRequest { rate: BitRate::from_mbit(mbit), is_foreseen: false }
}

/// §12.18, §12.19: what waits at the router reaches the modem's owner, and the answer has the metrics
/// as they are now.
#[test]
fn a_router_s_requests_reach_the_modem() {
    let mut wire = Wire::new(1);
    wire.modem.set_destination(mac(1), reachable(5, &[]));
    wire.router.request(wanted(3));
    wire.run(3_000);
    let rate = |mbit| Some((mac(1), wanted(mbit)));
    assert_eq!((wire.modem.poll_request(), wire.modem.poll_request()), (rate(3), None));
    wire.run(3_000);
    assert_eq!(wire.modem.poll_request(), rate(3), "it is renewed");
    let foreseen = CapacityRequest { is_foreseen: true, ..wanted(3) };
    wire.router.request(foreseen);
    wire.run(1_000);
    assert_eq!(wire.modem.poll_request(), Some((mac(1), foreseen)));
    // Only the latest one counts.
    wire.router.request(wanted(4));
    wire.run(1_000);
    wire.router.request(CapacityRequest::default());
    wire.run(2_000);
    assert_eq!((wire.modem.poll_request(), wire.modem.poll_request()), (rate(0), None));
    wire.run(20_000);
    assert_eq!(wire.modem.poll_request(), None, "nothing to wait, nothing to ask");
    assert_eq!(wire.modem.phase(), DlepPhase::Up);
    assert_eq!(wire.report.base.rate([192, 0, 2, 9].into(), true), Some(BitRate::from_mbit(5)));
    // One of two destinations cannot be meant.
    wire.modem.set_destination(mac(2), reachable(5, &[]));
    wire.run(2_000);
    wire.router.request(wanted(3));
    wire.run(5_000);
    assert_eq!(wire.modem.poll_request(), None);
}

#[test]
fn an_answer_without_a_request_ends_the_session() {
    let mut wire = Wire::new(2);
    wire.modem.set_destination(mac(1), reachable(5, &[]));
    wire.run(3_000);
    let answer = emit(MessageKind::LinkCharacteristicsResponse, &[DataItem::MacAddress(mac(1))]);
    wire.router.handle_bytes(at(wire.now), &answer);
    wire.run(1_000);
    assert_eq!(wire.report.trouble.as_deref(), Some("we ended the session: unexpected message"));
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic_nor_stay(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        size in 1usize..50,
    ) {
        let mut script = Script::up();
        for piece in bytes.chunks(size) {
            script.0.handle_bytes(at(1), piece);
            prop_assert!(script.0.held() < LONGEST);
        }
        script.done();
        let _ = script.0.handle_discovery(&bytes, POINT);
    }
}
