//! Prints figures as a table or as CSV.

use std::fmt::Write as _;

use sim::Metric;
use stats::median;

use super::Given;
use super::replicate::{Job, Outcome};

/// One CSV line per figure per run.
pub(super) fn csv(given: &[Given], jobs: &[Job<'_>], outcomes: &[Outcome]) -> String {
    let mut text = "file,case,seed,of,metric,value\n".to_owned();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let file = quoted(&given[job.file].path.display().to_string());
        for Metric { of, name, value } in &outcome.metrics {
            let case = quoted(&job.case.name);
            let _ = writeln!(text, "{file},{case},{},{of},{name},{value}", job.seed);
        }
    }
    text
}

/// RFC 4180 §2.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
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
            text += &figures(&runs);
            text.push('\n');
        }
    }
    text.pop();
    text
}

/// One case: the median, and the range if there are several runs.
fn figures(runs: &[&[Metric]]) -> String {
    let mut text = String::new();
    for Metric { of, name, .. } in runs.first().copied().unwrap_or_default() {
        let find = |run: &&[Metric]| {
            run.iter().find(|metric| metric.of == *of && metric.name == *name).map(|it| it.value)
        };
        let values: Vec<f64> = runs.iter().filter_map(find).collect();
        let middle = median(&values).unwrap_or(f64::NAN);
        let _ = write!(text, "  {of:<16}{name:<26}{:>14}", number(middle));
        if values.len() > 1 {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let _ = write!(text, "   {} … {}", number(least), number(most));
        }
        text.push('\n');
    }
    text
}

/// Formats to four digits; whole numbers in full.
pub(super) fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e12 {
        return format!("{value}");
    }
    let digits = 3 - (value.abs().log10().floor() as i32).clamp(-6, 3);
    format!("{value:.*}", digits.max(0) as usize)
}
