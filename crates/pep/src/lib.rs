//! Decisions of a gateway, as state machines that are passed the time.
//!
//! `gateway` drives them with sockets, `sim` with its own TCP endpoints in virtual time. Nothing here does
//! I/O or reads a clock.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod accounting;
pub mod admission;
pub mod dlep;
pub mod egress;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod hubs;
pub mod keys;
pub mod proxy;
pub mod rates;
pub mod relay;
pub mod routes;
pub mod timing;
pub mod traffic;
pub mod work;
