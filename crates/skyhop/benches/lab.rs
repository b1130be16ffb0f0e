//! Cases of scenario files in the simulator and in the lab, with real kernels and gateways: a table of
//! the same metrics beside each other (docs/sim-and-lab.md).
//!
//! ```text
//! cargo bench -p skyhop --bench lab -- SEEDS FILE [CASE]
//! ```
//!
//! `CASE` selects cases by a part of their name. A case takes as long in the lab as its traffic does.
//! Cases that the lab cannot run are named, with the reason.

use std::error::Error;
use std::path::Path;

use scenario::Scenario;
use study::lab_run::{can_run, compare, table};

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (seeds, file, only) = match words.as_slice() {
        [seeds, file] => (seeds, file, ""),
        [seeds, file, case] => (seeds, file, *case),
        // Without arguments, as in `cargo bench`, there is nothing to do.
        _ => {
            eprintln!("usage: cargo bench -p skyhop --bench lab -- SEEDS FILE [CASE]");
            return Ok(());
        }
    };
    let (seeds, scenario) = (seeds.parse()?, Scenario::load(Path::new(file))?);
    lab::enter()?;
    let mut all = Vec::new();
    for case in scenario.cases.iter().filter(|case| case.name.contains(only)) {
        match can_run(case) {
            Ok(()) => {
                eprintln!("{}", case.name);
                all.push((case.name.clone(), compare(case, seeds, Path::new(PROGRAM))?));
            }
            Err(why) => eprintln!("{}: not in the lab: {why}", case.name),
        }
    }
    print!("{}", table(&all).markdown());
    Ok(())
}
