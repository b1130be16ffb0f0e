//! `skyhop upgrade`: a new process takes the hub's place, and this one carries the connections that it has
//! until they end.
//!
//! ```text
//! this process                              the new one
//!  Upgrade ──────────start──────────────▶ reads its file
//!  Prepared ◀──────HandOver─────────────  asks for the place
//!  Released: no listeners, no sockets of operators
//!                                          binds beside, by the other half of the indices
//!  Leaving ◀─────control socket is there─
//!  closes sessions without streams ─────▶ gets them
//!  ends with its last connection           packets of its indices come here, too
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use pep::config::HubConfig;
use serde::{Deserialize, Serialize};
use slacp::{IndexShare, SessionId, Sibling};
use units::Instant;

use crate::hop::Hop;
use crate::operate::control::{Answer, Control, Request};
use crate::operate::status::Role;

/// How long the new process may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);
/// Sessions closed at a time, twice a second: no more than the new process sets up.
const AT_ONCE: usize = 400;

/// What the new process learns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// The process.
    pub pid: u32,
    /// Number of its UDP sockets.
    pub sockets: u8,
    /// Whether its indices are the second half of the hub's.
    pub second_half: bool,
    /// The names of its sessions.
    pub sessions: Vec<u64>,
}

/// Why a hub cannot hand its place over.
pub(super) fn obstacle(config: &HubConfig) -> Option<&'static str> {
    let cache = config.http.as_ref().and_then(|http| http.cache.as_ref());
    let keys = [
        (config.tunnel.is_some(), "[tunnel]"),
        (config.intercept.is_some(), "[intercept]"),
        (config.transparent, "transparent"),
        (config.bundles.is_some(), "[bundles]"),
        (config.operation.dlep.is_some(), "[dlep]"),
        (cache.is_some_and(|it| it.directory.is_some()), "[http] directory"),
        (config.listen.is_some_and(|at| at.port() == 0), "a port that the system chooses"),
        (config.operation.file.is_none(), "a configuration that is read from a pipe"),
    ];
    keys.into_iter().find(|(is_there, _)| *is_there).map(|(_, key)| key)
}

/// How far a process is with handing its place over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The new process knows what it needs.
    Prepared { since: Instant, within: Duration },
    /// Everything that only one process can have is free.
    Released { since: Instant, within: Duration },
    /// The new process is there.
    Leaving,
}

impl Stage {
    /// Whether the new process has not come in time.
    pub(super) fn is_late(self, now: Instant) -> bool {
        match self {
            Self::Prepared { since, .. } | Self::Released { since, .. } => now >= since + PATIENCE,
            Self::Leaving => false,
        }
    }
}

/// Sessions that carry nothing any more, as many as may be closed at a time.
pub(super) fn idle(hop: &Hop, sessions: impl Iterator<Item = SessionId>) -> Vec<SessionId> {
    let is_idle = |session: &SessionId| hop.stats(*session).is_none_or(|it| it.streams == 0);
    sessions.filter(is_idle).take(AT_ONCE).collect()
}

/// A process that carries the connections of before.
pub(super) struct Predecessor {
    pub(super) told: HandOver,
    share: IndexShare,
}

impl Predecessor {
    /// Asks the hub that runs with this configuration for its place, and waits until it is free.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(super) fn ask(config: &HubConfig) -> Result<Self, String> {
        let path = crate::operate::control::path_of(&config.operation.control, Role::Hub)
            .ok_or("control = \"none\": there is no hub to take over from")?;
        let mut control = Control::connect(&path).map_err(|error| error.to_string())?;
        let told = match control.ask(&Request::HandOver).map_err(|error| error.to_string())? {
            Answer::HandOver(told) => told,
            other => return Err(format!("the hub answers {other:?}")),
        };
        drop(control);
        wait_until_gone(&path)?;
        let share = config.link.index_share.half(told.second_half);
        Ok(Self { told, share })
    }

    /// Its sockets, and the indices that they get.
    pub(super) fn sockets(&self) -> (u8, IndexShare) {
        (self.told.sockets, self.share)
    }

    pub(super) fn sibling(&self) -> Sibling {
        Sibling { indices: self.share, sessions: self.told.sessions.iter().copied().collect() }
    }

    /// Whether it still runs.
    pub(super) fn runs(&self) -> bool {
        // Another process with its number would only delay the news.
        PathBuf::from(format!("/proc/{}", self.told.pid)).exists()
    }
}

/// Waits until the predecessor has given the control socket up, which it does last.
fn wait_until_gone(path: &Path) -> Result<(), String> {
    for _ in 0..PATIENCE.as_millis() / 20 {
        if !path.exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{} is still there", path.display()))
}
