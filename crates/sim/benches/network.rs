//! What thousands of terminals cost this computer, as tables:
//! `cargo bench -p skyhop-sim --bench network`. The network is that of `scenarios/itu-network.toml`,
//! whole or a part with the same web traffic per terminal.
//! `… --bench network -- 8000` makes the row of 8,000 terminals alone, for profilers;
//! `-- memory=8000` tells what that row takes; `-- overload` makes the table of Jain's index.

#![allow(missing_docs)]

use core::time::Duration;
use std::path::Path;

use link::dama::SharingRule;
use scenario::{Direction, FlowTraffic, Scenario, ScenarioCase, ScenarioFlow};
use sim::{MetricValue, SimulationRun};
use units::BitRate;

/// Virtual time of a row.
const SECONDS: u64 = 60;

/// The network of the scenario with its web traffic only.
fn itu() -> ScenarioCase {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/itu-network.toml");
    let scenario = Scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut case = scenario.cases.into_iter().find(|case| case.name == "network").expect("a case");
    case.flows.retain(|flow| flow.name == "web");
    case.time = Duration::from_secs(SECONDS);
    case
}

/// A part of it: 800 terminals to a platform, as in the whole on average.
fn part(terminals: u32) -> ScenarioCase {
    let mut case = itu();
    let whole = case.network.terminals;
    if terminals != whole {
        let platforms = terminals.div_ceil(800);
        let size = |number| terminals / platforms + u32::from(number < terminals % platforms);
        case.network.platforms = (0..platforms).map(size).collect();
        case.network.terminals = terminals;
        if let FlowTraffic::Users { every, .. } = &mut case.flows[0].traffic {
            *every = *every * whole / terminals;
        }
    }
    case
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

fn row(terminals: u32) {
    let case = part(terminals);
    let mut run = SimulationRun::new(&case, 1);
    let before = processor_time();
    run.finish();
    let time = processor_time() - before;
    let events = run.world.arrivals();
    println!(
        "{terminals:>10}{:>10}{events:>12}{:>10.0}{:>14.1}",
        case.network.platforms.len(),
        time.as_nanos() as f64 / events as f64,
        SECONDS as f64 / time.as_secs_f64(),
    );
}

fn head() {
    println!(
        "{:>10}{:>10}{:>12}{:>10}{:>14}",
        "terminals", "platforms", "events", "ns each", "× real time"
    );
}

/// Memory of a network before its first and after its last second.
fn memory(terminals: u32) {
    let case = part(terminals);
    let Some(before) = resident() else { return };
    let mut run = SimulationRun::new(&case, 1);
    let Some(empty) = resident() else { return };
    run.finish();
    let Some(after) = resident() else { return };
    let each = |now: u64| now.saturating_sub(before) as f64 / 1e3 / f64::from(terminals);
    println!("{terminals:>10}{:>12.1}{:>12.1}", each(empty), each(after));
}

/// Runs each row in its own process, because memory freed by an earlier row would not count.
fn memories(rows: &[u32]) {
    println!("{:>10}{:>12}{:>12}", "terminals", "kB each", "at the end");
    let Ok(program) = std::env::current_exe() else { return };
    for terminals in rows {
        let argument = format!("memory={terminals}");
        let child = std::process::Command::new(&program).arg(argument).status();
        assert!(child.is_ok_and(|status| status.success()), "no row of {terminals} terminals");
    }
    println!();
}

/// Every terminal sends as much as it may, several times what a platform can carry.
fn overloaded(sharing: SharingRule) -> ScenarioCase {
    let mut case = itu();
    case.hop.dama.as_mut().expect("capacity on demand").sharing = sharing;
    let time = None;
    let traffic = FlowTraffic::Udp {
        direction: Direction::Up,
        rate: BitRate::from_bits_per_second(50_000),
        size: 1000,
        dscp: 0,
        time,
    };
    let flow = |(number, count): (usize, &u32)| ScenarioFlow {
        name: format!("up-{}", number + 1),
        count: *count,
        platform: Some(number as u32),
        spacing: Duration::from_micros(100),
        traffic: traffic.clone(),
        ..case.flows[0].clone()
    };
    case.flows = case.network.platforms.iter().enumerate().map(flow).collect();
    case
}

fn overload() {
    println!("{:>14}{:>12}{:>14}{:>12}", "sharing", "least Jain", "utilisation", "× real time");
    for sharing in [SharingRule::Proportional, SharingRule::Fair] {
        let mut run = SimulationRun::new(&overloaded(sharing), 1);
        let before = processor_time();
        run.finish();
        let time = processor_time() - before;
        let metrics = run.metrics();
        let of = |wanted: &MetricValue| wanted.name == "fairness";
        let jain = metrics.iter().filter(|it| of(it)).map(|it| it.value).fold(1.0, f64::min);
        let used = metrics.iter().find(|it| it.of == "return" && it.name == "utilisation");
        println!(
            "{:>14}{jain:>12.4}{:>14.3}{:>12.1}",
            sharing.to_string(),
            used.map_or(0.0, |it| it.value),
            SECONDS as f64 / time.as_secs_f64(),
        );
    }
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let memory_of = asked.iter().find_map(|text| text.strip_prefix("memory=")?.parse().ok());
    if let Some(terminals) = memory_of {
        return memory(terminals);
    }
    if asked.iter().any(|text| text == "overload") {
        return overload();
    }
    let rows: Vec<u32> = asked.iter().filter_map(|text| text.parse().ok()).collect();
    if !rows.is_empty() {
        head();
        return rows.into_iter().for_each(row);
    }
    let rows = [100, 800, 2400, 8000];
    memories(&rows);
    head();
    rows.into_iter().for_each(row);
    println!();
    overload();
}
