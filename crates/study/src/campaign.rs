//! Campaigns: many runs of scenarios, each made once and kept.
//!
//! A [`Cell`] is one case of a scenario with one seed on one [back end](BackEndName). Its [`CellName`] is a hash
//! of everything its result depends on, so a result that is stored under the name never has to be
//! computed again. A [`CampaignPlan`] lists cells; [`run`] runs those that the [`ResultStore`] lacks, on all
//! cores of this machine. On several machines, each runs some of the plan's cells, and the store
//! takes their results ([`ResultStore::put`]); `docs/study.md` has recipes.
//!
//! Results do not depend on the machine, the order or the number of threads: the store's `cells`
//! are the same, byte for byte. The times that cells took do differ, and are stored separately.

mod back_end;
mod binary;
mod cell;
mod cost;
mod plan;
pub(crate) mod pool;
mod record;
mod runner;
mod select;
mod source;
pub(crate) mod stop_rule;
mod store;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use back_end::finish;
pub use back_end::{BackEnd, BackEndName, CellFailure, STEPS, Simulator, back_end};
pub use binary::ProgramId;
pub use cell::{CaseHash, Cell, CellName, ParseNameError};
pub use plan::{CampaignPlan, PlanError, PlannedCell, WantedCells};
pub use record::{CellRecord, CellResult, CellTiming};
pub use runner::{CampaignReport, FailedCell, run};
pub use select::{SelectedResults, select};
pub use source::{ScenarioOrigin, ScenarioSource, SourceError};
pub use store::{ResultStore, StoreError};
pub use tables::{list, list_json};
