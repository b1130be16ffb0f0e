//! Terminals that move, and attackers who pretend that they have.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use slacp::{
    Config, Endpoint, Event, KeyPair, Rate, ReadOutcome, SessionId, StreamId, StreamOpening,
};
use units::{BitRate, Instant, Machine};

const RATE: BitRate = BitRate::from_mbit(10);
const ONE_WAY: Duration = Duration::from_millis(300);
const OVERHEAD: usize = 28;
const TERMINAL: SocketAddr = address(1);
const HUB: SocketAddr = address(2);
const MOVED: SocketAddr = address(3);
const THIEF: SocketAddr = address(66);

const fn address(last: u8) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last)), 7)
}

/// What an attacker on the path does with every packet of the terminal.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Attack {
    None,
    /// Sends a copy from the attacker's address, which arrives first.
    Copy,
    /// Also forwards to the terminal what arrives there.
    Relay,
}

struct World {
    now: Instant,
    terminal: Endpoint,
    hub: Endpoint,
    /// The terminal's address.
    place: SocketAddr,
    attack: Attack,
    /// Whether the path to the hub, and the path from it, is cut.
    cut: [bool; 2],
    /// By time and number: whether it is for the hub, its source, and the datagram.
    under_way: BTreeMap<(Instant, u64), (bool, SocketAddr, Vec<u8>)>,
    count: u64,
    /// IP bytes that the hub sent to each address, and received from it.
    sent: BTreeMap<SocketAddr, usize>,
    got: BTreeMap<SocketAddr, usize>,
    session: Option<SessionId>,
    hub_session: Option<SessionId>,
    stream: Option<(SessionId, StreamId)>,
    received: usize,
    events: Vec<(Instant, Event)>,
}

impl World {
    /// A session on which the hub sends continuously at 10 Mbit/s, as reported by modems.
    fn new() -> Self {
        let key = |seed: u8| KeyPair::from_private([seed; 32]);
        let mut config = Config::new(RATE);
        config.rate = Rate::Modem { initial: RATE };
        let (own, hub) = (key(1), key(2));
        let mut world = Self {
            now: Instant::ZERO,
            terminal: Endpoint::terminal(
                config.clone(),
                own.clone(),
                hub.public(),
                vec![HUB],
                [1; 32],
            ),
            hub: Endpoint::hub(config, hub, vec![own.public()], [2; 32]),
            place: TERMINAL,
            attack: Attack::None,
            cut: [false; 2],
            under_way: BTreeMap::new(),
            count: 0,
            sent: BTreeMap::new(),
            got: BTreeMap::new(),
            session: None,
            hub_session: None,
            stream: None,
            received: 0,
            events: Vec::new(),
        };
        world.run(Duration::from_secs(5));
        world
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.own();
            self.transmit();
            let next = [self.terminal.poll_timeout(), self.hub.poll_timeout()];
            let timers = next.iter().flatten().map(|next| next.0);
            let arrivals = self.under_way.keys().next().map(|key| key.0);
            self.now = timers.chain(arrivals).min().unwrap_or(end).clamp(self.now, end);
            self.deliver();
            self.terminal.handle_timeout(self.now);
            self.hub.handle_timeout(self.now);
        }
    }

    /// What the two owners do.
    fn own(&mut self) {
        while let Some((session, event)) = self.terminal.poll_event() {
            if let Event::Up { .. } = event {
                let open =
                    StreamOpening { destination: address(9), source: address(8), dscp: None };
                self.session = Some(session);
                let stream = self.terminal.open(self.now, session, open).unwrap();
                self.stream = Some((session, stream));
            }
        }
        if let Some((session, stream)) = self.stream {
            let mut buf = [0; 65536];
            while let Ok(ReadOutcome::Data(count)) = self.terminal.read(session, stream, &mut buf) {
                self.received += count;
            }
        }
        while let Some((session, event)) = self.hub.poll_event() {
            self.hub_session = Some(session);
            match event {
                Event::Opened { stream, .. } | Event::Writable(stream) => {
                    while self.hub.write(session, stream, &[7; 65536]) == Ok(65536) {}
                }
                event => self.events.push((self.now, event)),
            }
        }
    }

    fn transmit(&mut self) {
        let mut buf = Vec::new();
        while self.terminal.poll_transmit(self.now, &mut buf).is_some() {
            self.send(ONE_WAY, true, self.place, &buf);
            if self.attack != Attack::None {
                self.send(ONE_WAY - Duration::from_millis(10), true, THIEF, &buf);
            }
        }
        while let Some(to) = self.hub.poll_transmit(self.now, &mut buf) {
            *self.sent.entry(to).or_default() += buf.len() + OVERHEAD;
            if to == self.place || to == THIEF && self.attack == Attack::Relay {
                self.send(ONE_WAY, false, HUB, &buf);
            }
        }
    }

    fn send(&mut self, delay: Duration, to_hub: bool, from: SocketAddr, datagram: &[u8]) {
        self.count += 1;
        let datagram = (to_hub, from, datagram.to_vec());
        self.under_way.insert((self.now + delay, self.count), datagram);
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to_hub, from, mut datagram) = entry.remove();
            let to = if to_hub { &mut self.hub } else { &mut self.terminal };
            if to_hub {
                *self.got.entry(from).or_default() += datagram.len() + OVERHEAD;
            }
            if !self.cut[usize::from(!to_hub)] {
                to.handle_datagram(self.now, from, &mut datagram);
            }
        }
    }

    /// Reports `rate` from the modems of the terminal and the hub for which `told` is set.
    fn tell(&mut self, told: [bool; 2], rate: BitRate) {
        const VALID_FOR: Duration = Duration::from_secs(1000);
        if told[0] {
            let session = self.session.unwrap();
            self.terminal.set_rate(self.now, session, rate, VALID_FOR).unwrap();
        }
        if told[1] {
            let session = self.hub_session.unwrap();
            self.hub.set_rate(self.now, session, rate, VALID_FOR).unwrap();
        }
    }

    /// Bytes that the terminal receives in this time.
    fn receives(&mut self, time: Duration) -> usize {
        let before = self.received;
        self.run(time);
        self.received - before
    }

    fn sent_to(&self, address: SocketAddr) -> usize {
        self.sent.get(&address).copied().unwrap_or(0)
    }
}

#[test]
fn traffic_follows_a_terminal_that_moves_once_it_has_answered_there() {
    let mut world = World::new();
    let before = world.receives(Duration::from_secs(10));
    world.place = MOVED;
    let moved_at = world.now;
    while world.sent_to(MOVED) < 10_000 {
        let (sent, got) = (world.sent_to(MOVED), world.got.get(&MOVED).copied().unwrap_or(0));
        let moved = world.events.iter().any(|(_, event)| matches!(event, Event::Moved { .. }));
        assert!(moved || sent <= 3 * got, "{sent} bytes to an address that sent {got}");
        world.run(Duration::from_millis(1));
    }
    let time = world.now.saturating_since(moved_at);
    println!("moved after {time:?}");
    // The path to the hub, a round trip, and how late answers may be.
    assert!(time < Duration::from_millis(300 + 600 + 150), "{time:?}");
    world.run(Duration::from_secs(5));
    let old = world.sent_to(TERMINAL);
    let after = world.receives(Duration::from_secs(10));
    assert_eq!(world.sent_to(TERMINAL), old);
    assert!(after as f64 > before as f64 * 0.99, "{after} of {before} bytes");
    let session: Vec<&Event> = world.events.iter().map(|(_, event)| event).collect();
    assert!(
        matches!(session[..], [Event::Up { .. }, Event::Moved { address: MOVED }]),
        "{session:?}"
    );
}

#[test]
fn copies_from_another_address_move_nothing() {
    for attack in [Attack::Copy, Attack::Relay] {
        let mut world = World::new();
        let before = world.receives(Duration::from_secs(10));
        world.attack = attack;
        let after = world.receives(Duration::from_secs(60)) / 6;
        let (sent, got) = (world.sent_to(THIEF), world.got[&THIEF]);
        println!("{attack:?}: {sent} bytes to the thief, who sent {got}");
        assert!(matches!(world.events[..], [(_, Event::Up { .. })]), "{:?}", world.events);
        assert!(sent <= 3 * got && sent < 30_000, "{sent} bytes to the thief, who sent {got}");
        assert!(after as f64 > before as f64 * 0.99, "{attack:?}: {after} of {before} bytes");
    }
}

#[test]
fn a_session_led_astray_comes_back() {
    let mut world = World::new();
    // The terminal's own path is cut while a relay works, so the relay becomes the path.
    world.attack = Attack::Relay;
    world.place = MOVED;
    world.run(Duration::from_secs(10));
    let led = world.events.iter().any(|(_, event)| matches!(event, Event::Moved { .. }));
    assert!(led, "{:?}", world.events);
    world.attack = Attack::None;
    let stolen = world.now;
    let before = world.sent_to(MOVED);
    while world.sent_to(MOVED) < before + 10_000 {
        world.run(Duration::from_millis(1));
    }
    let time = world.now.saturating_since(stolen);
    println!("back after {time:?}");
    assert!(time < Duration::from_millis(300 + 600 + 150 + 1000), "{time:?}");
}

/// What happens to the link, and how long until data arrives at the new address.
struct Fade {
    /// Whether the path to the hub, and the path from it, is cut.
    cut: [bool; 2],
    /// Whether the terminal's modem, and the hub's, reports rate 0.
    told: [bool; 2],
    limit: Duration,
}

/// The hub hears of the new address, challenges it, probes it at once, and sends: half a round
/// trip, the probe delay, and a round trip and a half. Then 100 kB take 80 ms.
const MOVE: Duration = Duration::from_millis(300 + 700 + 900 + 100);
/// Until a side probes whose modem has reported nothing.
const PROBE: Duration = Duration::from_secs(2);
/// A candidate that cannot answer is dropped after three probe delays.
const CANDIDATE: Duration = Duration::from_millis(3 * 700);

const FADES: [Fade; 6] = [
    Fade { cut: [true, true], told: [true, true], limit: MOVE },
    Fade { cut: [true, true], told: [true, false], limit: MOVE },
    Fade { cut: [true, true], told: [false, true], limit: MOVE.saturating_add(PROBE) },
    Fade { cut: [true, false], told: [true, false], limit: MOVE },
    Fade { cut: [false, true], told: [false, true], limit: MOVE.saturating_add(CANDIDATE) },
    // The modems are wrong: the terminal has moved before the rate is back.
    Fade { cut: [false, false], told: [true, true], limit: Duration::from_millis(600) },
];

#[test]
fn a_terminal_that_moves_while_the_rate_is_0_is_served_there_when_the_rate_is_back() {
    for Fade { cut, told, limit } in FADES {
        let mut world = World::new();
        let before = world.receives(Duration::from_secs(10));
        world.cut = cut;
        world.tell(told, BitRate::from_bits_per_second(0));
        world.run(Duration::from_secs(10));
        world.place = MOVED;
        world.run(Duration::from_secs(10));
        world.cut = [false; 2];
        world.tell(told, RATE);
        let (back, received) = (world.now, world.received);
        while world.received < received + 100_000 && world.now < back + limit {
            world.run(Duration::from_millis(1));
        }
        let time = world.now.saturating_since(back);
        println!("cut {cut:?}, told {told:?}: {time:?}");
        assert!(time < limit, "cut {cut:?}, told {told:?}: {:?}", world.events);
        let moves = world.events.iter().filter(|(_, event)| matches!(event, Event::Moved { .. }));
        assert_eq!(moves.count(), 1, "{:?}", world.events);

        // Lost data is resent meanwhile.
        world.run(Duration::from_secs(5));
        let old = world.sent_to(TERMINAL);
        let after = world.receives(Duration::from_secs(10));
        assert_eq!(world.sent_to(TERMINAL), old);
        assert!(after as f64 > before as f64 * 0.99, "{after} of {before} bytes");
    }
}
