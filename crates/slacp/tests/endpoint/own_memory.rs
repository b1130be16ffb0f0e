//! Terminals whose sessions have a lower memory limit at their hub.

use crate::pair::{Pair, key};
use slacp::Config;
use units::{BitRate, ByteCount};

/// What the hub holds of ten streams that it does not read, from a terminal that sends all it may,
/// if the limit of its sessions is `own`.
fn held(own: Option<ByteCount>) -> u64 {
    let config = Config::new(BitRate::from_mbit(1000));
    let mut pair = Pair::prepared(config, |hub| {
        hub.set_memory(own.map(|memory| (key(2).public(), memory)).into_iter().collect());
    });
    let streams: Vec<_> = (0..10).map(|_| pair.open()).collect();
    for _ in 0..10 {
        for id in &streams {
            // What is not accepted has no credit.
            let _ = pair.terminal.write(pair.ids[0], *id, &[0; 60_000]);
        }
        pair.exchange();
    }
    let stats = streams.iter().map(|id| pair.hub.stream_stats(pair.ids[1], *id).unwrap());
    stats.map(|stats| stats.held_to_read).sum()
}

#[test]
fn the_sessions_of_a_terminal_hold_no_more_than_it_may() {
    let own = ByteCount::new(150_000);
    let (bounded, usual) = (held(Some(own)), held(None));
    assert!(bounded > 0 && bounded <= own.get(), "{bounded} bytes");
    assert!(usual > 2 * own.get(), "{usual} bytes with the memory of all");
}
