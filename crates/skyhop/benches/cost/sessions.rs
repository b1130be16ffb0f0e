//! Cost of sessions on a hub: CPU of a busy one beside idle ones, CPU and memory of idle ones, and
//! how soon many terminals are up that start at once.
//!
//! Every gateway is a process. Start-up is measured twice: with 400 gateways, whose processes must
//! start first, and with [`Terminals`], 400 sessions on as many UDP sockets of this process.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::PrivateKey;
use lab::{CabledLab, Lab, Node, Preset};
use link::QueueSize;
use report::{TableColumn, TextTable};
use slacp::Config;
use units::BitRate;

use crate::connections::resident;
use crate::terminals::Terminals;
use crate::way::{Running, hub_address};
use stats::median;

use crate::{CHUNK, Failure, SERVER_PORT, serve, spread, transfer};

const COUNTS: [usize; 3] = [1, 100, 400];
/// After this, an idle session only sends keep-alives.
const SETTLE: Duration = Duration::from_secs(3);
/// Long enough for one or two keep-alives of every session.
const IDLE: Duration = Duration::from_secs(20);
/// Round-trip times in ms, and queues in BDP, of the links on which terminals start. A queue of 25
/// kB on the terminals' side cannot hold what 400 terminals send at once.
const LINKS: [(u64, f64); 3] = [(20, 30.0), (20, 1.0), (600, 1.0)];

/// Figures of a hub with a number of terminals.
struct Figures {
    /// CPU seconds per GB, minus the idle cost over the same time.
    busy: f64,
    /// CPU milliseconds per second without traffic.
    idle: f64,
    /// Resident memory per idle session, in kB.
    memory: f64,
    gbit_per_second: f64,
}

/// Measures the cost of sessions, then the time until terminals are up.
pub(crate) fn run(gigabytes: f64, rounds: usize) -> Result<(), Failure> {
    lab::enter()?;
    cost(gigabytes, rounds)?;
    start_ups(COUNTS[COUNTS.len() - 1], rounds)
}

fn cost(gigabytes: f64, rounds: usize) -> Result<(), Failure> {
    let hosts = CabledLab::start()?;
    let server = (hosts.address4(Node::Server), SERVER_PORT).into();
    let bytes = (gigabytes * 1e9) as u64;
    serve(hosts.node(Node::Server), server, bytes, [7; CHUNK])?;
    let mut all = COUNTS.map(|count| (count, Vec::new()));
    for round in 1..=rounds {
        for (count, figures) in &mut all {
            eprint!("\rround {round} of {rounds}: {count:<4} sessions");
            figures.push(measure(&hosts, *count, server, bytes)?);
        }
    }
    eprintln!();
    let names =
        ["sessions", "hub CPU-s/GB", "ratio", "idle, CPU-ms/s", "kB per idle session", "Gbit/s"];
    let title = format!("{gigabytes} GB through one session, {rounds} rounds, medians (and range)");
    let mut table = TextTable::new(names.map(TableColumn::right)).title(title);
    let busy = |figures: &[Figures]| {
        let busy: Vec<f64> = figures.iter().map(|f| f.busy).collect();
        median(&busy).ok_or("no figures")
    };
    let alone = busy(&all[0].1)?;
    for (count, figures) in &all {
        let column = |of: fn(&Figures) -> f64| spread(figures.iter().map(of));
        let (ratio, idle) = (busy(figures)? / alone, column(|f| f.idle));
        let memory = if *count > 1 { column(|f| f.memory) } else { "–".to_owned() };
        let (busy, rate) = (column(|f| f.busy), column(|f| f.gbit_per_second));
        table.row([count.to_string(), busy, format!("{ratio:.2}"), idle, memory, rate]);
    }
    print!("{table}");
    Ok(())
}

/// Measures a pair beside idle terminals, first idle, then busy.
fn measure(
    hosts: &CabledLab,
    count: usize,
    server: SocketAddr,
    bytes: u64,
) -> Result<Figures, Failure> {
    let (hub, others) = (PrivateKey::generate()?, keys(count - 1)?);
    let running = Running::beside(hosts, server, &hub, &others)?;
    let [_, pid] = running.pids().ok_or("the pair is two processes")?;
    let before = resident(pid);
    let host = hosts.node(Node::Terminal);
    let mut terminals = Running::terminals(host, &others, &hub, "20 Gbit/s")?;
    terminals.wait()?;
    thread::sleep(SETTLE);
    let (idle, begin) = (running.cpu()?[1], Instant::now());
    thread::sleep(IDLE);
    let idle = (running.cpu()?[1] - idle) / begin.elapsed().as_secs_f64();
    let memory = resident(pid).saturating_sub(before) as f64 / others.len() as f64;
    let figures = transfer(hosts.node(Node::Client), &running, bytes)?;
    let seconds_per_gigabyte = 8.0 / figures.gbit_per_second;
    Ok(Figures {
        busy: figures.hub - idle * seconds_per_gigabyte,
        idle: idle * 1e3,
        memory,
        gbit_per_second: figures.gbit_per_second,
    })
}

fn keys(count: usize) -> Result<Vec<PrivateKey>, Failure> {
    (0..count).map(|_| Ok(PrivateKey::generate()?)).collect()
}

/// Time from the first start until the last terminal reached each stage, in seconds.
struct StartUp {
    /// All gateway processes were started.
    started: f64,
    /// All gateways were in service.
    ready: f64,
    /// Without processes: all terminals had a session.
    up: f64,
    /// The hub had answered on all of them.
    answered: f64,
}

/// Measures how soon terminals are up that start at once, after their hub, on links of 50/10
/// Mbit/s.
fn start_ups(count: usize, rounds: usize) -> Result<(), Failure> {
    let mut all = LINKS.map(|(rtt, queue)| (rtt, queue, Vec::new()));
    for round in 1..=rounds {
        for (rtt, queue, times) in &mut all {
            eprint!("\rround {round} of {rounds}: start, RTT {rtt:<4} ms");
            let preset = link(Duration::from_millis(*rtt), *queue)?;
            times.push(start_up(&preset, count, round as u64)?);
        }
    }
    eprintln!();
    let names = [
        "RTT, ms",
        "queue, BDP",
        "is up",
        "has an answer",
        "process is started",
        "gateway is ready",
    ];
    let mut table = TextTable::new(names.map(TableColumn::right))
        .title(format!("{count} terminals start at one address: seconds until the last"));
    for (rtt, queue, times) in &all {
        let column = |of: fn(&StartUp) -> f64| spread(times.iter().map(of));
        let (up, answered) = (column(|t| t.up), column(|t| t.answered));
        let (started, ready) = (column(|t| t.started), column(|t| t.ready));
        table.row([rtt.to_string(), queue.to_string(), up, answered, started, ready]);
    }
    print!("{table}");
    Ok(())
}

fn link(rtt: Duration, queue: f64) -> Result<Preset, Failure> {
    let mut preset = Preset::load("geo")?;
    for direction in [&mut preset.forward, &mut preset.ret] {
        direction.delay = (rtt / 2).into();
        direction.queue = QueueSize::Bdp(queue);
    }
    Ok(preset)
}

fn start_up(preset: &Preset, count: usize, seed: u64) -> Result<StartUp, Failure> {
    let (started, ready) = start_gateways(preset, count, seed)?;
    let lab = Lab::start(preset, seed)?;
    let (hub, keys) = (PrivateKey::generate()?, keys(count)?);
    let _running = Running::hub(&lab, &hub, &keys)?;
    let config = Config::new(BitRate::from_mbit(10));
    let host = lab.node(Node::Terminal);
    let last = Terminals::start(host, &keys, (&hub, hub_address()), &config)?.wait()?;
    let (up, answered) = (last.up.as_secs_f64(), last.answered.as_secs_f64());
    Ok(StartUp { started, ready, up, answered })
}

/// Time until the last process was started, and until the last gateway was ready.
fn start_gateways(preset: &Preset, count: usize, seed: u64) -> Result<(f64, f64), Failure> {
    let lab = Lab::start(preset, seed)?;
    let (hub, keys) = (PrivateKey::generate()?, keys(count)?);
    let _running = Running::hub(&lab, &hub, &keys)?;
    let begin = Instant::now();
    let mut terminals = Running::terminals(lab.node(Node::Terminal), &keys, &hub, "10 Mbit/s")?;
    let started = begin.elapsed().as_secs_f64();
    terminals.wait()?;
    Ok((started, begin.elapsed().as_secs_f64()))
}
