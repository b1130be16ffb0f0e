//! Compares the metrics of a case in the simulator and in the lab.

use std::path::Path;

use report::{TableColumn, TextTable};
use scenario::ScenarioCase;
use sim::{MetricValue, SimulationRun, median_of_runs};

use super::{LabRunError, run};

/// A metric of both back ends: medians over the seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct BackEndComparison {
    /// The subject: a flow's name, `forward` or `return`.
    pub of: String,
    /// The metric's name, with its unit.
    pub name: String,
    /// Median in the simulator.
    pub sim: f64,
    /// Median in the lab.
    pub lab: f64,
}

impl BackEndComparison {
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
pub fn compare(
    case: &ScenarioCase,
    seeds: u64,
    program: &Path,
) -> Result<Vec<BackEndComparison>, LabRunError> {
    let simulate = |seed| {
        let mut run = SimulationRun::new(case, seed);
        run.finish();
        run.metrics()
    };
    let simulated: Vec<Vec<MetricValue>> = (1..=seeds).map(simulate).collect();
    let lab = (1..=seeds).map(|seed| run(case, seed, program));
    let lab = lab.collect::<Result<Vec<Vec<MetricValue>>, _>>()?;
    Ok(common_metrics(&simulated, &lab))
}

/// Returns the metrics that both have, in the simulator's order.
fn common_metrics(
    simulated: &[Vec<MetricValue>],
    lab: &[Vec<MetricValue>],
) -> Vec<BackEndComparison> {
    let first = simulated.first().cloned().unwrap_or_default();
    let both = first.into_iter().filter_map(|MetricValue { of, name, .. }| {
        let value = |runs: &[Vec<MetricValue>]| {
            let runs: Vec<&[MetricValue]> = runs.iter().map(Vec::as_slice).collect();
            median_of_runs(&runs, &of, &name)
        };
        let sim = value(simulated)?;
        let lab = value(lab)?;
        Some(BackEndComparison { of, name: name.into_owned(), sim, lab })
    });
    both.collect()
}

/// Returns a Markdown table of the metrics of several cases.
pub fn table(cases: &[(String, Vec<BackEndComparison>)]) -> TextTable {
    let columns = ["case", "metric"].map(TableColumn::left);
    let numbers = ["sim", "lab", "lab / sim"].map(TableColumn::right);
    let mut table = TextTable::new(columns.into_iter().chain(numbers));
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

    fn runs(of: &str, values: &[f64]) -> Vec<Vec<MetricValue>> {
        let run = |value: &f64| vec![MetricValue::new(of, "bytes", *value)];
        values.iter().map(run).collect()
    }

    #[test]
    fn medians_of_what_both_have_are_compared() {
        let metrics =
            common_metrics(&runs("ftp", &[4.0, 2.0, 9.0]), &runs("ftp", &[5.0, 5.0, 1.0]));
        assert_eq!(metrics.len(), 1);
        assert_eq!((metrics[0].sim, metrics[0].lab, metrics[0].ratio()), (4.0, 5.0, Some(1.25)));
        assert_eq!(common_metrics(&runs("ftp", &[1.0]), &runs("web", &[1.0])), []);
        assert_eq!(common_metrics(&runs("ftp", &[0.0]), &runs("ftp", &[1.0]))[0].ratio(), None);
    }
}
