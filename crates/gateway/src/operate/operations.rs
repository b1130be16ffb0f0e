//! Operators' requests to a running gateway, and its housekeeping: limits, life cycle, accounts.

pub(super) mod report;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use config::{OperationConfig, PermittedTerminal};
use config::{RestartKeys, WrittenKeys};
use control::Role;
use control::protocol::{CarriedUsage, ControlAnswer, ControlRequest};
use control::status::GatewayStatus;
use pep::accounting::{ExhaustedAction, QuotaChange};
use pep::admission::{BypassReason, DrainDeadline};
use pep::timing::Periodic;
use slacp::{Event, PublicKey, Rate, SessionId, StopAnnouncement};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use units::{BitRate, Instant};

use super::accounts::{TerminalAccounts, UsageForwarder};
use super::control_socket::{ControlCall, ControlClient, ControlServer, path_of};
use super::events::EventReader;
use super::last_contacts::LastContacts;
use super::limits::ProcessLimits;
use super::log;
use super::metrics::MetricsServer;
use super::notify::ServiceNotifier;
use crate::config::{restart_keys, written_keys};
use crate::figures::counters::GatewayCounters;
use crate::hop::Hop;
use crate::hop::path_store::PathStore;
use crate::hop::peers::PeerTable;
use crate::process::clock;
use crate::process::error::RunError;

/// Interval of periodic housekeeping, which also restores routes that the kernel removed. Two
/// requests that find everything in place cost less than following notifications of addresses,
/// devices and routes.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// Interval of status messages to the service manager (`sd_notify`).
const NOTIFY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval for saving what was learnt about paths.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Part of the connections, as a divisor, that is evicted at once when a limit is near.
const EVICTION_DIVISOR: usize = 64;
const MAX_QUEUED: usize = 32;

/// A gateway's connections, and its hop if it has one.
#[derive(Clone, Copy)]
pub(crate) struct GatewayView<'a> {
    pub(crate) hop: Option<&'a Hop>,
    pub(crate) counters: &'a GatewayCounters,
}

impl GatewayView<'_> {
    pub(crate) fn live(&self) -> usize {
        self.counters.live.count()
    }

    /// Bytes held by all sessions, in pipes and by our own TCP.
    fn held(&self) -> u64 {
        let sessions = self.hop.map_or(0, Hop::held);
        sessions + self.counters.in_pipes.get() + self.counters.in_stack.get()
    }
}

/// A task for the gateway's main loop.
pub(crate) enum MainTask {
    Answer(ControlCall),
    /// Do the housekeeping: the interval has passed.
    Housekeeping,
}

/// The operator's interface to a running gateway.
pub(crate) struct GatewayOperations {
    role: Role,
    host: String,
    key: Option<PublicKey>,
    started: Instant,
    calls: mpsc::Receiver<ControlCall>,
    sender: mpsc::Sender<ControlCall>,
    server: Option<ControlServer>,
    metrics: Option<MetricsServer>,
    /// Path of the program when this process started. An upgrade replaces the file there.
    program: Option<PathBuf>,
    hangup: Signal,
    notifier: ServiceNotifier,
    store: Option<PathStore>,
    save: Periodic,
    notify: Periodic,
    housekeeping: Interval,
    limits: ProcessLimits,
    config: OperationConfig,
    /// Settings of the running gateway that only a restart changes.
    restart_keys: RestartKeys,
    /// The keys of the file as last read.
    written_keys: WrittenKeys,
    /// Bytes held by sessions, cached by the housekeeping: every new connection checks it, and
    /// summing up all sessions each time would be too slow.
    held: u64,
    draining: Option<DrainDeadline>,
    /// After a hand-over, the time until which terminals without connections are to move to the
    /// successor.
    move_deadline: Option<Instant>,
    reloads: u64,
    event_reader: EventReader,
    pub(crate) peers: PeerTable,
    /// The terminals' accounts, on a hub.
    accounts: Option<TerminalAccounts>,
    /// The last contacts of a hub with its terminals.
    last_contacts: Option<LastContacts>,
    /// The last contacts at the beginning of a hand-over.
    frozen_contacts: Option<LastContacts>,
    /// The accounts at the beginning of a hand-over, whose quotas stay in force.
    frozen_accounts: Option<TerminalAccounts>,
    forwarding: UsageForwarder,
}

impl GatewayOperations {
    /// Opens the control socket and the metrics server.
    ///
    /// # Errors
    /// A configured control socket or metrics address cannot be used.
    pub(crate) fn start(
        now: Instant,
        role: Role,
        key: Option<PublicKey>,
        config: &OperationConfig,
        peers: PeerTable,
    ) -> Result<Self, RunError> {
        config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let (sender, calls) = mpsc::channel(MAX_QUEUED);
        let server = ControlServer::start(&config.control, role, sender.clone())?;
        let metrics =
            config.metrics.as_ref().map(|config| MetricsServer::start(config, sender.clone()));
        let metrics = metrics.transpose()?;
        let hangup = signal(SignalKind::hangup()).map_err(RunError::System)?;
        let notifier = ServiceNotifier::from_environment();
        let state = config.state.as_deref();
        let is_hub = role == Role::Hub;
        Ok(Self {
            role,
            host: host_name(),
            key,
            started: now,
            calls,
            sender,
            server,
            metrics,
            program: std::env::current_exe().ok(),
            hangup,
            save: Periodic::new(SAVE_INTERVAL, now + SAVE_INTERVAL),
            notify: Periodic::new(notify_interval(&notifier), now),
            notifier,
            store: state.map(|directory| store(directory, role)),
            housekeeping: housekeeping_interval(),
            limits: ProcessLimits::new(config, role),
            restart_keys: restart_keys(config.file.as_deref(), role),
            written_keys: written_keys(config.file.as_deref()),
            config: config.clone(),
            held: 0,
            draining: None,
            move_deadline: None,
            reloads: 0,
            event_reader: EventReader::default(),
            peers,
            forwarding: UsageForwarder::default(),
            frozen_accounts: None,
            accounts: is_hub.then(|| TerminalAccounts::open(now, state)),
            frozen_contacts: None,
            last_contacts: is_hub.then(|| LastContacts::open(now, state)),
        })
    }

    /// Starts to foresee demand for an operator's script, which reads it in the status and asks the
    /// modem, if DLEP does not do so.
    pub(crate) fn foresee(&self, hop: &Hop) {
        if self.config.dlep.is_none() && self.peers.follows_reports() {
            hop.enable_forecast();
        }
    }

    /// Waits for the next task. Cancel-safe.
    pub(crate) async fn next(&mut self) -> MainTask {
        tokio::select! {
            Some(call) = self.calls.recv() => MainTask::Answer(call),
            // Without a receiver: the outcome is in the log.
            _ = self.hangup.recv() => MainTask::Answer(ControlCall::new(ControlRequest::Reload).0),
            _ = self.housekeeping.tick() => MainTask::Housekeeping,
        }
    }

    /// The configuration file to reload.
    ///
    /// # Errors
    /// The configuration did not come from a file.
    pub(crate) fn file(&self) -> Result<PathBuf, String> {
        let file = self.config.file.clone();
        file.ok_or_else(|| "the configuration came from a pipe and cannot be read again".to_owned())
    }

    /// Records the outcome of a reload, and answers `call`.
    pub(crate) fn reloaded(&mut self, call: ControlCall, outcome: Result<Vec<String>, String>) {
        match &outcome {
            Ok(notes) => {
                self.reloads += 1;
                // In the log, too: SIGHUP has no other answer.
                notes.iter().for_each(|note| tracing::info!("{note}"));
            }
            Err(error) => tracing::error!("configuration unchanged: {error}"),
        }
        call.answer(outcome.map_or_else(ControlAnswer::Error, ControlAnswer::Done));
    }

    /// Applies a reloaded configuration. Returns notes on changes, and on what needs a restart.
    pub(crate) fn configure(&mut self, config: OperationConfig) -> Vec<String> {
        let written = written_keys(config.file.as_deref());
        let changed = self.written_keys.differing(&written);
        self.written_keys = written;
        let mut notes = vec![match changed.is_empty() {
            true => "configuration reloaded: no key has changed".to_owned(),
            false => format!("configuration reloaded; changed: {}", changed.join(", ")),
        }];
        notes.extend(config.warnings.iter().cloned());
        self.limits = ProcessLimits::new(&config, self.role);
        log::configure(config.log.as_ref());
        let now = restart_keys(config.file.as_deref(), self.role);
        let unlike = self.restart_keys.differing(&now);
        if !unlike.is_empty() {
            // An upgrade starts a new process, which reads the whole file.
            let how = match self.role {
                Role::Hub => "these need a restart, or `skyhop upgrade`",
                Role::Terminal | Role::Solo => "these need a restart",
            };
            notes.push(format!("{how}: {}", unlike.join(", ")));
        }
        self.config = config;
        notes
    }

    /// Applies new names and a new rate from the last valid configuration. Returns notes on what
    /// needs a restart.
    pub(crate) fn configure_hop(
        &mut self,
        now: Instant,
        hop: &Hop,
        rate: &Rate,
        names: BTreeMap<PublicKey, String>,
    ) -> Option<String> {
        self.peers.configure(rate, self.config.maximum_rate, names);
        let note = "rate: existing sessions keep theirs until they are set up again";
        (!hop.configure_rate(now, rate)).then(|| note.to_owned())
    }

    /// Announces that the gateway is in service.
    pub(crate) fn announce_ready(&self) {
        self.notifier.notify("READY=1");
    }

    /// Restores what an earlier process learnt about paths.
    pub(crate) fn restore_paths(&mut self, now: Instant, hop: &Hop) {
        if let Some(store) = &mut self.store {
            hop.remember(now, &store.load());
        }
    }

    /// Does the periodic housekeeping: watchdog, status line, and saving what was learnt about
    /// paths.
    pub(crate) fn housekeep(&mut self, now: Instant, view: GatewayView<'_>) {
        self.held = view.held();
        if let Some(hop) = view.hop {
            self.event_reader.expire(now, hop, &self.peers);
        }
        if self.notify.is_due(now) {
            let sessions =
                view.hop.map(|_| format!("{} sessions, ", self.peers.sessions().count()));
            let status = format!("{}{} connections", sessions.unwrap_or_default(), view.live());
            self.notifier.notify(&format!("WATCHDOG=1\nSTATUS={status}"));
        }
        if self.save.is_due(now) {
            self.save(now, view);
        }
        if let Some(contacts) = &mut self.last_contacts {
            contacts.save_if_due(now, clock::unix_seconds(), &self.peers.connected(true));
        }
    }

    /// Applies the names and quotas of a hub's terminals.
    pub(crate) fn configure_accounts(&mut self, terminals: &[PermittedTerminal]) {
        let all = self.accounts.iter_mut().chain(&mut self.frozen_accounts);
        all.for_each(|accounts| accounts.configure(terminals));
        self.last_contacts.iter_mut().for_each(|contacts| contacts.configure(terminals));
    }

    /// Follows an event of a session.
    pub(crate) fn follow_session(
        &mut self,
        now: Instant,
        hop: &Hop,
        session: SessionId,
        event: &Event,
    ) {
        // After its end a session has no key any more.
        let before = self.peers.key(session);
        self.peers.handle_event(now, hop, session, event);
        let key = self.peers.key(session).or(before);
        if let (Some(contacts), Some(key)) = (&mut self.last_contacts, key) {
            contacts.handle_event(clock::unix_seconds(), key, event);
        }
    }

    /// Accounts for the traffic of a hub's sessions. Returns the terminals whose quota is used up
    /// from now on, or no longer.
    pub(crate) fn settle_usage(&mut self, now: Instant, hop: &Hop) -> Vec<QuotaChange> {
        let Some(accounts) = &mut self.accounts else { return Vec::new() };
        let changes = accounts.follow(hop);
        accounts.save_if_due(now);
        changes
    }

    /// The name of a terminal by its account, or its key.
    pub(crate) fn account_name(&self, key: &PublicKey) -> String {
        let name = self.known_accounts().and_then(|accounts| accounts.name(key));
        name.map_or_else(|| format!("{key:?}"), str::to_owned)
    }

    /// The terms of a terminal whose quota is used up; `None` if it is not.
    pub(crate) fn exhausted(&self, key: &PublicKey) -> Option<&ExhaustedAction> {
        self.known_accounts()?.exhausted(key)
    }

    /// The peers, and what is known of the terminals' accounts.
    pub(crate) fn peers_and_accounts(&mut self) -> (&mut PeerTable, Option<&TerminalAccounts>) {
        (&mut self.peers, self.accounts.as_ref().or(self.frozen_accounts.as_ref()))
    }

    fn known_accounts(&self) -> Option<&TerminalAccounts> {
        self.accounts.as_ref().or(self.frozen_accounts.as_ref())
    }

    fn save_last_contacts(&mut self) {
        if let Some(contacts) = &mut self.last_contacts {
            contacts.save(clock::unix_seconds(), &self.peers.connected(true));
        }
    }

    fn save(&mut self, now: Instant, view: GatewayView<'_>) {
        if let (Some(store), Some(hop)) = (&mut self.store, view.hop)
            && let Err(error) = store.save(&hop.memories(now))
        {
            tracing::warn!("cannot save {}: {error}", store.path().display());
        }
    }

    /// Starts the program again with this gateway's file, as its successor. It gets the tunnel's
    /// device as standard input.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn start_successor(&self, device: Option<OwnedFd>) -> Result<Child, String> {
        let program = self.program.as_ref().ok_or("the path of the program is not known")?;
        let mut command = Command::new(program);
        command.arg(self.role.as_str()).arg(self.file()?).arg("--take-over");
        // This variable names the present process.
        command.env_remove("WATCHDOG_PID").stdin(device.map_or_else(Stdio::null, Stdio::from));
        let started = command.spawn();
        started.map_err(|error| format!("cannot start {}: {error}", program.display()))
    }

    /// Hands over what only one process can have, except the control socket: saves it for the
    /// successor and gives it up.
    pub(crate) fn release(&mut self, now: Instant, view: GatewayView<'_>) {
        self.metrics = None;
        self.save(now, view);
        // From here on the successor writes it.
        self.store = None;
        if let (Some(mut accounts), Some(hop)) = (self.accounts.take(), view.hop) {
            accounts.follow(hop);
            accounts.save();
            self.frozen_accounts = Some(accounts);
        }
        self.save_last_contacts();
        self.frozen_contacts = self.last_contacts.take();
    }

    /// Closes the control socket. Returns `false` if it was closed already.
    pub(crate) fn release_control(&mut self) -> bool {
        self.server.take().is_some()
    }

    /// Returns `true` once another process has the control socket.
    pub(crate) fn is_succeeded(&self) -> bool {
        let path = path_of(&self.config.control, self.role);
        self.server.is_none() && path.is_some_and(|path| ControlClient::connect(&path).is_ok())
    }

    /// Takes the control socket and the accounts back after a hand-over without a successor.
    pub(crate) fn resume(&mut self) {
        self.accounts = self.frozen_accounts.take();
        self.last_contacts = self.frozen_contacts.take();
        match ControlServer::start(&self.config.control, self.role, self.sender.clone()) {
            Ok(server) => self.server = server,
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Tells the service manager the process ID of the successor, and nothing more from then on.
    pub(crate) fn name_successor(&mut self, pid: Option<u32>) {
        pid.iter().for_each(|pid| self.notifier.notify(&format!("MAINPID={pid}")));
        self.notifier = ServiceNotifier::silent();
    }

    /// Announces the end of the gateway, and saves its state.
    pub(crate) fn stop(&mut self, now: Instant, view: GatewayView<'_>) {
        self.notifier.notify("STOPPING=1");
        self.save(now, view);
        if let (Some(accounts), Some(hop)) = (&mut self.accounts, view.hop) {
            accounts.follow(hop);
            accounts.save();
        }
        self.save_last_contacts();
        // During a hand-over the successor has the accounts.
        let next = self.move_deadline.and_then(|_| path_of(&self.config.control, self.role));
        if let (Some(path), Some(hop)) = (next, view.hop) {
            self.forwarding.finish(hop, path);
        }
    }

    /// The reason for which new connections are not carried; `None` if they are.
    pub(crate) fn bypass_reason(&self, view: GatewayView<'_>) -> Option<BypassReason> {
        if self.draining.is_some() {
            return Some(BypassReason::Draining);
        }
        self.exceeded(view)
    }

    /// The limit that is reached, if any.
    pub(crate) fn exceeded(&self, view: GatewayView<'_>) -> Option<BypassReason> {
        self.limits.limits.exceeded(view.live(), self.held)
    }

    /// Evicts idle connections if nearly all connections or nearly all memory are in use, or if a
    /// session `is_short` of memory.
    pub(crate) fn evict_idle(&self, now: Instant, view: GatewayView<'_>, is_short: bool) {
        if is_short || self.limits.limits.is_near(view.live(), self.held) {
            let count = view.live().div_ceil(EVICTION_DIVISOR);
            let gone = view.counters.live.evict_idle(now, None, count);
            if gone > 0 {
                tracing::info!("{gone} idle connections have given way to others");
            }
        }
    }

    pub(crate) fn most_connections(&self) -> u64 {
        self.limits.limits.connections()
    }

    /// Stops accepting connections. The gateway exits after its last connection, or after a time
    /// limit.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        view: GatewayView<'_>,
        within: Option<Duration>,
    ) -> Vec<String> {
        self.draining = Some(DrainDeadline::new(now, within));
        let left = view.live();
        tracing::info!("draining: {left} connections left");
        // From now on peers open no streams here.
        view.hop.into_iter().for_each(|hop| hop.announce(now, StopAnnouncement::Leaving));
        vec![format!("draining: no new connections; {left} left")]
    }

    /// Like [`Self::drain`], for a process with a successor; `idle` is the time for terminals
    /// without connections to move there.
    pub(crate) fn drain_for_successor(
        &mut self,
        now: Instant,
        hop: &Hop,
        within: Duration,
        idle: Duration,
    ) {
        // Sessions stay in this process to their end: to move them would freeze all their state into a
        // format.
        self.draining = Some(DrainDeadline::new(now, Some(within)));
        self.move_deadline = Some(now + idle);
        hop.announce(now, StopAnnouncement::Successor);
    }

    /// Reports this process's traffic to its successor.
    pub(crate) fn forward_usage(&mut self, hop: &Hop) {
        if let Some(path) = path_of(&self.config.control, self.role) {
            self.forwarding.follow(hop, path);
        }
    }

    /// Path of the successor's control socket, if this gateway has one.
    pub(crate) fn control_path(&self) -> Option<PathBuf> {
        path_of(&self.config.control, self.role)
    }

    /// Returns `true` while terminals without connections may move to the successor by themselves.
    pub(crate) fn has_time_to_move(&self, now: Instant) -> bool {
        self.move_deadline.is_some_and(|until| now < until)
    }

    /// Returns `true` once draining is complete.
    pub(crate) fn is_drained(&self, now: Instant, view: GatewayView<'_>) -> bool {
        // A terminal without connections has yet to set up its session with the successor.
        let waits = self.has_time_to_move(now) && self.peers.sessions().next().is_some();
        self.draining.is_some_and(|drain| drain.is_over(now, view.live() + usize::from(waits)))
    }

    /// Answers a request, or returns it if it needs the role.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        view: GatewayView<'_>,
        role: GatewayStatus,
        call: ControlCall,
    ) -> Option<ControlCall> {
        let answer = match &call.request {
            ControlRequest::Status { connections } => {
                ControlAnswer::Status(Box::new(self.status(now, view, role, *connections)))
            }
            ControlRequest::Connections { peer, most } => {
                self.connections(now, view, peer.as_deref(), *most)
            }
            ControlRequest::Rate { bit_s, for_s, peer } => {
                let rate = BitRate::from_bits_per_second(*bit_s);
                self.set_rate(now, view, rate, *for_s, peer.as_deref())
            }
            ControlRequest::Events { reader, peer } => {
                self.read_events(now, view, *reader, peer.as_deref())
            }
            ControlRequest::EventsEnd { reader } => {
                if let Some(hop) = view.hop {
                    self.event_reader.end(hop, &self.peers, *reader);
                }
                ControlAnswer::Done(Vec::new())
            }
            ControlRequest::Drain { within_s } => self.drain_within(now, view, *within_s),
            ControlRequest::Carried(rows) => self.add_usage(rows),
            ControlRequest::Accounts => match &self.accounts {
                Some(accounts) => ControlAnswer::Accounts(accounts.status()),
                None => ControlAnswer::Error("only a hub has accounts of its terminals".to_owned()),
            },
            // The role has what these concern.
            ControlRequest::Reload
            | ControlRequest::Bundle(_)
            | ControlRequest::Upgrade { .. }
            | ControlRequest::HandOver
            | ControlRequest::Portion { .. } => return Some(call),
        };
        call.answer(answer);
        None
    }

    fn set_rate(
        &mut self,
        now: Instant,
        view: GatewayView<'_>,
        rate: BitRate,
        for_s: f64,
        peer: Option<&str>,
    ) -> ControlAnswer {
        let valid_for = match Duration::try_from_secs_f64(for_s) {
            Ok(valid_for) => valid_for,
            Err(error) => return ControlAnswer::Error(format!("for_s = {for_s}: {error}")),
        };
        let done = self.peers.set_rate_by_operator(now, view.hop, rate, valid_for, peer);
        done.map_or_else(ControlAnswer::Error, ControlAnswer::Done)
    }

    fn read_events(
        &mut self,
        now: Instant,
        view: GatewayView<'_>,
        reader: u64,
        peer: Option<&str>,
    ) -> ControlAnswer {
        let Some(hop) = view.hop else {
            return ControlAnswer::Error("a solo gateway has no hop".to_owned());
        };
        let read = self.event_reader.read(now, hop, &self.peers, reader, peer);
        read.map_or_else(ControlAnswer::Error, ControlAnswer::Events)
    }

    fn drain_within(
        &mut self,
        now: Instant,
        view: GatewayView<'_>,
        within_s: Option<f64>,
    ) -> ControlAnswer {
        match within_s.map(Duration::try_from_secs_f64).transpose() {
            Ok(within) => ControlAnswer::Done(self.drain(now, view, within)),
            Err(error) => {
                let within_s = within_s.unwrap_or(0.0);
                ControlAnswer::Error(format!("within_s = {within_s}: {error}"))
            }
        }
    }

    /// Adds the traffic that the predecessor of this process has carried.
    fn add_usage(&mut self, rows: &[CarriedUsage]) -> ControlAnswer {
        let Some(accounts) = &mut self.accounts else {
            return ControlAnswer::Error("this gateway has no accounts".to_owned());
        };
        let added = accounts.add(rows.to_vec());
        added.map_or_else(ControlAnswer::Error, |()| ControlAnswer::Done(Vec::new()))
    }
}

/// The interval of messages to the service manager: the watchdog's if that is shorter, since one message
/// serves both.
fn notify_interval(notifier: &ServiceNotifier) -> Duration {
    notifier.watchdog().unwrap_or(NOTIFY_INTERVAL).min(NOTIFY_INTERVAL)
}

fn housekeeping_interval() -> Interval {
    let mut housekeeping = interval(HOUSEKEEPING);
    // After a stall one turn is enough.
    housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    housekeeping
}

/// The machine's name; empty if unknown.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// The store of what was learnt about paths. Tries to create its directory.
fn store(directory: &Path, role: Role) -> PathStore {
    // A failure is reported by the first write.
    let _ = os::create_directory(directory, 0o700);
    PathStore::new(directory.join(format!("{}-paths.json", role.as_str())))
}

#[cfg(test)]
mod tests;
