//! The whole return link.

mod backlog;
mod classes;
mod contention;
mod faults;
mod rate;
mod timing;

use core::time::Duration;

use units::ByteCount;

use super::*;
use crate::dama::testkit::{DELAY, FRAME, bits, config, terminal};
use crate::dama::{
    CapacityKind, CapacityPolicy, ClassCapacities, MacLimit, RequestTransport, SlotGrant,
    TerminalConfig,
};

fn network(terminals: Vec<TerminalConfig>) -> Dama<usize> {
    Dama::new(config(terminals), 1).unwrap()
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn millis(millis: u64) -> Instant {
    at(millis * 1_000_000)
}

/// Arrivals until `end`: time, terminal and packet.
fn arrivals(network: &mut Dama<usize>, end: Instant) -> Vec<(Instant, usize, usize)> {
    let mut all = Vec::new();
    while let Some((next, _)) = network.poll_timeout()
        && next <= end
    {
        network.handle_timeout(next);
        while let Some(arrival) = network.poll_arrival(next) {
            all.push(arrival);
        }
    }
    all
}
