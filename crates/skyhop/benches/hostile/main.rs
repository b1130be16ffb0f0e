//! What an honest session notices of hostile peers: real kernels, real time, a hub with two terminals on
//! links of 50 Mbit/s both ways and an RTT of 20 ms. The honest one downloads, and sends a byte every
//! 20 ms that comes back.
//!
//! ```text
//! cargo bench -p skyhop --bench hostile [-- CASE]
//! ```
//!
//! `CASE` selects cases by a part of their name. Each takes half a minute in a lab of its own. A case must
//! leave every round trip below 50 ms, more than 90 % of the download alone, which is verified, and at most
//! 500 lines in the gateways' logs; otherwise the bench fails. What the attacker sends per second is shown:
//! without it, a case shows nothing.
//!
//! A new case is a file with a [`Case`], and a line in [`CASES`].

mod bad_questions;
mod empty_frames;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/gateways.rs"]
mod gateways;
mod hellos;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/inside.rs"]
mod inside;
mod keepalives;
mod openings;
mod peer;
mod probe;
mod scene;
mod thief;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use lab::{Builder, Node};
use report::{TableColumn, TextTable};
use units::BitRate;

use self::scene::{Case, Figures, Times};

type Failure = Box<dyn Error + Send + Sync>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
const CASES: [Case; 7] = [
    scene::NOTHING,
    empty_frames::CASE,
    keepalives::CASE,
    openings::CASE,
    hellos::CASE,
    thief::CASE,
    bad_questions::CASE,
];
const TIMES: Times = Times {
    settle: Duration::from_secs(3),
    alone: Duration::from_secs(8),
    beside: Duration::from_secs(12),
};
/// What a round trip may take, in milliseconds, and what must be left of a download.
const LONGEST_TRIP: f64 = 50.0;
const LEAST_LEFT: f64 = 0.9;
/// Lines that both gateways may log: 200 of a place in the code, and some more.
const MOST_LOGGED: f64 = 500.0;

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inside", name] => {
            let case = CASES.iter().find(|case| case.name == *name).ok_or("no such case")?;
            println!("{}", scene::measure(case, &TIMES));
            Ok(ExitCode::SUCCESS)
        }
        [] => compare(""),
        [only, ..] => compare(only),
    }
}

fn compare(only: &str) -> Result<ExitCode, Failure> {
    lab::enter()?;
    let names = [
        "attack, Mbit/s",
        "hub, CPU",
        "trip, ms",
        "p99",
        "longest",
        "log lines",
        "download, Mbit/s",
        "left",
    ];
    let columns = [TableColumn::left("")].into_iter().chain(names.map(TableColumn::right));
    let mut table = TextTable::new(columns.chain([TableColumn::left("")]));
    let mut missed = 0;
    for case in CASES.iter().filter(|case| case.name.contains(only)) {
        eprint!("\r\x1b[K{}", case.name);
        let Figures { attack, cpu, median, p99, longest, logged, alone, beside } = run(case)?;
        let left = beside / alone;
        let is_met = longest < LONGEST_TRIP && left > LEAST_LEFT && logged <= MOST_LOGGED;
        missed += usize::from(!is_met);
        let figures = [attack, cpu, median, p99, longest].map(|figure| format!("{figure:.1}"));
        let rest = [logged.to_string(), format!("{beside:.1}"), format!("{:.0} %", 100.0 * left)];
        let verdict = if is_met { "" } else { "MISSED" };
        let cells = [case.name.to_owned()].into_iter().chain(figures);
        table.row(cells.chain(rest).chain([verdict.to_owned()]));
    }
    eprint!("\r\x1b[K");
    print!("{table}");
    println!("{missed} missed");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a case in a lab of its own.
fn run(case: &Case) -> Result<Figures, Failure> {
    let rate = BitRate::from_mbit(50);
    let lab = Builder::new("geo").rate(rate).return_rate(rate).delay(Duration::from_millis(10));
    let lab = lab.per(0.0).terminals(2).start()?;
    let mut command = lab.command(Node::Client, std::env::current_exe()?);
    let output = command.args(["inside", case.name]).env("SKYHOP", PROGRAM).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = || {
        let why = String::from_utf8_lossy(&output.stderr);
        format!("{}: {}\n{said}{why}", case.name, output.status)
    };
    let figures = said.lines().last().and_then(|line| line.parse().ok());
    Ok(figures.filter(|_| output.status.success()).ok_or_else(failed)?)
}
