//! Packets per second through one link, in memory: a GEO link kept busy, with
//! 0.3 s of packets inside. A packet is 1500 bytes, so 83,334 of them per
//! second are 1 Gbit/s.

use core::time::Duration;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use link::{CarriedPacket, CoDel, Discipline, ErrorModel, Link, LinkConfig, LossModel, QueueLimit};
use units::{BitRate, Instant, Probability};

/// What passes per measurement: one second of 1 Gbit/s.
const PACKETS: u64 = 83_334;

fn packets<P: CarriedPacket>(c: &mut Criterion, name: &str, make: impl Fn() -> P) {
    let mut group = c.benchmark_group("link");
    group.throughput(Throughput::Elements(PACKETS));
    for (what, config) in configs() {
        let mut link = Link::new(config, 1);
        let mut now = Instant::ZERO;
        group.bench_function(format!("{name}, {what}"), |b| {
            b.iter(|| {
                for _ in 0..PACKETS {
                    now += Duration::from_micros(12);
                    link.handle_packet(now, make());
                    while let Some(packet) = link.poll_delivery(now) {
                        black_box(packet);
                    }
                }
            });
        });
    }
    group.finish();
}

fn configs() -> Vec<(&'static str, LinkConfig)> {
    let p = |value| Probability::new(value).unwrap_or_default();
    let codel = Discipline::CoDel(CoDel::for_rtt(Duration::from_millis(600)));
    let full = LinkConfig {
        encapsulation: "gse 3".parse().unwrap_or_default(),
        discipline: codel,
        ..config(LossModel::from(ErrorModel::Huge))
    };
    vec![
        ("no loss", config(LossModel::None)),
        ("PER 1 %", config(LossModel::Per(p(0.01)))),
        ("BER 1e-6", config(LossModel::Ber(p(1e-6)))),
        ("bursts, CoDel, GSE", full),
    ]
}

fn config(loss: LossModel) -> LinkConfig {
    let delay = Duration::from_millis(300);
    LinkConfig::new(BitRate::from_mbit(1000), delay, loss, QueueLimit::Packets(1000))
}

fn benches(c: &mut Criterion) {
    packets(c, "lengths only", || 1500usize);
    packets(c, "1500 bytes each allocated", || vec![0u8; 1500]);
}

criterion_group!(all, benches);
criterion_main!(all);
