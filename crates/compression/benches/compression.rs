//! What compression of streams saves and costs: by level and window of zstd, and through the coder,
//! beside a stream that passes as it is.
//!
//! `cargo bench -p skyhop-compression --bench compression [-- FILE…]`: the files are further kinds of data.

#![allow(missing_docs, clippy::disallowed_types, reason = "a benchmark measures real time")]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use compression::{
    CodedStream, ContextSlots, Decoder, DecoderPool, Encoder, MalformedStream, StreamRead,
};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

const SIZE: usize = 8 << 20;

fn main() {
    let mut kinds = vec![("log".to_owned(), log()), ("JSON".to_owned(), json())];
    kinds.push(("noise".to_owned(), noise()));
    for name in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        let data = std::fs::read(&name).expect("the file can be read");
        kinds.push((name, data));
    }
    println!("4 kB at a time: times smaller, MB/s, kB of memory");
    for (level, window) in [(-1, 17), (1, 15), (1, 16), (1, 17), (1, 18), (2, 15), (3, 15), (3, 17)]
    {
        for (name, data) in &kinds[..2] {
            let (gain, rate, memory) = zstd(level, window, data);
            println!("  level {level}, window 2^{window}, {name}: {gain:.1}, {rate:.0}, {memory}");
        }
    }
    println!("through the coder, both sides: times smaller, ns a kB (passed as it is: ns a kB)");
    for (name, data) in &kinds {
        for piece in [200, 1400, 16 << 10, 64 << 10] {
            let (coded, gain) = best(|| carry(data, piece));
            let (plain, _) = best(|| (pass(data, piece), 0.0));
            let per_kb = |time: Duration| time.as_nanos() as f64 / (data.len() as f64 / 1000.0);
            let (coded, plain) = (per_kb(coded), per_kb(plain));
            println!("  {name}, {piece} B: {gain:.2}, {coded:.0} ({plain:.0})");
        }
    }
    first_look(&kinds[2].1);
}

fn zstd(level: i32, window: u32, data: &[u8]) -> (f64, f64, usize) {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(level)).unwrap();
    context.set_parameter(CParameter::WindowLog(window)).unwrap();
    let (mut out, mut total, began) = (vec![0; 1 << 20], 0, Instant::now());
    for piece in data.chunks(4096) {
        let (mut input, mut output) = (InBuffer::around(piece), OutBuffer::around(&mut out[..]));
        let flush = ZSTD_EndDirective::ZSTD_e_flush;
        context.compress_stream2(&mut output, &mut input, flush).unwrap();
        total += output.pos();
    }
    let rate = data.len() as f64 / began.elapsed().as_secs_f64() / 1e6;
    (data.len() as f64 / total as f64, rate, context.sizeof() >> 10)
}

/// The shortest of several runs.
fn best(mut run: impl FnMut() -> (Duration, f64)) -> (Duration, f64) {
    let runs = (0..15).map(|_| run());
    runs.min_by_key(|(time, _)| *time).expect("there are runs")
}

/// Compresses and decompresses; the time that takes, and by how much the data was shorter.
fn carry(data: &[u8], piece: usize) -> (Duration, f64) {
    let encoder = || Encoder::new(ContextSlots::new(1)).with_dictionary(true);
    let coder = || CodedStream::new(encoder(), Decoder::new(DecoderPool::new(1)));
    let (mut near, mut far) = (coder(), coder());
    let (mut wire, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let began = Instant::now();
    for piece in data.chunks(piece) {
        wire.clear();
        let send = |bytes: &[u8]| {
            wire.extend_from_slice(bytes);
            Ok::<_, Infallible>(bytes.len())
        };
        let Ok(written) = near.write(piece, send);
        assert_eq!(written, piece.len());
        let mut at = 0;
        let mut receive = |part: &mut [u8]| {
            let count = part.len().min(wire.len() - at);
            part[..count].copy_from_slice(&wire[at..at + count]);
            at += count;
            Ok::<_, MalformedStream>(if count == 0 {
                StreamRead::Nothing
            } else {
                StreamRead::Data(count)
            })
        };
        while let StreamRead::Data(count) = far.read(&mut buffer, &mut receive).unwrap() {
            black_box(&buffer[..count]);
        }
    }
    let gain = near.sent.plain as f64 / near.sent.coded as f64;
    (began.elapsed(), gain)
}

/// Copies as a stream does that is not compressed.
fn pass(data: &[u8], piece: usize) -> Duration {
    let (mut wire, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let began = Instant::now();
    for piece in data.chunks(piece) {
        wire.clear();
        wire.extend_from_slice(black_box(piece));
        buffer[..piece.len()].copy_from_slice(&wire);
        black_box(&buffer[..piece.len()]);
    }
    began.elapsed()
}

fn first_look(noise: &[u8]) {
    let (count, mut out) = (10_000, Vec::with_capacity(1 << 17));
    let began = Instant::now();
    for _ in 0..count {
        out.clear();
        Encoder::new(ContextSlots::new(1)).encode(black_box(&noise[..4096]), &mut out);
    }
    println!("first look at noise: {} ns a connection", began.elapsed().as_nanos() / count);
}

fn noise() -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    ChaCha20Rng::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
}

fn log() -> Vec<u8> {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    let mut line = |n: usize| {
        let (host, path, ms) = (rng.next_u32() % 40, rng.next_u32() % 300, rng.next_u32() % 900);
        let (id, size) = (rng.next_u32(), rng.next_u32() % 50_000);
        format!(
            "2026-11-25T09:{:02}:{:02}.{:03}Z INFO  http: request finished \
             client=10.1.0.{host} method=GET path=/api/v2/items/{path} status=200 \
             bytes={size} duration_ms={ms} trace={id:08x}\n",
            n / 60 % 60,
            n % 60,
            n * 7 % 1000
        )
    };
    (0..).flat_map(|n| line(n).into_bytes()).take(SIZE).collect()
}

fn json() -> Vec<u8> {
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let mut record = |id: usize| {
        let (lat, lon) = (rng.next_u32() % 180_000, rng.next_u32() % 360_000);
        let (speed, fuel) = (rng.next_u32() % 300, rng.next_u32() % 1000);
        format!(
            "{{\"id\":{id},\"position\":{{\"lat\":{}.{:03},\"lon\":{}.{:03}}},\"speed_kn\":{}.{},\
             \"fuel_percent\":{}.{},\"status\":\"under way\",\"alarms\":[]}},",
            lat / 1000,
            lat % 1000,
            lon / 1000,
            lon % 1000,
            speed / 10,
            speed % 10,
            fuel / 10,
            fuel % 10
        )
    };
    (0..).flat_map(|id| record(id).into_bytes()).take(SIZE).collect()
}
