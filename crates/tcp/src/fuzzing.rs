//! Entry points of the fuzz target (`fuzz/`) and of the replay of its corpus (`tests/corpus.rs`).
//! Nothing here may panic, loop, or take unbounded memory.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use units::{Instant, Machine};

use crate::{Config, Connection, Ecn, SeqNr, SynData, wire};

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
        let path = wire::Path { from: address, from_port: 0, to: address, to_port: 0 };
        let mut out = Vec::new();
        wire::encode(&path, &segment, &mut out);
        sent += 1;
        assert!(sent < 1000, "an endpoint that never stops");
    }
}
