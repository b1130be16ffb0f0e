//! Prints figures as a table or as CSV.

use std::fmt::Write as _;

use report::{Column, Csv, Table, four_digits};
use sim::Metric;
use stats::median;

use super::Given;
use super::replicate::{Job, Outcome};

/// One CSV line per figure per run.
pub(super) fn csv(given: &[Given], jobs: &[Job<'_>], outcomes: &[Outcome]) -> String {
    let mut csv = Csv::new(&["file", "case", "seed", "of", "metric", "value"]);
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let file = given[job.file].path.display().to_string();
        for Metric { of, name, value } in &outcome.metrics {
            let (case, seed) = (job.case.name.clone(), job.seed.to_string());
            let fields =
                [file.clone(), case, seed, of.to_string(), name.to_string(), value.to_string()];
            csv.row(fields.map(Some));
        }
    }
    csv.into_text()
}

/// One table per file: figures down, cases across.
pub(super) fn text(given: &[Given], jobs: &[Job<'_>], outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (file, given) in given.iter().enumerate() {
        for case in &given.cases {
            let of_case =
                |(job, _): &(&Job<'_>, &Outcome)| job.file == file && core::ptr::eq(job.case, case);
            let runs: Vec<&[Metric]> = jobs
                .iter()
                .zip(outcomes)
                .filter(of_case)
                .map(|(_, outcome)| &outcome.metrics[..])
                .collect();
            let separator = if case.name.is_empty() { "" } else { " – " };
            let _ = writeln!(text, "{}{separator}{}", case.description, case.name);
            let _ = writeln!(text, "{}", figures(&runs));
        }
    }
    text.pop();
    text
}

/// One case: the median, and the range if there are several runs.
fn figures(runs: &[&[Metric]]) -> Table {
    let mut table = Table::new([
        Column::left("").at_least(14),
        Column::left("").at_least(24),
        Column::right("").at_least(14),
        Column::left(""),
    ]);
    for Metric { of, name, .. } in runs.first().copied().unwrap_or_default() {
        let find = |run: &&[Metric]| {
            run.iter().find(|metric| metric.of == *of && metric.name == *name).map(|it| it.value)
        };
        let values: Vec<f64> = runs.iter().filter_map(find).collect();
        let middle = median(&values).unwrap_or(f64::NAN);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = match values.len() {
            0 | 1 => String::new(),
            _ => format!(" {} … {}", four_digits(least), four_digits(most)),
        };
        table.row([of.to_string(), name.to_string(), four_digits(middle), range]);
    }
    table.indent(2)
}
