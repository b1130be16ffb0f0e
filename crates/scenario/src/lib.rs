//! Parses the TOML files in which users describe links, networks and traffic into validated types.
//!
//! | file | type | used by |
//! |---|---|---|
//! | link preset (`docs/presets.md`) | [`Preset`] | the lab, scenarios |
//! | scenario (`docs/sim.md`) | [`Scenario`] | the simulator |
//! | published results (`docs/published.md`) | [`Published`], [`Documents`] | comparisons with the simulator |
//!
//! A direction of a link is a [`LinkSpec`] in all of them, and [`LinkSpec::config`] is the only
//! place that turns "1 BDP" into bytes. A file is parsed into raw structs (from which the JSON
//! schemas of [`schema()`] follow), and these are converted to types in which every value is
//! valid. A [`config::FileError`] names file, line, key, value and what would be accepted.
//!
//! Only [`config::file::folder`] reads files: presets, traces and scenarios by their path. The scenarios of the repository
//! are compiled in ([`ShippedScenario`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod built_in;
mod dama;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link_spec;
mod preset;
mod published;
#[cfg(test)]
mod recognition_tests;
mod scenario;
mod schema;
mod shipped;
mod trace;
mod trace_fault;

pub use dama::{DamaSpec, DamaTerminal};
pub use link_spec::{AcmSpec, LinkSpec, OrNone, OrNoneError, RateSpec};
pub use preset::{Preset, PresetOverrides, TerrestrialOverrides};
pub use published::{
    Assumption, Compare, Condition, Difference, Documents, Erratum, Input, Lost, Output, Point,
    Publication, Published, Trend, Unit,
};
pub use scenario::{
    BackEnd, CacheSpec, CaseLinks, CompressionSpec, Direction, FactorLevel, FetchMethod,
    FlowContents, FlowSize, FlowTraffic, GatewaysSpec, IpVersion, METRICS, MetricName, NameAnswer,
    NamesSpec, NetworkSpec, Overhead, Replications, ReplySizes, SatelliteHop, Scenario,
    ScenarioCase, ScenarioFlow, SplitMode, Statistic, StopRule,
};
pub use schema::schema;
pub use shipped::ShippedScenario;
pub use trace_fault::TraceFault;
