//! Figures of a running gateway: counters, live connections, refused ones, and the types of its status.

pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod refused_connections;
pub mod status;
