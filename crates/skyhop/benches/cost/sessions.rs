//! What sessions cost a hub: CPU of one that is busy beside idle ones, CPU and memory of
//! the idle ones, and how soon many terminals are up that start at once.
//!
//! The hub and the terminal of the busy session are gateways. The idle terminals are
//! [`Terminals`] of this process, each with a session and a UDP socket of its own.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::PrivateKey;
use lab::{Cabled, Lab, Node, Preset, Queue};
use slacp::Config;
use units::BitRate;

use crate::connections::resident;
use crate::terminals::{Progress, Terminals};
use crate::way::{Running, hub_address};
use crate::{Failure, SERVER_PORT, median, serve, spread, transfer};

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
    let values = |figures: &[Figures], of: fn(&Figures) -> f64| figures.iter().map(of).collect();
    let alone = median(values(&all[0].1, |f| f.busy));
    for (count, figures) in &all {
        let column = |of| spread(values(figures, of));
        let (busy, idle) = (column(|f| f.busy), column(|f| f.idle));
        let memory = if *count > 1 { column(|f| f.memory) } else { "–".to_owned() };
        let (ratio, rate) =
            (median(values(figures, |f| f.busy)) / alone, column(|f| f.gbit_per_second));
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
    let config = Config::new(BitRate::from_mbit(20_000));
    let node = hosts.node(Node::Terminal);
    let terminals = Terminals::start(node, &others, (&hub, hub_address()), &config)?;
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

/// How soon terminals are up that start at once, after their hub, on links of 50/10
/// Mbit/s.
fn start_ups(count: usize, rounds: usize) -> Result<(), Failure> {
    let mut all = LINKS.map(|(rtt, queue)| (rtt, queue, Vec::new()));
    for round in 1..=rounds {
        for (rtt, queue, progress) in &mut all {
            eprint!("\rround {round} of {rounds}: start, RTT {rtt:<4} ms");
            let preset = link(Duration::from_millis(*rtt), *queue)?;
            progress.push(start_up(&preset, count, round as u64)?);
        }
    }
    eprintln!();
    println!("{count} terminals start at one address: seconds until the last");
    println!("{:<8} {:>10} {:>22} {:>22}", "RTT, ms", "queue, BDP", "is up", "has an answer");
    for (rtt, queue, progress) in &all {
        let column = |of: fn(&Progress) -> Duration| {
            spread(progress.iter().map(|progress| of(progress).as_secs_f64()).collect())
        };
        let (up, answered) = (column(|p| p.up), column(|p| p.answered));
        println!("{rtt:<8} {queue:>10} {up:>22} {answered:>22}");
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

fn start_up(preset: &Preset, count: usize, seed: u64) -> Result<Progress, Failure> {
    let lab = Lab::start(preset, seed)?;
    let (hub, keys) = (PrivateKey::generate()?, keys(count)?);
    let _running = Running::hub(&lab, &hub, &keys)?;
    let config = Config::new(BitRate::from_mbit(10));
    Terminals::start(lab.node(Node::Terminal), &keys, (&hub, hub_address()), &config)?.wait()
}
