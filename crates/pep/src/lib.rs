//! Decisions of a gateway, as state machines that are passed the time.
//!
//! `gateway` drives them with sockets, `sim` with its own TCP endpoints in virtual time. Nothing here does
//! I/O or reads a clock.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod accounting;
pub mod admission;
pub mod bottleneck;
pub mod carriage;
pub mod cost;
pub mod dlep;
pub mod egress;
pub mod forecast;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod handover;
pub mod hubs;
pub mod inbox;
pub mod keys;
pub mod periodic;
pub mod proxy;
pub mod rates;
pub mod relay;
pub mod reminder;
pub mod routes;
pub mod traffic;
pub mod window;
pub mod work;
