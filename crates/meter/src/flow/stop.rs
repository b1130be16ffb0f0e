//! Ends a running measurement early, so that it reports what it has measured so far.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// A switch that ends all measurements that hold a clone of it.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<bool>);

/// The reason why work ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    /// The time limit was reached.
    Limit,
    /// The user stopped the measurement.
    Stopped,
}

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Ends the measurements that hold a clone of this switch.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Returns true once [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes once [`Self::stop`] was called.
    pub(crate) async fn stopped(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Runs `work` until it is done, for `limit` at most, or until stopped.
    pub(crate) async fn limited<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, EarlyEnd> {
        tokio::select! {
            // A stop comes first, even if the work is done at the same moment.
            biased;
            () = self.stopped() => Err(EarlyEnd::Stopped),
            done = timeout(limit, work) => done.map_err(|_| EarlyEnd::Limit),
        }
    }
}
