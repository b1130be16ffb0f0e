//! A time limit for every wait on a peer.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

/// Maximum time without any progress by the peer. Longer than the ten-minute outage that a
/// satellite link must survive.
const IDLE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Waits for one read or write, with a time limit.
pub(crate) async fn with_idle_limit<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(IDLE_LIMIT, step).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing moved for 15 minutes")),
    }
}
