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
//!  tells its terminals ─────────────────▶ has a second session with each, for what is new
//!  ends with its last connection           packets of its indices come here, too
//! ```
//!
//! Terminals close the former session when it carries nothing any more. Those that have not come over in
//! time, or do not know of successors, are sent there.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use config::HubConfig;
use control::Role;
use control::protocol::{ControlAnswer, ControlRequest, HandOverState};
use nix::unistd::dup2_stdin;
use slacp::{IndexShare, PublicKey, SessionId, SiblingProcess};
use units::{BitRate, Instant};

use super::Hub;
use crate::config::keys::{format_public_key, parse_public_key};
use crate::hop::Hop;
use crate::hop::udp::SiblingSockets;
use crate::operate::GatewayOperations;
use crate::operate::control_socket::ControlClient;
use crate::roles::{RESTART, RunningRole};

/// Time for the new process to take over.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which the next process follows what the modem has reported to this one: as long as it may take
/// to find the modem.
pub(super) const MODEM_PATIENCE: Duration = Duration::from_secs(20);
/// Time for terminals without connections to come over by themselves: as long as thousands of handshakes
/// take.
const COME_OVER: Duration = Duration::from_secs(10);
/// Sessions closed at a time, twice a second: no more than the new process sets up.
const AT_ONCE: usize = 400;

/// Converts rates to the form of [`HandOverState::rates`].
pub(super) fn in_bits(rates: BTreeMap<PublicKey, BitRate>) -> BTreeMap<String, u64> {
    by_key_text(rates.into_iter().map(|(key, rate)| (key, rate.bits_per_second())).collect())
}

/// Converts numbers of terminals to the form of the control protocol: by their keys as text.
pub(super) fn by_key_text(numbers: BTreeMap<PublicKey, u64>) -> BTreeMap<String, u64> {
    numbers.into_iter().map(|(key, number)| (format_public_key(&key), number)).collect()
}

fn by_key(numbers: &BTreeMap<String, u64>) -> BTreeMap<PublicKey, u64> {
    let parsed = |(key, number): (&String, &u64)| Some((parse_public_key(key).ok()?, *number));
    numbers.iter().filter_map(parsed).collect()
}

/// Returns the setting for which a hub cannot hand its place over, if there is one.
fn obstacle(config: &HubConfig) -> Option<&'static str> {
    // The next process must find the same port, and read the same file.
    let keys = [
        (config.listen.is_some_and(|at| at.port() == 0), "a port that the system chooses"),
        (config.operation.file.is_none(), "a configuration that is read from a pipe"),
    ];
    keys.into_iter().find(|(is_there, _)| *is_there).map(|(_, key)| key)
}

impl Hub {
    /// Checks that another process can take this one's place.
    ///
    /// # Errors
    /// The obstacle, as a sentence.
    pub(super) fn may_hand_over(&self) -> Result<(), String> {
        if let Some(key) = obstacle(self.permits.config()) {
            return Err(format!("a hub with {key} is not upgraded while it runs: {RESTART}"));
        }
        if let Some(predecessor) = &self.predecessor {
            let pid = predecessor.state.pid;
            return Err(format!("pid {pid} still carries connections of before"));
        }
        match self.stage {
            None => Ok(()),
            Some(_) => Err("another process is taking over already".to_owned()),
        }
    }

    /// Continues handing the place over to another process, and notices the end of the one before.
    pub(super) fn follow_upgrade(&mut self, now: Instant, ops: &mut GatewayOperations) {
        if self.predecessor.take_if(|predecessor| !predecessor.runs()).is_some() {
            tracing::info!("the process before this one has ended");
            self.parts.gateway.hop().set_sibling(now, None);
            self.rate_sharing.end(now, self.parts.gateway.hop());
        }
        let Some(stage) = self.stage else { return };
        match stage {
            Stage::Prepared { since, within } => {
                ops.release(now, self.parts.gateway.view());
                // Only one process can have these: TCP ports, files in `state`, sockets of services.
                self.listeners.abort_all();
                self.contacts = None;
                self.with_services(now, ops, |services, role| services.release(role, within));
                self.stage = Some(Stage::Released { since, within });
            }
            // The control socket is given up last: the next process waits for its file to disappear, and
            // then binds everything else.
            Stage::Released { .. } if ops.release_control() => {}
            Stage::Released { within, .. } if ops.is_succeeded() => {
                self.leave(now, ops, within);
            }
            Stage::Released { .. } if stage.is_late(now) => {
                tracing::error!(
                    "no other process has taken over: restart for metrics, TCP, bundles, DLEP and state"
                );
                ops.resume();
                self.stage = None;
            }
            Stage::Released { .. } => {}
            Stage::Leaving => self.follow_leaving(now, ops),
        }
    }

    /// Sends the terminals to the process that has taken over. Connections may go on here for `within`.
    fn leave(&mut self, now: Instant, ops: &mut GatewayOperations, within: Duration) {
        tracing::info!("another process has taken over");
        ops.name_successor(self.successor.as_ref().map(Child::id));
        let hop = self.parts.gateway.hop();
        ops.drain_for_successor(now, hop, within, COME_OVER);
        self.rate_sharing.begin(now, hop);
        self.services.give_way();
        self.stage = Some(Stage::Leaving);
    }

    /// Shares usage and rate with the process that has taken over, and closes sessions that carry nothing any
    /// more.
    fn follow_leaving(&mut self, now: Instant, ops: &mut GatewayOperations) {
        ops.forward_usage(self.parts.gateway.hop());
        let hop = self.parts.gateway.hop();
        let live = self.parts.gateway.view().live();
        self.rate_sharing.tell(now, hop, live, ops.control_path());
        if ops.has_time_to_move(now) {
            return;
        }
        // A close sends their terminals to the new process.
        for session in idle(hop, self.sites.sessions()) {
            hop.close(now, session);
        }
    }
}

/// Progress of a process that hands its place over.
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
    /// Returns whether the new process has failed to come in time.
    pub(super) fn is_late(self, now: Instant) -> bool {
        match self {
            Self::Prepared { since, .. } | Self::Released { since, .. } => now >= since + PATIENCE,
            Self::Leaving => false,
        }
    }
}

/// Sessions that carry nothing any more, as many as may be closed at a time.
fn idle(hop: &Hop, sessions: impl Iterator<Item = SessionId>) -> Vec<SessionId> {
    let is_idle = |session: &SessionId| hop.stats(*session).is_none_or(|stats| stats.streams == 0);
    sessions.filter(is_idle).take(AT_ONCE).collect()
}

/// A process that carries the connections of before.
pub(super) struct Predecessor {
    /// Its state when it handed its place over.
    pub(super) state: HandOverState,
    share: IndexShare,
}

impl Predecessor {
    /// Asks the hub that runs with this configuration for its place, and waits until it is free.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(super) fn ask(config: &HubConfig) -> Result<Self, String> {
        let path = crate::operate::control_socket::path_of(&config.operation.control, Role::Hub)
            .ok_or("control = \"none\": there is no hub to take over from")?;
        let mut control = ControlClient::connect(&path).map_err(|error| error.to_string())?;
        let answer = control.ask(&ControlRequest::HandOver).map_err(|error| error.to_string())?;
        let state = match answer {
            ControlAnswer::HandOver(state) => state,
            other => return Err(format!("the hub answers {other:?}")),
        };
        drop(control);
        wait_until("the control socket is given up", || !path.exists())?;
        for directory in directories(config) {
            let what = format!("{} is given up", directory.display());
            // The lock is held for as long as a process uses the directory.
            wait_until(&what, || !is_locked(&directory.join("lock")))?;
        }
        let share = config.link.index_share.half(state.second_half);
        Ok(Self { state, share })
    }

    /// The device of its tunnel, which the predecessor has given us as our standard input. There is none
    /// if the tunnel is to have another name now.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn take_device(&self, config: &HubConfig) -> io::Result<Option<OwnedFd>> {
        let name = config.tunnel.as_ref().map(|tunnel| &tunnel.name);
        let same = name.is_some() && name == self.state.tunnel.as_ref();
        let device = same.then(|| io::stdin().as_fd().try_clone_to_owned()).transpose()?;
        // The device lives as long as anybody has it open.
        dup2_stdin(File::open("/dev/null")?)?;
        Ok(device)
    }

    /// The rates that its modem has reported, by terminal.
    pub(super) fn rates(&self) -> BTreeMap<PublicKey, BitRate> {
        let rate = |(key, bits)| (key, BitRate::from_bits_per_second(bits));
        by_key(&self.state.rates).into_iter().map(rate).collect()
    }

    /// Its sockets, which stay bound beside this process's.
    pub(super) fn sockets(&self) -> SiblingSockets {
        SiblingSockets { count: self.state.sockets, indices: self.share }
    }

    /// The process as the endpoint needs to know it.
    pub(super) fn sibling(&self) -> SiblingProcess {
        let sessions = self.state.sessions.iter().copied().collect();
        SiblingProcess { indices: self.share, sessions, tokens: by_key(&self.state.tokens) }
    }

    /// Returns whether the process still exists.
    pub(super) fn runs(&self) -> bool {
        // Another process with its number would only delay the news.
        PathBuf::from(format!("/proc/{}", self.state.pid)).exists()
    }
}

/// Directories that only one process can use.
fn directories(config: &HubConfig) -> impl Iterator<Item = &Path> {
    let cache = config.http.as_ref().and_then(|http| http.keys.directory.as_deref());
    cache.into_iter().chain(config.bundles.as_ref().map(|bundles| &*bundles.store))
}

/// Returns whether another process has locked this file.
fn is_locked(file: &Path) -> bool {
    let blocked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    File::open(file).is_ok_and(blocked)
}

/// Waits for the predecessor, which does this by itself.
fn wait_until(what: &str, done: impl Fn() -> bool) -> Result<(), String> {
    for _ in 0..PATIENCE.as_millis() / 20 {
        if done() {
            return Ok(());
        }
        // Blocks the thread: nothing else of this process runs yet.
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("in vain: {what}"))
}
