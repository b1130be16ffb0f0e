//! Entry points of the fuzz target (`fuzz/`) and of the replay of its corpus (`tests/corpus.rs`).
//! Nothing here may panic, loop, or take unbounded memory.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use etherparse::{IpNumber, SlicedPacket};
use units::{Instant, Machine};

use crate::wire::packet::{self, IncomingPacket};
use crate::{Config, Connection, Ecn, SeqNr, Stack, StackEvent, StackLimits, SynData, wire};

const LIMITS: StackLimits = StackLimits { flows: 4, incoming: 2 };

/// Passes foreign bytes to a connection. Each segment consists of a byte for its destination and
/// delay, a length, and that many bytes of a segment without checksum and ports.
pub fn segments(mut bytes: &[u8]) {
    let cookie = [1, 2, 3, 4].into_iter().collect();
    let fast_open = SynData::FastOpen { cookie };
    let config = |syn_data| Config { syn_data, snack: true, ..Config::default() };
    let mut ends = [
        Connection::listen(config(fast_open), SeqNr::new(0)),
        Connection::connect(config(SynData::Always), SeqNr::new(0)),
    ];
    let mut now = Instant::from_nanos(1_000_000_000);
    for end in &mut ends {
        let _ = end.write(&Bytes::from_static(&[7; 3000]));
        while end.poll_transmit(now).is_some() {}
    }
    while let [how, len, rest @ ..] = bytes {
        let cut = usize::from(*len).min(rest.len());
        let (body, rest) = rest.split_at(cut);
        bytes = rest;
        now += core::time::Duration::from_millis(1 << (how >> 4));
        one(&mut ends[usize::from(how & 1)], now, *how, body);
    }
}

fn one(end: &mut Connection<Bytes>, now: Instant, how: u8, body: &[u8]) {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut segment = vec![0; 4];
    segment.extend_from_slice(body);
    if segment.len() >= 20 {
        segment[16..18].fill(0);
        let sum = wire::pseudo_header_sum(address, address, segment.len());
        let sum = wire::checksum(sum, &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    if end.poll_timeout().is_some_and(|(at, _)| at <= now) {
        end.handle_timeout(now);
    }
    let ecn = Ecn::from_bits(how >> 1);
    if let Ok((_, segment)) = wire::decode(address, address, ecn, &segment.into()) {
        end.handle_segment(now, &segment);
    }
    while end.poll_event().is_some() {}
    while end.read(usize::MAX).is_some() {}
    if how & 8 != 0 {
        end.close();
    }
    let mut sent = 0;
    while let Some(segment) = end.poll_transmit(now) {
        let path = wire::SegmentPath { from: address, from_port: 0, to: address, to_port: 0 };
        let mut out = Vec::new();
        wire::encode(&path, &segment, &mut out);
        sent += 1;
        assert!(sent < 1000, "an endpoint that never stops");
    }
}

/// Passes foreign IP packets to a stack. Each consists of a byte that says how much time has passed,
/// two bytes of length, and that many bytes, of which a checksum of TCP is put right. The stack opens a
/// connection from 10.0.0.1, port 40,000, to 10.0.0.2, port 80, and accepts every other one.
pub fn packets(mut bytes: &[u8]) {
    let config = Arc::new(Config { snack: true, ..Config::default() });
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut stack = Stack::new(LIMITS);
    let [from, to] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
    let path = wire::SegmentPath { from, from_port: 40_000, to, to_port: 80 };
    let flow = stack.connect(path, config.clone(), SeqNr::new(0)).expect("there is room");
    let _ = stack.write(flow, &Bytes::from_static(&[7; 3000]));
    while let [how, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (packet, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        now += core::time::Duration::from_millis(1 << (how >> 4));
        let packet = mended(packet);
        if stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
            stack.handle_timeout(now);
        }
        match packet::read(&packet) {
            Some(IncomingPacket::Segment(path, segment, dscp)) => {
                assert_written(&path, &segment, dscp);
                stack.handle_segment(now, &path, &segment);
            }
            Some(IncomingPacket::Unreachable(path, seq)) => stack.handle_unreachable(&path, seq),
            Some(IncomingPacket::TooBig(path, mtu)) => {
                assert!(mtu >= if path.from.is_ipv4() { 552 } else { 1280 }, "{mtu} is a crumb");
            }
            None => {}
        }
        serve(&mut stack, now, &config);
    }
}

/// Returns the packet with a correct TCP checksum, which a fuzzer would not find.
fn mended(packet: &[u8]) -> Bytes {
    let mut out = packet.to_vec();
    let at = SlicedPacket::from_ip(packet).ok().and_then(|sliced| {
        let net = sliced.net?;
        let payload = net.ip_payload_ref()?;
        let segment = payload.payload;
        if payload.ip_number != IpNumber::TCP || segment.len() < 20 {
            return None;
        }
        let (from, to, _, _) = packet::header(&net)?;
        let start = segment.as_ptr() as usize - packet.as_ptr() as usize;
        Some((from, to, start..start + segment.len()))
    });
    if let Some((from, to, range)) = at {
        let segment = &mut out[range];
        segment[16..18].fill(0);
        let sum = wire::checksum(wire::pseudo_header_sum(from, to, segment.len()), segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    out.into()
}

/// Asserts that a segment that was read can be written, in packets of any size, and reads back
/// equal.
fn assert_written(path: &wire::SegmentPath, segment: &crate::Segment<Bytes>, dscp: u8) {
    let mut payload = Vec::new();
    for mtu in [u16::MAX, 552] {
        payload.clear();
        let mut seen = 0;
        let send = |packet: &[u8]| {
            let again = packet::read(&Bytes::copy_from_slice(packet));
            let Some(IncomingPacket::Segment(way, part, class)) = again else {
                panic!("{again:?}")
            };
            assert_eq!((&way, class, part.ack), (path, dscp, segment.ack));
            payload.extend_from_slice(&part.payload);
            seen += 1;
            Ok(())
        };
        packet::write(path, segment.clone(), dscp, mtu, &mut Vec::new(), send)
            .expect("it is taken");
        assert!(seen > 0 && payload == segment.payload);
    }
}

/// Answers, reads and ends all flows, and asserts that their number and output are bounded.
fn serve(stack: &mut Stack<Bytes>, now: Instant, config: &Arc<Config>) {
    while let Some(event) = stack.poll_event() {
        let (StackEvent::Incoming(flow) | StackEvent::Changed(flow)) = event;
        if let Some(seq) = stack.syn(flow) {
            let path = stack.path(flow).expect("it waits for an answer").reversed();
            let error = packet::unreachable(&path, seq, false).expect("its path has one family");
            let told = packet::read(&error.into());
            assert_eq!(told, Some(IncomingPacket::Unreachable(path, seq)));
            stack.accept(now, flow, config.clone(), SeqNr::new(5));
        }
        match stack.read(flow, usize::MAX) {
            crate::FlowRead::End => drop(stack.finish(flow).map(|()| stack.release(flow))),
            crate::FlowRead::Failed(_) => stack.release(flow),
            _ => {}
        }
    }
    let mut sent = 0;
    while let Some((path, segment)) = stack.poll_transmit(now) {
        assert_written(&path, &segment, 0);
        sent += 1;
        assert!(sent < 1000, "a stack that never stops");
    }
    assert!(stack.owned() <= LIMITS.flows + LIMITS.incoming);
}
