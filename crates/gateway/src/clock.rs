//! The one place of the gateway where time is read.

/// Nanoseconds of `CLOCK_MONOTONIC`, which a `timerfd` of the same clock takes as they are.
pub(crate) use os::clock::now;
