//! Experiments and their results.
//!
//! A study is a [`plan`]: tasks, and ways to carry their traffic across a satellite link. It runs
//! on one of two back ends: in the lab, with real packets and kernels (`experiment::measure`), or in
//! the simulator, in virtual time (`experiment::simulate`). [`experiment::results`] holds the results
//! and shows them as a table, a page, a picture and JSON.
//!
//! There is one such study, [`Demo`]: what the gateway pair gains on this machine.
//! [`campaign`] runs scenario files many times and keeps the results; [`runs`] shows their figures
//! in the simulator, [`lab_run`] runs their cases in the lab; [`senders`] compares our TCP [`endpoint`]
//! with the kernel's in the lab.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod campaign;
pub mod design;
pub mod endpoint;
mod error;
pub mod experiment;
pub mod lab_run;
mod meter_server;
mod pair;
pub mod plan;
pub mod reproduction;
pub mod runs;
pub mod senders;
pub mod verdict;

pub use error::StudyError;
pub use experiment::demo::{Demo, DemoOptions};
pub use experiment::entry::MeasurementEntry;
pub use experiment::progress::{ProgressDisplay, TaskProgress};
pub use experiment::results::Results;
pub use meter_server::{MeterServer, ServerError};
pub use pair::{CarriageMode, GatewayPair, PairError};
pub use plan::{DemoPlan, Task, TaskWork, TrafficPath};

/// Version of skyhop, which is stored with results.
const VERSION: &str = env!("CARGO_PKG_VERSION");
