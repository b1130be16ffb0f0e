//! Comparison of runs: each file holds the reports of runs of one way (of one
//! congestion control, one gateway, …), all files of the same traffic.
//!
//! The sample is the *run*: flows of one run compete and are not independent of
//! each other. Runs that did not complete are counted and told, and left out:
//! their time is that of the limit.

use serde::Serialize;
use thiserror::Error;

use crate::any_report::Report;
use crate::metric::{Better, Metric};
use stats::Summary;
use stats::{Bootstrap, Intervals, standard_deviation, student_t};

/// The runs of one file.
#[derive(Debug, Clone)]
pub struct Runs {
    file: String,
    workload: String,
    reports: Vec<Report>,
}

/// Why files cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The file holds something else.
    #[error("{file} is not the output of `skyhop meter … --json`: {error}")]
    Foreign {
        /// The file's name.
        file: String,
        /// What is wrong where.
        error: serde_json::Error,
    },
    /// The file holds nothing.
    #[error("{file} holds no report")]
    Empty {
        /// The file's name.
        file: String,
    },
    /// No run can be counted.
    #[error("none of the {runs} runs of {file} is complete")]
    Incomplete {
        /// The file's name.
        file: String,
        /// How many runs it has.
        runs: usize,
    },
    /// Two files, or two runs of one, had other traffic.
    #[error("cannot compare: {file} has {workload}, {other_file} has {other_workload}")]
    Mixed {
        /// The one file.
        file: String,
        /// Its traffic.
        workload: String,
        /// The other file, or the same.
        other_file: String,
        /// The other traffic.
        other_workload: String,
    },
}

/// All files, metric by metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The traffic of all runs.
    pub workload: String,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Each metric.
    pub metrics: Vec<MetricComparison>,
}

/// One metric of all files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// What it is, with its unit.
    #[serde(flatten)]
    pub metric: Metric,
    /// Each file that has it, in the order given.
    pub files: Vec<Figures>,
}

/// One metric of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The file's name.
    pub file: String,
    /// Runs that did not complete and are not in the figures.
    pub incomplete: usize,
    /// Mean, median, extremes over the complete runs.
    pub summary: Summary,
    /// Standard deviation, from two runs on.
    pub standard_deviation: Option<f64>,
    /// Student's t intervals of the mean, from two runs on.
    pub student_t: Option<Intervals>,
    /// Bootstrap intervals of the mean, from two runs on.
    pub bootstrap: Option<Intervals>,
    /// How many times better than the first file.
    pub gain: Option<Gain>,
}

/// How many times better the mean is than that of the first file: its ratio for
/// what should be high, the inverse ratio for what should be low.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// The ratio of the means.
    pub ratio: f64,
    /// Bootstrap intervals of the ratio.
    pub bootstrap: Option<Intervals>,
}

impl Runs {
    /// Reads the reports in `text`, one after the other, of a file called `file`.
    ///
    /// # Errors
    /// [`CompareError::Foreign`], [`CompareError::Empty`] or, if the runs had
    /// other traffic, [`CompareError::Mixed`].
    pub fn read(file: &str, text: &str) -> Result<Self, CompareError> {
        let reports: Result<Vec<Report>, _> =
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

    fn complete(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().filter(|report| report.is_complete())
    }

    fn samples(&self, metric: Metric) -> Vec<f64> {
        let value = |report: &Report| {
            report.metrics().into_iter().find(|(name, _)| *name == metric).map(|(_, value)| value)
        };
        self.complete().filter_map(value).collect()
    }
}

/// Compares the runs of all files with those of the first.
///
/// # Errors
/// [`CompareError::Mixed`] if the traffic was not the same,
/// [`CompareError::Incomplete`] if a file has no complete run.
pub fn compare(files: &[Runs], seed: u64) -> Result<Comparison, CompareError> {
    let Some(first) = files.first() else {
        return Ok(Comparison { workload: String::new(), seed, metrics: Vec::new() });
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
    let metrics = first.complete().next().map(Report::metrics).unwrap_or_default();
    let mut bootstrap = Bootstrap::new(seed);
    let compared = metrics.into_iter().map(|(metric, _)| {
        let figures = files.iter().filter_map(|runs| figures(metric, first, runs, &mut bootstrap));
        MetricComparison { metric, files: figures.collect() }
    });
    Ok(Comparison { workload: first.workload.clone(), seed, metrics: compared.collect() })
}

fn figures(
    metric: Metric,
    first: &Runs,
    runs: &Runs,
    bootstrap: &mut Bootstrap,
) -> Option<Figures> {
    let samples = runs.samples(metric);
    let base = first.samples(metric);
    Some(Figures {
        file: runs.file.clone(),
        incomplete: runs.reports.len() - runs.complete().count(),
        summary: Summary::of(&samples)?,
        standard_deviation: standard_deviation(&samples),
        student_t: student_t(&samples),
        bootstrap: bootstrap.mean(&samples),
        gain: if std::ptr::eq(first, runs) {
            None
        } else {
            gain(metric, &base, &samples, bootstrap)
        },
    })
}

fn gain(metric: Metric, base: &[f64], samples: &[f64], bootstrap: &mut Bootstrap) -> Option<Gain> {
    let (above, below) = match metric.better() {
        Better::Higher => (samples, base),
        Better::Lower => (base, samples),
        Better::Neither => return None,
    };
    let below_mean = stats::mean(below).filter(|mean| *mean > 0.0)?;
    let ratio = stats::mean(above)? / below_mean;
    Some(Gain { ratio, bootstrap: bootstrap.ratio(above, below) })
}

#[cfg(test)]
mod tests;
