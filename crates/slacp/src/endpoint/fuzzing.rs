//! Entry points of the fuzz targets (`fuzz/`) and of the replay of their corpora
//! (`tests/corpus.rs`), one for each way in which untrusted bytes enter. No input may cause a
//! panic, an endless loop or unbounded memory.

mod adversary;
mod checked;
mod choices;
mod contact;
mod contacts;
mod duel;
mod forger;
mod grammar;
mod headers;
mod owner;
mod tactics;

use std::net::SocketAddr;

use units::{BitRate, Instant, Machine, RangeSet};

use self::headers::HeaderHop;
use crate::keys::crypto::{PacketCipher, PacketKey};
use crate::keys::handshake::knock::KnockKey;
use crate::keys::phases::HandshakeKeys;
use crate::keys::secret::Secret;
use crate::recovery::fec::FecDecoder;
use crate::session::{Peer, Session, limits};
use crate::wire::frame::{self, Frame};
use crate::wire::packet;
use crate::{
    ChannelConfig, ChannelId, Config, Endpoint, ErrorControl, KeyPair, PublicKey, ReadOutcome,
    SessionId,
};

pub use adversary::{Adversary, is_own, own_address};
pub use checked::{CheckedEndpoint, FigureLimits, MemoryBound};
pub use choices::Choices;
pub use duel::adversary;
pub use owner::Owner;

/// Makes a session acknowledge all packets up to `ahead` beyond the largest that has arrived, even
/// those that have not arrived.
pub fn acknowledge_all(endpoint: &mut Endpoint, now: Instant, session: SessionId, ahead: u64) {
    endpoint.core.with(session, |session| session.acknowledge_ahead(now, ahead));
}

/// A function that processes untrusted bytes.
pub type Target = fn(&[u8]);

/// The targets with the names of their corpora.
pub const TARGETS: [(&str, Target); 7] = [
    ("datagram", datagram),
    ("knocked", knocked),
    ("frames", frames),
    ("repair", repair),
    ("headers", headers),
    ("session", session),
    ("adversary", adversary),
];

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5900))
}

fn config() -> Config {
    let mut config = Config { max_streams: 16, names: true, ..Config::new(BitRate::from_mbit(10)) };
    let kinds = [ErrorControl::None, ErrorControl::Fec, ErrorControl::Arq, ErrorControl::FecArq];
    for (channel, kind) in (0..).filter_map(ChannelId::new).zip(kinds) {
        let channel_config = ChannelConfig { compress: true, ..ChannelConfig::new(kind) };
        config.add_channel(channel, channel_config).expect("the defaults are right");
    }
    config
}

/// Target: a datagram to a hub, and to a terminal that waits for an answer.
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

/// Target: handshake datagrams with a correct knock or tag. Initiations to a hub if the first byte
/// is even, answers to a terminal if it is odd.
pub fn knocked(bytes: &[u8]) {
    let Some((side, body)) = bytes.split_first() else { return };
    let now = Instant::from_nanos(1_000_000_000);
    let key = |seed| KeyPair::from_private([seed; 32]);
    let knock_key = KnockKey::new(key(1).public());
    if side % 2 == 0 {
        let mut hub = Endpoint::hub(config(), key(1), vec![key(2).public()], [3; 32]);
        let mut initiation = body.to_vec();
        knock_key.seal(&mut initiation);
        let size = initiation.len();
        hub.handle_datagram(now, address(), &mut initiation);
        let mut out = Vec::new();
        while hub.poll_transmit(now, &mut out).is_some() {
            assert!(out.len() <= size);
        }
        return;
    }
    let hub_key = key(1).public();
    let mut terminal = Endpoint::terminal(config(), key(2), hub_key, vec![address()], [4; 32]);
    terminal.handle_timeout(now);
    let mut first = Vec::new();
    terminal.poll_transmit(now, &mut first);
    let mut answer = body.to_vec();
    // The fuzzer cannot guess the index that a terminal with this seed chooses.
    if let (Some(place), Some(index)) = (answer.get_mut(1..5), first.get(2..6)) {
        place.copy_from_slice(index);
    }
    let mut answer = knock_key.seal_answer(answer, knock_key.check(&first).as_ref());
    terminal.handle_datagram(now, address(), &mut answer);
    while terminal.poll_notice().is_some() {}
    terminal.handle_timeout(now);
    while terminal.poll_transmit(now, &mut first).is_some() {}
}

/// Target: the frames of a packet. A frame that parses must parse to the same after it is written
/// in its shortest form.
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

/// Target: repairs of blocks of which some packets are present. The first byte selects which.
pub fn repair(bytes: &[u8]) {
    let Some((present, mut rest)) = bytes.split_first() else { return };
    let mut decoder = FecDecoder::new(1 << 16);
    for number in (0..64).filter(|number| number % 9 != u64::from(present % 9)) {
        decoder.store(number, &[number as u8; 40][..(number as usize * 7) % 40]);
    }
    while let Ok(Some(frame)) = frame::read(&mut rest) {
        if let Frame::Repair(repair) = frame {
            let _ = decoder.repair(100, &repair);
        }
    }
}

/// Target: header compression of IP packets, each after a length in two bytes. Bit 15 of it says
/// that the packet is lost, bit 14 that it is sent again, and bit 13 that frames for the
/// decompressor follow instead. Packets must arrive as they were sent.
pub fn headers(mut bytes: &[u8]) {
    let mut hop = HeaderHop::default();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let first = u16::from_be_bytes(*length);
        let length = usize::from(first % 256).min(rest.len());
        let (packet, rest) = rest.split_at(length);
        bytes = rest;
        match first & 0x2000 {
            0 if !packet.is_empty() => hop.carry(packet, first & 0x8000 != 0, first & 0x4000 != 0),
            0 => {}
            _ => hop.receive_frames(packet),
        }
    }
}

/// Target: packets of an authentic but malicious peer, each as two bytes of length and that many
/// bytes of frames. The owner of the session meanwhile behaves normally.
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
        if !session.is_usable() {
            return;
        }
        own(&mut session, now, &mut known);
        session.handle_timeout(now);
        out.clear();
        while session.transmit(now, &mut out).is_some() {
            out.clear();
        }
        now += core::time::Duration::from_millis(20);
    }
}

fn set_up() -> Session {
    let key = || PacketKey::new(PacketCipher::ChaCha20Poly1305, &[7; 32]);
    let keys = HandshakeKeys {
        cipher: PacketCipher::ChaCha20Poly1305,
        send: key(),
        recv: key(),
        name: 1,
        token: 2,
        chain: Secret::new([7; 32]),
    };
    let peer = Peer {
        key: PublicKey([1; 32]),
        address: address(),
        index: 1,
        limits: limits(&config()),
        rate: BitRate::from_mbit(10),
        times: Some(true),
        ecn: true,
        link_layer: true,
        leaving: true,
        successor: true,
        address_parameter: None,
    };
    Session::new(Instant::ZERO, &config(), keys, &peer, true, None, &Secret::new([8; 32]))
}

/// Acts as the owner: reads and writes whatever it can, echoes packets, refuses every third stream
/// and ends others.
fn own(session: &mut Session, now: Instant, known: &mut RangeSet) {
    let mut buffer = [0; 512];
    while let Some(event) = session.poll_event() {
        if let crate::Event::Opened { stream, .. } | crate::Event::Readable(stream) = event {
            known.insert_one(stream.0);
        }
    }
    // Echo received packets.
    while let Some((channel, packet)) = session.poll_packet() {
        let _ = session.send_packet(now, channel, &packet);
    }
    for id in known.descending().flatten().take(64).collect::<Vec<u64>>() {
        let stream = crate::StreamId(id);
        let streams = &mut session.shared.streams;
        let _ = streams.write(stream, &buffer[..100]);
        while matches!(streams.read(Instant::ZERO, stream, &mut buffer), Ok(ReadOutcome::Data(_))) {
        }
        match id % 3 {
            0 => _ = streams.reset(stream, crate::ResetReason::Refused),
            1 => _ = streams.finish(stream),
            _ => _ = streams.accept(now, stream),
        }
    }
}
