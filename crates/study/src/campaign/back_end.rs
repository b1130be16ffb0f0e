//! The back ends that run cells: the simulator and the lab.

use core::fmt;
use std::path::PathBuf;

use scenario::ScenarioCase;
use serde::{Deserialize, Serialize};
use sim::MetricValue;
use thiserror::Error;

use super::Cell;
use crate::lab_run;

/// The name of a back end, as on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackEndName {
    /// The simulator, in virtual time.
    Sim,
    /// The lab, with real packets and kernels.
    Lab,
}

impl BackEndName {
    /// Returns true if a scenario for `back_ends` may run on this one.
    pub(super) fn is_among(self, back_ends: &[scenario::BackEnd]) -> bool {
        back_ends.contains(match self {
            Self::Sim => &scenario::BackEnd::Sim,
            Self::Lab => &scenario::BackEnd::Lab,
        })
    }
}

impl fmt::Display for BackEndName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
        })
    }
}

/// A back end that runs cells.
pub trait BackEnd: Sync {
    /// Returns the maximum number of cells that may run at a time, whatever the number of threads;
    /// `None` for no limit. Cells in real time disturb each other.
    fn most_at_once(&self) -> Option<usize> {
        None
    }

    /// Runs `case` as `cell` says. `step` is called with the number of steps just done, together at
    /// most [`STEPS`]; a back end that cannot tell need not call it.
    ///
    /// # Errors
    /// If the cell cannot be run. The campaign goes on with the other cells.
    fn run(
        &self,
        cell: &Cell,
        case: &ScenarioCase,
        step: &dyn Fn(u64),
    ) -> Result<Vec<MetricValue>, CellFailure>;
}

/// The reason why a cell could not be run, in one line.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct CellFailure(pub String);

/// Returns the back end of that name. The lab needs `program`, skyhop's own, for the gateways, and
/// a process that has entered its own namespaces ([`lab::enter`]).
pub fn back_end(on: BackEndName, program: PathBuf) -> Box<dyn BackEnd> {
    match on {
        BackEndName::Sim => Box::new(Simulator),
        BackEndName::Lab => Box::new(InLab { program }),
    }
}

/// The lab. A cell takes as long as its traffic.
#[derive(Debug, Clone)]
struct InLab {
    program: PathBuf,
}

impl BackEnd for InLab {
    fn most_at_once(&self) -> Option<usize> {
        Some(1)
    }

    fn run(
        &self,
        cell: &Cell,
        case: &ScenarioCase,
        _: &dyn Fn(u64),
    ) -> Result<Vec<MetricValue>, CellFailure> {
        lab_run::run(case, cell.seed, &self.program).map_err(|error| CellFailure(error.to_string()))
    }
}

/// The simulator, which runs cells in virtual time.
#[derive(Debug, Clone, Copy)]
pub struct Simulator;

impl BackEnd for Simulator {
    fn run(
        &self,
        cell: &Cell,
        case: &ScenarioCase,
        step: &dyn Fn(u64),
    ) -> Result<Vec<MetricValue>, CellFailure> {
        let mut run = sim::SimulationRun::new(case, cell.seed);
        finish(&mut run, step);
        Ok(run.metrics())
    }
}

/// Steps in which a run's progress is reported.
pub const STEPS: u64 = 100;

/// Runs a simulation to its end; `step` is called with the number of steps just done, [`STEPS`] in
/// all.
pub(crate) fn finish(run: &mut sim::SimulationRun, step: &dyn Fn(u64)) {
    let mut shown = 0;
    loop {
        let more = run.advance();
        // A run ends early once its applications are done; the last step then makes up for the rest.
        let now = if more { (run.progress() * STEPS as f64) as u64 } else { STEPS };
        step(now.saturating_sub(shown));
        shown = shown.max(now);
        if !more {
            return;
        }
    }
}
