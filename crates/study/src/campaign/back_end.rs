//! Where cells run.

use core::fmt;

use scenario::Case;
use serde::{Deserialize, Serialize};
use sim::Metric;
use thiserror::Error;

use super::Cell;
use crate::runs::STEPS;

/// The name of a back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The simulator, in virtual time.
    Sim,
    /// The lab, with real packets and kernels.
    Lab,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
        })
    }
}

/// Runs cells.
pub trait BackEnd: Sync {
    /// How many cells may run at a time, whatever number of threads there is; `None`: any. Cells in
    /// real time disturb each other.
    fn most_at_once(&self) -> Option<usize> {
        None
    }

    /// Runs `case` as `cell` says. `step` is called with the number of steps just done, together at
    /// most [`STEPS`]; a back end that cannot tell need not call it.
    ///
    /// # Errors
    /// If it cannot be run. The campaign goes on with the other cells.
    fn run(&self, cell: &Cell, case: &Case, step: &dyn Fn(u64)) -> Result<Vec<Metric>, Failure>;
}

/// Why a cell could not be run, in one line.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A back end that this program does not have.
#[derive(Debug, Error)]
#[error("scenarios do not run in the lab yet: expected --on sim")]
pub struct Unavailable;

/// The back end of that name.
///
/// # Errors
/// If this program does not have it.
pub fn back_end(on: On) -> Result<Box<dyn BackEnd>, Unavailable> {
    match on {
        On::Sim => Ok(Box::new(Simulator)),
        On::Lab => Err(Unavailable),
    }
}

/// The simulator.
#[derive(Debug, Clone, Copy)]
pub struct Simulator;

impl BackEnd for Simulator {
    fn run(&self, cell: &Cell, case: &Case, step: &dyn Fn(u64)) -> Result<Vec<Metric>, Failure> {
        let mut run = sim::Run::new(case, cell.seed);
        finish(&mut run, step);
        Ok(run.metrics())
    }
}

/// Runs to the end; `step` is called with the number of steps just done, [`STEPS`] in all.
pub(crate) fn finish(run: &mut sim::Run, step: &dyn Fn(u64)) {
    let mut shown = 0;
    loop {
        let more = run.advance();
        let now = if more { (run.progress() * STEPS as f64) as u64 } else { STEPS };
        step(now.saturating_sub(shown));
        shown = shown.max(now);
        if !more {
            return;
        }
    }
}
