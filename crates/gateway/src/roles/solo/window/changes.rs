//! Watches the machine's routes and links.

use std::io;
use std::time::Duration;

use os::Watched;
use os::netlink::watch_changes;
use units::Instant;

use crate::clock;

/// Delay before a report, because changes come in bursts.
const PAUSE: Duration = Duration::from_millis(100);

/// A netlink socket that receives changes.
pub(crate) struct Changes {
    socket: Watched,
    /// When pending changes will be reported.
    due: Option<Instant>,
}

impl Changes {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { socket: Watched::new(watch_changes()?)?, due: None })
    }

    /// Waits until there have been changes, plus a short delay. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                () = clock::sleep_until(self.due) => {
                    self.due = None;
                    return;
                }
                changed = self.socket.discard() => {
                    // Fails only while the runtime shuts down.
                    let Ok(()) = changed else { return std::future::pending().await };
                    self.due.get_or_insert_with(|| clock::now() + PAUSE);
                }
            }
        }
    }
}
