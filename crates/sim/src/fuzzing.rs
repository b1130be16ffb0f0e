//! Entry points of the fuzz target (`fuzz/`) and of the replay of its corpus (`tests/corpus.rs`):
//! scenario files. An input must not cause a panic, an endless loop or unbounded memory. Every
//! accepted scenario can be built and run.

use scenario::{NetworkSpec, Scenario, ScenarioCase};

use crate::SimulationRun;

/// A function that processes untrusted bytes.
pub type Target = fn(&[u8]);

/// The targets by the names of their corpora.
pub const TARGETS: [(&str, Target); 1] = [("scenario", scenario)];

/// Number of events to run per case.
const EVENTS: u32 = 5000;

/// Parses a scenario file and runs the first events of its small cases.
pub fn scenario(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match Scenario::parse("fuzz", text) {
        Ok(scenario) => {
            let seeds = scenario.replications.seeds();
            assert!((1..=10_000).contains(&seeds.len()) && scenario.replications.least() > 0);
            for case in scenario.cases.iter().filter(|case| is_small(case)).take(3) {
                let mut run = SimulationRun::new(case, 1);
                run.world.run_events(EVENTS);
                assert!(run.metrics().iter().all(|metric| !metric.name.is_empty()));
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Returns true for a case that is quick to build.
fn is_small(case: &ScenarioCase) -> bool {
    let NetworkSpec { terminals, servers, clients, .. } = case.network;
    let count: u64 = case.flows.iter().map(|flow| u64::from(flow.count)).sum();
    u64::from(terminals) * u64::from(clients) + u64::from(servers) + count <= 50
}
