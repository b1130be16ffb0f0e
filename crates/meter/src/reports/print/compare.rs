//! Tables that compare the runs of several files.

use core::fmt;

use report::{TableColumn, TextTable, dash};
use stats::{ConfidenceInterval, ConfidenceIntervals};

use crate::reports::compare::{Gain, MetricComparison, MetricFigures, RunComparison};
use crate::reports::metric::RunMetric;

impl fmt::Display for RunComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.workload)?;
        for metric in &self.metrics {
            write!(f, "\n{}", table(metric))?;
        }
        writeln!(
            f,
            "\nt, boot  intervals of the mean at 95 % and 98 %: Student's t, bootstrap (seed {})\n\
             gain     how many times better than the first file, with bootstrap intervals",
            self.seed
        )
    }
}

fn table(comparison: &MetricComparison) -> TextTable {
    let (title, scale) = title(comparison.metric);
    let number = |name| TableColumn::right(name).at_least(9);
    let interval = |name| TableColumn::right(name).at_least(21);
    let columns = [
        TableColumn::left("file"),
        TableColumn::right("runs"),
        number("mean"),
        number("median"),
        number("min"),
        number("max"),
        interval("t 95 %"),
        interval("t 98 %"),
        interval("boot 95 %"),
        interval("boot 98 %"),
        TableColumn::left(""),
    ];
    let mut table = TextTable::new(columns).title(title);
    // The gain begins below the second column; the first is at least as wide as "file".
    let widest = comparison
        .files
        .iter()
        .map(|figures| figures.file.chars().count())
        .max()
        .unwrap_or(0)
        .max(4);
    for file in &comparison.files {
        table.row(cells(file, scale));
        if let Some(gain) = file.gain {
            table.note(format!("{:widest$}  {}", "", gain_text(gain)));
        }
    }
    table
}

fn title(metric: RunMetric) -> (&'static str, f64) {
    match metric {
        RunMetric::GoodputBitsPerSecond => ("goodput, Mbit/s", 1e-6),
        RunMetric::CompletionSeconds => ("completion time, s", 1.0),
        RunMetric::JainIndex => ("Jain's index", 1.0),
        RunMetric::RetransmittedSegments => ("retransmitted segments", 1.0),
        RunMetric::MeanObjectSeconds => ("mean time of an object, s", 1.0),
        RunMetric::LossRatio => ("loss, %", 100.0),
        RunMetric::JitterSeconds => ("jitter, ms", 1e3),
        RunMetric::MedianResponseSeconds => ("median response time, ms", 1e3),
        RunMetric::P99ResponseSeconds => ("99th percentile of the response times, ms", 1e3),
    }
}

fn cells(file: &MetricFigures, scale: f64) -> Vec<String> {
    let summary = &file.summary;
    let mut cells = vec![file.file.clone(), summary.count.to_string()];
    let figures = [summary.mean, summary.median, summary.min, summary.max];
    cells.extend(figures.map(|value| format!("{:.3}", value * scale)));
    for found in [file.student_t, file.bootstrap] {
        for pick in [|both: ConfidenceIntervals| both.ci95, |both: ConfidenceIntervals| both.ci98] {
            cells.push(dash(found.map(|both| interval(pick(both), scale))));
        }
    }
    if file.incomplete > 0 {
        cells.push(format!("{} incomplete left out", file.incomplete));
    }
    cells
}

fn gain_text(gain: Gain) -> String {
    let mut text = format!("gain {:.3}", gain.ratio);
    if let Some(found) = gain.bootstrap {
        let ci95 = interval(found.ci95, 1.0);
        let ci98 = interval(found.ci98, 1.0);
        text += &format!(", 95 %: {ci95}, 98 %: {ci98}");
    }
    text
}

fn interval(interval: ConfidenceInterval, scale: f64) -> String {
    format!("{:.3} to {:.3}", interval.low * scale, interval.high * scale)
}
