//! The status as metrics for Prometheus.

mod family;
mod text;

pub use text::{OPENMETRICS, PROMETHEUS, openmetrics, prometheus};
