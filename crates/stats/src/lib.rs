//! Statistics of samples: pure functions, independent of the samples' unit.
//!
//! Each statistic has one definition in the project: quantiles are those of [`percentile`], intervals
//! those of [`mean_interval`], [`median_interval`] and [`Bootstrap`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod confidence;
mod spread;
mod summary;

pub use confidence::{
    Bootstrap, ConfidenceInterval, ConfidenceIntervals, mean_interval, median_interval,
    standard_deviation, student_t,
};
pub use spread::SampleSpread;
pub use summary::{SampleSummary, jain_index, mean, median, percentile};
