//! What a packet event costs this computer, as tables:
//! `cargo bench -p skyhop-sim --bench events`. A packet event is the arrival of
//! a packet at a node; times are those of the processor.
//! `… --bench events -- 100x1000` makes the row of 100 Mbit/s and 1000 flows
//! alone, for profilers; `-- memory=1000` tells what 1000 flows take.
//!
//! Every flow is CUBIC without losses on the way; hosts are joined by one GEO
//! link each way (250 ms), whose queue is one BDP.

#![allow(missing_docs)]

use core::time::Duration;
use std::sync::Arc;

use link::{LinkConfig, LossModel, QueueLimit};
use sim::{BulkAmount, BulkTransfer, ConnectionPath, Direction, RouteHop, World};
use units::{BitRate, Instant};

const ONE_WAY: Duration = Duration::from_millis(250);

/// A world with `flows` transfers over one link for `seconds`.
fn world(mbit: u64, flows: u64, seconds: u64) -> World {
    let mut world = World::new(1);
    let [client, server] = [world.add_node(), world.add_node()];
    let rate = BitRate::from_mbit(mbit);
    let queue = rate.bytes_in(2 * ONE_WAY);
    let config = || LinkConfig::new(rate, ONE_WAY, LossModel::None, QueueLimit::Bytes(queue));
    let up = world.connect(server, config());
    let down = world.connect(client, config());
    world.set_default_route(client, RouteHop::Link(up));
    world.set_default_route(server, RouteHop::Link(down));
    let tcp = Arc::new(tcp::Config::default());
    let path = Arc::new(ConnectionPath::direct(client, server, [Arc::clone(&tcp), tcp]));
    let end = Instant::ZERO + Duration::from_secs(seconds);
    for flow in 0..flows {
        // All of them start within the first second.
        let start = Instant::from_nanos(flow * 1_000_000_000 / flows);
        let amount = BulkAmount::Until(end);
        world.add_app(Box::new(BulkTransfer::new(
            Arc::clone(&path),
            Direction::Down,
            amount,
            start,
        )));
    }
    world
}

/// CPU time of this process, which other load on the machine hardly affects.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds"))
}

/// Resident memory of this process in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(status.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4096)
}

fn row(mbit: u64, flows: u64, seconds: u64, runs: u32) {
    let end = Instant::ZERO + Duration::from_secs(seconds);
    // The fastest of equal runs.
    let (world, time) = (0..runs)
        .map(|_| {
            let mut world = world(mbit, flows, seconds);
            let before = processor_time();
            world.run_until(end);
            (world, processor_time() - before)
        })
        .min_by_key(|(_, time)| *time)
        .expect("a run");
    let nanos = time.as_nanos() as f64 / world.arrivals() as f64;
    println!(
        "{mbit:>8}{flows:>8}{:>12}{nanos:>10.0}{:>12.2}{:>14.1}",
        world.arrivals(),
        1e3 / nanos,
        seconds as f64 / time.as_secs_f64(),
    );
}

/// Memory after 30 s of connections with both ends and their applications, and of links with their
/// contents.
fn memory(flows: u64) {
    let Some(before) = resident() else { return };
    let mut world = world(100, flows, 30);
    world.run_until(Instant::ZERO + Duration::from_secs(30));
    let Some(after) = resident() else { return };
    let taken = after.saturating_sub(before);
    println!("{flows:>8}{:>12}{:>12.1}", taken / 1000, taken as f64 / flows as f64 / 1e3);
}

/// Runs each row in its own process, because memory freed by an earlier row would not count.
fn memories(rows: &[u64]) {
    println!("{:>8}{:>12}{:>12}", "flows", "kB", "kB each");
    let Ok(program) = std::env::current_exe() else { return };
    for flows in rows {
        let child = std::process::Command::new(&program).arg(format!("memory={flows}")).status();
        assert!(child.is_ok_and(|status| status.success()), "no row of {flows} flows");
    }
    println!();
}

/// The rows requested on the command line.
fn asked() -> Vec<(u64, u64)> {
    let pair = |text: String| {
        let (mbit, flows) = text.split_once('x')?;
        Some((mbit.parse().ok()?, flows.parse().ok()?))
    };
    std::env::args().filter_map(pair).collect()
}

fn head() {
    println!(
        "{:>8}{:>8}{:>12}{:>10}{:>12}{:>14}",
        "Mbit/s", "flows", "events", "ns each", "million/s", "× real time"
    );
}

fn main() {
    let flows = std::env::args().find_map(|text| text.strip_prefix("memory=")?.parse().ok());
    if let Some(flows) = flows {
        return memory(flows);
    }
    let asked = asked();
    if !asked.is_empty() {
        head();
        asked.into_iter().for_each(|(mbit, flows)| row(mbit, flows, 30, 1));
        return;
    }
    memories(&[1, 10, 100, 1000, 10_000]);
    head();
    for (mbit, flows) in [(20, 1), (20, 100), (100, 1), (100, 100)] {
        row(mbit, flows, 100, 3);
    }
    println!();
    for flows in [1, 10, 100, 1000, 10_000] {
        row(100, flows, 30, 1);
    }
}
