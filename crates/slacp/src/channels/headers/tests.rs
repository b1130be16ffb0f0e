//! What comes out is what went in, whatever the link does.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use units::Instant;

use super::context::LanePosition;
use super::{Compressor, Decompressor, PacketForm};
use crate::ChannelId;
use crate::wire::frame::{
    self, CompressedFrame, CompressedPacket, ContextPacket, Frame, MAX_PACKET,
};
use crate::wire::profile::{HeaderProfile, InnerProtocol};
use crate::wire::varint;

const UDP: u8 = 17;
const TCP: u8 = 6;
const ESP: u8 = 50;
const CONTEXTS: u16 = 256;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// An IP packet with right lengths and checksums around a transport header and its payload.
fn ip(v6: bool, protocol: u8, host: u8, id: u16, mut body: Vec<u8>) -> Vec<u8> {
    let (from, to) = match v6 {
        false => (IpAddr::from([10, 1, 0, host]), IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1))),
        true => (IpAddr::from([host; 16]), IpAddr::V6(Ipv6Addr::LOCALHOST)),
    };
    let place = match protocol {
        UDP => Some(6),
        TCP => Some(16),
        _ => None,
    };
    if let Some(place) = place {
        let pseudo = tcp::wire::pseudo_header_sum(from, to, body.len());
        let pseudo = pseudo - u32::from(TCP) + u32::from(protocol);
        let sum = tcp::wire::checksum(pseudo, &body);
        body[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut packet = match v6 {
        true => {
            let mut head = vec![0x60, 0, 0, 9];
            head.extend((body.len() as u16).to_be_bytes());
            head.extend([protocol, 64]);
            head
        }
        false => {
            let mut head = vec![0x45, 0xb8];
            head.extend((20 + body.len() as u16).to_be_bytes());
            head.extend(id.to_be_bytes());
            head.extend([0x40, 0, 64, protocol, 0, 0]);
            head
        }
    };
    packet.extend(octets(from));
    packet.extend(octets(to));
    if !v6 {
        let sum = tcp::wire::checksum(0, &packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(body);
    packet
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut body = port.to_be_bytes().to_vec();
    body.extend(7000u16.to_be_bytes());
    body.extend((8 + payload.len() as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    body
}

/// Packet `n` of a call with G.729: 20 bytes of payload every 20 ms.
fn voice(v6: bool, host: u8, n: u32) -> Vec<u8> {
    let mut payload = vec![0x80, 18];
    payload.extend((n as u16).wrapping_add(65_500).to_be_bytes());
    payload.extend((n * 160).wrapping_add(0xffff_ff00).to_be_bytes());
    payload.extend([1, 2, 3, host]);
    payload.extend((0..20).map(|i| (n as u8).wrapping_mul(31) ^ i));
    ip(v6, UDP, host, 0x1000 + n as u16, udp(4000, &payload))
}

/// An acknowledgement of a download, with timestamps (RFC 7323), which are 4 ms apart.
fn ack(v6: bool, host: u8, n: u32) -> Vec<u8> {
    let mut body = vec![0x9c, 0x40, 0x01, 0xbb];
    body.extend(77u32.to_be_bytes());
    body.extend((n * 2896).to_be_bytes());
    body.extend([0x80, 0x10]);
    body.extend((500 + n as u16 % 3).to_be_bytes());
    body.extend([0, 0, 0, 0, 1, 1, 8, 10]);
    body.extend((1_000_000 + 4 * n).to_be_bytes());
    body.extend((2_000_000 + 4 * n).to_be_bytes());
    ip(v6, TCP, host, n as u16, body)
}

fn esp(v6: bool, host: u8, n: u32) -> Vec<u8> {
    let mut body = vec![0xc0, 1, 2, 3];
    body.extend((n + 1).to_be_bytes());
    body.extend([n as u8; 80]);
    ip(v6, ESP, host, 0, body)
}

fn esp_in_udp(v6: bool, host: u8, n: u32) -> Vec<u8> {
    let mut payload = vec![0xc0, 1, 2, 3];
    payload.extend((n + 1).to_be_bytes());
    payload.extend([n as u8; 80]);
    ip(v6, UDP, host, 7 * n as u16, udp(4500, &payload))
}

/// A packet of QUIC: nothing behind the UDP header is known.
fn quic(v6: bool, host: u8, n: u32) -> Vec<u8> {
    let mut seed = n.wrapping_mul(0x9e37_79b9);
    let payload: Vec<u8> = (0..1200)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .collect();
    ip(v6, UDP, host, 0, udp(443, &payload))
}

/// The length of a packet as its header tells it.
fn told_length(packet: &[u8]) -> usize {
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 4 { number(2) } else { 40 + number(4) }
}

/// Packet `n` of a flow of a host.
type Packets = fn(bool, u8, u32) -> Vec<u8>;

/// Flows, with the size of what is not a header that is known.
const FLOWS: [(Packets, usize); 5] =
    [(voice, 20), (ack, 0), (esp, 80), (esp_in_udp, 80), (quic, 1200)];

/// The two sides, and frames that are under way between them.
struct Hop {
    compressor: Compressor,
    decompressor: Decompressor,
    sequences: [u64; 64],
    number: u64,
    now: Instant,
    /// Bytes of the frames with the packets.
    bytes: usize,
}

/// A packet under way: its SLACP packet's number, its frame, what it must become, and the context
/// that it brings.
type Sent = (u64, Vec<u8>, (LanePosition, Vec<u8>), Option<(u8, u32)>);

impl Hop {
    fn new(contexts: u16) -> Self {
        let (compressor, decompressor) = (Compressor::new(contexts), Decompressor::default());
        Self { compressor, decompressor, sequences: [0; 64], number: 0, now: at(0), bytes: 0 }
    }

    fn send(&mut self, packet: &[u8], channel: u8) -> Sent {
        let (channel, lane) = (ChannelId(channel), super::super::flow::lane(packet));
        let sequence = &mut self.sequences[usize::from(lane)];
        let place = (channel, lane, *sequence);
        *sequence += 1;
        self.send_at(packet, place, false)
    }

    fn send_at(&mut self, packet: &[u8], place: LanePosition, again: bool) -> Sent {
        let mut out = Vec::new();
        let mut brings = None;
        let (channel, lane, sequence) = place;
        match self.compressor.form(self.now, place, packet, again) {
            PacketForm::Plain => {}
            PacketForm::Context { slot, serial, profile } => {
                brings = Some((slot, serial));
                ContextPacket { slot, profile, channel, lane, sequence, data: packet }
                    .write(&mut out);
            }
            PacketForm::Compressed(found) => {
                let changes = Some(&found.changes[..]).filter(|changes| !changes.is_empty());
                let (slot, distance) = (found.slot, found.distance);
                CompressedFrame { slot, distance, changes, payload: &packet[found.header..] }
                    .write(&mut out, false);
            }
        }
        self.bytes += if out.is_empty() { packet.len() + 8 } else { out.len() };
        self.number += 1;
        (self.number, out, (place, packet.to_vec()), brings)
    }

    /// Hands a frame over; the packet that comes out, if one does.
    fn receive(
        &mut self,
        (number, frame, (place, packet), _): &Sent,
    ) -> Option<(LanePosition, Vec<u8>)> {
        match frame::read(&mut &frame[..]).unwrap() {
            None => Some((*place, packet.clone())),
            Some(Frame::Context(found)) => {
                let place = (found.channel, found.lane, found.sequence);
                let (slot, profile) = (found.slot, found.profile);
                self.decompressor.store(*number, slot, profile, place, found.data);
                Some((place, found.data.to_vec()))
            }
            Some(Frame::Compressed(found)) => {
                let rebuilt = self.decompressor.rebuild(*number, &found)?;
                Some(((rebuilt.channel, rebuilt.lane, rebuilt.sequence), rebuilt.packet))
            }
            other => panic!("{other:?}"),
        }
    }

    fn fate(&mut self, sent: &Sent, arrived: bool) {
        let Some((slot, serial)) = sent.3 else { return };
        match arrived {
            true => self.compressor.established(slot, serial),
            false => self.compressor.failed(slot, serial),
        }
    }

    /// Sends a packet that arrives and is acknowledged at once; the size of its frame.
    fn pass(&mut self, packet: &[u8]) -> usize {
        let before = self.bytes;
        let sent = self.send(packet, 1);
        assert_eq!(self.receive(&sent).unwrap().1, packet);
        self.fate(&sent, true);
        self.now += Duration::from_millis(20);
        self.bytes - before
    }
}

#[test]
fn flows_cost_a_few_bytes_a_packet() {
    let costs = |(flow, payload): (Packets, usize), v6| {
        let mut hop = Hop::new(CONTEXTS);
        for n in 0..20 {
            hop.pass(&flow(v6, 1, n));
        }
        let most = (20..2000).map(|n| hop.pass(&flow(v6, 1, n)) - payload);
        let all: Vec<usize> = most.collect();
        all.iter().sum::<usize>() as f64 / all.len() as f64
    };
    for v6 in [false, true] {
        let [voice, ack, esp, esp_in_udp, quic] = FLOWS.map(|flow| costs(flow, v6));
        println!("{v6}: {voice} {ack} {esp} {esp_in_udp} {quic}");
        assert!(voice < 5.1, "{voice} of 40 or 60 bytes");
        assert!(esp < 6.1, "{esp} of 28 or 48 bytes");
        assert!(esp_in_udp < 9.1, "{esp_in_udp} of 36 or 56 bytes");
        assert!(ack < 17.0, "{ack} of 52 or 72 bytes");
        assert!(quic < 6.1, "{quic} of 28 or 48 bytes");
    }
}

/// The index of a flow's packets is not that of its lane, if it shares the lane.
#[test]
fn two_calls_in_one_lane_cost_two_bytes_more() {
    let lane = |host| super::super::flow::lane(&voice(false, host, 0));
    let other = (2..=255).find(|host| lane(*host) == lane(1)).unwrap();
    let mut hop = Hop::new(CONTEXTS);
    let mut sum = 0;
    for n in 0..2000 {
        for host in [1, other] {
            let size = hop.pass(&voice(false, host, n));
            sum += if n >= 100 { size - 20 } else { 0 };
        }
    }
    let mean = f64::from(sum as u32) / 3800.0;
    assert!(mean < 8.5, "{mean}");
}

#[test]
fn a_talk_spurt_after_silence_gets_a_new_context() {
    let mut hop = Hop::new(CONTEXTS);
    let call = |n: u32| {
        let mut packet = voice(false, 1, n);
        // The clock goes on in silence, in which no packets are sent.
        let time = u32::from_be_bytes(packet[32..36].try_into().unwrap());
        packet[32..36].copy_from_slice(&(time + n / 500 * 1_234_567).to_be_bytes());
        packet[26..28].copy_from_slice(&[0, 0]);
        packet
    };
    let sizes: Vec<usize> = (0..1500).map(|n| hop.pass(&call(n))).collect();
    assert!(sizes[300..490].iter().all(|size| *size == 25), "{:?}", &sizes[300..310]);
    assert!(sizes[501] > 28, "its time has jumped");
    assert!(sizes[800..990].iter().all(|size| *size == 25), "{:?}", &sizes[800..810]);
}

#[test]
fn packets_with_wrong_checksums_lengths_and_options_pass_unchanged() {
    let mut hop = Hop::new(CONTEXTS);
    for n in 0..10 {
        hop.pass(&voice(false, 1, n));
    }
    // The UDP checksum, the IPv4 checksum, the lengths, the version and options, a fragment.
    for (place, plain) in [(26, false), (10, true), (2, true), (24, true), (0, true), (6, true)] {
        let mut packet = voice(false, 1, 11);
        packet[place] ^= 0x03;
        let size = hop.pass(&packet);
        assert_eq!(size == packet.len() + 8, plain, "{place}: {size}");
    }
    for length in 0..60 {
        hop.pass(&voice(false, 1, 12)[..length]);
    }
}

/// The slot of the context that a packet under way refers to, if it is compressed.
fn slot_of(sent: &Sent) -> Option<u8> {
    match frame::read(&mut &sent.1[..]).unwrap() {
        Some(Frame::Compressed(found)) => Some(found.slot),
        _ => None,
    }
}

/// A hop that has carried a call for some time, with a compressed packet of it under way, and the slot of
/// the context that this one refers to.
fn calling() -> (Hop, Sent, u8) {
    let mut hop = Hop::new(CONTEXTS);
    for n in 0..30 {
        hop.pass(&voice(false, 1, n));
    }
    let mut next = (30..60).map(|n| hop.send(&voice(false, 1, n), 1));
    let (sent, slot) = next.find_map(|sent| slot_of(&sent).map(|slot| (sent, slot))).unwrap();
    (hop, sent, slot)
}

/// It refers to contents that are gone.
#[test]
fn a_packet_that_is_older_than_its_context_is_not_rebuilt() {
    let (mut hop, late, slot) = calling();
    assert_eq!(hop.receive(&late), Some(late.2.clone()));
    let profile = HeaderProfile { inner: InnerProtocol::Rtp, id_counts: true, stride: 160 };
    let another = voice(false, 2, 0);
    hop.decompressor.store(late.0 + 1, slot, profile, late.2.0, &another);
    assert_eq!(hop.receive(&late), None);
    let found = CompressedPacket { slot, distance: 0, has_changed: false, data: &[] };
    assert!(hop.decompressor.rebuild(late.0 + 2, &found).is_some());
}

#[test]
fn neither_too_long_a_packet_nor_one_with_unknown_changes_is_rebuilt() {
    let (hop, _, slot) = calling();
    let rebuilt = |has_changed, data: &[u8]| {
        let found = CompressedPacket { slot, distance: 1, has_changed, data };
        hop.decompressor.rebuild(u64::MAX, &found).map(|rebuilt| rebuilt.packet.len())
    };
    let header = rebuilt(false, &[]).unwrap();
    let longest = vec![0; MAX_PACKET - header];
    assert_eq!(rebuilt(false, &longest), Some(MAX_PACKET));
    assert_eq!(rebuilt(false, &[&longest[..], &[0]].concat()), None);
    let mut changes = Vec::new();
    varint::write(&mut changes, 1 << 40);
    assert_eq!(rebuilt(true, &changes), None);
}

#[test]
fn more_flows_than_contexts_pass_too_and_an_idle_one_gives_its_context_up() {
    let mut hop = Hop::new(4);
    for n in 0..50 {
        for host in 0..8 {
            hop.pass(&voice(false, host, n));
        }
    }
    let compressed = |hop: &mut Hop, host, n| hop.pass(&voice(false, host, n)) < 40;
    let count = (0..8).filter(|host| compressed(&mut hop, *host, 50)).count();
    assert!(count <= 4, "{count}");
    hop.now += Duration::from_secs(11);
    for n in 51..60 {
        for host in 8..12 {
            hop.pass(&voice(false, host, n));
        }
    }
    hop.now += Duration::from_secs(11);
    for n in 60..70 {
        hop.pass(&voice(false, 20, n));
    }
    assert!(compressed(&mut hop, 20, 70));
    assert!(hop.compressor.held() < 10_000 && hop.decompressor.held() < 10_000);
}

#[test]
fn a_peer_without_contexts_gets_whole_packets() {
    let mut hop = Hop::new(0);
    for n in 0..100 {
        assert_eq!(hop.pass(&voice(false, 1, n)), 60 + 8);
    }
    assert_eq!(hop.compressor.held(), 0);
}

#[test]
fn a_context_is_used_only_once_the_peer_has_it() {
    let mut hop = Hop::new(CONTEXTS);
    let sent: Vec<Sent> = (0..5).map(|n| hop.send(&voice(false, 1, n), 0)).collect();
    assert!(sent[1].3.is_some() && sent[2..].iter().all(|sent| sent.1.is_empty()));
    hop.fate(&sent[1], false);
    let again = hop.send(&voice(false, 1, 5), 0);
    assert!(again.3.is_some());
    // The acknowledgement of the one that was thought lost says nothing about the other.
    hop.fate(&sent[1], true);
    assert!(hop.send(&voice(false, 1, 6), 0).1.is_empty());
    hop.fate(&again, true);
    let compressed = hop.send(&voice(false, 1, 7), 0);
    assert!(!compressed.1.is_empty() && hop.receive(&compressed).is_none(), "no context");
    hop.receive(&again);
    assert_eq!(hop.receive(&compressed).unwrap().1, voice(false, 1, 7));
    // One that comes late is not kept in place of a newer one.
    hop.receive(&sent[1]);
    assert_eq!(hop.receive(&compressed).unwrap().1, voice(false, 1, 7));
}

/// What happens to each packet: its flow, how long it takes, and whether it is lost or repeated.
#[derive(Debug, Clone)]
struct Event {
    flow: usize,
    host: u8,
    v6: bool,
    delay: u64,
    lost: bool,
    twice: bool,
    again: bool,
    /// Bytes of the packet that are changed, and to what.
    noise: Vec<(usize, u8)>,
}

fn event() -> impl Strategy<Value = Event> {
    let noise = prop::collection::vec((0usize..70, any::<u8>()), 0..3);
    let noise = prop_oneof![3 => Just(Vec::new()), 1 => noise];
    let chance = |one_in: u32| (0..one_in).prop_map(|draw| draw == 0);
    (
        0usize..5,
        0u8..2,
        prop::bool::weighted(0.2),
        0u64..120,
        chance(10),
        chance(10),
        chance(12),
        noise,
    )
        .prop_map(|(flow, host, v6, delay, lost, twice, again, noise)| Event {
            flow,
            host,
            v6,
            delay,
            lost,
            twice,
            again,
            noise,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Packets of any flows, with any bytes changed, over a link that loses, repeats and overtakes:
    /// every one that arrives is what was sent, at its place, and all that arrive come out.
    #[test]
    fn what_arrives_is_what_was_sent(
        contexts in prop::sample::select(vec![1u16, 4, 256]),
        events in prop::collection::vec(event(), 1..1500)
    ) {
        let mut hop = Hop::new(contexts);
        let mut under_way: Vec<(Instant, Sent, bool)> = Vec::new();
        let mut acks: Vec<(Instant, Sent, bool)> = Vec::new();
        let mut counts = std::collections::BTreeMap::new();
        for event in events {
            let count = counts.entry((event.flow, event.host, event.v6)).or_insert(0);
            let mut packet = FLOWS[event.flow].0(event.v6, event.host, *count);
            *count += 1;
            for (place, value) in &event.noise {
                if let Some(byte) = packet.get_mut(*place) { *byte = *value; }
            }
            let sent = hop.send(&packet, (event.flow % 2) as u8);
            let due = hop.now + Duration::from_millis(300 + event.delay);
            let mut copies = vec![(sent.clone(), due)];
            if event.again {
                copies.push((hop.send_at(&packet, sent.2.0, true), due + Duration::from_millis(700)));
            }
            for (sent, due) in copies {
                if event.twice { under_way.push((due + Duration::from_millis(9), sent.clone(), true)); }
                under_way.push((due, sent, !event.lost));
            }
            hop.now += Duration::from_millis(5);
            let now = hop.now;
            for (_, sent, arrives) in under_way.extract_if(.., |(due, ..)| *due <= now) {
                if arrives {
                    prop_assert_eq!(hop.receive(&sent), Some(sent.2.clone()));
                }
                acks.push((now + Duration::from_millis(300), sent, arrives));
            }
            for (_, sent, arrives) in acks.extract_if(.., |(due, ..)| *due <= now) {
                hop.fate(&sent, arrives);
            }
        }
        prop_assert!(hop.compressor.held() < 400 * 1024 && hop.decompressor.held() < 200 * 1024);
    }

    /// Foreign bytes neither panic nor make a packet that is none.
    #[test]
    fn nonsense_is_harmless(
        packet in prop::collection::vec(any::<u8>(), 1..150),
        first in prop::sample::select(vec![0x45u8, 0x60, 0x00]),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)
    ) {
        let mut packet = packet;
        packet[0] = first;
        let mut hop = Hop::new(CONTEXTS);
        for _ in 0..3 { hop.pass(&packet); }
        for n in 0..3 { hop.pass(&voice(false, 1, n)); }
        for bytes in frames {
            for slot in 0..3 {
                let found = CompressedPacket {
                    slot, distance: 1 << 40, has_changed: true, data: &bytes
                };
                if let Some(rebuilt) = hop.decompressor.rebuild(u64::MAX, &found) {
                    prop_assert_eq!(told_length(&rebuilt.packet), rebuilt.packet.len());
                }
            }
        }
    }
}
