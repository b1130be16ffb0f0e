//! Compares runs. Each file holds the reports of several runs of one variant (a congestion control,
//! a gateway, …); all files have the same traffic.
//!
//! The sample is the *run*, because the flows of a run compete and are not independent. Incomplete
//! runs are counted and reported but left out, because their time is only the limit.

use serde::Serialize;
use thiserror::Error;

use super::metric::{ImprovementDirection, RunMetric};
use super::run_report::MeterReport;
use stats::SampleSummary;
use stats::{Bootstrap, ConfidenceIntervals, standard_deviation, student_t};

/// The runs of one variant, read from one file.
#[derive(Debug, Clone)]
pub struct RunFile {
    file: String,
    workload: String,
    reports: Vec<MeterReport>,
}

/// The reason why files cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The file is not meter output.
    #[error("{file} is not the output of `skyhop meter … --json`: {error}")]
    Foreign {
        /// Name of the file, as given.
        file: String,
        /// The parse error and its position.
        error: serde_json::Error,
    },
    /// The file has no report in it.
    #[error("{file} holds no report")]
    Empty {
        /// Name of the file, as given.
        file: String,
    },
    /// The file has no complete run.
    #[error("none of the {runs} runs of {file} is complete")]
    Incomplete {
        /// Name of the file, as given.
        file: String,
        /// Number of runs in the file.
        runs: usize,
    },
    /// Two files, or two runs of one file, had different traffic.
    #[error("cannot compare: {file} has {workload}, {other_file} has {other_workload}")]
    Mixed {
        /// Name of the first file.
        file: String,
        /// Description of the first file's traffic.
        workload: String,
        /// Name of the other file, or of the same one if its own runs differ.
        other_file: String,
        /// Description of the other traffic.
        other_workload: String,
    },
}

/// The comparison of all files, metric by metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    /// The traffic of all runs.
    pub workload: String,
    /// Seed of the bootstrap's random numbers; the same seed gives the same intervals.
    pub seed: u64,
    /// Each metric of the first file's runs, in display order.
    pub metrics: Vec<MetricComparison>,
}

/// One metric, compared over all files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The metric and its unit.
    #[serde(flatten)]
    pub metric: RunMetric,
    /// Each file that has the metric, in the order given.
    pub files: Vec<MetricFigures>,
}

/// One metric of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricFigures {
    /// Name of the file, as given.
    pub file: String,
    /// Number of incomplete runs, which are excluded.
    pub incomplete: usize,
    /// Mean, median and extremes over the complete runs.
    pub summary: SampleSummary,
    /// Standard deviation, if there are at least two runs.
    pub standard_deviation: Option<f64>,
    /// Student's t intervals of the mean, if there are at least two runs.
    pub student_t: Option<ConfidenceIntervals>,
    /// Bootstrap intervals of the mean, if there are at least two runs.
    pub bootstrap: Option<ConfidenceIntervals>,
    /// Improvement over the first file; `None` for that file itself, and for metrics that have no
    /// better direction.
    pub gain: Option<Gain>,
}

/// Improvement of the mean over that of the first file: the ratio if higher is better, its inverse
/// if lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// The ratio of the means.
    pub ratio: f64,
    /// Bootstrap intervals of the ratio.
    pub bootstrap: Option<ConfidenceIntervals>,
}

impl RunFile {
    /// Parses the reports in `text`, one after the other, from a file named `file`.
    ///
    /// # Errors
    /// [`CompareError::Foreign`], [`CompareError::Empty`] or, if the runs had different traffic,
    /// [`CompareError::Mixed`].
    pub fn read(file: &str, text: &str) -> Result<Self, CompareError> {
        let reports: Result<Vec<MeterReport>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        let file = file.to_owned();
        let reports =
            reports.map_err(|error| CompareError::Foreign { file: file.clone(), error })?;
        let Some(first) = reports.first() else { return Err(CompareError::Empty { file }) };
        let workload = first.workload();
        let runs = Self { file, workload, reports };
        for report in &runs.reports {
            runs.same(&runs.file, report.workload())?;
        }
        Ok(runs)
    }

    fn same(&self, other_file: &str, other_workload: String) -> Result<(), CompareError> {
        if other_workload == self.workload {
            return Ok(());
        }
        Err(CompareError::Mixed {
            file: self.file.clone(),
            workload: self.workload.clone(),
            other_file: other_file.to_owned(),
            other_workload,
        })
    }

    fn complete(&self) -> impl Iterator<Item = &MeterReport> {
        self.reports.iter().filter(|report| report.is_complete())
    }

    fn samples(&self, metric: RunMetric) -> Vec<f64> {
        let value = |report: &MeterReport| {
            report.metrics().into_iter().find(|(name, _)| *name == metric).map(|(_, value)| value)
        };
        self.complete().filter_map(value).collect()
    }
}

/// Compares the runs of all files with those of the first.
///
/// # Errors
/// [`CompareError::Mixed`] if the traffic differed, [`CompareError::Incomplete`] if a file has no
/// complete run.
pub fn compare(files: &[RunFile], seed: u64) -> Result<RunComparison, CompareError> {
    let Some(first) = files.first() else {
        return Ok(RunComparison { workload: String::new(), seed, metrics: Vec::new() });
    };
    for runs in files {
        first.same(&runs.file, runs.workload.clone())?;
        if runs.complete().next().is_none() {
            return Err(CompareError::Incomplete {
                file: runs.file.clone(),
                runs: runs.reports.len(),
            });
        }
    }
    let metrics = first.complete().next().map(MeterReport::metrics).unwrap_or_default();
    let mut bootstrap = Bootstrap::new(seed);
    let compared = metrics.into_iter().map(|(metric, _)| {
        let figures = files.iter().filter_map(|runs| figures(metric, first, runs, &mut bootstrap));
        MetricComparison { metric, files: figures.collect() }
    });
    Ok(RunComparison { workload: first.workload.clone(), seed, metrics: compared.collect() })
}

fn figures(
    metric: RunMetric,
    first: &RunFile,
    runs: &RunFile,
    bootstrap: &mut Bootstrap,
) -> Option<MetricFigures> {
    let samples = runs.samples(metric);
    let base = first.samples(metric);
    Some(MetricFigures {
        file: runs.file.clone(),
        incomplete: runs.reports.len() - runs.complete().count(),
        summary: SampleSummary::of(&samples)?,
        standard_deviation: standard_deviation(&samples),
        student_t: student_t(&samples),
        bootstrap: bootstrap.mean(&samples),
        // The first file is the base of all gains.
        gain: if std::ptr::eq(first, runs) {
            None
        } else {
            gain(metric, &base, &samples, bootstrap)
        },
    })
}

fn gain(
    metric: RunMetric,
    base: &[f64],
    samples: &[f64],
    bootstrap: &mut Bootstrap,
) -> Option<Gain> {
    let (above, below) = match metric.better() {
        ImprovementDirection::Higher => (samples, base),
        ImprovementDirection::Lower => (base, samples),
        ImprovementDirection::Neither => return None,
    };
    // There is no ratio to zero.
    let below_mean = stats::mean(below).filter(|mean| *mean > 0.0)?;
    let ratio = stats::mean(above)? / below_mean;
    Some(Gain { ratio, bootstrap: bootstrap.ratio(above, below) })
}

#[cfg(test)]
mod tests;
