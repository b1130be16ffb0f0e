//! One download through the pair, whose rates are measured, beside kernel TCP that crosses the same
//! link without the pair: from the terminal's own host.

use std::process::{Command, Stdio};

use lab::Node;
use report::{TableColumn, TextTable};
use serde_json::Value;
use stats::SampleSpread;

use crate::meter::{self, report, seconds};
use crate::pair::Pair;
use crate::run::Failure;
use crate::{PROGRAM, progress};

/// Of the forward link of `geo`.
const MBIT: f64 = 50.0;
/// How long all of them send.
const SECONDS: &str = "60s";
/// Seconds after which a run is given up.
const LIMIT: &str = "120";
const LEAST: f64 = 1.0 / 3.0;

/// What each got of its fair share: the download, the least TCP, the mean TCP.
type Shares = [f64; 3];

/// Measures and prints all; returns how many bounds were missed.
pub(crate) fn compare(rounds: u64) -> Result<usize, Failure> {
    let names = ["download", "least TCP", "mean TCP", "link used"].map(TableColumn::right);
    let columns = [TableColumn::left("beside")].into_iter().chain(names);
    let columns = columns.chain(["must reach", ""].map(TableColumn::left));
    let mut table = TextTable::new(columns).title(format!(
        "a download with both rates \"auto\" beside kernel TCP, {SECONDS}: of a fair share, {rounds} \
         rounds, medians (and range)"
    ));
    let mut missed = 0;
    for control in ["bbr", "cubic"] {
        for flows in [1, 8] {
            missed += usize::from(!row(&mut table, control, flows, rounds)?);
        }
    }
    eprintln!();
    print!("{table}");
    Ok(missed)
}

fn row(table: &mut TextTable, control: &str, flows: u32, rounds: u64) -> Result<bool, Failure> {
    let name = format!("{flows} {}", control.to_uppercase());
    let mut all: Vec<Shares> = Vec::new();
    for round in 1..=rounds {
        progress(&format!("round {round} of {rounds}: beside {name}"))?;
        all.push(measure(control, flows, round)?);
    }
    let used = |[own, _, mean]: &Shares| (own + mean * f64::from(flows)) / f64::from(flows + 1);
    let spread =
        |of: &dyn Fn(&Shares) -> f64| SampleSpread::of(all.iter().map(of)).ok_or("no rounds");
    let (own, least, mean) = (spread(&|s| s[0])?, spread(&|s| s[1])?, spread(&|s| s[2])?);
    let reached = own.median.min(least.median) >= LEAST;
    let verdict = if reached { "reached" } else { "MISSED" };
    let cells = [own, least, mean, spread(&used)?].map(|spread| format!("{spread:.2}"));
    let bound = ["each ≥ 1/3".to_owned(), verdict.to_owned()];
    table.row([name].into_iter().chain(cells).chain(bound));
    Ok(reached)
}

fn measure(control: &str, flows: u32, seed: u64) -> Result<Shares, Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "run", "geo", "--seed", &seed.to_string(), "--", "timeout", LIMIT]);
    command.arg(std::env::current_exe()?).args(["inside-beside", control, &flows.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    let printed = String::from_utf8(output.stdout)?;
    let shares: Result<Vec<f64>, _> = printed.split_whitespace().map(str::parse).collect();
    shares?.try_into().map_err(|_| format!("three shares, not {printed:?}").into())
}

/// Inside a lab: all of them at once; prints the shares.
pub(crate) fn inside(arguments: &[&str]) -> Result<(), Failure> {
    let [control, flows] = arguments else { return Err("two arguments".into()) };
    let _pair = Pair::start(None)?;
    let options = ["--time", SECONDS, "--flows", flows, "--cc", control];
    let tcp = meter::start(Node::Terminal, "bulk", &options)?;
    let own = meter::start(Node::Client, "bulk", &["--time", SECONDS])?;
    let (own, tcp) = (report(own)?, report(tcp)?);
    let fair = MBIT * 1e6 / (flows.parse::<f64>()? + 1.0);
    let share = |flow: &Value| Ok(seconds(flow, "/goodput_bits_per_second")? / fair);
    let flows = |report: &Value| -> Result<Vec<f64>, Failure> {
        report["flows"].as_array().ok_or("no flows")?.iter().map(share).collect()
    };
    let (own, tcp) = (flows(&own)?, flows(&tcp)?);
    let least = tcp.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = tcp.iter().sum::<f64>() / tcp.len() as f64;
    println!("{} {least} {mean}", own[0]);
    Ok(())
}
