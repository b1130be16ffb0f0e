//! When what is sent or granted at a rate may go. Nothing here has a clock: every call is handed the time.
//!
//! [`Schedule`] is below all pacers; [`Bucket`] limits how often something happens.
//!
//! Kept elsewhere for a reason: `link::Policer` models a bucket that counts tokens exactly and drops what
//! finds too few; `slacp`'s and `link`'s CoDel differ in what they do to a sender that does not slow down,
//! and in rounding, on which recorded results depend.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bucket;
mod schedule;

pub use bucket::Bucket;
pub use schedule::Schedule;
