//! Compares the metrics of a case in the simulator and in the lab.

use std::path::Path;

use report::{Column, Table};
use scenario::Case;
use sim::{Metric, Run, figure};

use super::{LabRunError, run};

/// A metric of both back ends: medians over the seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The subject: a flow's name, `forward` or `return`.
    pub of: String,
    /// The metric's name, with its unit.
    pub name: String,
    /// Median in the simulator.
    pub sim: f64,
    /// Median in the lab.
    pub lab: f64,
}

impl Beside {
    /// Returns the lab's value over the simulator's; `None` if that is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.sim != 0.0).then(|| self.lab / self.sim)
    }
}

/// Runs a case with the seeds 1 to `seeds` on both back ends, otherwise like [`run`]. A seed does
/// not lose the same packets in both.
///
/// # Errors
/// As [`run`].
pub fn compare(case: &Case, seeds: u64, program: &Path) -> Result<Vec<Beside>, LabRunError> {
    let simulate = |seed| {
        let mut run = Run::new(case, seed);
        run.finish();
        run.metrics()
    };
    let simulated: Vec<Vec<Metric>> = (1..=seeds).map(simulate).collect();
    let lab = (1..=seeds).map(|seed| run(case, seed, program));
    let lab = lab.collect::<Result<Vec<Vec<Metric>>, _>>()?;
    Ok(beside(&simulated, &lab))
}

/// Returns the metrics that both have, in the simulator's order.
fn beside(simulated: &[Vec<Metric>], lab: &[Vec<Metric>]) -> Vec<Beside> {
    let first = simulated.first().cloned().unwrap_or_default();
    let both = first.into_iter().filter_map(|Metric { of, name, .. }| {
        let value = |runs: &[Vec<Metric>]| {
            let runs: Vec<&[Metric]> = runs.iter().map(Vec::as_slice).collect();
            figure(&runs, &of, &name)
        };
        let (sim, lab) = (value(simulated)?, value(lab)?);
        Some(Beside { of, name: name.into_owned(), sim, lab })
    });
    both.collect()
}

/// Returns a Markdown table of the metrics of several cases.
pub fn table(cases: &[(String, Vec<Beside>)]) -> Table {
    let columns = ["case", "metric"].map(Column::left);
    let numbers = ["sim", "lab", "lab / sim"].map(Column::right);
    let mut table = Table::new(columns.into_iter().chain(numbers));
    for (case, metrics) in cases {
        for metric in metrics {
            let ratio = metric.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let name = format!("{} {}", metric.of, metric.name);
            let [sim, lab] = [metric.sim, metric.lab].map(|value| format!("{value:.4}"));
            table.row([case.clone(), name, sim, lab, ratio]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(of: &str, values: &[f64]) -> Vec<Vec<Metric>> {
        let run = |value: &f64| vec![Metric::new(of, "bytes", *value)];
        values.iter().map(run).collect()
    }

    #[test]
    fn medians_of_what_both_have_are_compared() {
        let metrics = beside(&runs("ftp", &[4.0, 2.0, 9.0]), &runs("ftp", &[5.0, 5.0, 1.0]));
        assert_eq!(metrics.len(), 1);
        assert_eq!((metrics[0].sim, metrics[0].lab, metrics[0].ratio()), (4.0, 5.0, Some(1.25)));
        assert_eq!(beside(&runs("ftp", &[1.0]), &runs("web", &[1.0])), []);
        assert_eq!(beside(&runs("ftp", &[0.0]), &runs("ftp", &[1.0]))[0].ratio(), None);
    }
}
