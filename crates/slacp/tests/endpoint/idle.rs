//! Idle streams cost memory and nothing else.

use core::time::Duration;

use crate::counting::{allocations, live_bytes};
use crate::pair::{Pair, pass};
use slacp::ReadOutcome;
use units::{BitRate, Machine};

/// Maximum memory of an idle stream on one side, in bytes.
const PER_STREAM: isize = 552;
const STREAMS: usize = 10_000;

/// Exchanges a few bytes on a new stream `count` times, with all timers.
fn exchanges(pair: &mut Pair, count: usize) {
    let [terminal, hub] = pair.ids;
    let id = pair.open();
    let mut buffer = [0; 2000];
    for _ in 0..count {
        pair.hub.write(hub, id, &[7; 1000]).unwrap();
        pair.terminal.write(terminal, id, &[7; 1000]).unwrap();
        for _ in 0..50 {
            pair.now += Duration::from_millis(1);
            pass(pair.now, &mut pair.hub, &mut pair.terminal);
            pass(pair.now, &mut pair.terminal, &mut pair.hub);
            let _ = (pair.hub.poll_timeout(), pair.terminal.poll_timeout());
        }
        assert!(matches!(
            pair.terminal.read(terminal, id, &mut buffer),
            Ok(ReadOutcome::Data(1000))
        ));
        assert!(matches!(pair.hub.read(hub, id, &mut buffer), Ok(ReadOutcome::Data(1000))));
        while pair.hub.poll_event().or_else(|| pair.terminal.poll_event()).is_some() {}
    }
}

#[test]
fn idle_streams_take_little_memory_and_no_work() {
    let mut pair = Pair::new(BitRate::from_mbit(100));
    // Until the link is known to be clean.
    exchanges(&mut pair, 400);
    let before = allocations();
    exchanges(&mut pair, 200);
    let alone = allocations() - before;

    let empty = live_bytes();
    let [terminal, hub] = pair.ids;
    // Each has carried data in both directions and is idle again. Idle streams return their
    // windows; otherwise the memory would be far too small for all.
    for _ in 0..STREAMS / 100 {
        let batch: Vec<_> = (0..100).map(|_| pair.open_only()).collect();
        batch.iter().for_each(|id| _ = pair.terminal.write(terminal, *id, &[7; 100]).unwrap());
        pair.exchange();
        for id in &batch {
            assert!(matches!(pair.hub.read(hub, *id, &mut [0; 200]), Ok(ReadOutcome::Data(100))));
            pair.hub.write(hub, *id, &[7; 100]).unwrap();
        }
        pair.exchange();
        for id in &batch {
            assert!(matches!(
                pair.terminal.read(terminal, *id, &mut [0; 200]),
                Ok(ReadOutcome::Data(100))
            ));
        }
        pair.exchange();
        while pair.hub.poll_event().or_else(|| pair.terminal.poll_event()).is_some() {}
    }
    let per_stream = (live_bytes() - empty) / (2 * STREAMS as isize);
    println!("{per_stream} bytes for each stream and side");
    assert!(per_stream <= PER_STREAM, "{per_stream} bytes");

    let before = allocations();
    exchanges(&mut pair, 200);
    let beside = allocations() - before;
    println!("{alone} allocations alone, {beside} beside {STREAMS} idle streams");
    // Not proportional to their number; the benchmark `speed` measures the time.
    assert!(beside <= alone + alone / 10, "{alone} allocations became {beside}");
}
