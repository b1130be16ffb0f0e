//! What a hub costs that serves one terminal at full speed beside idle ones:
//! `cargo bench -p skyhop-slacp --bench sessions [-- GIGABYTES [ROUNDS]]`.
//!
//! Time and network are virtual. What is measured is the CPU time of all of the hub's
//! calls, in the order in which the gateway makes them. No keepalive is due during the
//! transfer; what they cost is a column of its own, for both sides together. Then
//! what a datagram of an unknown session costs, and the memory of a session that has
//! carried nothing. Medians of rounds that are interleaved.

#[path = "../tests/kit/counting.rs"]
mod counting;
#[path = "../tests/kit/star.rs"]
mod star;

use core::time::Duration;
use std::hint::black_box;
use std::net::SocketAddr;

use counting::live_bytes;
use nix::time::{ClockId, clock_gettime};
use report::{TableColumn, TextTable};
use slacp::{Config, Endpoint, Event, ReadOutcome, SessionId, StreamId, StreamOpening};
use star::{Star, terminal};
use units::{BitRate, Instant, Machine};

const COUNTS: [u32; 4] = [1, 100, 400, 4000];

/// So fast that the pacer never waits.
const RATE: BitRate = BitRate::from_mbit(100_000);

/// The CPU time that this thread has used, in seconds.
fn cpu() -> f64 {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap()).as_secs_f64()
}

/// Adds the CPU time of `what` to `sum`.
fn timed<T>(sum: &mut f64, what: impl FnOnce() -> T) -> T {
    let before = cpu();
    let result = what();
    *sum += cpu() - before;
    result
}

fn address(n: u32) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 + n).to_be_bytes(), 5900))
}

fn config(keepalive: Duration) -> Config {
    let mut config = Config::new(RATE);
    config.keepalive = keepalive;
    config.aes = true;
    config
}

/// A hub with so many sessions, all idle and done with what a new session does.
fn idle(sessions: u32, keepalive: Duration) -> Star {
    let mut star = Star::new(&config(keepalive), sessions, Duration::from_millis(1));
    for n in 1..=sessions {
        star.add(terminal(config(keepalive), n, 1), address(n));
        star.run_for(Duration::from_millis(2));
    }
    star.run_for(Duration::from_secs(20));
    assert_eq!(star.nodes[0].sessions(), sessions as usize);
    star
}

/// A hub of which the first session has a stream.
struct Busy {
    star: Star,
    hub: (SessionId, StreamId),
    terminal: (SessionId, StreamId),
}

impl Busy {
    fn new(sessions: u32) -> Self {
        let mut star = idle(sessions, Duration::from_secs(86_400));
        let theirs = star.nodes[1].session().unwrap();
        let open = StreamOpening { destination: address(9), source: address(8), dscp: None };
        let stream = star.nodes[1].endpoint.open(star.now, theirs, open).unwrap();
        star.serve(1);
        star.run_for(Duration::from_secs(1));
        let opened = star.nodes[0].events.iter().find_map(|(_, id, event)| match event {
            Event::Opened { stream, .. } => Some((*id, *stream)),
            _ => None,
        });
        Self { star, hub: opened.unwrap(), terminal: (theirs, stream) }
    }

    /// Carries bytes; the CPU seconds of the hub's calls.
    fn carry(&mut self, bytes: u64) -> f64 {
        let (mut sum, mut to_read, mut buffer) = (0.0, bytes, vec![0; 1 << 16]);
        let mut to_write = bytes;
        while to_read > 0 {
            self.star.now += Duration::from_millis(1);
            let now = self.star.now;
            let [hub, terminal] = self.star.nodes.get_disjoint_mut([0, 1]).unwrap();
            let (hub, terminal) = (&mut hub.endpoint, &mut terminal.endpoint);
            let mut packets = timed(&mut sum, || {
                let most = to_write.min(1 << 16) as usize;
                to_write -= hub.write(self.hub.0, self.hub.1, &buffer[..most]).unwrap() as u64;
                drive(hub, now)
            });
            for packet in &mut packets {
                terminal.handle_datagram(now, star::hub_address(), packet);
            }
            while let Ok(ReadOutcome::Data(count)) =
                terminal.read(self.terminal.0, self.terminal.1, &mut buffer)
            {
                to_read -= count as u64;
            }
            let mut answers = drive(terminal, now);
            timed(&mut sum, || {
                for answer in &mut answers {
                    hub.handle_datagram(now, address(1), answer);
                }
            });
        }
        sum
    }
}

/// What a driver does in a turn; gives what is to be sent.
fn drive(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    if endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
        endpoint.handle_timeout(now);
    }
    while endpoint.poll_event().is_some() {}
    while endpoint.poll_packet().is_some() {}
    let (mut packets, mut buf) = (Vec::new(), Vec::new());
    while endpoint.poll_transmit(now, &mut buf).is_some() {
        packets.push(core::mem::take(&mut buf));
    }
    black_box(endpoint.poll_timeout());
    packets
}

/// CPU seconds of both sides for a session and a second in which nothing happens but
/// keepalives.
fn keepalives(sessions: u32) -> f64 {
    let (mut star, mut sum) = (idle(sessions, Duration::from_secs(10)), 0.0);
    timed(&mut sum, || star.run_for(Duration::from_secs(40)));
    sum / 40.0 / f64::from(sessions)
}

/// CPU seconds of the hub for a datagram of a session that does not exist.
fn unknown(star: &mut Star) -> f64 {
    const DATAGRAMS: u32 = 20_000;
    let (now, mut sum) = (star.now, 0.0);
    let hub = star.hub();
    timed(&mut sum, || {
        for n in 0..DATAGRAMS {
            let mut datagram = [0x40; 60];
            datagram[1..5].copy_from_slice(&n.wrapping_mul(2_654_435_761).to_be_bytes());
            hub.handle_datagram(now, address(n), &mut datagram);
        }
    });
    sum / f64::from(DATAGRAMS)
}

/// Bytes that a hub holds for an idle session, and a terminal for itself.
fn memory() -> (isize, isize) {
    const SESSIONS: u32 = 100;
    let freed = |star: &mut Star, node: usize, by: Endpoint| {
        let before = live_bytes();
        drop(core::mem::replace(&mut star.nodes[node].endpoint, by));
        before - live_bytes()
    };
    let keepalive = Duration::from_secs(10);
    let other = || terminal(config(keepalive), 1, 1);
    let mut star = idle(SESSIONS, keepalive);
    let terminal = freed(&mut star, 1, other());
    let with = freed(&mut star, 0, other());
    let without = freed(&mut Star::new(&config(keepalive), SESSIONS, keepalive), 0, other());
    ((with - without) / SESSIONS as isize, terminal)
}

fn median(values: &[f64]) -> f64 {
    stats::median(values).expect("there were rounds")
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let gigabytes: f64 = arguments.next().map_or(0.2, |word| word.parse().unwrap());
    let rounds: usize = arguments.next().map_or(9, |word| word.parse().unwrap());
    let mut hubs = COUNTS.map(Busy::new);
    let mut costs = COUNTS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (hub, costs) in hubs.iter_mut().zip(&mut costs) {
            costs.push(hub.carry((gigabytes * 1e9) as u64) / gigabytes);
        }
    }
    let names = ["sessions", "CPU-s/GB", "ratio", "keepalives, µs/s", "unknown, µs"];
    let mut table = TextTable::new(names.map(TableColumn::right))
        .title(format!("{gigabytes} GB, {rounds} rounds, medians"));
    let alone = median(&costs[0]);
    for ((count, hub), costs) in COUNTS.into_iter().zip(&mut hubs).zip(&mut costs) {
        let (cost, unknown) = (median(costs), unknown(&mut hub.star) * 1e6);
        let keepalives = keepalives(count.min(400)) * 1e6;
        table.row([
            count.to_string(),
            format!("{cost:.2}"),
            format!("{:.2}", cost / alone),
            format!("{keepalives:.1}"),
            format!("{unknown:.2}"),
        ]);
    }
    print!("{table}");
    let (hub, terminal) = memory();
    println!("an idle session: {hub} bytes at the hub; a terminal with one: {terminal} bytes");
}
