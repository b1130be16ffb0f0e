//! Runs replications of cases in parallel.

use std::path::PathBuf;

use rayon::ThreadPoolBuildError;
use scenario::Case;
use sim::Metric;
use thiserror::Error;

use crate::campaign::{finish, pool};

use super::capture::{At, Capture, CaptureError};
use super::graphs::graphs;
use super::rounds::NoFigure;

/// A run that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// Index of the case's file.
    pub file: usize,
    /// The case to run.
    pub case: &'a Case,
    /// Seed to run it with.
    pub seed: u64,
}

/// The outputs of runs besides their figures.
#[derive(Debug, Default)]
pub struct Extras {
    /// The graphs of each case's first seed.
    pub graphs: bool,
    /// The packets of the first run, as pcapng.
    pub capture: Option<(PathBuf, At)>,
}

/// The results of one run.
#[derive(Debug)]
pub struct Outcome {
    /// The figures of this run.
    pub metrics: Vec<Metric>,
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

/// Makes all runs on a number of threads; those of a case follow each other. Outcomes are in the order of the jobs, whichever thread
/// made them. `step` is called with the number of steps just done; a run has
/// [`crate::campaign::STEPS`].
///
/// # Errors
/// If the threads cannot be started, or the capture cannot be written.
pub fn replicate(
    jobs: &[Job<'_>],
    threads: usize,
    extras: &Extras,
    step: impl Fn(u64) + Sync,
) -> Result<Vec<Outcome>, ReplicateError> {
    let run = |index: usize| {
        let job = &jobs[index];
        let capture = extras.capture.as_ref().filter(|_| index == 0);
        let before = index.checked_sub(1).map(|before| jobs[before].case);
        let is_first = before.is_none_or(|before| !core::ptr::eq(before, job.case));
        one(job, extras.graphs && is_first, capture, &step)
    };
    let order: Vec<usize> = (0..jobs.len()).collect();
    let outcomes: Result<_, CaptureError> = pool::each(&order, threads, run)?.into_iter().collect();
    Ok(outcomes?)
}

fn one(
    job: &Job<'_>,
    draws: bool,
    capture: Option<&(PathBuf, At)>,
    step: &dyn Fn(u64),
) -> Result<Outcome, CaptureError> {
    let mut run = sim::Run::new(job.case, job.seed);
    let capture = capture.map(|(path, at)| Capture::start(path, *at, &mut run)).transpose()?;
    finish(&mut run, step);
    capture.map(|capture| capture.end(&mut run)).transpose()?;
    let graphs = if draws { graphs(job.case, &run) } else { Vec::new() };
    Ok(Outcome { metrics: run.metrics(), graphs })
}
