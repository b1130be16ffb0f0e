//! The first traffic of a session that remembers nothing of its path, with the rates told, with
//! `rate = "auto"` at both ends as `skyhop init` writes it, and over quinn's BBR instead.

use std::fmt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use report::{TableColumn, TextTable};
use stats::SampleSpread;

use crate::meter::{self, seconds};
use crate::pair::Pair;
use crate::run::Failure;
use crate::{PROGRAM, progress, quinn};

/// A page as in docs/performance.md: a document, then its 17 objects, six at a time; 0.65 MB.
pub(crate) const DOCUMENT: usize = 40_000;
pub(crate) const OBJECTS: [usize; 17] = [
    2_000, 4_000, 6_000, 9_000, 12_000, 16_000, 20_000, 25_000, 30_000, 36_000, 42_000, 48_000,
    55_000, 62_000, 70_000, 80_000, 93_000,
];
pub(crate) const AT_ONCE: usize = 6;
const DOWNLOAD: usize = 20_000_000;
/// Between the session's start and traffic that does not begin at once, in seconds.
const LATER: u64 = 5;
/// Seconds after which a run is given up.
const LIMIT: &str = "60";
/// Exit code of timeout(1) then.
const TIMED_OUT: i32 = 124;

/// A link in Mbit/s and ms.
struct Link {
    name: &'static str,
    rates: [&'static str; 2],
    rtt: u64,
    per: &'static str,
}

const fn link(name: &'static str, rates: [&'static str; 2], rtt: u64, per: &'static str) -> Link {
    Link { name, rates, rtt, per }
}

const LINKS: [Link; 6] = [
    link("50/10, 600 ms", ["50Mbit/s", "10Mbit/s"], 600, "0"),
    link("50/10, 600 ms, PER 0.1 %", ["50Mbit/s", "10Mbit/s"], 600, "0.1%"),
    link("50/10, 600 ms, PER 1 %", ["50Mbit/s", "10Mbit/s"], 600, "1%"),
    link("300/30, 600 ms", ["300Mbit/s", "30Mbit/s"], 600, "0"),
    link("20/4, 560 ms", ["20Mbit/s", "4Mbit/s"], 560, "0"),
    link("150/20, 40 ms", ["150Mbit/s", "20Mbit/s"], 40, "0"),
];

/// What the user does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Page,
    Download,
}

impl Use {
    /// The bytes of the largest reply.
    pub(crate) fn greatest(self) -> usize {
        match self {
            Self::Page => OBJECTS.into_iter().fold(DOCUMENT, usize::max),
            Self::Download => DOWNLOAD,
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Page => "page",
            Self::Download => "download",
        })
    }
}

const WAYS: [&str; 3] = ["told", "auto", "quinn BBR"];

/// Measures and prints all links whose name contains `only`; returns how many bounds were missed.
pub(crate) fn compare(rounds: u64, only: &str) -> Result<usize, Failure> {
    let names = ["link", "traffic"].map(TableColumn::left).into_iter();
    let names = names.chain(WAYS.map(TableColumn::right));
    let columns = names.chain(["auto must reach", ""].map(TableColumn::left));
    let mut table = TextTable::new(columns).title(format!(
        "fresh sessions, seconds, {rounds} rounds, medians (and range); page of 0.65 MB, download \
         of 20 MB"
    ));
    let mut missed = 0;
    for link in LINKS.iter().filter(|link| link.name.contains(only)) {
        for what in [Use::Page, Use::Download] {
            for pause in [LATER, 0] {
                missed += usize::from(!row(&mut table, link, what, pause, rounds)?);
            }
        }
    }
    eprintln!();
    print!("{table}");
    Ok(missed)
}

/// Measures a row; returns whether it met its bound.
fn row(
    table: &mut TextTable,
    link: &Link,
    what: Use,
    pause: u64,
    rounds: u64,
) -> Result<bool, Failure> {
    let mut times = WAYS.map(|_| Vec::new());
    for round in 1..=rounds {
        for (way, times) in WAYS.into_iter().zip(&mut times) {
            progress(&format!("round {round} of {rounds}: {}, {what}, {way}", link.name))?;
            times.push(measure(link, way, what, pause, round)?);
        }
    }
    let median =
        |times: &[f64]| SampleSpread::of(times.iter().copied()).map_or(f64::NAN, |s| s.median);
    let more = if pause > 0 { 0.0 } else { 2.0 * link.rtt as f64 / 1e3 };
    let (auto, most) = (median(&times[1]), 1.1 * median(&times[0]) + more);
    let reached = auto <= most;
    let when =
        if pause > 0 { format!("{what}, {pause} s later") } else { format!("{what}, at once") };
    let cells = [link.name.to_owned(), when].into_iter().chain(times.iter().map(|t| cell(t)));
    let verdict = if reached { "reached" } else { "MISSED" };
    table.row(cells.chain([format!("≤ {most:.2}"), verdict.to_owned()]));
    Ok(reached)
}

/// The spread, or how many runs failed.
fn cell(times: &[f64]) -> String {
    let failed = times.iter().filter(|time| time.is_infinite()).count();
    if failed > 0 {
        return format!("fails in {failed} of {}", times.len());
    }
    SampleSpread::of(times.iter().copied()).map_or(String::new(), |spread| format!("{spread:.2}"))
}

/// One lab and one load; infinite if it fails.
fn measure(link: &Link, way: &str, what: Use, pause: u64, seed: u64) -> Result<f64, Failure> {
    let [forward, ret] = link.rates;
    let delay = format!("{}ms", link.rtt / 2);
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "run", "geo", "--seed", &seed.to_string(), "--per", link.per]);
    command.args(["--rate", forward, "--return-rate", ret, "--delay", &delay]);
    command.args(["--", "timeout", LIMIT]).arg(std::env::current_exe()?);
    command.args(["inside-fresh", way, &what.to_string(), &pause.to_string(), forward, ret]);
    let output = command.stderr(Stdio::inherit()).output()?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout)?.trim().parse()?),
        Some(TIMED_OUT) => Ok(f64::INFINITY),
        Some(_) if way == WAYS[2] => Ok(f64::INFINITY),
        _ => Err(format!("{command:?}: {}", output.status).into()),
    }
}

/// Inside a lab: one load; prints its seconds.
pub(crate) fn inside(arguments: &[&str]) -> Result<(), Failure> {
    let [way, what, pause, forward, ret] = arguments else { return Err("five arguments".into()) };
    let what = if *what == "page" { Use::Page } else { Use::Download };
    let pause = Duration::from_secs(pause.parse()?);
    let rates = match *way {
        "told" => Some([*forward, *ret]),
        "auto" => None,
        _ => {
            println!("{}", quinn::load(what, pause)?);
            return Ok(());
        }
    };
    let _pair = Pair::start(rates)?;
    thread::sleep(pause);
    println!("{}", load(what)?);
    Ok(())
}

fn load(what: Use) -> Result<f64, Failure> {
    let page = |objects: &str, connections: usize| {
        let connections = connections.to_string();
        let options = ["--objects", objects, "--http", "1.1", "--connections", &connections];
        seconds(&meter::run("page", &options)?, "/total_seconds")
    };
    match what {
        Use::Page => {
            let objects = OBJECTS.map(|bytes| format!("{bytes}B")).join(",");
            Ok(page(&format!("{DOCUMENT}B"), 1)? + page(&objects, AT_ONCE)?)
        }
        Use::Download => {
            let report = meter::run("bulk", &["--bytes", &format!("{DOWNLOAD}B")])?;
            seconds(&report, "/sums/0/total_seconds")
        }
    }
}
