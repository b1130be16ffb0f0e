//! Runs of scenario files in the simulator, in parallel: their figures as tables and CSV, beside
//! published values, and as graphs; their packets as captures.

mod capture;
mod graphs;
mod published;
mod replicate;
mod rounds;

use std::fmt::Write as _;
use std::path::PathBuf;

use report::{CsvText, TableColumn, TextTable, four_digits};
use scenario::{MetricName, Replications, ScenarioCase};
use serde_json::json;
use sim::MetricValue;
use stats::median;

pub use capture::{CaptureError, CapturePoint};
pub use graphs::file_name;
pub use published::{CompareError, beside_published, published_json};
pub use replicate::{Extras, ReplicateError, RunJob, RunOutcome, replicate};
pub use rounds::{NoFigure, ReplicatedRuns, RoundProgress, replicate_as_declared};

/// A scenario file, as parsed.
#[derive(Debug)]
pub struct ScenarioFile {
    /// Path of the file, as given.
    pub path: PathBuf,
    /// The cases that are run.
    pub cases: Vec<ScenarioCase>,
    /// Number of runs of each case, or a stop rule.
    pub replications: Replications,
    /// The metrics that its tables have; all if empty.
    pub results: Vec<MetricName>,
}

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioRun<'a> {
    /// Index of the run's file.
    pub file: usize,
    /// The case that was run.
    pub case: &'a ScenarioCase,
    /// Seed that it was run with.
    pub seed: u64,
    /// The figures of this run.
    pub metrics: &'a [MetricValue],
}

/// Returns CSV: a line for each figure of each run.
pub fn csv(files: &[ScenarioFile], runs: &[ScenarioRun<'_>]) -> String {
    let mut csv = CsvText::new(&["file", "case", "seed", "of", "metric", "value"]);
    for run in runs {
        let file = files[run.file].path.display().to_string();
        for MetricValue { of, name, value } in run.metrics {
            let case = run.case.name.clone();
            let seed = run.seed.to_string();
            let fields =
                [file.clone(), case, seed, of.to_string(), name.to_string(), value.to_string()];
            csv.row(fields.map(Some));
        }
    }
    csv.into_text()
}

/// Returns JSON: a list of cases with their figures, and the value of each seed (`null` where a run
/// has none).
pub fn json(files: &[ScenarioFile], runs: &[ScenarioRun<'_>]) -> String {
    let mut cases = Vec::new();
    for (file, case) in
        files.iter().flat_map(|file| file.cases.iter().map(move |case| (file, case)))
    {
        // By identity: cases of two files may have the same name.
        let own: Vec<&ScenarioRun<'_>> =
            runs.iter().filter(|run| core::ptr::eq(run.case, case)).collect();
        let figure = |metric: &MetricValue| {
            let value = |run: &&ScenarioRun<'_>| {
                sim::median_of_runs(&[run.metrics], &metric.of, &metric.name)
            };
            let values: Vec<Option<f64>> = own.iter().map(value).collect();
            json!({ "of": metric.of, "metric": metric.name, "values": values })
        };
        let all: Vec<_> = own.iter().map(|run| run.metrics).collect();
        let figures: Vec<_> = each_metric(&all).into_iter().map(figure).collect();
        cases.push(json!({
            "file": file.path.display().to_string(),
            "case": case.name,
            "description": case.description,
            "seeds": own.iter().map(|run| run.seed).collect::<Vec<_>>(),
            "figures": figures,
        }));
    }
    format!("{:#}\n", serde_json::Value::from(cases))
}

/// Returns a table for each case: its figures, and their range if there are several runs.
pub fn text(files: &[ScenarioFile], runs: &[ScenarioRun<'_>]) -> String {
    let mut text = String::new();
    for (file, case) in
        files.iter().flat_map(|file| file.cases.iter().map(move |case| (file, case)))
    {
        let of_case = runs.iter().filter(|run| core::ptr::eq(run.case, case));
        let of_case: Vec<_> = of_case.map(|run| run.metrics).collect();
        let figures = figures(&of_case, &file.results);
        let separator = if case.name.is_empty() { "" } else { " – " };
        let _ = writeln!(text, "{}{separator}{}\n{figures}", case.description, case.name);
    }
    // Each table is followed by an empty line; the text ends with a single newline.
    text.pop();
    text
}

/// Returns the metrics that some run has, once each, as they first occur.
fn each_metric<'a>(runs: &[&'a [MetricValue]]) -> Vec<&'a MetricValue> {
    let mut all: Vec<&MetricValue> = Vec::new();
    for metric in runs.iter().copied().flatten() {
        if !all.iter().any(|known| (&known.of, &known.name) == (&metric.of, &metric.name)) {
            all.push(metric);
        }
    }
    all
}

/// Returns the table of one case: the wanted metrics, or all; the median, and if there are several
/// runs the range, and the number that have the metric if not all do.
fn figures(runs: &[&[MetricValue]], wanted: &[MetricName]) -> TextTable {
    let mut table = TextTable::new([
        TableColumn::left("").at_least(14),
        TableColumn::left("").at_least(24),
        TableColumn::right("").at_least(14),
        TableColumn::left(""),
    ]);
    let is_wanted = |metric: &&MetricValue| {
        let mut all = wanted.iter();
        wanted.is_empty() || all.any(|name| name.of == metric.of && name.metric == metric.name)
    };
    for MetricValue { of, name, .. } in each_metric(runs).into_iter().filter(is_wanted) {
        let find = |run: &&[MetricValue]| {
            run.iter()
                .find(|metric| metric.of == *of && metric.name == *name)
                .map(|metric| metric.value)
        };
        let values: Vec<f64> = runs.iter().filter_map(find).collect();
        let middle = median(&values).unwrap_or(f64::NAN);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut range = match values.len() {
            0 | 1 => String::new(),
            _ => format!(" {} … {}", four_digits(least), four_digits(most)),
        };
        if values.len() < runs.len() {
            range += &format!(" ({} of {} runs)", values.len(), runs.len());
        }
        table.row([of.to_string(), name.to_string(), four_digits(middle), range]);
    }
    table.indent(2)
}

#[cfg(test)]
mod tests;
