//! Reports of runs: as JSON, tables and CSV, and the comparison of several.

pub mod compare;
pub mod metric;
pub(crate) mod print;
pub(crate) mod run_report;
