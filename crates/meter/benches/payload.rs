//! Speed of generating and checking payload.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use meter::protocol::payload::{Payload, PayloadSide};

const BLOCK: usize = 64 * 1024;

fn payload(c: &mut Criterion) {
    let payload = Payload::new(1, PayloadSide::Client);
    let mut buffer = vec![0; BLOCK];
    let mut group = c.benchmark_group("payload");
    group.throughput(Throughput::Bytes(BLOCK as u64));
    // Offset 3 is the unaligned case, which is the common one with TCP reads.
    group.bench_function("fill", |b| b.iter(|| payload.fill(black_box(3), &mut buffer)));
    group.bench_function("verify", |b| {
        b.iter(|| payload.first_difference(black_box(3), black_box(&buffer)));
    });
    group.finish();
}

criterion_group!(benches, payload);
criterion_main!(benches);
