//! What sessions cost a hub: CPU of one that is busy beside idle ones, CPU and memory of
//! the idle ones, and how soon many terminals are up that start at once.
//!
//! All are gateways, each a process. How soon terminals are up is measured twice: with 400
//! gateways, whose processes have to be started, and with [`Terminals`], the sessions of
//! 400 on as many UDP sockets of this process.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::PrivateKey;
use lab::{Cabled, Lab, Node, Preset, Queue};
use slacp::Config;
use units::BitRate;

use crate::connections::resident;
use crate::terminals::Terminals;
use crate::way::{Running, hub_address};
use stats::median;

use crate::{Failure, SERVER_PORT, serve, spread, transfer};

const COUNTS: [usize; 3] = [1, 100, 400];
/// After this, an idle session does nothing but keep itself alive.
const SETTLE: Duration = Duration::from_secs(3);
/// Every session keeps itself alive once or twice meanwhile.
const IDLE: Duration = Duration::from_secs(20);
/// Round-trip times in milliseconds, and queues in BDPs, of the links on which terminals
/// start. Those of 25 kB at the terminals' side have no room for what 400 send at once.
const LINKS: [(u64, f64); 3] = [(20, 30.0), (20, 1.0), (600, 1.0)];

/// What a hub of some terminals took.
struct Figures {
    /// CPU-seconds for a GB, without what it takes in the same time when idle.
    busy: f64,
    /// CPU-milliseconds in a second in which nothing is carried.
    idle: f64,
    /// Resident memory of an idle session in kB.
    memory: f64,
    gbit_per_second: f64,
}

/// The cost of sessions, then the time that terminals take to be up.
pub(crate) fn run(gigabytes: f64, rounds: usize) -> Result<(), Failure> {
    lab::enter()?;
    cost(gigabytes, rounds)?;
    start_ups(COUNTS[COUNTS.len() - 1], rounds)
}

fn cost(gigabytes: f64, rounds: usize) -> Result<(), Failure> {
    let hosts = Cabled::start()?;
    let server = (hosts.address4(Node::Server), SERVER_PORT).into();
    let bytes = (gigabytes * 1e9) as u64;
    serve(&hosts, server, bytes)?;
    let mut all = COUNTS.map(|count| (count, Vec::new()));
    for round in 1..=rounds {
        for (count, figures) in &mut all {
            eprint!("\rround {round} of {rounds}: {count:<4} sessions");
            figures.push(measure(&hosts, *count, server, bytes)?);
        }
    }
    eprintln!();
    println!("{gigabytes} GB through one session, {rounds} rounds, medians (and range)");
    println!(
        "{:<8} {:>22} {:>7} {:>22} {:>24} {:>20}",
        "sessions", "hub CPU-s/GB", "ratio", "idle, CPU-ms/s", "kB per idle session", "Gbit/s"
    );
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
        println!("{count:<8} {busy:>22} {ratio:>7.2} {idle:>22} {memory:>24} {rate:>20}");
    }
    Ok(())
}

/// A pair of its own beside idle terminals: first nobody carries anything, then it does.
fn measure(
    hosts: &Cabled,
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
    let figures = transfer(hosts, &running, bytes)?;
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

/// When the last of some terminals had come so far, in seconds from the start of the first.
struct StartUp {
    /// The processes of gateways were started.
    started: f64,
    /// Gateways were in service.
    ready: f64,
    /// Without processes: terminals had a session.
    up: f64,
    /// And the hub had answered on it.
    answered: f64,
}

/// How soon terminals are up that start at once, after their hub, on links of 50/10
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
    println!("{count} terminals start at one address: seconds until the last");
    println!(
        "{:<8} {:>10} {:>22} {:>22} {:>22} {:>22}",
        "RTT, ms", "queue, BDP", "is up", "has an answer", "process is started", "gateway is ready"
    );
    for (rtt, queue, times) in &all {
        let column = |of: fn(&StartUp) -> f64| spread(times.iter().map(of));
        let (up, answered) = (column(|t| t.up), column(|t| t.answered));
        let (started, ready) = (column(|t| t.started), column(|t| t.ready));
        println!("{rtt:<8} {queue:>10} {up:>22} {answered:>22} {started:>22} {ready:>22}");
    }
    Ok(())
}

fn link(rtt: Duration, queue: f64) -> Result<Preset, Failure> {
    let mut preset = Preset::load("geo")?;
    for direction in [&mut preset.forward, &mut preset.ret] {
        direction.delay = (rtt / 2).into();
        direction.queue = Queue::Bdp(queue);
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

/// When the last process was started, and when the last gateway was ready.
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
