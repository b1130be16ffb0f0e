//! What a peer can have the streams keep.

use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::frame::TruncatedOffset;
use crate::recv_buffer::GAP_COST;
use crate::scheduler::MAX_CLASSES;
use crate::{Open, Read};

const MEMORY: u64 = 1_000_000;

fn streams() -> Streams {
    let limits = Limits::new(MEMORY, MEMORY, 100);
    Streams::new(0, limits, limits, 100_000, MAX_CLASSES, 1500)
}

/// A byte of a stream that the peer has opened; whether it is taken.
fn byte(streams: &mut Streams, id: StreamId, offset: u64) -> bool {
    streams.on_data(0, id, TruncatedOffset::full(offset), &[7], false).unwrap()
}

#[test]
fn islands_of_one_byte_take_a_sixteenth_of_the_memory_and_what_is_missing_still_comes() {
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
fn an_opening_that_comes_again_after_its_stream_was_reset_opens_nothing() {
    let mut streams = streams();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let open = Open { destination: address.into(), source: address, dscp: None };
    let id = StreamId(1);
    streams.on_open(id, 1000, open.clone()).unwrap();
    streams.write(id, b"answer").unwrap();
    let chunk = streams.next_new(0, |_| 1400).unwrap();
    streams.reset(id, ResetReason::Reset).unwrap();
    while streams.poll_event().is_some() {}
    streams.on_open(id, 1000, open).unwrap();
    streams.on_acknowledged(id, chunk.range, false);
    assert_eq!((streams.len(), streams.poll_event()), (0, None));
}

#[test]
fn streams_opened_and_reset_for_ever_leave_no_more_than_there_may_be_streams() {
    let mut streams = streams();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    for n in 0..1000 {
        let open = Open { destination: address.into(), source: address, dscp: None };
        let id = StreamId(2 * n + 1);
        streams.on_open(id, 1000, open).unwrap();
        byte(&mut streams, id, 0);
        streams.on_reset(Instant::ZERO, id, ResetReason::Reset, 1).unwrap();
        assert!(streams.len() <= 100, "{}", streams.len());
    }
    assert_eq!(streams.held().1, 100, "what is given up is given back");
    // The newest are still read, and then end.
    let (last, mut out) = (StreamId(1999), [0; 8]);
    assert_eq!(streams.read(last, &mut out), Ok(Read::Data(1)));
    assert_eq!(streams.len(), 99);
    streams.end_drains(Instant::ZERO + Duration::from_secs(30));
    assert_eq!((streams.len(), streams.drain_timeout()), (0, None));
}
