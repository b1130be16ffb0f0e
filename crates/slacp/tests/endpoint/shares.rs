//! A hundred busy terminals share a hub's rate over a geostationary hop: by weight, and what is
//! guaranteed first.

use core::time::Duration;
use std::net::SocketAddr;

use crate::star::{Star, config, terminal};
use slacp::{Event, ReadOutcome, SessionId, SessionShare, StreamId, StreamOpening};
use units::BitRate;

const TERMINALS: u32 = 100;
const RATE: BitRate = BitRate::from_mbit(40);
const DELAY: Duration = Duration::from_millis(300);
/// How often the owners write and read.
const STEP: Duration = Duration::from_millis(20);
/// The time over which shares are compared.
const TIME: Duration = Duration::from_secs(30);
/// How far a terminal may be off its share, either way.
const TOLERANCE: f64 = 0.02;

fn address(n: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n as u8], 5900))
}

/// A hub that sends a stream to each terminal.
struct Busy {
    star: Star,
    /// The streams at the hub and at the terminals, by terminal.
    streams: Vec<[(SessionId, StreamId); 2]>,
}

impl Busy {
    fn new(parts: u8, share: impl Fn(u32) -> SessionShare) -> Self {
        let mut config = config();
        config.rate = RATE.into();
        config.aes = true;
        let mut star = Star::divided(&config, TERMINALS, DELAY, parts);
        for n in 1..=TERMINALS {
            star.add(terminal(config.clone(), n, 1), address(n));
        }
        star.run_for(Duration::from_secs(3));
        let streams = (1..=TERMINALS).map(|n| open(&mut star, n as usize)).collect();
        let mut busy = Self { star, streams };
        busy.set(share);
        busy
    }

    fn set(&mut self, share: impl Fn(u32) -> SessionShare) {
        let now = self.star.now;
        for n in 1..=TERMINALS {
            let session = self.streams[n as usize - 1][0].0;
            self.star.part(session).set_share(now, session, share(n)).unwrap();
        }
    }

    /// Offers every terminal more than its share.
    fn run(&mut self, time: Duration) {
        let (end, chunk, mut buffer) = (self.star.now + time, [7; 8192], vec![0; 1 << 16]);
        while self.star.now < end {
            let parts = usize::from(self.star.parts());
            for (n, [hub, terminal]) in (parts..).zip(&self.streams) {
                let endpoint = self.star.part(hub.0);
                while endpoint.write(hub.0, hub.1, &chunk).unwrap() == chunk.len() {}
                let endpoint = &mut self.star.nodes[n].endpoint;
                while let Ok(ReadOutcome::Data(_)) =
                    endpoint.read(terminal.0, terminal.1, &mut buffer)
                {}
                self.star.serve(n);
            }
            (0..parts).for_each(|part| self.star.serve(part));
            self.star.run_for(STEP);
        }
    }

    fn sent(&mut self) -> Vec<u64> {
        let sessions: Vec<SessionId> = self.streams.iter().map(|[hub, _]| hub.0).collect();
        let sent = |id| self.star.part(id).stats(id).unwrap().bytes_sent;
        sessions.into_iter().map(sent).collect()
    }

    /// The rate that each terminal gets, in bit/s, once all are busy.
    fn rates(&mut self) -> Vec<f64> {
        self.run(Duration::from_secs(5));
        let before = self.sent();
        self.run(TIME);
        let sent = self.sent().into_iter().zip(before).map(|(after, before)| after - before);
        sent.map(|bytes| bytes as f64 * 8.0 / TIME.as_secs_f64()).collect()
    }
}

/// A stream of a terminal, at both ends.
fn open(star: &mut Star, n: usize) -> [(SessionId, StreamId); 2] {
    let source = address(n as u32);
    let n = n + usize::from(star.parts()) - 1;
    let session = star.nodes[n].session().unwrap();
    let open = StreamOpening { destination: address(9), source, dscp: None };
    let stream = star.nodes[n].endpoint.open(star.now, session, open).unwrap();
    star.serve(n);
    star.run_for(DELAY * 2);
    let parts = usize::from(star.parts());
    let of_hub = star.nodes[..parts].iter_mut();
    let opened =
        of_hub.flat_map(|node| node.events.drain(..)).find_map(|(_, id, event)| match event {
            Event::Opened { stream, .. } => Some((id, stream)),
            _ => None,
        });
    [opened.unwrap(), (session, stream)]
}

/// The largest distance of a rate from what it is to be, relative to that.
fn furthest(rates: &[f64], expected: impl Fn(u32) -> f64) -> f64 {
    let off = (1..).zip(rates).map(|(n, rate)| (rate / expected(n) - 1.0).abs());
    off.fold(0.0, f64::max)
}

fn whole() -> f64 {
    RATE.bits_per_second() as f64
}

#[test]
fn a_hundred_busy_terminals_get_their_shares_by_weight() {
    [1, 3].into_iter().for_each(by_weight);
}

fn by_weight(parts: u8) {
    let weight = |n| 1 + n % 10;
    let share = |n| SessionShare { weight: weight(n), ..SessionShare::default() };
    let rates = Busy::new(parts, share).rates();
    let all: u32 = (1..=TERMINALS).map(weight).sum();
    let off = furthest(&rates, |n| whole() * f64::from(weight(n)) / f64::from(all));
    println!("weights, a hub in {parts}: at most {:.2} % off a share", off * 100.0);
    assert!(off <= TOLERANCE, "{off}: {rates:?}");
    let used = rates.iter().sum::<f64>() / whole();
    assert!((0.995..1.001).contains(&used), "{used} of the rate is used");
}

#[test]
fn new_weights_hold_from_then_on() {
    for parts in [1, 2] {
        let weight = |weight| SessionShare { weight, ..SessionShare::default() };
        let mut busy = Busy::new(parts, |n| weight(1 + n % 2 * 9));
        busy.run(Duration::from_secs(10));
        busy.set(|_| weight(1));
        let off = furthest(&busy.rates(), |_| whole() / f64::from(TERMINALS));
        println!("new weights, a hub in {parts}: at most {:.2} % off a share", off * 100.0);
        assert!(off <= TOLERANCE, "a hub in {parts}: {off}");
    }
}

/// Every fifth terminal has a guarantee, of 1 to 4 units.
fn units(n: u32) -> u64 {
    if n.is_multiple_of(5) { u64::from(n / 5 % 4) + 1 } else { 0 }
}

fn guaranteed(n: u32, unit: BitRate) -> SessionShare {
    let guaranteed = Some(BitRate::from_bits_per_second(units(n) * unit.bits_per_second()));
    SessionShare { guaranteed: guaranteed.filter(|_| units(n) > 0), ..SessionShare::default() }
}

#[test]
fn guarantees_hold_while_everybody_wants_more() {
    [1, 3].into_iter().for_each(guarantees);
}

fn guarantees(parts: u8) {
    // 50 units: 60 % of the rate.
    let unit = BitRate::from_bits_per_second(RATE.bits_per_second() * 6 / 500);
    let rates = Busy::new(parts, |n| guaranteed(n, unit)).rates();
    let promised = |n| (units(n) * unit.bits_per_second()) as f64;
    // What the guarantees leave is shared by weight; all have the same, and nobody's guarantee is less
    // than that share.
    let rest = whole() * 0.4 / f64::from(TERMINALS);
    assert!(unit.bits_per_second() as f64 > rest);
    let least = (1..).zip(&rates).filter(|(n, _)| units(*n) > 0);
    let least = least.map(|(n, rate)| rate / promised(n)).fold(f64::INFINITY, f64::min);
    println!("guarantees of 60 %, a hub in {parts}: at least {:.2} % of each", least * 100.0);
    assert!(least >= 1.0 - TOLERANCE, "{least}: {rates:?}");
    let off = furthest(&rates, |n| promised(n) + rest);
    println!("and with the shares of the rest at most {:.2} % off", off * 100.0);
    assert!(off <= TOLERANCE, "{off}: {rates:?}");
}

#[test]
fn guarantees_beyond_the_rate_share_it_in_proportion() {
    // 50 units: twice the rate.
    let unit = BitRate::from_bits_per_second(RATE.bits_per_second() / 25);
    let rates = Busy::new(1, |n| guaranteed(n, unit)).rates();
    let promised: Vec<(u32, f64)> = (1..).zip(rates).filter(|(n, _)| units(*n) > 0).collect();
    let off =
        promised.iter().map(|(n, rate)| (rate / whole() * 50.0 / units(*n) as f64 - 1.0).abs());
    let off = off.fold(0.0, f64::max);
    println!("guarantees of 200 %: at most {:.2} % off the proportion", off * 100.0);
    assert!(off <= TOLERANCE, "{off}: {promised:?}");
}
