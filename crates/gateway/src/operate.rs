//! Operations of a running gateway, common to all roles: requests, limits, life cycle.
//!
//! Requests come from the [`control_socket`] and the [`metrics`] server; their answers are computed
//! from [`crate::figures`] and the hop. [`notify`] reports to the service manager, [`log`] writes
//! the log.

pub(crate) mod accounts;
pub mod control_socket;
mod events;
mod last_contacts;
mod limits;
pub mod log;
pub(crate) mod metrics;
mod notify;
mod operations;

pub(crate) use operations::report::interception_status;
pub(crate) use operations::{GatewayOperations, GatewayView, MainTask};
