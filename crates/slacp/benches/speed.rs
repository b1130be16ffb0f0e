//! How fast one core seals, frames, opens and reads, both ends together, in
//! memory: `cargo bench -p skyhop-slacp --bench speed`. Beside it quinn-proto
//! with a congestion window that never limits it.

#[path = "../tests/kit/hop.rs"]
mod hop;
#[path = "../tests/kit/pair.rs"]
mod pair;
mod quic;
#[path = "../tests/kit/rows/mod.rs"]
mod rows;

use core::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use link::testkit::Peer;
use pair::{Pair, pass};
use quic::{Control, Quic};
use slacp::{ChannelConfig, ChannelId, Config, Ecn, Endpoint, ErrorControl, ReadOutcome, StreamId};
use units::{BitRate, Instant, Machine};

const BYTES: u64 = 10_000_000;

/// So fast that the pacer never waits.
const RATE: BitRate = BitRate::from_mbit(1_000_000);

/// What one call to the kernel takes, in bytes.
const BATCH: usize = 64_000;

/// [`pass`], in batches as a gateway sends and receives them.
fn pass_in_runs(now: Instant, from: &mut Endpoint, to: &mut Endpoint) -> usize {
    let (mut batch, mut lengths, mut count) = (Vec::with_capacity(1 << 16), Vec::new(), 0);
    from.handle_timeout(now);
    loop {
        let (mut run, mut before) = (from.run(now), 0);
        while batch.len() < BATCH && run.transmit(&mut batch).is_some() {
            lengths.push(batch.len() - before);
            before = batch.len();
        }
        drop(run);
        if batch.is_empty() {
            return count;
        }
        let (mut run, mut rest) = (to.run(now), &mut batch[..]);
        for length in &lengths {
            let (datagram, others) = rest.split_at_mut(*length);
            run.handle_datagram(pair::address(), Ecn::NotEct, datagram);
            rest = others;
        }
        count += lengths.len();
        batch.clear();
        lengths.clear();
    }
}

type Pass = fn(Instant, &mut Endpoint, &mut Endpoint) -> usize;

fn slacp_bytes(pair: &mut Pair, id: StreamId, pass: Pass) {
    let [terminal, hub] = pair.ids;
    let (data, mut buffer) = ([7; 65_536], [0; 65_536]);
    let (mut to_write, mut to_read) = (BYTES, BYTES);
    while to_read > 0 {
        let most = to_write.min(data.len() as u64) as usize;
        to_write -= pair.hub.write(hub, id, &data[..most]).unwrap() as u64;
        pass(pair.now, &mut pair.hub, &mut pair.terminal);
        while let Ok(ReadOutcome::Data(count)) = pair.terminal.read(terminal, id, &mut buffer) {
            to_read -= count as u64;
        }
        pair.now += Duration::from_millis(1);
        pass(pair.now, &mut pair.terminal, &mut pair.hub);
        while pair.hub.poll_event().or_else(|| pair.terminal.poll_event()).is_some() {}
    }
}

fn quinn_pass(now: Instant, from: &mut Quic, to: &mut Quic, me: usize) {
    if from.poll_timeout().is_some_and(|(at, ())| at <= now) {
        from.handle_timeout(now);
    }
    while let Some((_, datagram)) = from.transmit(now) {
        to.receive(now, me, datagram);
    }
}

fn quinn_until(peers: &mut [Quic; 2], now: &mut Instant, done: impl Fn(&[Quic; 2]) -> bool) {
    while !done(peers) {
        let [terminal, hub] = peers;
        quinn_pass(*now, hub, terminal, hop::HUB);
        *now += Duration::from_millis(1);
        quinn_pass(*now, terminal, hub, hop::TERMINAL);
    }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("in memory");
    group.throughput(Throughput::Bits(BYTES * 8)).sample_size(30);
    for (name, pass) in [("slacp", pass_in_runs as Pass), ("slacp, one by one", pass)] {
        group.bench_function(name, |bencher| {
            let mut pair = Pair::new(RATE);
            let id = pair.open();
            bencher.iter(|| slacp_bytes(&mut pair, id, pass));
        });
    }
    group.bench_function("quinn-proto", |bencher| {
        let mut now = Instant::from_nanos(1);
        let mut peers =
            [hop::TERMINAL, hop::HUB].map(|me| Quic::new(me, Control::Unlimited, 64, 1));
        quinn_until(&mut peers, &mut now, |peers| peers.iter().all(|peer| peer.connected));
        bencher.iter(|| {
            let id = peers[0].request(now, 100, BYTES);
            let got = |peers: &[Quic; 2]| peers[0].received.get(&id).is_some_and(|r| r.0 == BYTES);
            quinn_until(&mut peers, &mut now, got);
        });
    });
    group.finish();
    idle_streams(criterion);
    packets(criterion);
}

/// What packets of a channel cost both ends together, with and without compressed headers: those of
/// calls, and of QUIC.
fn packets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("100 packets of a channel");
    for (name, size) in [("voice", 32), ("QUIC", 1252)] {
        for compress in [false, true] {
            let channel = ChannelId::new(0).expect("there is one");
            let mut config = Config::new(RATE);
            let usual = ChannelConfig::new(ErrorControl::None);
            config.add_channel(channel, ChannelConfig { compress, ..usual }).expect("it is right");
            let mut pair = Pair::with(config);
            let [_, hub] = pair.ids;
            let packets: Vec<Vec<u8>> = (0..100).map(|n| udp(n, size)).collect();
            let form = if compress { "compressed" } else { "whole" };
            group.bench_function(format!("{name}, {form}"), |bencher| {
                bencher.iter(|| {
                    for packet in &packets {
                        pair.hub.send_packet(pair.now, hub, channel, packet).unwrap();
                        pass(pair.now, &mut pair.hub, &mut pair.terminal);
                        while pair.terminal.poll_packet().is_some() {}
                    }
                    pair.now += Duration::from_millis(30);
                    pass(pair.now, &mut pair.terminal, &mut pair.hub);
                });
            });
        }
    }
    group.finish();
}

/// Packet `number` of a flow, with this much after the headers of IPv4 and UDP.
fn udp(number: u8, size: u16) -> Vec<u8> {
    let mut udp = [4000, 443, 8 + size, 0].map(u16::to_be_bytes).concat();
    udp.resize(usize::from(8 + size), number);
    let (from, to) = ([10, 1, 0, 1], [10, 2, 0, 1]);
    let pseudo = tcp::wire::pseudo_header_sum(from.into(), to.into(), udp.len());
    let sum = tcp::wire::checksum(pseudo + 17 - 6, &udp);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x45, 0];
    packet.extend((28 + size).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 63, 17, 0, 0]);
    packet.extend(from.into_iter().chain(to));
    let sum = tcp::wire::checksum(0, &packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(udp);
    packet
}

/// What a datagram costs a session with many streams that have nothing to say.
fn idle_streams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a packet and its timers beside idle streams");
    for count in [0, 10_000] {
        let mut pair = Pair::new(RATE);
        for opened in 1..=count {
            pair.open_only();
            // After two seconds, idle streams return their windows, which makes room for others.
            if opened % 500 == 0 {
                (0..5).for_each(|_| pair.exchange());
            }
        }
        let id = pair.open();
        group.bench_function(format!("{count}"), |bencher| {
            let [terminal, hub] = pair.ids;
            let mut buffer = [0; 2000];
            bencher.iter(|| {
                pair.hub.write(hub, id, &[7; 1000]).unwrap();
                pass(pair.now, &mut pair.hub, &mut pair.terminal);
                let _ = pair.terminal.read(terminal, id, &mut buffer);
                pair.now += Duration::from_millis(1);
                pass(pair.now, &mut pair.terminal, &mut pair.hub);
                let _ = (pair.hub.poll_timeout(), pair.terminal.poll_timeout());
                while pair.hub.poll_event().or_else(|| pair.terminal.poll_event()).is_some() {}
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
