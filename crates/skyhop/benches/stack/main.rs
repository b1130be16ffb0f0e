//! Two solo gateways with TCP of their own on the satellite (`stack = "skyhop"`): real kernels, real
//! packets, beside the simulator with the same settings, and beside the kernel's BBR without gateways.
//!
//! ```text
//! cargo bench -p skyhop --bench stack [-- ROUNDS [VARIANT]]
//! ```
//!
//! A download of 20 MB over 50/10 Mbit/s with an RTT of 600 ms, a queue of one BDP and 1 % of random
//! losses each way. Every round has its own lab and seed. Where chance puts the first losses decides a
//! transfer of some controllers, so means are compared with the mean of 200 simulated seeds, with a
//! bootstrap interval of their ratio. Periodic losses would have no chance in them, but fall into step
//! with the window: a repair then meets the next loss, over and over. The goodput counts from the
//! client's SYN to the last byte; the processor time is that of the gateway that sends, and of its
//! machine's kernel on its behalf. The simulated gateway sends as fast as its server does, so that has
//! the rate which follows from the processor time: a burst is as fast as in the lab.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/inside.rs"]
mod inside;
mod simulated;
mod transfer;

use std::error::Error;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};

use report::{TableColumn, TextTable};
use stats::{Bootstrap, ConfidenceIntervals, SampleSpread, mean};

type Failure = Box<dyn Error + Send + Sync>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
/// Size of the download, in bytes.
const BYTES: usize = 20_000_000;
/// Seed of the bootstrap.
const SEED: u64 = 1;
/// The part of the kernel's BBR that the best variant must reach.
const SHARE: f64 = 0.9;
/// How far a variant may be from the simulator.
const TOLERANCE: f64 = 0.1;

/// Settings of the TCP on the satellite.
struct Variant {
    name: &'static str,
    /// Lines of `[wan.tcp]`, and of a scenario's `[tcp.NAME]`.
    tcp: &'static str,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        name: "hybla, losses are corruption, 48 Mbit/s",
        tcp: "cc = \"hybla\"\nsnack = true\nassume-corruption = true\nmax-rate = \"48 Mbit/s\"\n",
    },
    Variant { name: "hybla", tcp: "cc = \"hybla\"\nsnack = true\n" },
    Variant { name: "bbr", tcp: "cc = \"bbr\"\nsnack = true\n" },
    Variant {
        name: "scps, 48 Mbit/s",
        tcp: "profile = \"scps\"\nmax-rate = \"48 Mbit/s\"\nsend-buffer = \"16 MB\"\n\
              receive-buffer = \"16 MB\"\n",
    },
];

/// The runs of a variant.
struct Measured {
    variant: usize,
    runs: Vec<Run>,
}

/// What a run has measured.
struct Run {
    mbit_s: f64,
    /// Processor time of the sending gateway; none without one.
    cpu_s: Option<f64>,
}

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let good = match words.as_slice() {
        ["inside", "plain"] => transfer::plain(),
        ["inside", index] => transfer::through_gateways(&VARIANTS[index.parse::<usize>()?]),
        [rounds, only, ..] => compare(rounds.parse()?, only)?,
        [rounds] => compare(rounds.parse()?, "")?,
        [] => compare(3, "")?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures the variants whose names contain `only`, interleaved. Returns whether every bound is kept.
fn compare(rounds: u64, only: &str) -> Result<bool, Failure> {
    let chosen = (0..VARIANTS.len()).filter(|index| VARIANTS[*index].name.contains(only));
    let none = |variant| Measured { variant, runs: vec![] };
    let mut measured: Vec<Measured> = chosen.map(none).collect();
    let mut plain = Vec::new();
    for seed in 1..=rounds {
        progress(&format!("round {seed} of {rounds}: kernel BBR"))?;
        plain.push(measure("plain", seed)?.mbit_s);
        for Measured { variant, runs } in &mut measured {
            progress(&format!("round {seed} of {rounds}: {}", VARIANTS[*variant].name))?;
            runs.push(measure(&variant.to_string(), seed)?);
        }
    }
    progress("")?;
    let bbr = SampleSpread::of(plain.iter().copied()).ok_or("no rounds")?;
    println!("{rounds} rounds, medians (and range), Mbit/s; kernel BBR without gateways: {bbr:.2}");
    let names = ["lab", "of BBR", "mean", "simulator's mean", "ratio (95 %)", "CPU s/GB"];
    let columns = [TableColumn::left("")].into_iter().chain(names.map(TableColumn::right));
    let mut table = TextTable::new(columns.chain([TableColumn::left("")]));
    let (mut best, mut is_near) = (0.0_f64, true);
    for runs in &measured {
        let (share, near) = add_row(&mut table, runs, bbr.median)?;
        (best, is_near) = (best.max(share), is_near && near);
    }
    print!("{table}");
    println!("the best reaches {best:.2} of kernel BBR, and must reach {SHARE}");
    Ok(best >= SHARE && is_near)
}

/// Adds a variant; returns its part of BBR's goodput, and whether it is near the simulator.
fn add_row(table: &mut TextTable, runs: &Measured, bbr: f64) -> Result<(f64, bool), Failure> {
    let variant = &VARIANTS[runs.variant];
    let lab: Vec<f64> = runs.runs.iter().map(|run| run.mbit_s).collect();
    let spread = SampleSpread::of(lab.iter().copied()).ok_or("no rounds")?;
    let cpu = SampleSpread::of(runs.runs.iter().filter_map(|run| run.cpu_s)).ok_or("no rounds")?;
    let simulated = simulated::goodput(variant, at_most(cpu.median))?;
    let means = mean(&lab).zip(mean(&simulated)).ok_or("no runs")?;
    let (share, ratio) = (spread.median / bbr, means.0 / means.1);
    let interval = Bootstrap::new(SEED).ratio(&lab, &simulated);
    let near = (ratio - 1.0).abs() <= TOLERANCE;
    table.row([
        variant.name.to_owned(),
        format!("{spread:.2}"),
        format!("{share:.2}"),
        format!("{:.2}", means.0),
        format!("{:.2}", means.1),
        interval.map_or_else(|| format!("{ratio:.2}"), |all| with_interval(ratio, all)),
        format!("{:.1}", cpu.median / (BYTES as f64 / 1e9)),
        if near { "" } else { "not within 10 % of the simulator" }.to_owned(),
    ]);
    Ok((share, near))
}

/// How fast a gateway is that takes this much processor time for a download, if it has a processor to
/// itself, in Mbit/s; at most as fast as the lab's devices.
fn at_most(cpu_s: f64) -> u32 {
    (BYTES as f64 * 8e-6 / cpu_s).clamp(1.0, 1000.0) as u32
}

fn with_interval(ratio: f64, ConfidenceIntervals { ci95, .. }: ConfidenceIntervals) -> String {
    format!("{ratio:.2} ({:.2}–{:.2})", ci95.low, ci95.high)
}

/// Runs one transfer in a lab of its own.
fn measure(what: &str, seed: u64) -> Result<Run, Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "run", "geo", "--per", "1%", "--seed", &seed.to_string(), "--"]);
    command.arg(std::env::current_exe()?).args(["inside", what]).env("SKYHOP", PROGRAM);
    let output = command.stderr(Stdio::inherit()).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let mut figures = printed.split_whitespace().map(str::parse::<f64>);
    let seconds = figures.next().ok_or_else(|| format!("{what}: {}", output.status))??;
    let cpu_s = figures.next().transpose()?;
    Ok(Run { mbit_s: BYTES as f64 * 8e-6 / seconds, cpu_s })
}

/// Shows what is being measured.
fn progress(what: &str) -> Result<(), Failure> {
    eprint!("\r\x1b[K{what}");
    Ok(std::io::stderr().flush()?)
}
