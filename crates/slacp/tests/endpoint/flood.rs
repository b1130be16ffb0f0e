//! Strangers cost a hub next to nothing: they use no memory, get back no more bytes than they send,
//! and cannot break a terminal's session.

use core::time::Duration;
use std::net::SocketAddr;

use crate::counting::live_bytes;
use link::testkit::{Net, Peer};
use link::{LinkConfig, LossModel, QueueLimit};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use slacp::{Config, Endpoint, EndpointFootprint, Event, KeyPair};
use units::{BitRate, ByteCount, Instant, Machine};

fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

const HUB_KEY: u8 = 1;
const TERMINAL_KEY: u8 = 2;

fn config() -> Config {
    Config::new(BitRate::from_mbit(50))
}

fn hub() -> Endpoint {
    Endpoint::hub(config(), key(HUB_KEY), vec![key(TERMINAL_KEY).public()], [9; 32])
}

fn terminal(own: u8, hub: u8, life: u8) -> Endpoint {
    let addresses = vec![address(1, 1)];
    Endpoint::terminal(config(), key(own), key(hub).public(), addresses, [life; 32])
}

/// Peer 0 is the terminal and 1 the hub; all others are strangers.
fn address(peer: u32, port: u16) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 | peer).to_be_bytes(), port))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Flood {
    /// Random bytes that start like datagrams.
    Garbage,
    /// Initiations to another hub.
    WrongHub,
    /// Initiations by a key that is not served, from forged addresses.
    NotListed,
    /// Replayed initiations of the terminal, also from its own address.
    Replay,
    /// Packets of unknown sessions.
    NoSession,
}

const FLOODS: [Flood; 5] =
    [Flood::Garbage, Flood::WrongHub, Flood::NotListed, Flood::Replay, Flood::NoSession];

/// Generates the datagrams of a flood.
struct Stranger {
    flood: Flood,
    rng: ChaCha20Rng,
    recorded: Vec<Vec<u8>>,
    count: usize,
}

impl Stranger {
    fn new(flood: Flood) -> Self {
        let (own, hub) = match flood {
            Flood::WrongHub => (3, 4),
            Flood::Replay => (TERMINAL_KEY, HUB_KEY),
            _ => (3, HUB_KEY),
        };
        let recorded = (0..100).map(|life| first(&mut terminal(own, hub, life))).collect();
        Self { flood, rng: ChaCha20Rng::from_seed([7; 32]), recorded, count: 0 }
    }

    fn next(&mut self) -> (SocketAddr, Vec<u8>) {
        self.count += 1;
        let random = self.rng.next_u32();
        let mut from = address(2 + random % 0xff_fff0, random as u16);
        let datagram = match self.flood {
            Flood::Garbage => {
                self.garbage(&[0x01, 0x02, 0x03, 0x04, 0x05, 0x40, 0x63, random as u8])
            }
            Flood::NoSession => self.garbage(&[0x40, 0x41, 0x62, 0x63]),
            _ => self.recorded[self.count % self.recorded.len()].clone(),
        };
        if self.flood == Flood::Replay && self.count.is_multiple_of(2) {
            from = address(0, 1);
        }
        (from, datagram)
    }

    fn garbage(&mut self, first: &[u8]) -> Vec<u8> {
        let length = 1 + self.rng.next_u32() as usize % 1400;
        let mut datagram = vec![0; length];
        self.rng.fill_bytes(&mut datagram);
        datagram[0] = first[self.count % first.len()];
        if let Some(version) = datagram.get_mut(1)
            && self.count.is_multiple_of(3)
        {
            *version = 1;
        }
        datagram
    }
}

/// The first datagram that an endpoint sends.
fn first(endpoint: &mut Endpoint) -> Vec<u8> {
    let mut datagram = Vec::new();
    endpoint.handle_timeout(at(1.0));
    endpoint.poll_transmit(at(1.0), &mut datagram).unwrap();
    datagram
}

#[test]
fn a_flood_leaves_nothing_behind_and_gets_no_more_than_it_sent() {
    for flood in FLOODS {
        let (mut hub, mut stranger) = (hub(), Stranger::new(flood));
        let (mut taken, mut given, mut answers, mut most) = (0, 0, 0, 0);
        let mut buf = Vec::with_capacity(2000);
        let before = live_bytes();
        for i in 0..20_000u32 {
            let now = at(1.0) + Duration::from_micros(100) * i;
            let (from, mut datagram) = stranger.next();
            taken += datagram.len();
            hub.handle_datagram(now, from, &mut datagram);
            drop(datagram);
            hub.handle_timeout(now);
            while hub.poll_transmit(now, &mut buf).is_some() {
                given += buf.len();
                answers += 1;
            }
            assert!(given <= taken, "{flood:?}: {given} bytes for {taken}");
            most = most.max(live_bytes() - before);
            let EndpointFootprint { sessions, handshakes, waiting } = hub.footprint();
            assert!((sessions, handshakes) <= (0, 1) && waiting <= 1024, "{flood:?}");
        }
        println!(
            "{flood:?}: {taken} bytes in, {answers} answers of {given} bytes; most {most} held"
        );
        assert_eq!(answers == 0, flood == Flood::WrongHub, "{flood:?}");
        assert!(most < 100_000, "{flood:?}: {most} bytes held");
        hub.handle_timeout(at(60.0));
        assert_eq!(hub.footprint(), EndpointFootprint::default(), "{flood:?}");
        assert_eq!(hub.poll_event(), None);
        assert!(live_bytes() - before < 40_000, "{flood:?}: {} bytes kept", live_bytes() - before);
    }
}

/// A participant that appends the true or forged source to its datagrams.
enum Node {
    Gateway { endpoint: Box<Endpoint>, address: SocketAddr, up: Option<Instant>, downs: usize },
    Stranger { stranger: Box<Stranger>, due: Instant, every: Duration },
}

impl Node {
    fn gateway(endpoint: Endpoint, peer: u32) -> Self {
        Self::Gateway { endpoint: endpoint.into(), address: address(peer, 1), up: None, downs: 0 }
    }

    fn up(&self) -> Option<Instant> {
        match self {
            Self::Gateway { up, .. } => *up,
            Self::Stranger { .. } => None,
        }
    }

    fn take_events(&mut self, now: Instant) {
        let Self::Gateway { endpoint, up, downs, .. } = self else { return };
        while let Some((_, event)) = endpoint.poll_event() {
            match event {
                Event::Up { .. } => *up = up.or(Some(now)),
                _ => *downs += 1,
            }
        }
    }
}

fn with_source(mut datagram: Vec<u8>, from: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(from) = from else { panic!("the test speaks IPv4") };
    datagram.extend_from_slice(&from.ip().octets());
    datagram.extend_from_slice(&from.port().to_be_bytes());
    datagram
}

impl Machine for Node {
    type Wake = ();

    fn poll_timeout(&self) -> Option<(Instant, ())> {
        match self {
            Self::Gateway { endpoint, .. } => endpoint.poll_timeout().map(|(at, _)| (at, ())),
            Self::Stranger { due, .. } => Some((*due, ())),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Self::Gateway { endpoint, .. } = self {
            endpoint.handle_timeout(now);
        }
        self.take_events(now);
    }
}

impl Peer for Node {
    fn receive(&mut self, now: Instant, _from: usize, mut datagram: Vec<u8>) {
        let source = datagram.split_off(datagram.len() - 6);
        let from = SocketAddr::from((
            [source[0], source[1], source[2], source[3]],
            u16::from_be_bytes([source[4], source[5]]),
        ));
        if let Self::Gateway { endpoint, .. } = self {
            endpoint.handle_datagram(now, from, &mut datagram);
        }
        self.take_events(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        match self {
            Self::Gateway { endpoint, address: own, .. } => {
                let mut datagram = Vec::new();
                let to = endpoint.poll_transmit(now, &mut datagram)?;
                let to = (0..2).find(|peer| address(*peer, 1) == to).unwrap_or(2);
                Some((to as usize, with_source(datagram, *own)))
            }
            Self::Stranger { stranger, due, every } => {
                if *due > now {
                    return None;
                }
                *due += *every;
                let (from, datagram) = stranger.next();
                Some((1, with_source(datagram, from)))
            }
        }
    }
}

/// When the terminal and the hub have their session. Both start at zero over a GEO hop while a
/// stranger sends 2,000 datagrams a second.
fn connect_during(flood: Flood) -> (Instant, Instant) {
    let stranger = Node::Stranger {
        stranger: Stranger::new(flood).into(),
        due: Instant::ZERO,
        every: Duration::from_micros(500),
    };
    let nodes = vec![Node::gateway(terminal(2, 1, 200), 0), Node::gateway(hub(), 1), stranger];
    let mut net = Net::new(nodes, 3);
    net.set_overhead(link::testkit::UDP_IPV4_OVERHEAD - 6);
    let link = |mbit, delay| {
        let queue = QueueLimit::Bytes(ByteCount::new(4_000_000));
        LinkConfig::new(
            BitRate::from_mbit(mbit),
            Duration::from_millis(delay),
            LossModel::None,
            queue,
        )
    };
    net.join(0, 1, link(50, 305));
    net.join(1, 2, link(100, 10));
    net.run_until(|nodes| nodes[0].up().is_some() && nodes[1].up().is_some(), at(60.0)).unwrap();
    let up = [0, 1].map(|node: usize| net.peers()[node].up().unwrap());
    net.run_for(Duration::from_secs(20)).unwrap();
    for node in &net.peers()[..2] {
        let Node::Gateway { downs, .. } = node else { panic!() };
        assert_eq!(*downs, 0, "{flood:?}: the session suffered");
    }
    (up[0], up[1])
}

#[test]
fn a_terminal_connects_during_a_flood() {
    for flood in FLOODS {
        let (terminal, hub) = connect_during(flood);
        println!("{flood:?}: session up at {terminal} and {hub}");
        // One round trip, and another where the hub asks for a cookie.
        let round_trips = if matches!(flood, Flood::NotListed | Flood::Replay) { 2 } else { 1 };
        assert!(round_trips == 1 || terminal > at(1.0), "{flood:?}: no cookie was asked for");
        let limit = Duration::from_millis(610) * round_trips + Duration::from_millis(20);
        assert!(terminal <= Instant::ZERO + limit, "{flood:?}: {terminal}");
        assert!(hub <= Instant::ZERO + limit + Duration::from_millis(305), "{flood:?}: {hub}");
    }
}
