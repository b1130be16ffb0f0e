//! Downloads, and requests with replies, over a GEO hop in virtual time, as
//! tables: `cargo bench -p skyhop-slacp --bench hop`.
//!
//! 50/10 Mbit/s, 600 ms round trip, queue of one BDP, nine seeds a line. The
//! limit is a round trip and the bytes at the link's rate less what it loses.

#[path = "../tests/kit/hop.rs"]
mod hop;

use core::time::Duration;

use hop::{HUB, Hop, Plan, TERMINAL, open_all, run_to_end};
use report::{TableColumn, TextTable};
use slacp::SessionStats;
use stats::{SampleSpread, percentile};

const BYTES: f64 = 20e6;
const SEEDS: u64 = 9;

struct Run {
    seconds: f64,
    hub: SessionStats,
    terminal: SessionStats,
}

fn download(per: f64, seed: u64) -> Run {
    let mut net = Hop::geo(per, seed).connected(&[Plan::new(100, BYTES as u64)]);
    let start = net.now();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 60.0);
    let stats = |host: &hop::Host| host.session.and_then(|id| host.endpoint.stats(id)).unwrap();
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    Run {
        seconds: flow.last_byte.unwrap().saturating_since(start).as_secs_f64(),
        hub: stats(&net.peers()[HUB]),
        terminal: stats(&net.peers()[TERMINAL]),
    }
}

/// The response times in ms of requests of 1 kB with replies of 10 kB, one after
/// the other, each on a stream of its own, in a fresh session for each seed.
fn request_reply(per: f64, count: usize) -> Vec<f64> {
    (0..SEEDS).flat_map(|seed| requests(per, count, seed)).collect()
}

fn requests(per: f64, count: usize, seed: u64) -> Vec<f64> {
    let plan = Plan { reply: true, ..Plan::new(1000, 10_000) };
    let mut net = Hop::geo(per, seed).connected(&vec![plan; count]);
    let mut times = Vec::new();
    for plan in 0..count {
        let start = net.now();
        let id = net.peers_mut()[TERMINAL].open(start, plan).unwrap();
        let done = |hosts: &mut [hop::Host]| hosts[TERMINAL].flows[&id].received == 10_000;
        let end = net.run_until(done, start + Duration::from_secs(60)).unwrap();
        times.push(end.saturating_since(start).as_secs_f64() * 1e3);
    }
    times
}

fn main() {
    downloads();
    println!();
    let mut table = TextTable::new(["PER", "p50", "p99", "p99.9", "max"].map(TableColumn::right))
        .title(format!(
            "{SEEDS} sessions of 2,000 requests of 1 kB, replies of 10 kB; response times in ms"
        ));
    for per in [0.0, 0.01, 0.05] {
        let times = request_reply(per, 2000);
        let at = |percent| percentile(&times, percent).unwrap_or(f64::NAN);
        let times = [50.0, 99.0, 99.9, 100.0].map(|percent| format!("{:.0}", at(percent)));
        table.row([format!("{} %", per * 100.0)].into_iter().chain(times));
    }
    print!("{table}");
}

fn downloads() {
    let names = ["PER", "time, s", "of the limit", "repairs", "ACK bytes"];
    let mut table = TextTable::new(names.map(TableColumn::right))
        .title(format!("20 MB down, SLACP, fixed rate; {SEEDS} seeds, medians (and range)"));
    for per in [0.0, 0.001, 0.01, 0.05, 0.1] {
        let mut runs: Vec<Run> = (0..SEEDS).map(|seed| download(per, seed)).collect();
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let median = &runs[runs.len() / 2];
        let spread = SampleSpread::of(runs.iter().map(|run| run.seconds)).expect("there were runs");
        let limit = 0.6 + BYTES * 8.0 / (50e6 * (1.0 - per));
        let repairs = median.hub.repairs_sent as f64 / median.hub.packets_sent as f64;
        let acks = median.terminal.bytes_sent as f64 / median.hub.bytes_sent as f64;
        table.row([
            format!("{} %", per * 100.0),
            format!("{spread:.3}"),
            format!("{:.1} %", 100.0 * limit / median.seconds),
            format!("{:.2} %", 100.0 * repairs),
            format!("{:.2} %", 100.0 * acks),
        ]);
    }
    print!("{table}");
}
