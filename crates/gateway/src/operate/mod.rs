//! Operations of a running gateway, common to all roles: requests, limits, life cycle.
//!
//! Requests come from the [`control`] socket and the [`metrics`] server; their answers are computed
//! from [`counters`], [`connections`] and the hop. [`notify`] tells the service manager, [`log`] has
//! the filter of the log.

pub(crate) mod accounts;
pub(crate) mod connections;
pub mod control;
pub(crate) mod counters;
mod events;
mod history;
mod last_contacts;
mod limits;
pub mod log;
mod log_limit;
pub(crate) mod metrics;
mod notify;
mod operations;
pub(crate) mod policy;
pub mod status;
pub(crate) mod whole_file;

pub(crate) use operations::{Operations, RoleStatus, Task, View};
