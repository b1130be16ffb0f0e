//! What several connections at the same time get in each case of a scenario whose cases are named `N, TCP`:
//! mean and greatest aggregate goodput over the runs, the mean's gain over the first case with the same N,
//! and Jain's index with its interval at 98 % confidence (Student's t), as the ENAC study asks for (§5.1):
//!
//! ```sh
//! cargo run --release -p skyhop-sim --example aggregate -- scenarios/enac-multi.toml 20
//! ```

use std::error::Error;
use std::path::Path;

use scenario::{Scenario, ScenarioCase};
use sim::SimulationRun;
use stats::{mean, student_t};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, seeds] = &arguments[..] else {
        return Err("expected a scenario file and a number of seeds".into());
    };
    let (scenario, seeds) = (Scenario::load(Path::new(file))?, seeds.parse::<u64>()?);
    println!(
        "| case | mean, Mbit/s | greatest | gain | Jain's index, 98 % |\n|---|---|---|---|---|"
    );
    let mut reference = (String::new(), f64::NAN);
    for case in &scenario.cases {
        let runs: Vec<[f64; 2]> = (1..=seeds).map(|seed| figures(case, seed)).collect();
        let [rates, fairness] = [0, 1].map(|it| runs.iter().map(|run| run[it]).collect::<Vec<_>>());
        let average = mean(&rates).unwrap_or(f64::NAN);
        let greatest = rates.iter().copied().fold(0.0, f64::max);
        let number = case.name.split(',').next().unwrap_or_default();
        if reference.0 != number {
            reference = (number.to_owned(), average);
        }
        let gain = (average / reference.1 - 1.0) * 100.0;
        let jain = mean(&fairness).unwrap_or(f64::NAN);
        let around = student_t(&fairness).map_or(String::new(), |intervals| {
            format!(" ({:.3}–{:.3})", intervals.ci98.low, intervals.ci98.high)
        });
        println!(
            "| {} | {average:.2} | {greatest:.2} | {gain:+.0} % | {jain:.3}{around} |",
            case.name
        );
    }
    Ok(())
}

/// Aggregate goodput of the first flow in Mbit/s, and Jain's index, which is 1 for a single connection.
fn figures(case: &ScenarioCase, seed: u64) -> [f64; 2] {
    let mut run = SimulationRun::new(case, seed);
    run.finish();
    let metrics = run.metrics();
    let name = &case.flows[0].name;
    let find = |metric: &str| {
        metrics.iter().find(|it| it.of == *name && it.name == metric).map(|it| it.value)
    };
    [find("goodput-mbit/s").unwrap_or(f64::NAN), find("fairness").unwrap_or(1.0)]
}
