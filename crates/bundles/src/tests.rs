//! Tests of whole bundles and of pairs of agents.

mod agent;
mod format;
mod pair;
mod parts;
mod seeds;
