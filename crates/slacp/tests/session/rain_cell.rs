//! A thousand terminals behind one hub that all fade and recover at once.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use slacp::{Config, Endpoint, Event, KeyPair};
use units::{BitRate, Instant, Machine};

const TERMINALS: usize = 1000;
const HUB: usize = TERMINALS;
const DELAY: Duration = Duration::from_millis(300);
/// How often the hub is served: the link's time slots.
const SLOT: Duration = Duration::from_millis(50);

fn key(n: usize) -> KeyPair {
    let mut seed = [1; 32];
    // Not the first byte: its low bits are not part of the key.
    seed[8..16].copy_from_slice(&(n as u64).to_le_bytes());
    KeyPair::from_private(seed)
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 5900))
}

fn number(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { panic!() };
    let [_, _, high, low] = address.ip().octets();
    usize::from(high) << 8 | usize::from(low)
}

/// A datagram in flight: arrival time, source and destination.
struct Flight {
    at: Instant,
    from: usize,
    to: usize,
    datagram: Vec<u8>,
}

struct Cell {
    now: Instant,
    hub: Endpoint,
    terminals: Vec<Endpoint>,
    /// When each terminal wants to be woken; entries may be stale.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    flights: VecDeque<Flight>,
    /// Nothing arrives while this is set.
    rain: bool,
    /// IP bytes sent by the hub, and by all terminals.
    sent: [u64; 2],
    /// Which terminals' sessions each of the two sides considers reachable.
    reachable: [Vec<bool>; 2],
    sessions: Vec<Option<slacp::SessionId>>,
}

impl Cell {
    fn new(rate: BitRate, seed: u8) -> Self {
        let allow = (0..TERMINALS).map(|n| key(n).public()).collect();
        let hub = Endpoint::hub(Config::new(rate), key(HUB), allow, [seed; 32]);
        let terminal = |n: usize| {
            let mut own = [seed; 32];
            own[..8].copy_from_slice(&(n as u64).to_le_bytes());
            let config = Config::new(BitRate::from_mbit(1));
            Endpoint::terminal(config, key(n), key(HUB).public(), vec![address(HUB)], own)
        };
        Self {
            now: Instant::from_nanos(1_000_000_000),
            hub,
            terminals: (0..TERMINALS).map(terminal).collect(),
            wakes: (0..TERMINALS).map(|n| Reverse((Instant::ZERO, n))).collect(),
            flights: VecDeque::new(),
            rain: false,
            sent: [0; 2],
            reachable: [vec![false; TERMINALS], vec![false; TERMINALS]],
            sessions: vec![None; TERMINALS],
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.slot();
        }
    }

    /// Runs until a side considers all reachable; returns how long that took.
    fn until_reachable(&mut self, most: Duration) -> Duration {
        let start = self.now;
        while self.reachable.iter().flatten().any(|reachable| !reachable) {
            self.slot();
            let time = self.now.saturating_since(start);
            assert!(time <= most, "{} are not back", self.missing());
        }
        self.now.saturating_since(start)
    }

    fn missing(&self) -> usize {
        self.reachable.iter().flatten().filter(|reachable| !**reachable).count()
    }

    fn slot(&mut self) {
        self.now += SLOT;
        while self.flights.front().is_some_and(|flight| flight.at <= self.now) {
            let Some(mut flight) = self.flights.pop_front() else { break };
            if self.rain {
                continue;
            }
            let to = if flight.to == HUB { &mut self.hub } else { &mut self.terminals[flight.to] };
            to.handle_datagram(self.now, address(flight.from), &mut flight.datagram);
            if flight.to != HUB {
                self.serve(flight.to);
            }
        }
        while let Some(Reverse((at, n))) = self.wakes.pop() {
            if at > self.now {
                self.wakes.push(Reverse((at, n)));
                break;
            }
            if self.terminals[n].poll_timeout().is_some_and(|(due, _)| due <= self.now) {
                self.serve(n);
            }
        }
        self.hub.handle_timeout(self.now);
        self.send(HUB);
        while let Some((session, event)) = self.hub.poll_event() {
            match event {
                Event::Up { address, .. } => {
                    self.sessions[number(address)] = Some(session);
                    self.reachable[0][number(address)] = true;
                }
                Event::Reachable | Event::Unreachable => {
                    let known = self.sessions.iter().position(|known| *known == Some(session));
                    self.reachable[0][known.unwrap()] = event == Event::Reachable;
                }
                event => panic!("{event:?}"),
            }
        }
    }

    /// Serves a terminal.
    fn serve(&mut self, n: usize) {
        self.terminals[n].handle_timeout(self.now);
        self.send(n);
        while let Some((_, event)) = self.terminals[n].poll_event() {
            self.reachable[1][n] = match event {
                Event::Up { .. } | Event::Reachable => true,
                Event::Unreachable => false,
                event => panic!("{event:?}"),
            };
        }
        if let Some((due, _)) = self.terminals[n].poll_timeout() {
            self.wakes.push(Reverse((due.max(self.now + Duration::from_nanos(1)), n)));
        }
    }

    fn send(&mut self, from: usize) {
        let mut buf = Vec::new();
        let endpoint = if from == HUB { &mut self.hub } else { &mut self.terminals[from] };
        while let Some(to) = endpoint.poll_transmit(self.now, &mut buf) {
            let to = if from == HUB { number(to) } else { HUB };
            self.sent[usize::from(from != HUB)] += buf.len() as u64 + 28;
            let at = self.now + DELAY;
            self.flights.push_back(Flight { at, from, to, datagram: buf.clone() });
        }
    }
}

/// The hub's probes take 1 % of its rate, however many sessions it probes. When the rain is over,
/// all are back within a round trip and a probe interval, without a storm.
#[test]
fn a_thousand_terminals_that_fade_and_wake_together_do_not_storm() {
    let rate = BitRate::from_mbit(50);
    let mut cell = Cell::new(rate, 1);
    cell.until_reachable(Duration::from_secs(20));
    cell.run(Duration::from_secs(60));
    let one_percent = |time: u64| rate.bytes_in(Duration::from_secs(time)).get() / 100;
    cell.rain = true;
    // Idle sessions notice when their next keepalive is due.
    cell.run(Duration::from_secs(20));
    assert_eq!(cell.missing(), 2 * TERMINALS, "all know");
    let mut most = 0;
    for _ in 0..58 {
        let before = cell.sent[0];
        cell.run(Duration::from_secs(10));
        most = most.max(cell.sent[0] - before);
    }
    println!("at most {most} bytes of {} in 10 s", one_percent(10));
    assert!(most <= one_percent(10), "{most} bytes of {}", one_percent(10));
    cell.rain = false;
    let before = cell.sent;
    let time = cell.until_reachable(Duration::from_secs(10));
    let [hub, terminals] = [0, 1].map(|side| cell.sent[side] - before[side]);
    println!("all back after {time:?}; {hub} bytes from the hub, {terminals} from the terminals");
    // 2 s between probes, a round trip, one-way delay of an acknowledgement, and time slots.
    assert!(time <= Duration::from_millis(2000 + 600 + 300 + 100), "{time:?}");
    // A few small packets each: below 5 % of the hub's rate.
    assert!(hub < 5 * one_percent(3), "{hub} bytes");
    assert!(terminals < 500 * TERMINALS as u64, "{terminals} bytes");
}

/// A thousand terminals start at once while their hub is away: their messages must spread out.
#[test]
fn terminals_that_begin_together_do_not_go_on_together() {
    let mut cell = Cell::new(BitRate::from_mbit(50), 2);
    let (window, mut sent) = (Duration::from_millis(100), Vec::new());
    while cell.now < Instant::from_nanos(61_000_000_000) {
        cell.now += window;
        let before = cell.sent[1];
        for n in 0..TERMINALS {
            cell.serve(n);
        }
        sent.push((cell.sent[1] - before) as f64);
    }
    cell.flights.clear();
    let mean = |bytes: &[f64]| bytes.iter().sum::<f64>() / bytes.len() as f64;
    let most = |bytes: &[f64]| bytes.iter().fold(0.0_f64, |a, b| a.max(*b));
    // From the third transmission on they differ by more than a second.
    for (from, to) in [(7, 30), (30, 60)] {
        let part = &sent[from * 10..to * 10];
        println!("{from} to {to} s: {:.0} bytes in 100 ms, at most {:.0}", mean(part), most(part));
        assert!(most(part) < 5.0 * mean(part), "{from} to {to} s");
    }
}
