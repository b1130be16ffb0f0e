//! Compressed streams in virtual time: every byte and every ending, whatever the sizes of reads and
//! writes.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use slacp::{ReadOutcome, ResetReason};

use crate::hop::SessionStream;
use crate::hop::compression::CompressionTotals;
use crate::testkit::{Alarm, Hops, payload, prompt};

/// Both sides compress.
const BOTH: [bool; 2] = [true; 2];

fn text(size: usize) -> Vec<u8> {
    let line = |n: usize| {
        format!("{{\"id\":{n},\"name\":\"item {}\",\"price\":{}}}\n", n % 7, n * n % 997)
    };
    (0..).flat_map(|n| line(n).into_bytes()).take(size).collect()
}

/// A writer of data, in pieces of a size.
struct Writer {
    data: Vec<u8>,
    at: usize,
    piece: usize,
    is_finished: bool,
}

impl Writer {
    fn new(data: Vec<u8>, piece: usize) -> Self {
        Self { data, at: 0, piece, is_finished: false }
    }

    /// Writes what the stream takes, then its end.
    fn go_on(&mut self, stream: &SessionStream, alarm: &Arc<Alarm>) {
        while self.at < self.data.len() {
            let end = self.data.len().min(self.at + self.piece);
            let written =
                alarm.poll(|context| stream.poll_write(context, &self.data[self.at..end]));
            let Poll::Ready(written) = written else { return };
            self.at += written.unwrap();
        }
        if !self.is_finished {
            let finished = alarm.poll(|context| stream.poll_finish(context));
            self.is_finished = finished.is_ready();
        }
    }
}

/// What a reader has got, at most so much at once.
struct Reader {
    data: Vec<u8>,
    piece: usize,
    is_ended: bool,
}

impl Reader {
    fn new(piece: usize) -> Self {
        Self { data: Vec::new(), piece, is_ended: false }
    }

    /// Reads what there is, at most `times`.
    fn go_on(&mut self, stream: &SessionStream, alarm: &Arc<Alarm>, times: usize) {
        let mut buffer = vec![0; self.piece];
        for _ in 0..times {
            match alarm.poll(|context| stream.poll_read(context, &mut buffer)) {
                Poll::Ready(Ok(ReadOutcome::Data(count))) => {
                    self.data.extend_from_slice(&buffer[..count]);
                }
                Poll::Ready(Ok(_)) => self.is_ended = true,
                Poll::Ready(Err(reason)) => panic!("{reason:?}"),
                Poll::Pending => return,
            }
        }
    }
}

/// Sends data both ways until both ends have come; returns what each side has counted.
fn carry(
    hops: &mut Hops,
    data: &[Vec<u8>; 2],
    [writing, reading]: [usize; 2],
) -> [CompressionTotals; 2] {
    let alarm = Arc::<Alarm>::default();
    let ends = hops.open();
    let mut writers = data.clone().map(|data| Writer::new(data, writing));
    let mut readers = [Reader::new(reading), Reader::new(reading)];
    for _ in 0..100_000 {
        for side in [0, 1] {
            writers[side].go_on(&ends[side], &alarm);
            readers[side].go_on(&ends[side], &alarm, 20);
        }
        hops.run();
        if readers.iter().all(|reader| reader.is_ended) {
            break;
        }
    }
    for side in [0, 1] {
        let (got, sent) = (&readers[side].data, &data[1 - side]);
        assert!(got == sent, "{} of {} bytes came, or others", got.len(), sent.len());
    }
    hops.hops.each_ref().map(crate::hop::Hop::compressed)
}

#[test]
fn text_takes_a_quarter_of_its_bytes_on_the_hop() {
    let mut hops = Hops::compressing(BOTH);
    let sizes = [200_000, 1_000_000];
    let [hub, terminal] = carry(&mut hops, &sizes.map(text), [65_536; 2]);
    // The terminal is the opener.
    assert_eq!(
        (terminal.streams, terminal.sent.plain, terminal.received.plain),
        (1, 200_000, 1_000_000)
    );
    assert_eq!((hub.sent, hub.received), (terminal.received, terminal.sent));
    assert!(terminal.sent.coded * 4 < terminal.sent.plain, "{terminal:?}");
    assert!(hub.sent.coded * 4 < hub.sent.plain, "{hub:?}");
}

#[test]
fn noise_takes_a_byte_more() {
    let mut hops = Hops::compressing(BOTH);
    let [hub, _] = carry(&mut hops, &[payload(1, 300_000), payload(2, 400_000)], [9000, 65_536]);
    assert_eq!((hub.sent.coded, hub.received.coded), (400_001, 300_001));
}

/// Each side decides for what it sends; the opener whether either does.
#[test]
fn a_side_that_does_not_compress_sends_what_it_has() {
    for compress in [[false, true], [true, false], [false; 2]] {
        let mut hops = Hops::compressing(compress);
        let sizes = [100_000, 100_000];
        let [hub, terminal] = carry(&mut hops, &sizes.map(text), [65_536; 2]);
        let [by_hub, by_terminal] = compress;
        assert_eq!(terminal.streams, u64::from(by_terminal));
        assert_eq!(terminal.sent.coded * 4 < 100_000 && terminal.streams > 0, by_terminal);
        assert_eq!(hub.sent.coded * 4 < 100_000 && hub.streams > 0, by_hub && by_terminal);
    }
}

/// A peer of an earlier version, or one that decompresses nothing.
#[test]
fn a_peer_that_cannot_decompress_gets_streams_as_they_are() {
    let mut hops = Hops::new();
    let [_, terminal] = carry(&mut hops, &[text(5000), text(5000)], [1000, 1000]);
    assert_eq!(terminal, CompressionTotals::default());
}

#[test]
fn what_is_written_can_be_read_at_once() {
    let (mut hops, alarm) = (Hops::compressing(BOTH), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    let mut reader = Reader::new(1000);
    for line in text(3000).split_inclusive(|byte| *byte == b'\n') {
        let written = alarm.poll(|context| near.poll_write(context, line));
        assert_eq!(written, Poll::Ready(Ok(line.len())));
        hops.run();
        reader.data.clear();
        reader.go_on(&far, &alarm, 20);
        assert_eq!(reader.data, line);
    }
}

#[test]
fn a_reset_ends_both_directions_with_its_reason() {
    let (mut hops, alarm) = (Hops::compressing(BOTH), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    let written = alarm.poll(|context| near.poll_write(context, &text(1000)));
    assert!(written.is_ready());
    hops.run();
    far.reset(ResetReason::Refused);
    hops.run();
    let mut buffer = [0; 100];
    let read = alarm.poll(|context| near.poll_read(context, &mut buffer));
    assert_eq!(read, Poll::Ready(Err(ResetReason::Refused)));
    let finished = alarm.poll(|context| near.poll_finish(context));
    assert_eq!(finished, Poll::Ready(Err(ResetReason::Refused)));
}

/// The stream is gone while its decoder still holds data.
#[test]
fn what_came_before_a_reset_is_read_to_its_end() {
    let (mut hops, alarm) = (Hops::compressing(BOTH), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    let written = alarm.poll(|context| near.poll_write(context, &text(10_000)));
    assert_eq!(written, Poll::Ready(Ok(10_000)));
    near.reset(ResetReason::Refused);
    hops.pass(Duration::from_millis(100));
    let (mut data, mut buffer) = (Vec::new(), [0; 100]);
    let end = loop {
        match alarm.poll(|context| far.poll_read(context, &mut buffer)) {
            Poll::Ready(Ok(ReadOutcome::Data(count))) => data.extend_from_slice(&buffer[..count]),
            Poll::Ready(end) => break end,
            Poll::Pending => _ = hops.run(),
        }
    };
    assert_eq!((data == text(10_000), end), (true, Err(ResetReason::Refused)));
}

/// Two directions are compressed at a time here; further streams go as they are, and the places come
/// back.
#[test]
fn no_more_is_compressed_at_a_time_than_the_peer_agrees_to() {
    let (mut hops, alarm) = (Hops::compressing(BOTH), Arc::<Alarm>::default());
    let mut before = 0;
    let mut sent = |hops: &mut Hops| {
        let [near, far] = hops.open();
        let written = alarm.poll(|context| near.poll_write(context, &text(10_000)));
        assert_eq!(written, Poll::Ready(Ok(10_000)));
        hops.pass(Duration::from_millis(5));
        let mut reader = Reader::new(20_000);
        reader.go_on(&far, &alarm, 20);
        assert_eq!(reader.data, text(10_000));
        let coded = hops.hops[1].compressed().sent.coded;
        let size = coded - std::mem::replace(&mut before, coded);
        ([near, far], size)
    };
    let streams = [(); 3].map(|()| sent(&mut hops));
    let sizes = streams.each_ref().map(|(_, size)| *size);
    assert!(sizes[0] < 2500 && sizes[1] < 2500 && sizes[2] == 10_001, "{sizes:?}");
    drop(streams);
    hops.pass(Duration::from_millis(100));
    assert!(sent(&mut hops).1 < 2500);
}

/// What a peer sends that is no sequence of segments ends the stream.
#[test]
fn malformed_data_resets_the_stream() {
    let (mut hops, alarm) = (Hops::compressing(BOTH), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    let (session, stream) = (hops.sessions[1], near.id());
    hops.hops[1].part(0).endpoint.write(session, stream, &[9, 9, 9]).unwrap();
    hops.run();
    let mut buffer = [0; 100];
    let read = alarm.poll(|context| far.poll_read(context, &mut buffer));
    assert_eq!(read, Poll::Ready(Err(ResetReason::Reset)));
    hops.run();
    let read = alarm.poll(|context| near.poll_read(context, &mut buffer));
    assert_eq!(read, Poll::Ready(Err(ResetReason::Reset)));
    assert_eq!(hops.hops[0].compressed().malformed, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_comes_whatever_is_compressed(
        kinds in prop::array::uniform2(0u8..3),
        sizes in prop::array::uniform2(0usize..200_000),
        pieces in prop::array::uniform2(100usize..70_000),
    ) {
        let mut hops = Hops::compressing(BOTH);
        let data = [0, 1].map(|side| match kinds[side] {
            0 => text(sizes[side]),
            1 => payload(side as u64, sizes[side]),
            _ => [text(sizes[side] / 2), payload(side as u64, sizes[side] / 2)].concat(),
        });
        carry(&mut hops, &data, pieces);
    }
}

/// A context for each would take half a second.
#[test]
fn frames_that_hold_nothing_take_no_long_poll() {
    const EMPTY_FRAME: [u8; 10] = [1, 0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
    let (mut hops, alarm) = (Hops::compressing(BOTH), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    let (terminal, session) = (hops.hops[1].clone(), hops.sessions[1]);
    let (said, mut at, mut buffer) = (EMPTY_FRAME.repeat(30_000), 0, vec![0; 256 << 10]);
    while at < said.len() || hops.hops[0].compressed().received.coded < said.len() as u64 {
        // Instead of what its coder would write.
        at += terminal.part(0).endpoint.write(session, near.id(), &said[at..]).unwrap();
        hops.run();
        let read = prompt(|| alarm.poll(|context| far.poll_read(context, &mut buffer)));
        assert!(read.is_pending());
    }
}
