//! What a bundle costs a processor: to read and check it, to change it for the next node, to cut it and to
//! join its parts. Disks and links are not in this.
//!
//! `cargo bench -p skyhop-bundles --bench bundles`

#![allow(missing_docs, clippy::disallowed_types, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bundles::{BundleNodeId, BundlePurpose, FragmentJoiner, NewBundle, forwarded, parts, read};

/// Bytes that each round works through.
const ROUND: usize = 32 << 20;

fn main() {
    println!("payload: us for a bundle (MB/s), best of 5 rounds of 32 MiB");
    for size in [1 << 10, 16 << 10, 256 << 10, 4 << 20] {
        let payload: Vec<u8> = (0..size).map(|at| (at / 3) as u8).collect();
        let bundle = made(&payload);
        let node: BundleNodeId = "ipn:3.0".parse().unwrap();
        let cut = parts(&bundle, (size as u64 / 8).max(1_000)).unwrap();
        report(size, "made", || drop(black_box(made(&payload))));
        report(size, "read", || drop(black_box(read(&bundle).unwrap())));
        report(size, "passed on", || drop(black_box(forwarded(&bundle, &node, Duration::ZERO))));
        report(size, "cut", || {
            drop(black_box(parts(&bundle, (size as u64 / 8).max(1_000)).unwrap()));
        });
        report(size, "joined", || {
            let mut joiner = FragmentJoiner::default();
            cut.iter().for_each(|(_, part)| joiner.add(part.clone()).unwrap());
            drop(black_box(joiner.finish().unwrap()));
        });
    }
}

fn made(payload: &[u8]) -> Vec<u8> {
    let bundle = NewBundle {
        source: &"ipn:1.1".parse().unwrap(),
        destination: &"ipn:2.7".parse().unwrap(),
        created: 1_795_600_000_000,
        sequence: 1,
        lifetime: Duration::from_secs(3600),
        file_name: None,
        purpose: BundlePurpose::Data,
        payload,
    };
    bundle.encode()
}

fn report(size: usize, what: &str, mut work: impl FnMut()) {
    let count = ROUND / size;
    let rounds = (0..5).map(|_| {
        let began = Instant::now();
        (0..count).for_each(|_| work());
        began.elapsed()
    });
    let each = rounds.min().expect("there are rounds").as_secs_f64() / count as f64;
    println!("{size:>8} B {what:<9} {:9.1} ({:.0})", each * 1e6, size as f64 / each / 1e6);
}
