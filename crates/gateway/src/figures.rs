//! Figures of a running gateway: counters, live and refused connections, and the types of its status.

pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod refused_connections;
pub mod status;
pub(crate) mod table;
