//! What users notice when the hop or the hub fails: real kernels, real time, the pair on a GEO link
//! with 50/10 Mbit/s and an RTT of 600 ms.
//!
//! ```text
//! cargo bench -p skyhop --bench faults [-- ROUNDS [CASE]]
//! ```
//!
//! `CASE` is `outage` (the hop fails for 60 s during transfers), `restart` (the hub is killed and
//! started again at once) or `absent` (the hub is killed and stays away for a while). Every round
//! has its own lab. A transfer with a wrong byte or a wrong end is an error, not a figure.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/gateways.rs"]
mod gateways;
mod hub;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/inside.rs"]
mod inside;
mod outage;
mod transfer;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use lab::{Lab, Node, Preset};
use link::Outage;
use stats::SampleSpread;

type Failure = Box<dyn Error + Send + Sync>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
const CASES: [(&str, fn()); 3] =
    [("outage", outage::run), ("restart", hub::restarts), ("absent", hub::is_absent)];
/// Prefix of the lines in which a case reports a figure, and of its request to fail the hop.
const FIGURE: &str = "figure ";
const FAIL: &str = "fail";
/// Length of the outage.
pub(crate) const AWAY: Duration = Duration::from_secs(60);

/// Figures of a case: their names, and their values in seconds.
type Figures = Vec<(String, Vec<f64>)>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inside", name] => {
            let (_, run) = CASES.into_iter().find(|case| case.0 == *name).ok_or("no such case")?;
            run();
            Ok(())
        }
        [] => measure_all(5, ""),
        [rounds] => measure_all(rounds.parse()?, ""),
        [rounds, only, ..] => measure_all(rounds.parse()?, only),
    }
}

fn measure_all(rounds: u64, only: &str) -> Result<(), Failure> {
    lab::enter()?;
    println!("seconds, {rounds} rounds, medians (and range)");
    for (name, _) in CASES.into_iter().filter(|(name, _)| name.contains(only)) {
        let mut figures = Figures::new();
        for round in 1..=rounds {
            eprint!("\r\x1b[K{name}: round {round} of {rounds}");
            measure(name, round, &mut figures)?;
        }
        eprint!("\r\x1b[K");
        println!("{name}");
        for (what, values) in &figures {
            let spread = SampleSpread::of(values.iter().copied()).ok_or("no figures")?;
            println!("  {what:<58} {spread}");
        }
    }
    Ok(())
}

/// Runs a case once, in its own lab.
fn measure(name: &str, seed: u64, figures: &mut Figures) -> Result<(), Failure> {
    let lab = Lab::start(&Preset::load("geo")?, seed)?;
    let mut command = lab.command(Node::Client, std::env::current_exe()?);
    command.args(["inside", name]).env("SKYHOP", PROGRAM);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut answers = child.stdin.take().ok_or("no stdin")?;
    for line in BufReader::new(child.stdout.take().ok_or("no stdout")?).lines() {
        let line = line?;
        if line == FAIL {
            lab.add_outage(Outage { after: Duration::ZERO, lasting: AWAY, every: None });
            writeln!(answers)?;
        } else if let Some((seconds, what)) =
            line.strip_prefix(FIGURE).and_then(|figure| figure.split_once(' '))
        {
            note(figures, what, seconds.parse()?);
        }
    }
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("{name}: {status}").into()),
    }
}

fn note(figures: &mut Figures, what: &str, seconds: f64) {
    match figures.iter_mut().find(|(known, _)| known == what) {
        Some((_, values)) => values.push(seconds),
        None => figures.push((what.to_owned(), vec![seconds])),
    }
}

/// Inside the lab: reports a figure.
pub(crate) fn tell(what: &str, time: Duration) {
    println!("{FIGURE}{:.3} {what}", time.as_secs_f64());
}

/// Inside the lab: makes the hop fail; returns once it has.
pub(crate) fn fail_the_hop() {
    println!("{FAIL}");
    std::io::stdin().read_line(&mut String::new()).expect("the bench is there");
}
