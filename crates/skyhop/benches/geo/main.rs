//! The pair on a GEO link, with real kernels and real clients, compared with plain TCP (BBR, CUBIC)
//! on the same link with the same losses, interleaved.
//!
//! ```text
//! cargo bench -p skyhop --bench geo [-- ROUNDS [CASE]]
//! cargo bench -p skyhop --bench geo -- ROUNDS fresh [LINK]
//! cargo bench -p skyhop --bench geo -- ROUNDS beside
//! cargo bench -p skyhop --bench geo -- ROUNDS dead
//! ```
//!
//! The link has 50/10 Mbit/s, an RTT of 600 ms and queues of one BDP, unless the case says
//! otherwise. Every round has its own seed, the same for all ways. `CASE` selects cases by a part
//! of their name. Five rounds of everything take about an hour, mostly for plain TCP.
//!
//! `fresh` measures the first traffic of a session whose rates nobody knows, beside one that is told
//! them and beside quinn's BBR; a round takes ten minutes, and `LINK` selects links by a part of
//! their name. `beside` measures a download of such a session beside kernel TCP; a round takes
//! five minutes. `dead` measures downloads beside another client's connections to a server that does
//! not answer; a round takes two minutes.

mod beside;
mod case;
mod dead;
mod fresh;
mod meter;
mod pair;
mod quinn;
mod run;

use std::io::Write as _;
use std::process::ExitCode;

use report::{TableColumn, TextTable};
use stats::SampleSpread;

use self::case::{Bound, CASES, Case};
use self::run::{Failure, Way, measure};

/// Values of one case, by way.
type Values = Vec<(Way, Vec<f64>)>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let missed = match words.as_slice() {
        ["inside-fresh", arguments @ ..] => fresh::inside(arguments).map(|()| 0)?,
        ["inside-beside", arguments @ ..] => beside::inside(arguments).map(|()| 0)?,
        ["inside-dead", arguments @ ..] => dead::inside(arguments).map(|()| 0)?,
        [rounds, "dead"] => said(dead::compare(rounds.parse()?)?),
        [rounds, "fresh"] => said(fresh::compare(rounds.parse()?, "")?),
        [rounds, "fresh", link] => said(fresh::compare(rounds.parse()?, link)?),
        [rounds, "beside"] => said(beside::compare(rounds.parse()?)?),
        [rounds, case] => said(compare(rounds.parse()?, case)?),
        [rounds] => said(compare(rounds.parse()?, "")?),
        _ => said(compare(5, "")?),
    };
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints how many bounds were missed.
fn said(missed: usize) -> usize {
    println!("{missed} missed");
    missed
}

/// Shows what is being measured.
fn progress(what: &str) -> Result<(), Failure> {
    eprint!("\r\x1b[K{what}");
    Ok(std::io::stderr().flush()?)
}

/// Measures the cases whose name contains `only`; returns how many bounds were missed.
fn compare(rounds: u64, only: &str) -> Result<usize, Failure> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.name.contains(only)).collect();
    let mut all: Vec<Values> = cases.iter().map(|case| values(case)).collect();
    for round in 1..=rounds {
        for (case, values) in cases.iter().zip(&mut all) {
            for (way, values) in values {
                progress(&format!("round {round} of {rounds}: {}, {way}", case.name))?;
                values.push(measure(case, *way, round)?);
            }
        }
    }
    eprintln!();
    println!("{rounds} rounds, medians (and range)");
    let names = ["skyhop", "plain BBR", "plain CUBIC"].map(TableColumn::right);
    let columns = [TableColumn::left("")].into_iter().chain(names);
    let mut table =
        TextTable::new(columns.chain([TableColumn::left("must reach"), TableColumn::left("")]));
    let mut missed = 0;
    for (case, values) in cases.iter().zip(&all) {
        missed += usize::from(!add_row(&mut table, case, values));
    }
    print!("{table}");
    Ok(missed)
}

fn values(case: &Case) -> Values {
    let ways = if case.plain { &Way::ALL[..] } else { &Way::ALL[..1] };
    ways.iter().map(|way| (*way, Vec::new())).collect()
}

/// Adds a case; returns whether it met its bound.
fn add_row(table: &mut TextTable, case: &Case, values: &Values) -> bool {
    let spreads: Vec<SampleSpread> =
        values.iter().filter_map(|(_, values)| SampleSpread::of(values.iter().copied())).collect();
    let best_plain = spreads[1..].iter().map(|it| it.median).fold(f64::INFINITY, f64::min);
    let (ours, bound) = (spreads[0].median, case.bound.value(best_plain));
    let (reached, sign) = match case.bound {
        Bound::AtLeast(_) => (ours >= bound, "≥"),
        _ => (ours <= bound, "≤"),
    };
    let cell = |index: usize| spreads.get(index).map_or(String::new(), |it| format!("{it:.3}"));
    let verdict = if reached { "" } else { "MISSED" };
    let must = format!("{sign} {bound:.3} {}", case.unit);
    table.row([case.name.to_owned(), cell(0), cell(1), cell(2), must, verdict.to_owned()]);
    reached
}
