//! How much a peer can make the streams hold.

use core::time::Duration;
use std::net::SocketAddr;

use bytes::BufMut as _;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::*;
use crate::scheduler::MAX_CLASSES;
use crate::streams::peer::UNREAD_TIMEOUT;
use crate::streams::pieces::WriteRoom;
use crate::streams::recv_buffer::GAP_COST;
use crate::wire::frame::{self, TruncatedOffset};
use crate::{ReadOutcome, StreamError, StreamOpening, client_network};

const MEMORY: u64 = 1_000_000;

fn streams() -> StreamSet {
    let limits = PeerLimits::new(MEMORY, MEMORY, 100);
    StreamSet::new(0, limits, limits, 100_000, MAX_CLASSES, 1500)
}

/// Delivers one byte of a stream opened by the peer; returns whether it is accepted.
fn byte(streams: &mut StreamSet, id: StreamId, offset: u64) -> bool {
    streams.on_data((Instant::ZERO, 0), id, TruncatedOffset::full(offset), &[7], false).unwrap()
}

#[test]
fn islands_of_one_byte_take_a_sixteenth_of_the_memory_and_gaps_still_fill() {
    let mut streams = streams();
    let greedy = (1..MEMORY / 4).filter(|i| byte(&mut streams, StreamId(1), i * 2)).count();
    let other = (1..1000).filter(|i| byte(&mut streams, StreamId(3), i * 2)).count();
    assert!(other > 0 && greedy > other, "{greedy}, {other}");
    assert!((greedy + other) as u64 * GAP_COST <= MEMORY / 16, "{greedy}, {other}");
    for id in [1, 3].map(StreamId) {
        (0..2000).for_each(|offset| assert!(byte(&mut streams, id, offset)));
    }
    assert!(streams.gaps < greedy);
}

#[test]
fn unread_streams_that_the_peer_reset_are_no_more_than_it_may_open() {
    let mut streams = streams();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let open = StreamOpening { destination: address.into(), source: address, dscp: None };
    for n in 0..10_000 {
        let id = StreamId(n * 2 + 1);
        streams.on_open(Instant::ZERO, id, 10, 10, open.clone()).unwrap();
        assert!(byte(&mut streams, id, 0));
        streams.on_reset(Instant::ZERO, id, ResetReason::Reset, 1).unwrap();
        assert!(streams.drains.len() <= 100 && streams.resetting.is_empty());
    }
}

#[test]
fn what_is_read_into_a_stream_is_what_it_has_room_for() {
    let mut streams = streams();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let open = StreamOpening { destination: address.into(), source: address, dscp: None };
    let id = StreamId(1);
    streams.on_open(Instant::ZERO, id, 10, MEMORY, open).unwrap();
    let room = streams.room(id).unwrap() as usize;
    // A socket without data, then one that always has some.
    assert_eq!(streams.fill(id, |_| {}), Ok(Some(0)));
    let read = |part: &mut WriteRoom<'_>| part.put_bytes(7, part.remaining_mut().min(30_000));
    let counts = core::iter::from_fn(|| streams.fill(id, read).unwrap());
    assert_eq!(counts.sum::<usize>(), room);
    while streams.poll_event().is_some() {}
    while let Some(chunk) = streams.next_new(0, |_| 1400) {
        streams.on_acknowledged(Instant::ZERO, id, chunk.range, false);
    }
    streams.wake_writers();
    assert_eq!(streams.poll_event(), Some(Event::Writable(id)));
    assert!(streams.fill(id, read).unwrap().is_some_and(|count| count > 0));
}

/// Streams that the peer has opened, each with data that waits and a writer that waits for room.
fn with_writers(count: u64) -> StreamSet {
    let limits = PeerLimits::new(1 << 40, MEMORY, count as u32);
    let mut streams = StreamSet::new(0, limits, limits, 10, MAX_CLASSES, 1500);
    streams.set_unsent_limit(10);
    let destination = SocketAddr::from(([192, 0, 2, 1], 80));
    for number in 0..count {
        let id = StreamId(2 * number + 1);
        let source = SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], 80));
        let open = StreamOpening { destination: destination.into(), source, dscp: None };
        streams.on_open(Instant::ZERO, id, 10, 10, open).unwrap();
        assert_eq!(streams.write(id, &[7; 100]), Ok(10));
    }
    streams
}

#[test]
fn a_packet_of_resets_looks_at_few_writers() {
    const WRITERS: u64 = 10_000;
    let mut streams = with_writers(WRITERS);
    streams.looks = 0;
    // As many as fit into a packet.
    for number in 0..250 {
        let id = StreamId(2 * number + 1);
        streams.on_reset(Instant::ZERO, id, ResetReason::Reset, 0).unwrap();
    }
    assert!(streams.looks <= 2 * WRITERS as usize, "{}", streams.looks);
    // Each that can write hears of it, however little others gave back.
    streams.set_unsent_limit(1000);
    while streams.poll_event().is_some_and(|event| !matches!(event, Event::Writable(_))) {}
    let further = core::iter::from_fn(|| streams.poll_event());
    assert_eq!(further.filter(|event| matches!(event, Event::Writable(_))).count(), 9749);
}

#[test]
fn an_opening_that_comes_again_after_its_stream_was_reset_opens_nothing() {
    let mut streams = streams();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let open = StreamOpening { destination: address.into(), source: address, dscp: None };
    let id = StreamId(1);
    streams.on_open(Instant::ZERO, id, 10, 1000, open.clone()).unwrap();
    streams.write(id, b"answer").unwrap();
    let chunk = streams.next_new(0, |_| 1400).unwrap();
    streams.reset(id, ResetReason::Reset).unwrap();
    while streams.poll_event().is_some() {}
    streams.on_open(Instant::ZERO, id, 10, 1000, open).unwrap();
    streams.on_acknowledged(Instant::ZERO, id, chunk.range, false);
    assert_eq!((streams.len(), streams.poll_event()), (0, None));
}

#[test]
fn streams_opened_and_reset_for_ever_leave_no_more_than_there_may_be_streams() {
    let mut streams = streams();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    for n in 0..1000 {
        let open = StreamOpening { destination: address.into(), source: address, dscp: None };
        let id = StreamId(2 * n + 1);
        streams.on_open(Instant::ZERO, id, 1, 1000, open).unwrap();
        byte(&mut streams, id, 0);
        streams.on_reset(Instant::ZERO, id, ResetReason::Reset, 1).unwrap();
        assert!(streams.len() <= 100, "{}", streams.len());
    }
    assert_eq!(streams.held().1, 100, "what is given up is given back");
    // The newest are still read to their end.
    let (last, mut out) = (StreamId(1999), [0; 8]);
    assert_eq!(streams.read(Instant::ZERO, last, &mut out), Ok(ReadOutcome::Data(1)));
    assert_eq!(streams.len(), 99);
    streams.end_resets(Instant::ZERO + Duration::from_secs(30), true);
    assert_eq!((streams.len(), streams.reset_timeout()), (0, None));
}

#[test]
fn a_client_that_holds_nearly_everything_leaves_the_session_room_for_others() {
    let limits = PeerLimits::new(256_000_000, 64_000_000, 65_536);
    let mut streams = StreamSet::new(0, limits, limits, 100_000, MAX_CLASSES, 1500);
    let open = |client: u8| {
        let destination = SocketAddr::from(([192, 0, 2, 1], 80));
        let source = SocketAddr::from(([10, 0, 0, client], 4000));
        StreamOpening { destination: destination.into(), source, dscp: None }
    };
    let refused = (0..20_000).find_map(|_| streams.open(open(1)).err());
    assert_eq!(refused, Some(StreamError::NoRoom));
    assert!(streams.has_room());
    assert!(streams.open(open(2)).is_ok());
}

/// Two sides of a session with frames in flight between them, in order; some are lost.
struct Chaos {
    sides: [StreamSet; 2],
    under_way: [VecDeque<Vec<u8>>; 2],
    rng: ChaCha20Rng,
    now: Instant,
    opened: Vec<ChaosStream>,
}

/// A stream that was opened, with its figures by side.
#[derive(Clone, Copy)]
struct ChaosStream {
    id: StreamId,
    /// Whether its readers read.
    reads: bool,
    written: [u64; 2],
    read: [u64; 2],
    /// Sides that reset the stream after its data.
    departs: [bool; 2],
    /// The last progress since then: of a side that departs, an acknowledgement; of its peer, a read.
    moved: [Instant; 2],
    /// Sides that are not promised everything that was written to them.
    may_miss: [bool; 2],
}

impl ChaosStream {
    fn new(id: StreamId, reads: bool) -> Self {
        let (figures, flags, moved) = ([0; 2], [false; 2], [Instant::ZERO; 2]);
        let (written, read, departs, may_miss) = (figures, figures, flags, flags);
        Self { id, reads, written, read, departs, moved, may_miss }
    }
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let memory = 1 << (14 + rng.next_u32() % 10);
        let window = (memory >> (rng.next_u32() % 5)).max(1000);
        let limits = PeerLimits::new(memory, window, 40);
        let side = |parity| StreamSet::new(parity, limits, limits, 20_000, MAX_CLASSES, 1500);
        let mut sides = [side(0), side(1)];
        let rate = units::BitRate::from_bits_per_second(u64::from(rng.next_u32()) % 50_000_000);
        for side in &mut sides {
            side.set_pace(SessionPace { rtt: Duration::from_millis(20), rates: [rate; 2] });
        }
        let now = Instant::from_nanos(1_000_000_000);
        Self { sides, under_way: Default::default(), rng, now, opened: Vec::new() }
    }

    fn draw(&mut self, below: u64) -> u64 {
        u64::from(self.rng.next_u32()) % below
    }

    /// Takes the next frame of a side; `false` if it has none.
    fn send(&mut self, from: usize) -> bool {
        let lost = self.draw(10) == 0;
        let (mut bytes, side) = (Vec::new(), &mut self.sides[from]);
        if let Some(frame) = side.next_control(|_| true) {
            if let Frame::Reset { stream, reason: ResetReason::Limit, .. } = frame {
                // The opening was refused: nobody reads what was written to it.
                stream_of(&mut self.opened, stream).may_miss = [true; 2];
            }
            if lost {
                side.on_control_lost(frame);
            } else {
                frame.write(&mut bytes, true);
                self.under_way[from].push_back(bytes);
            }
            return true;
        }
        let chunk = side.next_lost(|_| 1400).or_else(|| side.next_new(0, |_| 1400));
        let Some(StreamChunk { stream, range, fin, .. }) = chunk else { return false };
        if lost {
            side.on_lost(stream, range, fin);
            return true;
        }
        frame::write_stream_head(&mut bytes, stream, TruncatedOffset::full(range.start), fin, None);
        side.copy(stream, &range, &mut bytes);
        side.on_acknowledged(self.now, stream, range, fin);
        self.under_way[from].push_back(bytes);
        let entry = stream_of(&mut self.opened, stream);
        if entry.departs[from] {
            entry.moved[from] = self.now;
        }
        true
    }

    fn deliver(&mut self, to: usize) {
        let Some(bytes) = self.under_way[1 - to].pop_front() else { return };
        let (side, now) = (&mut self.sides[to], self.now);
        assert_eq!(side.hear((now, 0), &bytes), Ok(true), "an honest peer is believed");
    }

    /// Does one random thing.
    fn step(&mut self) {
        self.now += Duration::from_micros(self.rng.next_u32().into()) / 1_000_000;
        let side = self.draw(2) as usize;
        if self.draw(300) == 0 {
            let pause = self.draw(40);
            self.now += Duration::from_secs(pause);
        }
        match self.draw(13) {
            0 => self.open(side),
            1..=4 => _ = self.send(side),
            5..=8 => self.deliver(side),
            12 => self.time_out(side),
            kind => {
                let index = self.draw(self.opened.len().max(1) as u64) as usize;
                let Some(&ChaosStream { reads, .. }) = self.opened.get(index) else { return };
                match kind {
                    9 => self.write(side, index),
                    10 if reads => _ = self.read(side, index),
                    11 if self.draw(20) == 0 => self.reset(side, index),
                    _ => {}
                }
            }
        }
    }

    /// Returns windows, and ends resets that have waited too long for progress.
    fn time_out(&mut self, side: usize) {
        let (now, peer, streams) = (self.now, 1 - side, &mut self.sides[side]);
        for stream in &mut self.opened {
            let is_late = now >= stream.moved[side] + UNREAD_TIMEOUT;
            let is_unsent = stream.departs[side] && streams.map.contains_key(&stream.id);
            let is_unread = stream.departs[peer] && streams.drains.contains_key(&stream.id);
            stream.may_miss[peer] |= is_late && is_unsent;
            stream.may_miss[side] |= is_late && is_unread;
        }
        streams.return_windows(now);
        streams.end_resets(now, true);
    }

    fn write(&mut self, side: usize, index: usize) {
        let stream = &mut self.opened[index];
        if let Ok(count) = self.sides[side].write(stream.id, &[7; 5000]) {
            stream.written[side] += count as u64;
        }
    }

    /// Resets a stream at once, or after its data.
    fn reset(&mut self, side: usize, index: usize) {
        let at_once = self.draw(2) == 0;
        let (now, stream, streams) = (self.now, &mut self.opened[index], &mut self.sides[side]);
        // Who resets a stream reads no more of it.
        stream.may_miss[side] = true;
        let _ = if at_once {
            stream.may_miss = [true; 2];
            streams.reset(stream.id, ResetReason::Reset)
        } else {
            if !core::mem::replace(&mut stream.departs[side], true) {
                stream.moved = [now; 2];
            }
            streams.reset_after_data(now, stream.id, ResetReason::Reset)
        };
    }

    fn open(&mut self, side: usize) {
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let clients: [IpAddr; 3] =
            ["192.0.2.1", "2001:db8::1", "2001:db8::2"].map(|client| client.parse().unwrap());
        let client = clients[self.draw(3) as usize];
        let open =
            StreamOpening { destination: address.into(), source: (client, 7).into(), dscp: None };
        let streams = &self.sides[side];
        let has_room = streams.has_room() && streams.has_room_for(client_network(client));
        match self.sides[side].open(open) {
            Ok(id) => {
                let reads = self.draw(3) > 0;
                self.opened.push(ChaosStream::new(id, reads));
            }
            Err(error) => assert!(!has_room, "{error}"),
        }
    }

    /// Reads a little; returns whether the stream is over or has nothing to read.
    fn read(&mut self, side: usize, index: usize) -> bool {
        let (now, stream) = (self.now, &mut self.opened[index]);
        let read = self.sides[side].read(now, stream.id, &mut [0; 3000]);
        let Ok(ReadOutcome::Data(count)) = read else { return true };
        stream.read[side] += count as u64;
        stream.moved[side] = now;
        false
    }

    fn assert_right(&self) {
        for side in &self.sides {
            let windows = side.map.values().map(|stream| stream.charged);
            let resetting = side.resetting.values().map(|one| one.charged);
            let drains =
                side.drains.values().map(|one| one.recv.highest() - one.recv.read_offset());
            let charged: Vec<ClientUsage> = windows.chain(resetting).collect();
            let sum: u64 = charged.iter().map(|usage| usage.bytes).chain(drains).sum();
            assert_eq!(sum, side.limits.for_windows() - side.window_budget.left());
            let unproven: u64 = charged.iter().map(|usage| usage.unproven).sum();
            assert_eq!(unproven, side.window_budget.unproven());
            assert!(sum <= side.limits.for_windows());
            for stream in side.map.values().filter(|stream| stream.opened) {
                let ahead = stream.recv.limit() - stream.recv.read_offset();
                assert!(stream.recv.end().is_some() || ahead <= stream.charged.bytes);
            }
            let sendable = side.map.values().any(|stream| stream.send.sendable() > 0);
            assert!(!sendable || side.send_credit.room() > 0, "the session's credit binds");
            assert!(side.opening_budget.left() <= side.peer_limits.for_openings());
        }
    }

    /// Checks that all streams with active readers are read to the end, whatever the others do, and that
    /// these readers get everything, also what was written before a reset that lets it arrive.
    fn finish(&mut self) {
        for _ in 0..100_000 {
            let mut busy = false;
            for side in 0..2 {
                self.send(side);
                self.deliver(side);
                for index in 0..self.opened.len() {
                    let ChaosStream { id, reads, .. } = self.opened[index];
                    busy |= self.sides[side].finish(id).is_ok();
                    busy |= reads && !self.read(side, index);
                }
            }
            self.now += Duration::from_millis(1);
            self.assert_right();
            busy |= self.sides.iter().any(StreamSet::wants_to_send);
            busy |= self.under_way.iter().any(|frames| !frames.is_empty());
            if !busy {
                break;
            }
        }
        self.assert_complete();
    }

    fn assert_complete(&self) {
        for stream in self.opened.iter().filter(|stream| stream.reads) {
            let id = stream.id;
            let alive =
                |side: &StreamSet| side.map.contains_key(&id) || side.drains.contains_key(&id);
            assert!(!self.sides.iter().any(alive), "{id:?} hangs");
            for side in 0..2 {
                let (read, written) = (stream.read[side], stream.written[1 - side]);
                let is_whole = stream.may_miss[side] || read == written;
                assert!(is_whole, "{id:?}: side {side} read {read} of {written} bytes");
            }
        }
    }
}

fn stream_of(opened: &mut [ChaosStream], id: StreamId) -> &mut ChaosStream {
    opened.iter_mut().find(|stream| stream.id == id).expect("a stream that was opened")
}

/// `SLACP_SEEDS=first..end` chooses the seeds.
#[test]
fn windows_stay_within_the_memory_and_readers_get_everything() {
    let range = std::env::var("SLACP_SEEDS").unwrap_or_else(|_| "0..60".to_owned());
    let (first, end) = range.split_once("..").expect("SLACP_SEEDS is first..end");
    for seed in first.parse().unwrap()..end.parse().unwrap() {
        println!("SLACP_SEEDS={seed}..{}", seed + 1);
        let mut chaos = Chaos::new(seed);
        for _ in 0..3000 {
            chaos.step();
            chaos.assert_right();
        }
        chaos.finish();
    }
}
