//! One flow over a GEO link in virtual time, as tables:
//! `cargo bench -p skyhop-tcp --bench geo`.
//!
//! 20 Mbit/s, 252 ms one way, MSS 1448 with timestamps, buffers of 16 MiB, a queue of 850 packets,
//! 100 s with the start, `SEEDS` seeds; then the processor time per packet at 20 and at 100 Mbit/s.

#![allow(clippy::disallowed_types, reason = "a benchmark looks at the wall clock")]

use core::time::Duration;
use std::time::Instant as Clock;

use link::{Link, LinkConfig, LossModel, QueueLimit};
use report::{TableColumn, TextTable};
use tcp::cc::NAMES;
use tcp::{ByteRange, Config, Connection, ConnectionStats, Segment, SegmentPayload as _, SeqNr};
use units::{BitRate, Instant, Machine, Probability};

const SEEDS: u64 = 5;
const ONE_WAY: Duration = Duration::from_millis(252);
const LONG: Duration = Duration::from_secs(100);

/// A segment in an IPv4 packet.
struct Packet(Segment<ByteRange>);

impl link::CarriedPacket for Packet {
    fn wire_len(&self) -> usize {
        20 + self.0.wire_len()
    }
}

/// A sender, a receiver, and a link each way.
struct Pair {
    ends: [Connection<ByteRange>; 2],
    links: [Link<Packet>; 2],
    now: Instant,
    written: u64,
    received: u64,
    arrivals: u64,
}

impl Pair {
    fn new(config: &Config, rate: BitRate, queue: usize, per: f64, seed: u64) -> Self {
        let loss = if per > 0.0 {
            LossModel::Per(Probability::new(per).unwrap())
        } else {
            LossModel::None
        };
        let link = |loss, seed| {
            Link::new(LinkConfig::new(rate, ONE_WAY, loss, QueueLimit::Packets(queue)), seed)
        };
        Self {
            ends: [
                Connection::connect(config.clone(), SeqNr::new(1)),
                Connection::listen(config.clone(), SeqNr::new(2)),
            ],
            links: [link(loss, seed), link(LossModel::None, seed + 1)],
            now: Instant::ZERO,
            written: 0,
            received: 0,
            arrivals: 0,
        }
    }

    fn run(mut self, time: Duration) -> Self {
        self.pump();
        while self.now < Instant::ZERO + time {
            self.step();
        }
        self
    }

    fn step(&mut self) {
        let ends = self.ends.iter().filter_map(|end| Some(end.poll_timeout()?.0));
        let links = self.links.iter().filter_map(|link| Some(link.poll_timeout()?.0));
        self.now = ends.chain(links).min().unwrap().max(self.now);
        for from in 0..2 {
            while let Some(Packet(segment)) = self.links[from].poll_delivery(self.now) {
                self.arrivals += 1;
                self.ends[1 - from].handle_segment(self.now, &segment);
                self.pump();
            }
            if self.ends[from].poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                self.ends[from].handle_timeout(self.now);
            }
        }
        self.pump();
    }

    /// Writes and reads as much as possible, and sends everything that may go.
    fn pump(&mut self) {
        let more = ByteRange::new(self.written..self.written + (1 << 20));
        self.written += self.ends[0].write(&more).unwrap_or(0) as u64;
        while let Some(data) = self.ends[1].read(usize::MAX) {
            assert_eq!(data.range().start, self.received);
            self.received += data.len() as u64;
        }
        for (end, link) in self.ends.iter_mut().zip(&mut self.links) {
            while end.poll_event().is_some() {}
            while let Some(segment) = end.poll_transmit(self.now) {
                link.handle_packet(self.now, Packet(segment));
            }
        }
    }

    fn goodput(&self) -> f64 {
        self.received as f64 * 8e-6 / LONG.as_secs_f64()
    }
}

fn config(controller: &str, seed: u64) -> Config {
    Config { controller: controller.parse().unwrap(), seed, ..Config::default() }
}

fn goodputs() {
    let losses = ["PER 0", "1e-4", "1e-3", "1e-2"].map(TableColumn::right);
    let mut table = TextTable::new([TableColumn::left("")].into_iter().chain(losses))
        .title(format!("goodput in Mbit/s, mean of {SEEDS} seeds (PER 0: one run)"));
    for name in NAMES.into_iter().chain(["hybla:rtt0=50ms", "cubic:hystart=off"]) {
        let mean = |per: f64| {
            let seeds = if per > 0.0 { SEEDS } else { 1 };
            let run = |seed| {
                let rate = BitRate::from_mbit(20);
                Pair::new(&config(name, seed), rate, 850, per, 10 * seed).run(LONG).goodput()
            };
            format!("{:.2}", (0..seeds).map(run).sum::<f64>() / seeds as f64)
        };
        let means = [0.0, 1e-4, 1e-3, 1e-2].map(mean);
        table.row([name.to_owned()].into_iter().chain(means));
    }
    println!("{table}");
}

fn costs() {
    let names = ["Mbit/s", "arrivals", "ns each", "window, packets", "goodput, Mbit/s"];
    let mut table = TextTable::new(names.map(TableColumn::right))
        .title("CUBIC, PER 1e-5: what an arrival at an endpoint costs, links included");
    for mbit in [20, 100, 500] {
        let config = config("cubic", 1);
        let queue = 850 * mbit as usize / 20;
        // The quietest of three identical runs.
        let (pair, time) = (0..3)
            .map(|_| {
                let pair = Pair::new(&config, BitRate::from_mbit(mbit), queue, 1e-5, 1);
                let clock = Clock::now();
                (pair.run(LONG), clock.elapsed())
            })
            .min_by_key(|(_, time)| *time)
            .unwrap();
        let nanos = time.as_nanos() as f64 / pair.arrivals as f64;
        let ConnectionStats { cwnd, .. } = pair.ends[0].stats();
        table.row([
            mbit.to_string(),
            pair.arrivals.to_string(),
            format!("{nanos:.0}"),
            (cwnd.get() / 1448).to_string(),
            format!("{:.2}", pair.goodput()),
        ]);
    }
    print!("{table}");
}

fn main() {
    goodputs();
    costs();
}
