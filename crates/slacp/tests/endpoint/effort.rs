//! A hub runs its checks in order of cost (`docs/slacp.md`, Under load): length, room for the
//! answer, counters, hashes, Diffie–Hellman. A rejected datagram costs no more than the check that
//! rejects it.

use std::net::SocketAddr;

use ring::hmac;
use slacp::{Config, Endpoint, HandshakeEffort, KeyPair};
use units::{BitRate, Instant, Machine};

const HUB: u8 = 1;
const TERMINAL: u8 = 2;
const STRANGER: u8 = 3;
/// Maximum size of an initiation, and of its knock, in bytes.
const LONGEST: usize = 1232;
const KNOCK: usize = 16;
/// Position of the version and of the cookie in an initiation.
const VERSION: usize = 1;
const COOKIE: usize = 6;
/// Maximum number of answers waiting for the link.
const ANSWERS: usize = 1024;

const NOTHING: HandshakeEffort = HandshakeEffort { hashes: 0, handshakes: 0 };

fn hashes(hashes: u64) -> HandshakeEffort {
    HandshakeEffort { hashes, handshakes: 0 }
}

fn handshake_after(hashes: u64) -> HandshakeEffort {
    HandshakeEffort { hashes, handshakes: 1 }
}

/// The time of all events: within the second cookie period.
const NOW: Instant = Instant::from_nanos(200_000_000_000);

fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 5900))
}

/// A hub at a fixed time.
struct Hub(Endpoint);

impl Hub {
    fn new(handshakes_per_second: u32) -> Self {
        let mut config = Config::new(BitRate::from_mbit(10));
        config.handshakes_per_second = handshakes_per_second;
        Self(Endpoint::hub(config, key(HUB), vec![key(TERMINAL).public()], [9; 32]))
    }

    /// A hub without room for another answer.
    fn full() -> Self {
        let mut hub = Self::new(0);
        let initiation = first(&mut terminal(STRANGER));
        for _ in 0..ANSWERS {
            hub.cost(STRANGER, &initiation);
        }
        assert_eq!(hub.0.footprint().waiting, ANSWERS);
        hub
    }

    /// What the hub spends on this datagram.
    fn cost(&mut self, from: u8, datagram: &[u8]) -> HandshakeEffort {
        let before = self.0.effort();
        self.0.handle_datagram(NOW, address(from), &mut datagram.to_vec());
        let after = self.0.effort();
        HandshakeEffort {
            hashes: after.hashes - before.hashes,
            handshakes: after.handshakes - before.handshakes,
        }
    }

    fn answer(&mut self) -> Option<Vec<u8>> {
        let mut answer = Vec::new();
        self.0.poll_transmit(NOW, &mut answer).map(|_| answer)
    }
}

fn terminal(own: u8) -> Endpoint {
    let config = Config::new(BitRate::from_mbit(10));
    Endpoint::terminal(config, key(own), key(HUB).public(), vec![address(HUB)], [own; 32])
}

/// The next initiation of a terminal.
fn first(terminal: &mut Endpoint) -> Vec<u8> {
    let mut initiation = Vec::new();
    terminal.handle_timeout(NOW);
    terminal.poll_transmit(NOW, &mut initiation).unwrap();
    initiation
}

/// The message with a change applied and a correct knock.
fn knocked(initiation: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = initiation[..initiation.len() - KNOCK].to_vec();
    change(&mut message);
    let secret = [b"SLACP knock", &key(HUB).public().0[..]].concat();
    let knock = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), &message);
    message.extend_from_slice(&knock.as_ref()[..KNOCK]);
    message
}

fn with_a_wrong_knock(initiation: &[u8]) -> Vec<u8> {
    let mut wrong = initiation.to_vec();
    *wrong.last_mut().unwrap() ^= 1;
    wrong
}

fn of_another_version(initiation: &[u8]) -> Vec<u8> {
    knocked(initiation, |message| message[VERSION] += 1)
}

fn too_long(initiation: &[u8]) -> Vec<u8> {
    knocked(initiation, |message| message.resize(LONGEST + 1 - KNOCK, 0))
}

/// A packet of an unknown session, long enough to be answered.
fn of_no_session() -> Vec<u8> {
    let mut packet = vec![0x40];
    packet.resize(60, 7);
    packet
}

#[test]
fn malformed_or_long_input_costs_nothing() {
    let initiation = first(&mut terminal(TERMINAL));
    let mut hub = Hub::new(100);
    assert_eq!(hub.cost(TERMINAL, &[]), NOTHING);
    assert_eq!(hub.cost(TERMINAL, &[0xff; 100]), NOTHING);
    assert_eq!(hub.cost(TERMINAL, &too_long(&initiation)), NOTHING);
    assert_eq!(hub.cost(TERMINAL, &too_long(&of_another_version(&initiation))), NOTHING);
    assert_eq!(hub.cost(STRANGER, &of_no_session()[..20]), NOTHING, "shorter than the answer");
    hub.0.shut_down(NOW);
    assert_eq!(hub.cost(TERMINAL, &initiation), NOTHING, "the hub is shut");
    assert_eq!(hub.answer(), None);
}

#[test]
fn an_answer_for_which_there_is_no_room_is_not_made() {
    let initiation = first(&mut terminal(TERMINAL));
    let mut hub = Hub::full();
    assert_eq!(hub.cost(STRANGER, &of_no_session()), NOTHING);
    assert_eq!(hub.cost(TERMINAL, &of_another_version(&initiation)), NOTHING);
    assert_eq!(hub.cost(TERMINAL, &initiation), hashes(1), "the knock, and no cookie");
}

#[test]
fn packets_over_the_limit_are_not_hashed() {
    let mut hub = Hub::new(100);
    let hints = [(); 4].map(|()| hub.cost(STRANGER, &of_no_session()));
    assert_eq!(hints, [hashes(1), hashes(1), NOTHING, NOTHING], "two hints in a second");
}

#[test]
fn a_wrong_knock_costs_one_hash_and_no_answer() {
    let initiation = first(&mut terminal(TERMINAL));
    for handshakes_per_second in [0, 100] {
        let mut hub = Hub::new(handshakes_per_second);
        assert_eq!(hub.cost(TERMINAL, &with_a_wrong_knock(&initiation)), hashes(1));
        let foreign = with_a_wrong_knock(&of_another_version(&initiation));
        assert_eq!(hub.cost(TERMINAL, &foreign), hashes(1));
        assert_eq!(hub.answer(), None);
    }
}

#[test]
fn another_version_costs_two_hashes() {
    let foreign = of_another_version(&first(&mut terminal(TERMINAL)));
    let mut hub = Hub::new(100);
    assert_eq!(hub.cost(TERMINAL, &foreign), hashes(2), "the knock, and the answer's tag");
    assert!(hub.answer().is_some());
}

#[test]
fn without_a_good_cookie_nothing_is_read_once_the_budget_is_spent() {
    let initiation = first(&mut terminal(TERMINAL));
    let forged = knocked(&initiation, |message| message[COOKIE] ^= 1);
    let mut hub = Hub::new(0);
    // The knock, the requested cookie, and the tag of the request.
    assert_eq!(hub.cost(TERMINAL, &initiation), hashes(3));
    // Plus the expected cookies of two periods.
    assert_eq!(hub.cost(TERMINAL, &forged), hashes(5));

    let mut hub = Hub::new(1);
    let strangers = first(&mut terminal(STRANGER));
    assert_eq!(
        hub.cost(STRANGER, &strangers),
        handshake_after(1),
        "in the budget, not on the list"
    );
    assert_eq!(hub.answer(), None);
    assert_eq!(hub.cost(STRANGER, &strangers), hashes(3), "beyond it");
}

#[test]
fn with_a_cookie_no_more_is_read_in_vain_than_a_network_has_for_itself() {
    let (mut hub, mut stranger) = (Hub::new(0), terminal(STRANGER));
    hub.cost(STRANGER, &first(&mut stranger));
    let mut asked = hub.answer().unwrap();
    stranger.handle_datagram(NOW, address(HUB), &mut asked);
    let proven = first(&mut stranger);
    let costs = [(); 5].map(|()| hub.cost(STRANGER, &proven));
    // The knock and the cookie.
    let [read, refused] = [handshake_after(2), hashes(2)];
    assert_eq!(costs, [read, read, read, refused, refused]);
    assert_eq!(hub.answer(), None);
}

#[test]
fn an_initiation_that_is_answered_is_not_read_again() {
    let initiation = first(&mut terminal(TERMINAL));
    let mut hub = Hub::new(100);
    assert_eq!(hub.cost(TERMINAL, &initiation), handshake_after(1));
    assert!(hub.answer().is_some());
    assert_eq!(hub.cost(TERMINAL, &initiation), hashes(1));
    assert_eq!(hub.cost(STRANGER, &initiation), hashes(3), "a cookie is asked for elsewhere");
}
