//! Detached labs (`skyhop lab up`) and larger ones (a star, a terrestrial link), with the real
//! binary and real kernels.
//!
//! Tests named `inside_…` are programs for the others: they run in a lab.

#[path = "../common/mod.rs"]
mod common;

mod larger;
mod stays;
mod terminal;
mod up;
