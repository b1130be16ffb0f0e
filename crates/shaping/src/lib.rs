//! Timing of what is sent or granted at a rate. Nothing here has a clock: every call is passed the
//! time.
//!
//! [`VirtualSchedule`] is the core of all pacers; [`TokenBucket`] limits the frequency of events.
//!
//! Kept elsewhere for a reason: `link::Policer` models a bucket that counts tokens exactly and
//! drops packets that find too few; `slacp`'s and `link`'s CoDel differ in their treatment of
//! senders that do not slow down, and in rounding, on which recorded results depend.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bucket;
mod schedule;

pub use bucket::TokenBucket;
pub use schedule::VirtualSchedule;
