//! Runs replications of cases in parallel.

use std::path::PathBuf;

use rayon::ThreadPoolBuildError;
use scenario::ScenarioCase;
use sim::MetricValue;
use thiserror::Error;

use crate::campaign::{finish, pool};

use super::capture::{CaptureError, CapturePoint, SimCapture};
use super::graphs::graphs;
use super::rounds::NoFigure;

/// A run that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct RunJob<'a> {
    /// Index of the case's file.
    pub file: usize,
    /// The case to run.
    pub case: &'a ScenarioCase,
    /// Seed to run it with.
    pub seed: u64,
}

/// The outputs of runs besides their figures.
#[derive(Debug, Default)]
pub struct Extras {
    /// The graphs of each case's first seed.
    pub graphs: bool,
    /// The packets of the first run, as pcapng.
    pub capture: Option<(PathBuf, CapturePoint)>,
}

/// The results of one run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The figures of this run.
    pub metrics: Vec<MetricValue>,
    /// Names and SVG texts of graphs, if requested for this run.
    pub graphs: Vec<(String, String)>,
}

/// The reason why the runs could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplicateError {
    /// The threads cannot be started.
    #[error(transparent)]
    Threads(#[from] ThreadPoolBuildError),
    /// The capture cannot be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No run of a case has the metric of its stop rule.
    #[error(transparent)]
    NoFigure(#[from] NoFigure),
}

/// Makes all runs on a number of threads; those of a case follow each other. Outcomes are in the order of the
/// jobs, whichever thread made them. `step` is called with the number of steps just done; a run has
/// [`crate::campaign::STEPS`].
///
/// # Errors
/// If the threads cannot be started, or the capture cannot be written.
pub fn replicate(
    jobs: &[RunJob<'_>],
    threads: usize,
    extras: &Extras,
    step: impl Fn(u64) + Sync,
) -> Result<Vec<RunOutcome>, ReplicateError> {
    let run = |index: usize| {
        let job = &jobs[index];
        let capture = extras.capture.as_ref().filter(|_| index == 0);
        let before = index.checked_sub(1).map(|before| jobs[before].case);
        // Runs of a case follow each other, so the first has another case before it.
        let is_first = before.is_none_or(|before| !core::ptr::eq(before, job.case));
        run_job(job, extras.graphs && is_first, capture, &step)
    };
    let order: Vec<usize> = (0..jobs.len()).collect();
    let outcomes: Result<_, CaptureError> =
        pool::run_in_order(&order, threads, run)?.into_iter().collect();
    Ok(outcomes?)
}

fn run_job(
    job: &RunJob<'_>,
    draws: bool,
    capture: Option<&(PathBuf, CapturePoint)>,
    step: &dyn Fn(u64),
) -> Result<RunOutcome, CaptureError> {
    let mut run = sim::SimulationRun::new(job.case, job.seed);
    let capture = capture.map(|(path, at)| SimCapture::start(path, *at, &mut run)).transpose()?;
    finish(&mut run, step);
    capture.map(|capture| capture.finish(&mut run)).transpose()?;
    let graphs = if draws { graphs(job.case, &run) } else { Vec::new() };
    Ok(RunOutcome { metrics: run.metrics(), graphs })
}
