//! Time, rates, sizes, probabilities and decibels with their units; the contract of skyhop's state
//! machines; and [`RangeSet`], which they all use.
//!
//! No bare number crosses a crate boundary: a rate is a [`BitRate`], a size a [`ByteCount`], a
//! point in time an [`Instant`], an interval a [`core::time::Duration`]. All of them parse and
//! print in everyday notation (`"50 Mbit/s"`, `"20 MB"`, `"600 ms"`, `"1e-6"`, `"12 dB"`). Mbit/s
//! and MB are decimal; KiB, MiB and GiB are binary.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod byte_count;
mod decibels;
mod duration;
mod instant;
mod machine;
mod probability;
mod quantity;
mod range_set;
mod rate;
mod symbol_rate;
mod unix_time;

pub use byte_count::ByteCount;
pub use decibels::Decibels;
pub use duration::{format_duration, parse_duration, serde_duration};
pub use instant::Instant;
pub use machine::{Machine, earliest, earliest_timer};
pub use probability::{ErrorRate, Probability};
pub use quantity::{ParseError, split_quantity};
pub use range_set::RangeSet;
pub use rate::BitRate;
pub use symbol_rate::SymbolRate;
pub use unix_time::{UnixTime, UnixTimeError};
