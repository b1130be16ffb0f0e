//! A hub and `skyhop meter swarm` on loopback: how soon a hub with many terminals starts, how fast
//! their sessions come up, and what busy ones cost beside idle ones.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use gateway::keys::PrivateKey;
use report::{TableColumn, TextTable};
use serde_json::Value;
use stats::median;
use tempfile::TempDir;

use crate::connections::resident;
use crate::{Failure, cpu, spread};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
/// Terminals of the hub whose start is measured.
const CONFIGURED: u32 = 10_000;
/// More than a hub can send.
pub(crate) const RATE: &str = "20 Gbit/s";
/// Terminals, how many of them download, and how many megabytes each.
const CASES: [(u32, u32, u32); 4] = [(1, 1, 1000), (50, 50, 20), (4000, 1, 1000), (4000, 50, 20)];

/// What a hub with busy terminals may send, unless told otherwise.
pub(crate) const BUSY_RATE: &str = "2 Gbit/s";

/// Measures the start of a hub, then swarms in interleaved rounds, for which the hub sends at `rate`.
pub(crate) fn run(rounds: usize, rate: &str) -> Result<(), Failure> {
    start(rounds)?;
    let server = Server::start()?;
    let mut all = CASES.map(|case| (case, Vec::new()));
    for round in 1..=rounds {
        for ((terminals, busy, megabytes), reports) in &mut all {
            eprint!("\rround {round} of {rounds}: {busy} of {terminals}        ");
            let hub = Hub::start(rate, "", &print_hub_config(*terminals, Some(&server))?)?;
            reports.push(run_swarm(&hub, &server, *terminals, *busy, *megabytes)?);
        }
    }
    eprintln!();
    let names = [
        "terminals",
        "busy",
        "all up, s",
        "handshakes/s",
        "kB each",
        "MB at most",
        "overflows",
        "CPU-s/GB",
        "ratio",
    ];
    let mut table = TextTable::new(names.map(TableColumn::right))
        .title(format!("a hub on loopback at {rate}, {rounds} rounds, medians (and range)"));
    let costs = |reports: &[Value]| -> Vec<f64> {
        let cost = |report: &Value| report["hub"]["cpu_seconds_per_gigabyte"].as_f64();
        reports.iter().filter_map(cost).collect()
    };
    let alone = median(&costs(&all[0].1)).ok_or("no figures")?;
    for ((terminals, busy, _), reports) in &all {
        let column = |of: &dyn Fn(&Value) -> Option<f64>| spread(reports.iter().filter_map(of));
        let ratio = median(&costs(reports)).unwrap_or_default() / alone;
        table.row([
            terminals.to_string(),
            busy.to_string(),
            column(&|it| it["all_up_seconds"].as_f64()),
            column(&|it| it["handshakes_per_second"].as_f64()),
            column(&|it| Some(it["hub"]["resident_per_session_bytes"].as_f64()? / 1e3)),
            column(&|it| Some(it["hub"]["resident_peak_bytes"].as_f64()? / 1e6)),
            column(&|it| it["socket_overflows"].as_f64()),
            column(&|it| it["hub"]["cpu_seconds_per_gigabyte"].as_f64()),
            format!("{ratio:.2}"),
        ]);
    }
    print!("{table}");
    Ok(())
}

/// Time from the start of a hub's process until it serves, and what it has taken by then.
fn start(rounds: usize) -> Result<(), Failure> {
    let sections = print_hub_config(CONFIGURED, None)?;
    // A network behind each.
    let mut with_networks = String::new();
    let mut terminals = 0u32;
    for line in sections.lines() {
        with_networks += line;
        with_networks.push('\n');
        if line.starts_with("key = ") {
            let [_, high, middle, low] = (terminals << 4).to_be_bytes();
            writeln!(with_networks, "networks = [\"10.{high}.{middle}.{low}/28\"]")?;
            terminals += 1;
        }
    }
    let (mut times, mut cpus, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begin = Instant::now();
        let hub = Hub::start(RATE, "", &with_networks)?;
        times.push(begin.elapsed().as_secs_f64());
        cpus.push(cpu::seconds(hub.pid())?);
        memory.push(resident(hub.pid()) as f64 / 1e3);
    }
    let [times, cpus, memory] = [times, cpus, memory].map(|figures| spread(figures.into_iter()));
    println!("a hub with {terminals} terminals serves after {times} s: {cpus} CPU-s, {memory} MB");
    Ok(())
}

/// Runs a swarm of terminals, of which `busy` download; returns its report.
pub(crate) fn run_swarm(
    hub: &Hub,
    server: &Server,
    terminals: u32,
    busy: u32,
    megabytes: u32,
) -> Result<Value, Failure> {
    let output = swarm(hub, server, terminals, busy, megabytes).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stdout).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Starts a swarm as of [`run_swarm`], which is ended when dropped.
pub(crate) fn start_swarm(
    hub: &Hub,
    server: &Server,
    terminals: u32,
    busy: u32,
    megabytes: u32,
) -> Result<Running, Failure> {
    let mut command = swarm(hub, server, terminals, busy, megabytes);
    command.args(["--limit", "1h"]);
    Ok(Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn swarm(hub: &Hub, server: &Server, terminals: u32, busy: u32, megabytes: u32) -> Command {
    let (terminals, server) = (terminals.to_string(), &server.address);
    let mut command = Command::new(PROGRAM);
    command.args(["meter", "swarm", &hub.address, "--hub-key", &hub.key, "--json"]);
    command.args(["--terminals", &terminals, "--server", server, "--busy", &busy.to_string()]);
    command.args(["--bytes", &format!("{megabytes} MB")]);
    command.args(["--hub-pid", &hub.pid().to_string()]);
    command
}

/// The sections that a hub needs for a swarm, which may reach the server.
pub(crate) fn print_hub_config(terminals: u32, server: Option<&Server>) -> Result<String, Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["meter", "swarm", "--print-hub-config", "--terminals", &terminals.to_string()]);
    server.iter().for_each(|server| _ = command.args(["--server", &server.address]));
    Ok(String::from_utf8(command.output()?.stdout)?)
}

/// A meter server.
pub(crate) struct Server {
    address: String,
    _process: Running,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut command = Command::new(PROGRAM);
        command.args(["meter", "serve", "--listen", "127.0.0.1:0"]);
        let (child, address) = said(&mut command, "listening on ")?;
        Ok(Self { address, _process: Running(child) })
    }
}

/// A process, killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Hub {
    process: Running,
    address: String,
    key: String,
    _folder: TempDir,
}

impl Hub {
    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Starts a hub that sends at this rate, with further keys and sections; returns when it serves.
    pub(crate) fn start(rate: &str, keys: &str, sections: &str) -> Result<Self, Failure> {
        let (folder, key) = (TempDir::new()?, PrivateKey::generate()?);
        key.write_file(&folder.path().join("hub.key"))?;
        let file = folder.path().join("hub.toml");
        let own = "private_key_file = \"hub.key\"\nlisten = \"127.0.0.1:0\"\ncontrol = \"none\"\n";
        fs::write(&file, format!("{own}rate = \"{rate}\"\n{keys}{sections}"))?;
        let mut command = Command::new(PROGRAM);
        command.arg("hub").arg(&file).env("SKYHOP_LOG", "info").stdout(Stdio::null());
        let (child, address) = said(&mut command, " on UDP ")?;
        let key = gateway::keys::format_public_key(&key.public());
        Ok(Self { process: Running(child), address, key, _folder: folder })
    }
}

/// Starts a process, and waits until a line of its log has these words; returns the word after them.
fn said(command: &mut Command, words: &str) -> Result<(Child, String), Failure> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stderr.take().ok_or("no log")?).lines();
    for line in lines.by_ref() {
        if let Some((_, rest)) = line?.split_once(words) {
            let address = rest.split_whitespace().next().unwrap_or_default().to_owned();
            // What it says later must not block it.
            thread::spawn(move || lines.for_each(drop));
            return Ok((child, address));
        }
    }
    Err(format!("{:?} did not say {words:?}", child.wait()?).into())
}
