//! A hub with one worker and with two, each held to a part of a processor, so that the processors of
//! the machine do not limit what they do together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use report::{TableColumn, TextTable};

use crate::swarm::{Hub, Server, print_hub_config, run_swarm};
use crate::{Failure, spread};

/// Busy terminals, and how many megabytes each downloads.
const TERMINALS: u32 = 8;
const MEGABYTES: u32 = 40;
/// What a held worker may have of a processor, in percent.
const SHARE: u32 = 25;
/// More than the workers can carry, but not so much that what they send in one go is lost.
const RATE: &str = "4 Gbit/s";
/// The time over which the kernel counts, in microseconds.
const PERIOD: u32 = 20_000;
/// The processor controller of control groups, version 1.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

/// Measures both, held and free, in interleaved rounds.
pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let server = Server::start()?;
    let sections = print_hub_config(TERMINALS, Some(&server))?;
    let has_controller = Path::new(CONTROLLER).join("cpu.cfs_quota_us").exists();
    if !has_controller {
        eprintln!("{CONTROLLER} has no quota (control groups version 1): only free workers");
    }
    let held: &[bool] = if has_controller { &[true, false] } else { &[false] };
    let cases = held.iter().flat_map(|held| [1, 2].map(|workers| (workers, *held)));
    let mut all: Vec<_> = cases.map(|case| (case, Vec::new())).collect();
    for round in 1..=rounds {
        for ((workers, held), reports) in &mut all {
            eprint!("\rround {round} of {rounds}: {workers} workers        ");
            // Removed after the hub has ended.
            let mut groups = Vec::new();
            let hub = Hub::start(RATE, &format!("workers = {workers}\n"), &sections)?;
            if *held {
                groups.extend(hold(hub.pid())?);
            }
            reports.push(run_swarm(&hub, &server, TERMINALS, TERMINALS, MEGABYTES)?);
        }
    }
    eprintln!();
    let names = ["workers", "of a processor each", "Mbit/s", "hub CPU-s/GB"];
    let mut table = TextTable::new(names.map(TableColumn::right))
        .title(format!("{TERMINALS} busy terminals, {rounds} rounds, medians (and range)"));
    for ((workers, held), reports) in &all {
        let mbit = |it: &serde_json::Value| it["traffic"]["goodput_bits_per_second"].as_f64();
        let cost = |it: &serde_json::Value| it["hub"]["cpu_seconds_per_gigabyte"].as_f64();
        table.row([
            workers.to_string(),
            if *held { format!("{SHARE} %") } else { "all".to_owned() },
            spread(reports.iter().filter_map(mbit).map(|bits| bits / 1e6)),
            spread(reports.iter().filter_map(cost)),
        ]);
    }
    print!("{table}");
    Ok(())
}

/// A control group, removed when dropped: its thread must have ended by then.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Puts each thread of a process in a control group of its own.
fn hold(pid: u32) -> io::Result<Vec<Group>> {
    let mut groups = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.file_name();
        let name = format!("skyhop-bench-{}", thread.display());
        let group = Group(Path::new(CONTROLLER).join(name));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join("cpu.cfs_period_us"), PERIOD.to_string())?;
        fs::write(group.0.join("cpu.cfs_quota_us"), (PERIOD * SHARE / 100).to_string())?;
        fs::write(group.0.join("tasks"), thread.as_encoded_bytes())?;
        groups.push(group);
    }
    Ok(groups)
}
