//! Outages, stalled readers, moves, and everything else that networks do.

use core::time::Duration;

use link::testkit::{Mangle, Net};
use link::{Delay, Outage, Trace};
use units::{ByteCount, Instant, Probability};

use super::{LossCase, RTT, Row, hop, stats};
use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, open_all, run_to_end};

/// The link is away in mid-transfer.
pub fn outages() -> Vec<Row> {
    [1, 60, 600].map(outage).into()
}

/// The slowest return of several: the end falls between other probes each time.
fn outage(seconds: u64) -> Row {
    let after = |i: u64| resumed_after(Duration::from_secs(seconds) + STEP * (13 * i) as u32);
    let slowest = (0..OUTAGES).map(after).max().unwrap_or_default();
    // A round trip, and a probe: they are an eighth of the outage apart, at most 2 s.
    let asked = Duration::from_secs_f64(RTT + 0.05 + (seconds as f64 / 8.0).clamp(0.15, 2.0));
    Row::new(
        format!("outage of {seconds} s: full rate at the receiver"),
        format!("≤ {} ms after it", asked.as_millis()),
        format!("{:.0} ms at most of {OUTAGES}, nothing lost", slowest.as_secs_f64() * 1e3),
        slowest <= asked,
    )
}

const OUTAGES: u64 = 4;

fn resumed_after(lasting: Duration) -> Duration {
    let begin = Duration::from_secs(4);
    let clean = hop(50.0, 10.0, &LossCase::per(0.0), 5);
    let hop = Hop { outages: vec![Outage { after: begin, lasting, every: None }], ..clean };
    let mut net = hop.connected(&[Plan::new(100, 45_000_000)]);
    open_all(&mut net, TERMINAL);
    let back = Instant::ZERO + begin + lasting;
    let full = full_rate_after(&mut net, back, hop.forward.bytes_in(WINDOW).get());
    run_to_end(&mut net, 200.0);
    full
}

/// Over this time the rate is looked at.
const WINDOW: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(5);

/// How long after `back` the first time begins in which the terminal receives
/// 98 % of `full` bytes.
fn full_rate_after(net: &mut Net<Host>, back: Instant, full: u64) -> Duration {
    let wait = back.saturating_since(net.now());
    net.run_for(wait).unwrap();
    let mut received = Vec::new();
    loop {
        received.push(stats(net, TERMINAL).bytes_received);
        let steps = (WINDOW.as_nanos() / STEP.as_nanos()) as usize;
        if let Some(first) = received.len().checked_sub(steps + 1)
            && (received[received.len() - 1] - received[first]) as f64 >= 0.98 * full as f64
        {
            return STEP * first as u32;
        }
        assert!(received.len() < 10_000, "the rate never came back");
        net.run_for(STEP).unwrap();
    }
}

/// 100 streams, of which one is never read.
pub fn stalled_reader() -> Vec<Row> {
    let run = |stalled: bool| {
        let mut small = hop(50.0, 10.0, &LossCase::per(0.0), 5);
        small.configure = |config| config.memory = ByteCount::new(MEMORY);
        let mut plans = vec![Plan::new(300_000, 100); 99];
        plans.push(Plan { stalled, ..Plan::new(30_000_000, 100) });
        let mut net = small.connected(&plans);
        let start = net.now();
        open_all(&mut net, HUB);
        let mut held = 0;
        let done = |hosts: &mut [Host]| {
            for host in hosts.iter() {
                let stats = host.endpoint.stats(host.session.unwrap()).unwrap();
                held = held.max(stats.held_to_send.get()).max(stats.held_to_read.get());
            }
            hosts[TERMINAL].flows.values().filter(|flow| flow.closed).count() >= 99
        };
        let end = net.run_until(done, start + Duration::from_secs(120)).unwrap();
        (end.saturating_since(start).as_secs_f64(), held)
    };
    let ((with, held), (without, _)) = (run(true), run(false));
    vec![Row::new(
        "100 streams, one is never read",
        format!("99 in ≤ {without:.2} s; memory ≤ {:.0} MB", MEMORY as f64 / 1e6),
        format!("{with:.2} s; {:.1} MB", held as f64 / 1e6),
        with <= without * 1.005 && held <= MEMORY,
    )]
}

const MEMORY: u64 = 16_000_000;

fn p(p: f64) -> Probability {
    Probability::new(p).unwrap()
}

/// What networks do to datagrams, and the terminal to its address.
pub fn mangled() -> Vec<Row> {
    let by = Duration::from_millis(20);
    let cases = [
        ("5% reordering", Mangle { reorder: p(0.05), reorder_by: by, ..Mangle::default() }),
        ("5% duplication", Mangle { duplicate: p(0.05), ..Mangle::default() }),
        ("1% with bit errors", Mangle { corrupt: p(0.01), ..Mangle::default() }),
    ];
    let mut rows: Vec<Row> =
        cases.into_iter().map(|(name, mangle)| exact(name, None, 0, &mangle)).collect();
    let trace = Trace::parse("0s 10ms\n3s 300ms\nloop 6s").unwrap();
    rows.push(exact("RTT steps 20 ↔ 600 ms", Some(Delay::Trace(trace)), 0, &Mangle::default()));
    rows.push(exact("terminal's address changes", None, 5, &Mangle::default()));
    rows
}

/// Streams both ways; [`Host`] compares every byte, and that none comes twice.
fn exact(name: &str, path: Option<Delay>, moves: u16, mangle: &Mangle) -> Row {
    let hop = Hop { path, ..hop(50.0, 10.0, &LossCase::per(0.01), 5) };
    let bytes = [2_000_000, 40_000_000];
    let mut net = hop.connected(&[Plan::new(bytes[0], bytes[1]), Plan::new(100_000, 1_000_000)]);
    for (from, to) in [(HUB, TERMINAL), (TERMINAL, HUB)] {
        net.mangle(from, to, mangle.clone());
    }
    let start = net.now();
    open_all(&mut net, TERMINAL);
    for port in 0..moves {
        net.run_for(Duration::from_secs(1)).unwrap();
        net.peers_mut()[TERMINAL].port = port + 2;
    }
    let end = run_to_end(&mut net, 200.0);
    let closed = net.peers().iter().all(|host| host.flows.values().all(|flow| flow.closed));
    let seconds = end.saturating_since(start).as_secs_f64();
    let mbit = 41.0 * 8.0 / seconds;
    let reached = format!("byte-exact, {mbit:.1} Mbit/s");
    Row::new(format!("{name}, PER 1%"), "byte-exact", reached, closed)
}
