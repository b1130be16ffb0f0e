//! Tests streams and sessions that have carried more than fits in 32 bits, or in the offset bits on
//! the wire.

use std::net::SocketAddr;

use super::*;
use crate::scheduler::MAX_CLASSES;
use crate::wire::frame::TruncatedOffset;
use crate::{ReadOutcome, StreamError, StreamOpening};

/// Maximum number of stream bytes in a packet.
const PACKET: usize = 1400;
/// Bytes sent each way, starting half of this before a border.
const BYTES: u64 = 2 << 20;
/// Memory for all streams of the session.
const MEMORY: u64 = 300_000;
/// Period of the test pattern, a prime.
const PATTERN: u64 = 65_521;

/// The test pattern at an offset. No two pieces within a period are alike.
fn byte(offset: u64) -> u8 {
    ((offset % PATTERN).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Two sides of a session that exchange frames as bytes. Every seventh stream frame is lost and
/// reported as lost. Every fourth has a short offset.
struct Hop {
    sides: [StreamSet; 2],
    frames: u64,
    /// Offset up to which each side has read.
    read: [u64; 2],
}

impl Hop {
    /// A hop with a stream that has already carried `before` bytes each way.
    fn new(before: u64) -> (Self, StreamId) {
        let limits = PeerLimits::new(MEMORY, 200_000, 4);
        let side = |parity| StreamSet::new(parity, limits, limits, 100_000, MAX_CLASSES, PACKET);
        let mut hop = Self { sides: [side(0), side(1)], frames: 0, read: [before; 2] };
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let open = StreamOpening { destination: address.into(), source: address, dscp: None };
        let stream = hop.sides[0].open(open).unwrap();
        while hop.carry(0) | hop.carry(1) {}
        hop.sides.iter_mut().for_each(|side| side.skip(stream, before));
        (hop, stream)
    }

    /// Carries one frame from a side; `false` if it has none.
    fn carry(&mut self, from: usize) -> bool {
        let mut bytes = Vec::new();
        let side = &mut self.sides[from];
        if let Some(frame) = side.next_control(|_| true) {
            frame.write(&mut bytes, true);
            self.deliver(1 - from, &bytes);
            return true;
        }
        let lost = side.next_lost(|_| PACKET);
        let Some(chunk) = lost.or_else(|| side.next_new(0, |_| PACKET)) else { return false };
        self.frames += 1;
        let StreamChunk { stream, range, fin, .. } = chunk;
        if self.frames.is_multiple_of(7) {
            side.on_lost(stream, range, fin);
            return true;
        }
        let is_short = self.frames.is_multiple_of(4);
        let truncate = if is_short { TruncatedOffset::compact } else { TruncatedOffset::full };
        crate::wire::frame::write_stream_head(&mut bytes, stream, truncate(range.start), fin, None);
        side.copy(stream, &range, &mut bytes);
        side.on_acknowledged(Instant::ZERO, stream, range, fin);
        self.deliver(1 - from, &bytes);
        true
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        assert!(self.sides[to].hear((Instant::ZERO, self.frames), bytes).unwrap());
    }

    /// Makes a side write as much as it may, up to offset `end`, and finish there.
    fn write(&mut self, side: usize, stream: StreamId, end: u64) {
        let side = &mut self.sides[side];
        let Some(stats) = side.stats(stream) else { return };
        let piece: Vec<u8> = (stats.written..end).take(10_000).map(byte).collect();
        if piece.is_empty() {
            let _ = side.finish(stream);
        } else {
            side.write(stream, &piece).unwrap();
        }
    }

    /// Makes a side read all there is; returns whether that was the end.
    fn read(&mut self, side: usize, stream: StreamId) -> bool {
        let mut piece = [0; 5000];
        loop {
            match self.sides[side].read(Instant::ZERO, stream, &mut piece) {
                Ok(ReadOutcome::Data(count)) => {
                    let expected = (self.read[side]..).map(byte);
                    assert!(piece[..count].iter().copied().eq(expected.take(count)));
                    self.read[side] += count as u64;
                }
                Ok(ReadOutcome::Blocked) => return false,
                Ok(ReadOutcome::End) | Err(StreamError::NoStream) => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl StreamSet {
    /// Pretends that a stream has carried this many bytes each way.
    fn skip(&mut self, id: StreamId, bytes: u64) {
        let stream = self.map.get_mut(&id).unwrap();
        stream.send.skip(bytes);
        stream.recv.skip(bytes);
        stream.milestones.skip(bytes);
        self.send_credit.skip(bytes);
        self.recv_credit.skip(bytes);
    }
}

/// Powers of two at which a number may wrap: offsets on the wire, 32 bits, 53 bits (JSON).
const BORDERS: [u32; 6] = [26, 30, 31, 32, 33, 53];

#[test]
fn every_byte_crosses_each_border_once_and_the_end_comes() {
    for border in BORDERS {
        let before = (1 << border) - BYTES / 2;
        let (mut hop, stream) = Hop::new(before);
        let (end, mut ended) = (before + BYTES, [false; 2]);
        while ended != [true; 2] {
            let frames = hop.frames;
            for side in 0..2 {
                hop.write(side, stream, end);
                while hop.carry(side) {}
                ended[1 - side] = hop.read(1 - side, stream);
            }
            assert!(hop.frames > frames || ended == [true; 2], "2^{border}: {:?}", hop.read);
        }
        assert_eq!(hop.read, [end; 2]);
        for side in &hop.sides {
            assert_eq!((side.len(), side.held()), (0, (0, 0)), "2^{border}");
        }
    }
}

#[test]
fn what_a_reset_cuts_off_is_accounted_for_beyond_each_border() {
    for border in BORDERS {
        const SHORT: u64 = 10_000;
        let before = (1 << border) - SHORT;
        let (mut hop, stream) = Hop::new(before);
        // Until the window is full, as nobody reads.
        for _ in 0..1000 {
            hop.write(0, stream, before + BYTES);
            while hop.carry(0) {}
        }
        let stats = hop.sides[0].stats(stream).unwrap();
        assert!(stats.written > before + 2 * SHORT && stats.blocked_by_peer, "{stats:?}");
        hop.sides[0].reset(stream, ResetReason::Reset).unwrap();
        while hop.carry(0) | hop.carry(1) {}
        while !hop.read(1, stream) {}
        while hop.carry(1) {}
        assert!(hop.read[1] > before + SHORT, "what came before the reset is read");
        for side in &hop.sides {
            assert_eq!((side.len(), side.held()), (0, (0, 0)), "2^{border}");
        }
        // Credit below a sixteenth is not announced.
        let room = hop.sides[0].send_credit.room();
        assert!(room > MEMORY - MEMORY / 16, "2^{border}: {room}");
    }
}
