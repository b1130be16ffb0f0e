//! What comes out is what went in, however it is cut into pieces.

use std::collections::VecDeque;
use std::convert::Infallible;

use pep::work::cost;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::coded::StreamRead;
use super::*;

fn encoder() -> Encoder {
    Encoder::new(ContextSlots::new(8)).with_dictionary(true)
}

/// For a peer without the dictionary.
fn older() -> Encoder {
    Encoder::new(ContextSlots::new(8))
}

fn decoder() -> Decoder {
    Decoder::new(DecoderPool::new(8))
}

fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Lines as a service logs them.
fn log(lines: usize) -> Vec<u8> {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let mut text = String::new();
    for line in 0..lines {
        let (host, path, ms) = (rng.next_u32() % 40, rng.next_u32() % 300, rng.next_u32() % 900);
        let (id, size) = (rng.next_u32(), rng.next_u32() % 50_000);
        text += &format!(
            "2026-11-25T09:{:02}:{:02}.{:03}Z INFO  http: request finished \
             client=10.1.0.{host} method=GET path=/api/v2/items/{path} status=200 \
             bytes={size} duration_ms={ms} trace={id:08x}\n",
            line / 60 % 60,
            line % 60,
            line * 7 % 1000
        );
    }
    text.into_bytes()
}

/// Records as an API returns them.
fn json(records: usize) -> Vec<u8> {
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let mut text = String::from("[");
    for id in 0..records {
        let (lat, lon) = (rng.next_u32() % 180_000, rng.next_u32() % 360_000);
        let (speed, fuel) = (rng.next_u32() % 300, rng.next_u32() % 1000);
        text += &format!(
            "{{\"id\":{id},\"vessel\":\"MV Example {}\",\"position\":{{\"lat\":{}.{:03},\
             \"lon\":{}.{:03}}},\"speed_kn\":{}.{},\"fuel_percent\":{}.{},\"status\":\"under way\",\
             \"crew\":[\"master\",\"mate\",\"engineer\"],\"alarms\":[]}},",
            rng.next_u32() % 50,
            lat / 1000,
            lat % 1000,
            lon / 1000,
            lon % 1000,
            speed / 10,
            speed % 10,
            fuel / 10,
            fuel % 10
        );
    }
    text.into_bytes()
}

/// Encodes data in pieces of this size.
fn encoded(data: &[u8], piece: usize) -> Vec<u8> {
    encoded_by(encoder(), data, piece)
}

fn encoded_by(mut encoder: Encoder, data: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for mut piece in data.chunks(piece) {
        while !piece.is_empty() {
            piece = &piece[encoder.encode(piece, &mut out)..];
        }
    }
    encoder.finish(&mut out);
    out
}

/// Decodes bytes that arrive in pieces of `arriving`, into a buffer of `reading` bytes.
fn decoded(mut bytes: &[u8], arriving: usize, reading: usize) -> Result<Vec<u8>, MalformedStream> {
    let (mut decoder, mut out, mut buffer) = (decoder(), Vec::new(), vec![0; reading]);
    while !bytes.is_empty() {
        let mut piece = &bytes[..arriving.min(bytes.len())];
        bytes = &bytes[piece.len()..];
        loop {
            let count = decoder.decode(&mut piece, &mut buffer)?;
            out.extend_from_slice(&buffer[..count]);
            if count == 0 && piece.is_empty() {
                break;
            }
        }
    }
    decoder.end()?;
    Ok(out)
}

#[test]
fn logs_and_json_take_a_quarter_and_noise_nothing_more() {
    for (name, data) in [("log", log(5000)), ("JSON", json(5000))] {
        for piece in [200, 1400, 16 << 10, 64 << 10] {
            let out = encoded(&data, piece);
            let gain = data.len() as f64 / out.len() as f64;
            println!("{name} in pieces of {piece}: {gain:.1} times smaller");
            assert!(gain >= 4.0, "{name}: {gain}");
            assert_eq!(decoded(&out, 1000, 65_536).unwrap(), data);
        }
    }
    for piece in [1400, 64 << 10] {
        let data = noise(1 << 20, 5);
        assert_eq!(encoded(&data, piece).len(), data.len() + 1);
    }
}

/// What an older peer cannot read is not sent to it.
#[test]
fn without_the_dictionary_frames_are_plain_and_small_pieces_take_more() {
    let data = log(2000);
    let (with, without) = (encoded(&data, 200), encoded_by(older(), &data, 200));
    assert_eq!((with[0], without[0]), (SMALL_FRAME, FRAME));
    assert!(with.len() * 10 < without.len() * 9, "{} and {}", with.len(), without.len());
    assert_eq!(decoded(&without, 1000, 1000).unwrap(), data);
}

#[test]
fn the_dictionary_is_that_of_the_protocol() {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(dictionary::DICTIONARY);
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(include_str!("../../../docs/slacp.md").contains(&text), "{text}");
}

#[test]
fn bulk_after_small_pieces_is_compressed_as_bulk_with_one_place() {
    let (slots, text) = (ContextSlots::new(1), log(3000));
    let mut encoder = Encoder::new(slots.clone()).with_dictionary(true);
    let (small, bulk) = text.split_at(1000);
    let mut out = Vec::new();
    encoder.encode(small, &mut out);
    let begun = out.len();
    bulk.chunks(CHUNK).for_each(|piece| {
        encoder.encode(piece, &mut out);
    });
    assert_eq!(slots.taken(), 1);
    assert!(encoder.memory().is_some_and(|bytes| bytes as u64 <= MEMORY));
    encoder.finish(&mut out);
    assert_eq!(decoded(&out, 1400, 9000).unwrap(), text);
    // But for the end of the first frame, the second is that of an older encoder.
    let alone = encoded_by(older(), bulk, CHUNK);
    assert!(out[begun..].ends_with(&alone));
}

#[test]
fn everything_written_can_be_read_at_once() {
    let (mut encoder, mut decoder) = (encoder(), decoder());
    let (mut first, mut sizes) = (true, (0, 0));
    for line in log(200).split_inclusive(|byte| *byte == b'\n') {
        let mut out = Vec::new();
        assert_eq!(encoder.encode(line, &mut out), line.len());
        let mut buffer = [0; 1000];
        let count = decoder.decode(&mut &out[..], &mut buffer).unwrap();
        assert_eq!(&buffer[..count], line);
        if !std::mem::take(&mut first) {
            sizes = (sizes.0 + line.len(), sizes.1 + out.len());
        }
    }
    println!("lines after the first: {} bytes of {}", sizes.1, sizes.0);
    assert!(sizes.1 * 7 < sizes.0 * 2, "{sizes:?}");
}

/// zstd counts calls without progress, and takes the sixteenth for a fault.
#[test]
fn a_stream_that_is_asked_often_while_nothing_comes_goes_on() {
    let mut near = CodedStream::new(encoder(), decoder());
    let mut far = CodedStream::new(encoder(), decoder());
    let mut wire = VecDeque::new();
    let mut buffer = [0; 1000];
    for line in log(3).split_inclusive(|byte| *byte == b'\n') {
        let Ok(written) = near.write(line, |bytes| {
            wire.extend(bytes);
            Ok::<_, Infallible>(bytes.len())
        });
        assert_eq!(written, line.len());
        let bytes = wire.make_contiguous();
        let read: Result<StreamRead, MalformedStream> = far.read(&mut buffer, |part| {
            part[..bytes.len()].copy_from_slice(bytes);
            Ok(StreamRead::Data(bytes.len()))
        });
        assert_eq!(read, Ok(StreamRead::Data(line.len())));
        wire.clear();
        for _ in 0..100 {
            let read: Result<StreamRead, MalformedStream> =
                far.read(&mut buffer, |_| Ok(StreamRead::Nothing));
            assert_eq!(read, Ok(StreamRead::Nothing));
        }
    }
}

#[test]
fn what_turns_out_dense_is_no_longer_compressed_and_text_is_again() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let (picture, text) = (noise(4 << 20, 3), log(4000));
    let (mut encoder, mut out) = (encoder(), Vec::new());
    for part in [&head, &picture, &text] {
        for piece in part.chunks(CHUNK) {
            encoder.encode(piece, &mut out);
        }
    }
    encoder.finish(&mut out);
    let whole = [head, picture, text.clone()].concat();
    assert_eq!(decoded(&out, 1400, 9000).unwrap(), whole);
    assert!(out.len() < whole.len() - text.len() / 2, "{} of {}", out.len(), whole.len());
}

#[test]
fn what_becomes_encrypted_is_sent_as_it_is() {
    let (mut encoder, mut out) = (encoder(), Vec::new());
    encoder.encode(b"CONNECT server.example:443 HTTP/1.1\r\n\r\n", &mut out);
    let before = out.len();
    let record = [&[0x16, 3, 1, 2, 0][..], &[0; 512]].concat();
    encoder.encode(&record, &mut out);
    assert!(encoder.is_rest() && out.len() >= before + record.len());
    assert!(decoded(&out, 7, 100).unwrap().ends_with(&record));
}

#[test]
fn without_a_place_nothing_is_compressed_and_places_are_given_back() {
    let slots = ContextSlots::new(1);
    let [mut one, mut two, mut three] = [(); 3].map(|()| Encoder::new(slots.clone()));
    let text = log(10);
    let mut out = Vec::new();
    one.encode(&text, &mut out);
    let mut plain = Vec::new();
    two.encode(&text, &mut plain);
    assert_eq!((slots.taken(), plain.len()), (1, text.len() + 1));
    one.finish(&mut out);
    three.encode(&text, &mut Vec::new());
    assert_eq!(slots.taken(), 1);
    drop(three);
    assert_eq!(slots.taken(), 0);
    // A peer that compresses more than was agreed on.
    let mut decoder = Decoder::new(DecoderPool::new(0));
    let read = decoder.decode(&mut &out[..], &mut [0; 100]);
    assert_eq!(read, Err(MalformedStream::TooMany { open: 0 }));
}

#[test]
fn what_cannot_come_from_an_encoder_is_malformed() {
    assert_eq!(decoded(&[4], 1, 10), Err(MalformedStream::Kind { kind: 4 }));
    for kind in [FRAME, SMALL_FRAME] {
        assert_eq!(decoded(&[kind, 1, 2, 3, 4, 5, 6, 7, 8], 9, 10), Err(MalformedStream::Frame));
    }
    let mut plain = encoded(&log(100), 1000);
    // A frame that refers to the dictionary, and says that it does not.
    plain[0] = FRAME;
    assert_eq!(decoded(&plain, 99, 99), Err(MalformedStream::Frame));
    for truncated in [&[RUN][..], &[RUN, 0, 0], &[RUN, 0, 0, 2, 9], &[FRAME], &[SMALL_FRAME]] {
        assert_eq!(decoded(truncated, 9, 10), Err(MalformedStream::Truncated), "{truncated:?}");
    }
    let whole = encoded(&log(100), 1000);
    assert_eq!(decoded(&whole[..whole.len() - 1], 99, 99), Err(MalformedStream::Truncated));
    assert_eq!(decoded(&[RUN, 0, 0, 0, REST], 1, 10), Ok(Vec::new()));
}

/// A frame that wants a window of 8 MB, and one that makes 100 MB of as little as it can.
#[test]
fn windows_and_growth_are_bounded() {
    let frame = |window, data: &[u8]| {
        let mut context = zstd_safe::CCtx::create();
        context.set_parameter(zstd_safe::CParameter::WindowLog(window)).unwrap();
        let mut out = vec![0; data.len() / 2 + 1000];
        let size = context.compress2(&mut out[..], data).unwrap();
        out.truncate(size);
        [&[FRAME], &out[..]].concat()
    };
    let large = frame(23, &[log(40_000), noise(100, 1)].concat());
    assert_eq!(decoded(&large, 5000, 65_536), Err(MalformedStream::Frame));
    let bomb = frame(WINDOW, &vec![0; 100 << 20]);
    assert!(bomb.len() > (100 << 20) >> 13, "{}", bomb.len());
    let (mut decoder, mut rest, mut buffer) = (decoder(), &bomb[..], vec![1; 65_536]);
    while !rest.is_empty() {
        let before = rest.len();
        let count = decoder.decode(&mut rest, &mut buffer).unwrap();
        assert!(buffer[..count].iter().all(|byte| *byte == 0));
        // No more is read than what fits, and a block or two that come next.
        assert!(before - rest.len() <= 100, "{} bytes for {count}", before - rest.len());
    }
}

#[test]
fn neither_side_takes_more_memory_than_it_says() {
    let mut context = zstd_safe::DCtx::create();
    context.set_parameter(zstd_safe::DParameter::WindowLogMax(WINDOW)).unwrap();
    let frame = encoded(&log(20_000), CHUNK);
    let mut input = zstd_safe::InBuffer::around(&frame[1..]);
    let mut out = vec![0; 1 << 20];
    for _ in 0..3 {
        context
            .decompress_stream(&mut zstd_safe::OutBuffer::around(&mut out[..]), &mut input)
            .unwrap();
    }
    for (mut encoder, piece) in [(encoder(), 1000), (encoder(), CHUNK), (older(), 1000)] {
        log(1000).chunks(piece).for_each(|part| {
            encoder.encode(part, &mut Vec::new());
        });
        println!("{:?} and {} bytes", encoder.memory(), context.sizeof());
        assert!(encoder.memory().is_some_and(|bytes| bytes as u64 <= MEMORY));
    }
    assert!((context.sizeof() as u64) <= MEMORY);
}

/// A frame of zstd with this data.
fn frame(data: &[u8]) -> Vec<u8> {
    let mut context = zstd_safe::CCtx::create();
    let mut out = vec![0; data.len() + 100];
    let size = context.compress2(&mut out[..], data).unwrap();
    out.truncate(size);
    [&[FRAME], &out[..]].concat()
}

/// Frames that hold little or nothing, and empty runs, between data.
#[test]
fn the_work_of_small_segments_is_bounded_per_call_and_per_byte() {
    const FRAMES: usize = 20_000;
    for segment in
        [frame(b""), frame(b"a"), vec![RUN, 0, 0, 0], [frame(b""), vec![RUN, 0, 0, 0]].concat()]
    {
        let mut wire: VecDeque<u8> = segment.repeat(FRAMES).into();
        let bytes = wire.len() as u64;
        let mut far = CodedStream::new(encoder(), decoder());
        let mut buffer = vec![0; 256 << 10];
        let (mut calls, mut most) = (0, 0);
        let ((), cost) = cost::of(|| {
            loop {
                let before = far.work();
                let got: Result<StreamRead, MalformedStream> = far.read(&mut buffer, |part| {
                    let count = part.len().min(wire.len());
                    wire.drain(..count).zip(part).for_each(|(byte, place)| *place = byte);
                    Ok(if count == 0 { StreamRead::Nothing } else { StreamRead::Data(count) })
                });
                (calls, most) = (calls + 1, most.max(far.work() - before));
                if got == Ok(StreamRead::Nothing) {
                    break;
                }
            }
        });
        // A context is made once.
        assert!(cost <= 20_000 + 150 * bytes, "{segment:?}: {cost} for {bytes} bytes");
        assert!(most <= 520_000, "{segment:?}: {most} in a call");
        assert_eq!(far.received.coded, bytes);
        assert!(calls as u64 >= cost / 520_000);
    }
}

/// Data of a kind, in a piece of a size.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let kinds: [fn(usize, u64) -> Vec<u8>; 4] = [
        |size, _| log(1 + size / 150)[..size].to_vec(),
        noise,
        |size, _| vec![0; size],
        |size, seed| [&[0x17, 3, 3][..], &noise(size, seed)].concat(),
    ];
    (prop::sample::select(kinds.to_vec()), 1usize..3000, any::<u64>())
        .prop_map(|(kind, size, seed)| kind(size, seed))
}

/// A stream that takes and gives a few bytes at a time, and blocks now and then.
struct Pipe {
    bytes: VecDeque<u8>,
    rng: ChaCha20Rng,
    room: usize,
    is_ended: bool,
}

impl Pipe {
    fn take(&mut self, bytes: &[u8]) -> usize {
        let room = self.room.saturating_sub(self.bytes.len());
        let count = bytes.len().min(room).min(self.rng.next_u32() as usize % 600);
        self.bytes.extend(&bytes[..count]);
        count
    }

    fn give(&mut self, buffer: &mut [u8]) -> StreamRead {
        let count = buffer.len().min(self.bytes.len()).min(self.rng.next_u32() as usize % 600);
        match count {
            0 if self.bytes.is_empty() && self.is_ended => StreamRead::End,
            0 => StreamRead::Nothing,
            _ => {
                self.bytes.drain(..count).zip(buffer).for_each(|(byte, place)| *place = byte);
                StreamRead::Data(count)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Writes of any kinds and sizes over a stream with little room: the reader gets every byte, then
    /// the end, and never waits for what was written.
    #[test]
    fn a_stream_is_carried_byte_for_byte(
        pieces in prop::collection::vec(piece(), 0..40),
        room in 1usize..3000,
        reading in 1usize..5000,
        seed: u64
    ) {
        let rng = ChaCha20Rng::seed_from_u64(seed);
        let mut pipe = Pipe { bytes: VecDeque::new(), rng, room, is_ended: false };
        let mut near = CodedStream::new(encoder(), decoder());
        let mut far = CodedStream::new(encoder(), decoder());
        let whole = pieces.concat();
        let (mut left, mut came) = (&whole[..], Vec::new());
        let mut sizes = pieces.iter().map(Vec::len);
        let mut size = sizes.next().unwrap_or(0);
        let mut buffer = vec![0; reading];
        let mut is_finished = false;
        for _ in 0..1_000_000 {
            if size > 0 {
                let written: Result<usize, Infallible> =
                    near.write(&left[..size], |bytes| Ok(pipe.take(bytes)));
                let Ok(written) = written;
                left = &left[written..];
                size -= written;
                if size == 0 { size = sizes.next().unwrap_or(0); }
            } else if !is_finished {
                let done: Result<bool, Infallible> = near.finish(|bytes| Ok(pipe.take(bytes)));
                let Ok(done) = done;
                (is_finished, pipe.is_ended) = (done, done);
            }
            let got: Result<StreamRead, MalformedStream> = far.read(&mut buffer, |part| Ok(pipe.give(part)));
            match got.unwrap() {
                StreamRead::Data(count) => came.extend_from_slice(&buffer[..count]),
                StreamRead::Nothing | StreamRead::Later => {}
                StreamRead::End => break,
            }
        }
        prop_assert!(is_finished && came == whole, "{} of {} came", came.len(), whole.len());
        prop_assert_eq!(near.sent, far.received);
        prop_assert_eq!(near.sent.plain, whole.len() as u64);
    }

    #[test]
    fn foreign_bytes_are_harmless(
        bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..4, arriving in 1usize..50
    ) {
        let bytes = [&[kind], &bytes[..]].concat();
        let _ = decoded(&bytes, arriving, 100);
    }
}
