//! A hub and `skyhop meter swarm` on loopback: how soon a hub with many terminals starts, how fast
//! their sessions come up, and what busy ones cost beside idle ones.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use gateway::keys::PrivateKey;
use report::{Column, Table};
use serde_json::Value;
use stats::median;
use tempfile::TempDir;

use crate::connections::resident;
use crate::{Failure, cpu, spread};

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
/// Terminals of the hub whose start is measured.
const CONFIGURED: u32 = 10_000;
/// Terminals, how many of them download, and how many megabytes each.
const CASES: [(u32, u32, u32); 4] = [(1, 1, 1000), (50, 50, 20), (4000, 1, 1000), (4000, 50, 20)];

/// Measures the start of a hub, then swarms in interleaved rounds.
pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    start(rounds)?;
    let (server, at) = listening(Command::new(PROGRAM).args(["meter", "serve"]), "127.0.0.1:0")?;
    let _server = Running(server);
    let mut all = CASES.map(|case| (case, Vec::new()));
    for round in 1..=rounds {
        for ((terminals, busy, megabytes), reports) in &mut all {
            eprint!("\rround {round} of {rounds}: {busy} of {terminals}        ");
            reports.push(measure(&at, *terminals, *busy, *megabytes)?);
        }
    }
    eprintln!();
    let names = ["terminals", "busy", "all up, s", "handshakes/s", "kB each", "CPU-s/GB", "ratio"];
    let mut table = Table::new(names.map(Column::right))
        .title(format!("a hub on loopback, {rounds} rounds, medians (and range)"));
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
            column(&|it| it["hub"]["cpu_seconds_per_gigabyte"].as_f64()),
            format!("{ratio:.2}"),
        ]);
    }
    print!("{table}");
    Ok(())
}

/// Time from the start of a hub's process until it serves, and what it has taken by then.
fn start(rounds: usize) -> Result<(), Failure> {
    let sections = printed(&["--terminals", &CONFIGURED.to_string()])?;
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
        let hub = Hub::start(&with_networks)?;
        times.push(begin.elapsed().as_secs_f64());
        cpus.push(cpu::seconds(hub.process.0.id())?);
        memory.push(resident(hub.process.0.id()) as f64 / 1e3);
    }
    let [times, cpus, memory] = [times, cpus, memory].map(|figures| spread(figures.into_iter()));
    println!("a hub with {terminals} terminals serves after {times} s: {cpus} CPU-s, {memory} MB");
    Ok(())
}

fn measure(server: &str, terminals: u32, busy: u32, megabytes: u32) -> Result<Value, Failure> {
    let terminals = terminals.to_string();
    let sections = printed(&["--terminals", &terminals, "--server", server])?;
    let hub = Hub::start(&sections)?;
    let mut command = Command::new(PROGRAM);
    command.args(["meter", "swarm", &hub.address, "--hub-key", &hub.key, "--json"]);
    command.args(["--terminals", &terminals, "--server", server, "--busy", &busy.to_string()]);
    command.args(["--bytes", &format!("{megabytes} MB")]);
    command.args(["--hub-pid", &hub.process.0.id().to_string()]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stdout).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The sections that a hub needs for a swarm.
fn printed(options: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["meter", "swarm", "--print-hub-config"]).args(options).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// A process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Hub {
    process: Running,
    address: String,
    key: String,
    _folder: TempDir,
}

impl Hub {
    /// Starts a hub with these sections; returns when it serves.
    fn start(sections: &str) -> Result<Self, Failure> {
        let (folder, key) = (TempDir::new()?, PrivateKey::generate()?);
        key.write_file(&folder.path().join("hub.key"))?;
        let file = folder.path().join("hub.toml");
        let own = "private_key_file = \"hub.key\"\nlisten = \"127.0.0.1:0\"\n\
                   rate = \"20 Gbit/s\"\ncontrol = \"none\"\n";
        fs::write(&file, own.to_owned() + sections)?;
        let mut command = Command::new(PROGRAM);
        command.arg("hub").arg(&file).env("SKYHOP_LOG", "info").stdout(Stdio::null());
        let (child, address) = said(&mut command, "terminals on UDP ")?;
        let key = gateway::keys::format_public_key(&key.public());
        Ok(Self { process: Running(child), address, key, _folder: folder })
    }
}

/// Starts a meter server; returns its address.
fn listening(command: &mut Command, at: &str) -> Result<(Child, String), Failure> {
    said(command.args(["--listen", at]), "listening on ")
}

/// Starts a process, and waits until a line of its log has these words; returns what follows them.
fn said(command: &mut Command, words: &str) -> Result<(Child, String), Failure> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stderr.take().ok_or("no log")?).lines();
    for line in lines.by_ref() {
        if let Some((_, rest)) = line?.split_once(words) {
            let rest = rest.trim().to_owned();
            // What it says later must not block it.
            thread::spawn(move || lines.for_each(drop));
            return Ok((child, rest));
        }
    }
    Err(format!("{:?} did not say {words:?}", child.wait()?).into())
}
