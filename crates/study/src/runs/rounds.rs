//! Runs each case as often as its file says. Stop rules are applied again after each round of runs.

use std::path::PathBuf;

use scenario::{Case, Replications, StopRule};
use sim::figure;
use thiserror::Error;

use super::File;
use crate::stop_rule::{self, Need};

use super::replicate::{Extras, Job, Outcome, ReplicateError, replicate};

/// A stop rule is about a metric that the case does not have.
#[derive(Debug, Error)]
#[error("{}: case {case:?} has no metric {of}.{metric}", path.display())]
pub struct NoFigure {
    path: PathBuf,
    case: String,
    of: String,
    metric: String,
}

/// The runs of all cases.
#[derive(Debug)]
pub struct Replicated<'a> {
    /// In the order of files, cases and seeds.
    pub runs: Vec<(Job<'a>, Outcome)>,
    /// The results of stop rules, a line for each case that has one.
    pub notes: Vec<String>,
}

/// Callbacks that follow the runs.
pub struct Progress<'p> {
    /// Called with the number of runs that are added.
    pub planned: &'p dyn Fn(usize),
    /// Called with the number of steps just done; a run has [`crate::campaign::STEPS`].
    pub step: &'p (dyn Fn(u64) + Sync),
}

/// The runs of a case so far, in the order of its seeds.
struct CaseRuns<'a> {
    file: usize,
    path: &'a PathBuf,
    case: &'a Case,
    replications: &'a Replications,
    seeds: Vec<u64>,
    outcomes: Vec<Outcome>,
}

/// Runs all cases of the files on a number of threads, as often as each file says. The runs and
/// their figures do not depend on the number of threads: of a stop rule's last round, what is beyond
/// the smallest number of seeds that satisfies it is discarded.
///
/// # Errors
/// If the threads cannot be started, the capture cannot be written, or no run of a case has the
/// metric of its stop rule.
pub fn replicate_as_declared<'a>(
    files: &'a [File],
    threads: usize,
    mut extras: Extras,
    progress: &Progress<'_>,
) -> Result<Replicated<'a>, ReplicateError> {
    let mut all: Vec<CaseRuns<'a>> = files.iter().enumerate().flat_map(CaseRuns::of_file).collect();
    loop {
        let mut jobs = Vec::new();
        let mut owners = Vec::new();
        for (owner, runs) in all.iter().enumerate() {
            let next = runs.next();
            owners.resize(owners.len() + next.len(), owner);
            jobs.extend(next);
        }
        if jobs.is_empty() {
            break;
        }
        (progress.planned)(jobs.len());
        let outcomes = replicate(&jobs, threads, &extras, progress.step)?;
        // Graphs and capture are those of the first seeds.
        extras = Extras::default();
        for (owner, outcome) in owners.into_iter().zip(outcomes) {
            all[owner].outcomes.push(outcome);
        }
        all.iter().try_for_each(CaseRuns::check_metric)?;
    }
    let notes = all.iter().filter_map(CaseRuns::note).collect();
    Ok(Replicated { runs: all.into_iter().flat_map(CaseRuns::into_runs).collect(), notes })
}

impl<'a> CaseRuns<'a> {
    fn of_file((file, it): (usize, &'a File)) -> impl Iterator<Item = Self> {
        let File { path, cases, replications, .. } = it;
        cases.iter().map(move |case| {
            let seeds = replications.seeds();
            Self { file, path, case, replications, seeds, outcomes: Vec::new() }
        })
    }

    /// Returns the runs to make next; empty if there are enough.
    fn next(&self) -> Vec<Job<'a>> {
        let done = self.outcomes.len();
        let more = match self.need() {
            Need::More(more) => more,
            Need::Enough(_) | Need::Exhausted => 0,
        };
        let seeds = self.seeds.iter().skip(done).take(more);
        seeds.map(|seed| Job { file: self.file, case: self.case, seed: *seed }).collect()
    }

    fn need(&self) -> Need {
        match self.replications {
            Replications::Until(rule) => stop_rule::need(rule, &self.values(rule)),
            Replications::Seeds(seeds) => match seeds.len() - self.outcomes.len() {
                0 => Need::Enough(seeds.len()),
                more => Need::More(more),
            },
        }
    }

    /// Returns the rule's metric in each run; NaN where a run does not have it.
    fn values(&self, StopRule { name, .. }: &StopRule) -> Vec<f64> {
        let value = |outcome: &Outcome| figure(&[&outcome.metrics], &name.of, &name.metric);
        self.outcomes.iter().map(|outcome| value(outcome).unwrap_or(f64::NAN)).collect()
    }

    fn check_metric(&self) -> Result<(), NoFigure> {
        let Replications::Until(rule) = self.replications else { return Ok(()) };
        if self.values(rule).iter().any(|value| !value.is_nan()) {
            return Ok(());
        }
        Err(NoFigure {
            path: self.path.clone(),
            case: self.case.name.clone(),
            of: rule.name.of.clone(),
            metric: rule.name.metric.clone(),
        })
    }

    /// Returns the result of the stop rule, if there is one.
    fn note(&self) -> Option<String> {
        let Replications::Until(rule) = self.replications else { return None };
        let values = self.values(rule);
        let ended = match self.need() {
            Need::Enough(count) => {
                let width = stop_rule::relative_width(rule, &values[..count])?;
                format!("{count} seeds, ±{:.1} %", width * 100.0)
            }
            _ => match stop_rule::relative_width(rule, &values).filter(|width| width.is_finite()) {
                Some(width) => {
                    format!("{} seeds, and still ±{:.1} %", values.len(), width * 100.0)
                }
                None => format!("{} seeds, and still no interval", values.len()),
            },
        };
        let name = if self.case.name.is_empty() { &self.case.description } else { &self.case.name };
        Some(format!("{}: {name}: {ended}", self.path.display()))
    }

    fn into_runs(mut self) -> impl Iterator<Item = (Job<'a>, Outcome)> {
        if let Need::Enough(count) = self.need() {
            self.outcomes.truncate(count);
        }
        let (file, case) = (self.file, self.case);
        let job = move |seed| Job { file, case, seed };
        self.seeds.into_iter().map(job).zip(self.outcomes)
    }
}
