//! Campaigns: many runs of scenarios, each made once and kept.
//!
//! A [`Cell`] is one case of a scenario with one seed on one [back end](On). Its [`Name`] is a hash
//! of everything its result depends on, so a result that is stored under the name never has to be
//! computed again. A [`Plan`] lists cells; [`run`] runs those that the [`Store`] lacks, on all
//! cores of this machine. On several machines, each runs some of the plan's cells, and the store
//! takes their results ([`Store::put`]); `docs/study.md` has recipes.
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
mod store;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use back_end::finish;
pub use back_end::{BackEnd, Failure, On, STEPS, Simulator, back_end};
pub use binary::Binary;
pub use cell::{Cell, Content, Name, ParseNameError};
pub use plan::{Plan, PlanError, Planned, Wanted};
pub use record::{Record, Result, Timing};
pub use runner::{Failed, Report, run};
pub use select::{Selection, select};
pub use source::{Origin, Source, SourceError};
pub use store::{Store, StoreError};
pub use tables::{list, list_json};
