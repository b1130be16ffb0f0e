//! Ends a running measurement early, so that it reports what it has measured so far.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// A switch that ends the measurements that have a copy of it.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<bool>);

/// Why work ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// The time limit was reached.
    Limit,
    /// It was stopped.
    Stopped,
}

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Ends them.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether they are to end.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for [`Stop::stop`].
    pub(crate) async fn stopped(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Does `work` until it is done, for `limit`, or until stopped.
    pub(crate) async fn limited<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Early> {
        tokio::select! {
            biased;
            () = self.stopped() => Err(Early::Stopped),
            done = timeout(limit, work) => done.map_err(|_| Early::Limit),
        }
    }
}
