//! Watches the machine's routes and links.

use std::io;
use std::time::Duration;

use nix::unistd::read;
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
                ready = self.socket.readable() => {
                    // Fails only while the runtime shuts down.
                    let Ok(mut ready) = ready else { return std::future::pending().await };
                    // ENOBUFS means that changes were lost, which is a change too. What has changed
                    // does not matter, so messages may be truncated.
                    while ready.try_io(|fd| Ok(read(fd.get_ref(), &mut [0; 64])?)).is_ok() {}
                    self.due.get_or_insert_with(|| clock::now() + PAUSE);
                }
            }
        }
    }
}
