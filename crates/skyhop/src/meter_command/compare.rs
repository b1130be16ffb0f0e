//! `skyhop meter compare`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use meter::compare::{Figures, MetricComparison};
use meter::metric::Metric;
use meter::{Comparison, Runs, compare};
use stats::{Interval, Intervals};

use super::print;

/// Arguments of `skyhop meter compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Output of `skyhop meter … --runs N --json`, one file per variant; the first is the baseline
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let files: Result<Vec<Runs>> = args.files.iter().map(|file| read(file)).collect();
    let comparison = compare(&files?, args.seed)?;
    print(&match args.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => text(&comparison),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &str) -> Result<Runs> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    Ok(Runs::read(file, &text)?)
}

fn text(comparison: &Comparison) -> String {
    let mut text = comparison.workload.clone() + "\n";
    for metric in &comparison.metrics {
        text += &table(metric);
    }
    let _ = writeln!(
        text,
        "\nt, boot  intervals of the mean at 95 % and 98 %: Student's t, bootstrap (seed {})\n\
         gain     how many times better than the first file, with bootstrap intervals",
        comparison.seed
    );
    text
}

fn table(comparison: &MetricComparison) -> String {
    let (title, scale) = title(comparison.metric);
    let width = comparison.files.iter().map(|it| it.file.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "\n{title}\n{:<width$}  {:>4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>21}  {:>21}  {:>21}  {:>21}\n",
        "file",
        "runs",
        "mean",
        "median",
        "min",
        "max",
        "t 95 %",
        "t 98 %",
        "boot 95 %",
        "boot 98 %",
    );
    for file in &comparison.files {
        text += &line(file, width, scale);
    }
    text
}

fn title(metric: Metric) -> (&'static str, f64) {
    match metric {
        Metric::GoodputBitsPerSecond => ("goodput, Mbit/s", 1e-6),
        Metric::CompletionSeconds => ("completion time, s", 1.0),
        Metric::JainIndex => ("Jain's index", 1.0),
        Metric::RetransmittedSegments => ("retransmitted segments", 1.0),
        Metric::MeanObjectSeconds => ("mean time of an object, s", 1.0),
        Metric::LossRatio => ("loss, %", 100.0),
        Metric::JitterSeconds => ("jitter, ms", 1e3),
        Metric::MedianResponseSeconds => ("median response time, ms", 1e3),
        Metric::P99ResponseSeconds => ("99th percentile of the response times, ms", 1e3),
        _ => ("other", 1.0),
    }
}

fn line(file: &Figures, width: usize, scale: f64) -> String {
    let summary = &file.summary;
    let mut text = format!("{:<width$}  {:>4}", file.file, summary.count);
    for value in [summary.mean, summary.median, summary.min, summary.max] {
        let _ = write!(text, "  {:>9.3}", value * scale);
    }
    for found in [file.student_t, file.bootstrap] {
        for part in [of(found, |it| it.ci95), of(found, |it| it.ci98)] {
            let shown = part.map_or_else(|| "-".to_owned(), |part| interval(part, scale));
            let _ = write!(text, "  {shown:>21}");
        }
    }
    if file.incomplete > 0 {
        let _ = write!(text, "  {} incomplete left out", file.incomplete);
    }
    text += "\n";
    if let Some(gain) = file.gain {
        let _ = write!(text, "{:width$}  gain {:.3}", "", gain.ratio);
        if let Some(found) = gain.bootstrap {
            let (ci95, ci98) = (interval(found.ci95, 1.0), interval(found.ci98, 1.0));
            let _ = write!(text, ", 95 %: {ci95}, 98 %: {ci98}");
        }
        text += "\n";
    }
    text
}

fn of(found: Option<Intervals>, pick: fn(Intervals) -> Interval) -> Option<Interval> {
    found.map(pick)
}

fn interval(interval: Interval, scale: f64) -> String {
    format!("{:.3} to {:.3}", interval.low * scale, interval.high * scale)
}
