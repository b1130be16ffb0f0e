//! Figures of a running gateway: counters, live and refused connections.

pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod refused_connections;
