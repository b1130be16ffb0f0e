//! Runs each case as often as its file says. Stop rules are applied again after each round of runs.

use std::path::PathBuf;

use scenario::{Replications, ScenarioCase, StopRule};
use sim::median_of_runs;
use thiserror::Error;

use super::ScenarioFile;
use crate::campaign::stop_rule::{self, StopDecision};

use super::replicate::{Extras, ReplicateError, RunJob, RunOutcome, replicate};

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
pub struct ReplicatedRuns<'a> {
    /// In the order of files, cases and seeds.
    pub runs: Vec<(RunJob<'a>, RunOutcome)>,
    /// The results of stop rules, a line for each case that has one.
    pub notes: Vec<String>,
}

/// Callbacks that follow the runs.
pub struct RoundProgress<'p> {
    /// Called with the number of runs that are added.
    pub planned: &'p dyn Fn(usize),
    /// Called with the number of steps just done; a run has [`crate::campaign::STEPS`].
    pub step: &'p (dyn Fn(u64) + Sync),
}

/// The runs of a case so far, in the order of its seeds.
struct CaseRuns<'a> {
    file: usize,
    path: &'a PathBuf,
    case: &'a ScenarioCase,
    replications: &'a Replications,
    seeds: Vec<u64>,
    outcomes: Vec<RunOutcome>,
}

/// Runs all cases of the files on a number of threads, as often as each file says. The runs and
/// their figures do not depend on the number of threads: of a stop rule's last round, what is beyond
/// the smallest number of seeds that satisfies it is discarded.
///
/// # Errors
/// If the threads cannot be started, the capture cannot be written, or no run of a case has the
/// metric of its stop rule.
pub fn replicate_as_declared<'a>(
    files: &'a [ScenarioFile],
    threads: usize,
    mut extras: Extras,
    progress: &RoundProgress<'_>,
) -> Result<ReplicatedRuns<'a>, ReplicateError> {
    let numbered = files.iter().enumerate();
    let mut all: Vec<CaseRuns<'a>> =
        numbered.flat_map(|(number, file)| CaseRuns::of_file(number, file)).collect();
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
        // Outcomes come in the order of the jobs, so each finds its case again.
        for (owner, outcome) in owners.into_iter().zip(outcomes) {
            all[owner].outcomes.push(outcome);
        }
        all.iter().try_for_each(CaseRuns::check_metric)?;
    }
    let notes = all.iter().filter_map(CaseRuns::note).collect();
    Ok(ReplicatedRuns { runs: all.into_iter().flat_map(CaseRuns::into_runs).collect(), notes })
}

impl<'a> CaseRuns<'a> {
    fn of_file(file: usize, scenario: &'a ScenarioFile) -> impl Iterator<Item = Self> {
        let ScenarioFile { path, cases, replications, .. } = scenario;
        cases.iter().map(move |case| {
            let seeds = replications.seeds();
            Self { file, path, case, replications, seeds, outcomes: Vec::new() }
        })
    }

    /// Returns the runs to make next; empty if there are enough.
    fn next(&self) -> Vec<RunJob<'a>> {
        let done = self.outcomes.len();
        let more = match self.need() {
            StopDecision::More(more) => more,
            StopDecision::Enough(_) | StopDecision::Exhausted => 0,
        };
        let seeds = self.seeds.iter().skip(done).take(more);
        seeds.map(|seed| RunJob { file: self.file, case: self.case, seed: *seed }).collect()
    }

    fn need(&self) -> StopDecision {
        match self.replications {
            Replications::Until(rule) => stop_rule::need(rule, &self.values(rule)),
            Replications::Seeds(seeds) => match seeds.len() - self.outcomes.len() {
                0 => StopDecision::Enough(seeds.len()),
                more => StopDecision::More(more),
            },
        }
    }

    /// Returns the rule's metric in each run; NaN where a run does not have it.
    fn values(&self, StopRule { name, .. }: &StopRule) -> Vec<f64> {
        let value =
            |outcome: &RunOutcome| median_of_runs(&[&outcome.metrics], &name.of, &name.metric);
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
            StopDecision::Enough(count) => {
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

    fn into_runs(mut self) -> impl Iterator<Item = (RunJob<'a>, RunOutcome)> {
        if let StopDecision::Enough(count) = self.need() {
            // The last round may have made more runs than the rule needs.
            self.outcomes.truncate(count);
        }
        let file = self.file;
        let case = self.case;
        let job = move |seed| RunJob { file, case, seed };
        self.seeds.into_iter().map(job).zip(self.outcomes)
    }
}
