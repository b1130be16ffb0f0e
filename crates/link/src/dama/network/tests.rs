//! The whole return link.

mod backlog;
mod contention;
mod faults;
mod timing;

use core::time::Duration;

use units::{BitRate, ByteCount};

use super::*;
use crate::dama::{
    Allocation, Cell, Grant, MacLimit, Policy, RequestTransport, Requests, TerminalConfig,
};
use crate::{Discipline, QueueLimit};

const FRAME: Duration = Duration::from_millis(53);
const DELAY: Duration = Duration::from_millis(250);

fn bits(rate: u64) -> BitRate {
    BitRate::from_bits_per_second(rate)
}

fn terminal(cra: u64, rbdc: u64, vbdc: u32) -> TerminalConfig {
    TerminalConfig {
        cra: bits(cra),
        rbdc: bits(rbdc),
        vbdc,
        vbdc_first: 3,
        ceiling: None,
        weight: 1,
        mac: MacLimit::Cells(600),
        flow_control: false,
        queue: QueueLimit::Bytes(ByteCount::new(40_000)),
        discipline: Discipline::DropTail,
        loss: Loss::None,
        outages: Vec::new(),
    }
}

/// The SLACP paper's return link: 128 kbit/s, 16 cells in a frame of 53 ms.
fn config(terminals: Vec<TerminalConfig>) -> DamaConfig {
    DamaConfig {
        frames: Frames::new(FRAME, 2, 1, bits(128_000), Cell::ATM).unwrap(),
        delay: DELAY.into(),
        forward_delay: DELAY,
        processing: Duration::ZERO,
        requests: Requests {
            policy: Policy::Classic,
            period: 10,
            rate_time_out: 12,
            scheduling_latency: 2,
            volume_time_out: 100,
            transport: RequestTransport::Assigned,
            robust: false,
        },
        allocation: Allocation::default(),
        random_access: None,
        terminals,
    }
}

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
