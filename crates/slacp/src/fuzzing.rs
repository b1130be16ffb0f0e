//! What the fuzz targets (`fuzz/`) and the replay of their corpora
//! (`tests/corpus.rs`) call: every way that foreign bytes come in. None may
//! panic, loop or take memory without bound.

use std::net::SocketAddr;

use units::{BitRate, Instant, Machine};

use crate::fec::Decoder;
use crate::frame::{self, Frame};
use crate::handshake::Keys;
use crate::session::{Peer, Session, limits};
use crate::{Config, Endpoint, KeyPair, PublicKey, Read, packet};
use crate::{crypto::PacketKey, ranges::RangeSet};

/// Takes foreign bytes.
pub type Target = fn(&[u8]);

/// The targets, by the names of their corpora.
pub const TARGETS: [(&str, Target); 4] =
    [("datagram", datagram), ("frames", frames), ("repair", repair), ("session", session)];

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5900))
}

fn config() -> Config {
    Config { max_streams: 16, ..Config::new(BitRate::from_mbit(10)) }
}

/// A datagram to a hub, and to a terminal that waits for an answer.
pub fn datagram(bytes: &[u8]) {
    let _ = packet::parse(bytes);
    let now = Instant::from_nanos(1_000_000_000);
    let key = |seed| KeyPair::from_private([seed; 32]);
    let mut hub = Endpoint::hub(config(), key(1), vec![key(2).public()], [3; 32]);
    hub.handle_datagram(now, address(), &mut bytes.to_vec());
    let hub_key = key(1).public();
    let mut terminal = Endpoint::terminal(config(), key(2), hub_key, vec![address()], [4; 32]);
    terminal.handle_timeout(now);
    terminal.handle_datagram(now, address(), &mut bytes.to_vec());
}

/// The frames of a packet: what is read, and written in the shortest form, is
/// read the same way again.
pub fn frames(mut bytes: &[u8]) {
    while let Ok(Some(read)) = frame::read(&mut bytes) {
        let mut out = Vec::new();
        read.write(&mut out, true);
        let again = frame::read(&mut &out[..]);
        match (&read, again) {
            (Frame::Ack(one), Ok(Some(Frame::Ack(two)))) => assert!(one.ranges().eq(two.ranges())),
            (_, again) => assert_eq!(again, Ok(Some(read))),
        }
    }
}

/// Repairs for packets that are partly there. The first byte says which.
pub fn repair(bytes: &[u8]) {
    let Some((present, mut rest)) = bytes.split_first() else { return };
    let mut decoder = Decoder::new(1 << 16);
    for number in (0..64).filter(|number| number % 9 != u64::from(present % 9)) {
        decoder.keep(number, &[number as u8; 40][..(number as usize * 7) % 40]);
    }
    while let Ok(Some(frame)) = frame::read(&mut rest) {
        if let Frame::Repair(repair) = frame {
            let _ = decoder.repair(100, &repair);
        }
    }
}

/// Packets of a peer that is authentic and means harm: each is two bytes of
/// length and so many of frames. The owner meanwhile does what owners do.
pub fn session(mut bytes: &[u8]) {
    let mut session = set_up();
    let mut known = RangeSet::default();
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut out = Vec::new();
    for number in 0.. {
        let Some((length, rest)) = bytes.split_first_chunk::<2>() else { break };
        let length = usize::from(u16::from_be_bytes(*length) % 1400).min(rest.len());
        let (frames, rest) = rest.split_at(length);
        bytes = rest;
        session.take_authentic(now, number, frames);
        if session.is_over() {
            return;
        }
        own(&mut session, &mut known);
        session.handle_timeout(now);
        out.clear();
        while session.transmit(now, &mut out).is_some() {
            out.clear();
        }
        now += core::time::Duration::from_millis(20);
    }
}

fn set_up() -> Session {
    let key = || PacketKey::new(&[7; 32]);
    let keys = Keys { send: key(), recv: key(), name: 1 };
    let peer =
        Peer { key: PublicKey([1; 32]), address: address(), index: 1, limits: limits(&config()) };
    Session::new(Instant::ZERO, &config(), keys, peer, true, None)
}

/// Reads and writes what there is, refuses every third stream, ends others.
fn own(session: &mut Session, known: &mut RangeSet) {
    let mut buffer = [0; 512];
    while let Some(event) = session.poll_event() {
        if let crate::Event::Opened { stream, .. } | crate::Event::Readable(stream) = event {
            known.insert_one(stream.0);
        }
    }
    for id in known.descending().flatten().take(64).collect::<Vec<u64>>() {
        let stream = crate::StreamId(id);
        let streams = &mut session.streams;
        let _ = streams.write(stream, &buffer[..100]);
        while matches!(streams.read(stream, &mut buffer), Ok(Read::Data(_))) {}
        match id % 3 {
            0 => _ = streams.reset(stream, crate::ResetReason::Refused),
            1 => _ = streams.finish(stream),
            _ => _ = streams.accept(stream),
        }
    }
}
