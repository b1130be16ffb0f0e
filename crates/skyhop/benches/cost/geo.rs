//! Cost of a pair at the rate of a satellite link, where packets come one at a time: a download over
//! `skyhop lab`'s `geo`, 50 Mbit/s.

use std::thread;
use std::time::Duration;

use gateway::keys::PrivateKey;
use lab::{Lab, Node, Preset};
use report::{TableColumn, TextTable};

use crate::way::{Running, Settings};
use crate::{CHUNK, Failure, SERVER_PORT, serve, spread, transfer};

const RATE: &str = "50 Mbit/s";
/// Keys of both gateways: packets are handled together, or each by itself.
const CASES: [(&str, &str); 2] = [("default", ""), ("burst = \"3 kB\"", "burst = \"3 kB\"\n")];
const MEGABYTES: u64 = 60;
/// Until the session has settled, so that only the download costs.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures all cases in `rounds` interleaved rounds.
pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    lab::enter()?;
    let lab = Lab::start(&Preset::load("geo")?, 1)?;
    let server = (lab.address4(Node::Server), SERVER_PORT).into();
    serve(lab.node(Node::Server), server, MEGABYTES * 1_000_000, [7; CHUNK])?;
    let mut all = CASES.map(|(name, keys)| (name, keys, Vec::new()));
    for round in 1..=rounds {
        for (name, keys, figures) in &mut all {
            eprint!("\rround {round} of {rounds}: {name:<14}");
            let settings = Settings { rate: RATE, keys, sections: "" };
            let own = |node, program: &str| lab.command(node, program);
            let running = Running::pair(own, server, &settings, &PrivateKey::generate()?, &[])?;
            thread::sleep(SETTLE);
            figures.push(transfer(lab.node(Node::Client), &running, MEGABYTES * 1_000_000)?);
        }
    }
    eprintln!();
    let names = ["Mbit/s", "terminal CPU-s/GB", "hub CPU-s/GB", "pair CPU-s/GB"];
    let columns = [TableColumn::left("")].into_iter().chain(names.map(TableColumn::right));
    let mut table = TextTable::new(columns)
        .title(format!("{MEGABYTES} MB at {RATE}, {rounds} rounds, medians (and range)"));
    for (name, _, figures) in &all {
        table.row([
            (*name).to_owned(),
            spread(figures.iter().map(|f| f.gbit_per_second * 1e3)),
            spread(figures.iter().map(|f| f.terminal)),
            spread(figures.iter().map(|f| f.hub)),
            spread(figures.iter().map(|f| f.terminal + f.hub)),
        ]);
    }
    print!("{table}");
    Ok(())
}
