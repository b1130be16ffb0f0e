//! The only module of the gateway that reads the time.
//!
//! Only drivers call it, and pass the time on: the loop of the roles (`roles::run`), the drivers of the
//! endpoint and of DLEP, the task that follows the status for the dashboard, and the tasks of
//! connections and packets (`relay`, `proxy`, `tunnel`). The runtime times its pauses by it.

use std::time::{SystemTime, UNIX_EPOCH};

use units::{Instant, UnixTime};

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of the drivers' `timerfd`s too.
pub(crate) use os::clock::now;

/// Waits until `end`; for ever without one. Cancel-safe.
pub(crate) async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep(end.saturating_since(now())).await,
        None => std::future::pending().await,
    }
}

/// Seconds since the epoch, for files that outlive the process.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Milliseconds since the epoch, for bundles (RFC 9171 §4.2.6).
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Wall-clock time, which may step in either direction.
pub(crate) fn unix_time() -> UnixTime {
    UnixTime::from_seconds(unix_seconds())
}
