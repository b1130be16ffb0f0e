//! Prints what the SLACP sessions of a scenario did, packet by packet (`docs/event-log.md`):
//!
//! ```sh
//! cargo run --release -p skyhop-sim --example slacp_log -- scenarios/slacp-fig5.toml "high, reference, SLACP" 1
//! ```
//!
//! Each line has the gateway and the event.

use std::error::Error;
use std::path::Path;

use scenario::Scenario;
use sim::SimulationRun;
use units::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, case, seed] = &arguments[..] else {
        return Err("expected a scenario file, the name of a case, and a seed".into());
    };
    let scenario = Scenario::load(Path::new(file))?;
    let Some(case) = scenario.cases.iter().find(|known| known.name == *case) else {
        return Err(format!("no case {case:?} in {file}").into());
    };
    let mut run = SimulationRun::new(case, seed.parse()?);
    let [hub, terminal] = run.hop();
    // The sessions are up before the first flow starts.
    run.world.run_until(Instant::ZERO + std::time::Duration::from_secs(2));
    for node in [hub, terminal] {
        run.world.log_sessions(node, 10_000_000);
    }
    run.finish();
    for (name, node) in [("hub", hub), ("terminal", terminal)] {
        while let Some(entry) = run.world.poll_log(node) {
            println!("{name} {entry}");
        }
    }
    Ok(())
}
