//! The median time that a scenario's last flow takes in each of its cases, with the quartiles and the mean. Of
//! several connections at the same time, that of the last to end counts:
//!
//! ```sh
//! cargo run --release -p skyhop-sim --example medians -- scenarios/slacp-fig5.toml 32
//! ```
//!
//! A third argument selects the cases whose names contain it, a fourth is another metric of the flow,
//! like `timeouts`.

use std::error::Error;
use std::path::Path;

use scenario::{Scenario, ScenarioCase};
use sim::SimulationRun;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, seeds, wanted @ ..] = &arguments[..] else {
        return Err("expected a scenario file and a number of seeds".into());
    };
    let (scenario, seeds) = (Scenario::load(Path::new(file))?, seeds.parse::<u64>()?);
    let [wanted, metric] = [(0, ""), (1, "time-max-s")]
        .map(|(index, usual)| wanted.get(index).map_or(usual, String::as_str));
    println!("{:32} {:>7} {:>7} {:>7} {:>7}", "case", "25 %", "median", "75 %", "mean");
    for case in scenario.cases.iter().filter(|case| case.name.contains(wanted)) {
        let times: Vec<f64> = (1..=seeds).filter_map(|seed| value(case, seed, metric)).collect();
        let quarter = |percent| stats::percentile(&times, percent).unwrap_or(f64::NAN);
        let [low, median, high] = [25.0, 50.0, 75.0].map(quarter);
        let mean = stats::mean(&times).unwrap_or(f64::NAN);
        println!("{:32} {low:7.1} {median:7.1} {high:7.1} {mean:7.2}", case.name);
    }
    Ok(())
}

/// A metric of the last flow; of times, `None` if no transfer ended.
fn value(case: &ScenarioCase, seed: u64, metric: &str) -> Option<f64> {
    let mut run = SimulationRun::new(case, seed);
    run.finish();
    let metrics = run.metrics();
    let name = &case.flows.last()?.name;
    metrics.iter().find(|it| it.of == *name && it.name == metric).map(|it| it.value)
}
