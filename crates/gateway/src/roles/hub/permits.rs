//! The permits that a hub follows: its files, and those that hubs share in etcd.

use std::future::pending;
use std::io;
use std::path::Path;
use std::time::Duration;

use config::{HubConfig, PermittedTerminal};
use os::DirectoryWatch;
use pep::timing::Periodic;
use units::{Instant, UnixTime};

use super::shared_permits::SharedPermits;
use crate::config::permits::TerminalPermits;
use crate::process::clock;
use crate::process::error::RunError;
use crate::services::tunnel::addresses::TerminalAddresses;

/// Interval at which permits are looked at, besides when their directory reports a change.
const LOOK: Duration = Duration::from_secs(10);

/// Minimum interval between two readings of permits that were announced one by one.
const PERMITS_EVERY: Duration = Duration::from_millis(500);

/// The permits, and everything that reports their changes.
pub(super) struct FollowedPermits {
    permits: TerminalPermits,
    watch: Option<DirectoryWatch>,
    /// Reports the permits in etcd, if hubs share them there.
    shared: SharedPermits,
    /// When to look at the files without a report: a network file system sends none.
    look: Periodic,
    /// Addresses in the tunnel of terminals without networks.
    addresses: Option<TerminalAddresses>,
    /// Terminals that have expired, as of the last [`Self::serve`].
    expired: usize,
    /// Permits may have changed since they were last read.
    is_stale: bool,
    /// When announced changes may be read at once.
    fresh: Periodic,
}

impl FollowedPermits {
    /// Reads the permits of a hub with this configuration, and follows their changes.
    ///
    /// # Errors
    /// If the directory cannot be read, or terminals need addresses to which a route of this machine leads.
    pub(super) fn read(now: Instant, config: &HubConfig) -> Result<Self, RunError> {
        let mut permits = TerminalPermits::read(config)?;
        let watch = permits.directory().and_then(watch);
        let mut shared = SharedPermits::start(config);
        shared.apply(&mut permits);
        let mut addresses = TerminalAddresses::load(config);
        let terminals = permits.served(clock::unix_time());
        addresses.iter_mut().try_for_each(|addresses| addresses.check(&terminals))?;
        Ok(Self {
            permits,
            watch,
            shared,
            look: Periodic::new(LOOK, now + LOOK),
            addresses,
            expired: 0,
            is_stale: false,
            fresh: Periodic::new(PERMITS_EVERY, now),
        })
    }

    /// Applies another configuration.
    ///
    /// # Errors
    /// If its permits cannot be read; then nothing changes.
    pub(super) fn configure(&mut self, config: &HubConfig) -> Result<(), String> {
        self.permits.configure(config).map_err(|error| error.to_string())?;
        self.watch = self.permits.directory().and_then(watch);
        self.shared.configure(config);
        Ok(())
    }

    /// Waits until permits may have changed. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        let Self { watch, shared, .. } = self;
        tokio::select! {
            () = directory_changed(watch) => {}
            () = shared.changed() => {}
        }
    }

    /// Records that permits may have changed. Returns whether they may be read at once; otherwise the next
    /// housekeeping reads them, so that thousands that come together are not read thousands of times.
    pub(super) fn handle_change(&mut self, now: Instant) -> bool {
        self.is_stale = true;
        self.fresh.is_due(now)
    }

    /// Returns whether the files are due to be looked at although no change was reported.
    pub(super) fn is_look_due(&mut self, now: Instant) -> bool {
        self.look.is_due(now)
    }

    /// Reads the permits again if they may have changed, or if `force` is set. Returns whether the served
    /// terminals have changed.
    pub(super) fn refresh(&mut self, wall: UnixTime, force: bool) -> bool {
        let was_stale = std::mem::take(&mut self.is_stale);
        let mut changed = (was_stale || force) && self.permits.refresh();
        changed |= was_stale && self.shared.apply(&mut self.permits);
        // A permit that expires changes no file, and the clock may also step back across its end.
        changed || self.permits.expired(wall) != self.expired
    }

    /// Returns the terminals to serve from now on.
    pub(super) fn serve(&mut self, wall: UnixTime) -> Vec<PermittedTerminal> {
        self.expired = self.permits.expired(wall);
        let mut terminals = self.permits.served(wall);
        self.addresses.iter_mut().for_each(|addresses| addresses.assign(&mut terminals));
        terminals
    }

    /// The configuration that was applied last.
    pub(super) fn config(&self) -> &HubConfig {
        self.permits.config()
    }

    /// The permits for services, and the flag by which they report that they have changed one.
    pub(super) fn for_services(&mut self) -> (&TerminalPermits, &mut bool) {
        (&self.permits, &mut self.is_stale)
    }
}

/// Watches the directory with the permits. Where that is impossible, it is looked at now and then.
fn watch(directory: &Path) -> Option<DirectoryWatch> {
    let watch = DirectoryWatch::new(directory);
    let failed = |error: &io::Error| {
        let every = LOOK.as_secs();
        let directory = directory.display();
        tracing::warn!("cannot watch {directory}, looking every {every} s: {error}");
    };
    watch.inspect_err(failed).ok()
}

/// Waits for a change of the watched directory; for ever without one. Cancel-safe.
async fn directory_changed(watch: &mut Option<DirectoryWatch>) {
    match watch {
        Some(known) => {
            if let Err(error) = known.changed().await {
                tracing::warn!("the permits are no longer watched: {error}");
                *watch = None;
            }
        }
        None => pending().await,
    }
}
