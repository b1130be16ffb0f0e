//! Experiments and their results.
//!
//! A study is a [`plan`]: tasks, and ways to carry their traffic across a satellite link. It runs
//! on one of two back ends: in the lab, with real packets and kernels (`measure`), or in the
//! simulator, in virtual time (`simulate`). [`results`] holds the results and shows them as a
//! table, a page, a picture and JSON.
//!
//! There is one such study, [`Demo`]: what the gateway pair gains on this machine.
//! [`campaign`] runs scenario files many times and keeps the results; [`runs`] shows their figures
//! in the simulator, [`lab_run`] runs their cases in the lab; [`senders`] compares our TCP [`endpoint`]
//! with the kernel's in the lab.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod campaign;
mod default_control;
mod demo;
pub mod design;
pub mod endpoint;
pub mod entry;
mod error;
pub mod figures;
pub mod lab_run;
pub mod machine;
mod measure;
mod meter_server;
pub mod on_demand;
mod page;
mod pair;
pub mod plan;
mod progress;
pub mod reproduction;
pub mod results;
pub mod runs;
pub mod senders;
mod simulate;
mod stop_rule;
pub mod summary;
pub mod verdict;

pub use demo::{Demo, DemoOptions};
pub use entry::MeasurementEntry;
pub use error::StudyError;
pub use meter_server::{MeterServer, ServerError};
pub use pair::{CarriageMode, GatewayPair, PairError};
pub use plan::{DemoPlan, Task, TaskWork, TrafficPath};
pub use progress::{ProgressDisplay, TaskProgress};
pub use results::Results;

/// Version of skyhop, which is stored with results.
const VERSION: &str = env!("CARGO_PKG_VERSION");
