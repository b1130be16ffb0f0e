//! Sections about traffic: its classes and their rates, policies, permitted destinations.

pub(crate) mod classes;
pub(crate) mod egress;
pub(crate) mod guarantees;
pub(crate) mod policies;
pub(crate) mod rate;
