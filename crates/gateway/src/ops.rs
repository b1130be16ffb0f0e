//! What operators ask of a running gateway, the same of every role.

mod fixed;
mod limits;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slacp::{PublicKey, Rate};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use units::{BitRate, ByteCount, Instant};

use self::fixed::Fixed;
use self::limits::Limits;
use crate::clock;
use crate::connections::{Entry, Held, Origin, Waits};
use crate::control::{Answer, Call, ControlPath, Request, Server};
use crate::counters::Counters;
use crate::dlep::{self, DlepConfig};
use crate::error::RunError;
use crate::events::Following;
use crate::hop::Hop;
use crate::intake::Intake;
use crate::log::{self, LogFilter};
use crate::metrics::MetricsServer;
use crate::notify::Notifier;
use crate::path_store::PathStore;
use crate::peers::{Peers, ms};
use crate::policy::{self, Policy};
use crate::status::{
    Bypass, ConnectionStatus, InterceptionStatus, Limit, PolicyStatus, Role, Status, TrafficStatus,
    TunnelStatus,
};
use crate::tcp;
use crate::tunnel::Tunnel;

/// How often a gateway looks after itself.
const LOOK: Duration = Duration::from_millis(500);
/// How often whoever started us is told how we are.
const SIGN: Duration = Duration::from_secs(5);
/// How often what was learnt of paths is written down.
const SAVE: Duration = Duration::from_secs(60);
/// So many requests wait at most.
const WAITING: usize = 32;

/// What the configuration says about running a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationConfig {
    /// Where the control socket is. Key `control`: a path, or `"none"`.
    pub control: ControlPath,
    /// No new connections are carried while the streams of all sessions, or the pipes
    /// of a gateway alone, hold more.
    /// Key `total_memory`, default half of the machine's memory.
    pub total_memory: Option<ByteCount>,
    /// The most connections that are carried. Key `max_connections`, default as
    /// many as the process may have sockets.
    pub max_connections: Option<u64>,
    /// A client or server that has said nothing for so long is asked whether it is
    /// still there. Key `keepalive`, default 60 s.
    pub keepalive: Option<Duration>,
    /// Where metrics are served. Section `metrics`, key `listen`, default nowhere.
    pub metrics: Option<SocketAddr>,
    /// The directory in which is kept what was learnt of paths. Key `state`,
    /// default none.
    pub state: Option<PathBuf>,
    /// What the log tells. Key `log`, default `"info"`.
    pub log: Option<LogFilter>,
    /// The most that the modem is believed. Key `maximum_rate`, default none.
    pub maximum_rate: Option<BitRate>,
    /// How the modem is asked for its rate. Section `dlep`, default not at all.
    pub dlep: Option<DlepConfig>,
    /// The file that all this was read from, if it can be read again.
    pub file: Option<PathBuf>,
}

/// What a gateway is, for its operators: its connections, and its hop if it has
/// one.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) hop: Option<&'a Hop>,
    pub(crate) counters: &'a Counters,
}

impl View<'_> {
    /// Connections alive.
    fn live(&self) -> usize {
        self.counters.live.count()
    }

    /// Bytes held: by all sessions, and in pipes.
    fn held(&self, peers: &Peers) -> u64 {
        let stats = peers.sessions().filter_map(|session| self.hop?.stats(session));
        let sessions: u64 = stats.map(|stats| stats.held.get()).sum();
        sessions + self.counters.in_pipes.get()
    }
}

/// Something to do for a gateway.
pub(crate) enum Task {
    /// Somebody asks.
    Answer(Call),
    /// It is time to look after itself, or the modem has told something.
    Look,
}

/// What only the side itself knows of how it is.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) interception: Option<InterceptionStatus>,
    pub(crate) policies: Vec<PolicyStatus>,
    pub(crate) tunnel: Option<TunnelStatus>,
}

impl Own {
    /// Of what takes connections over, and packets, as these policies say.
    pub(crate) fn of(
        intake: Option<&Intake>,
        tunnel: Option<&Tunnel>,
        policies: &[Policy],
    ) -> Self {
        let mut counts = intake.map(Intake::counts).unwrap_or_default();
        counts.extend(tunnel.map(Tunnel::counts).unwrap_or_default());
        Self {
            interception: intake.map(Intake::status),
            policies: policy::status(policies, &counts),
            tunnel: tunnel.map(|tunnel| tunnel.status(&counts)),
        }
    }
}

/// The operators' side of a running gateway.
pub(crate) struct Operations {
    role: Role,
    started: Instant,
    calls: mpsc::Receiver<Call>,
    _sender: mpsc::Sender<Call>,
    _server: Option<Server>,
    _metrics: Option<MetricsServer>,
    hangup: Signal,
    notifier: Notifier,
    store: Option<PathStore>,
    next_save: Instant,
    next_sign: Instant,
    look: Interval,
    limits: Limits,
    config: OperationConfig,
    /// What holds of the file that the gateway was started with.
    fixed: Fixed,
    /// Bytes held by sessions when it was last looked: asked for with every
    /// connection, it may not cost a look at every session.
    held: u64,
    draining: Option<Drain>,
    following: Following,
    dlep: Option<dlep::Client>,
    pub(crate) peers: Peers,
}

/// A gateway that ends with its last connection.
#[derive(Debug, Clone, Copy)]
struct Drain {
    until: Option<Instant>,
}

impl Operations {
    /// Begins to listen to operators.
    ///
    /// # Errors
    /// When a configured control socket, or address for metrics, cannot be had.
    pub(crate) fn start(
        role: Role,
        config: &OperationConfig,
        peers: Peers,
    ) -> Result<Self, RunError> {
        let (sender, calls) = mpsc::channel(WAITING);
        let server = Server::start(&config.control, role, sender.clone())?;
        let metrics = config.metrics.map(|at| MetricsServer::start(at, sender.clone()));
        let metrics = metrics.transpose()?;
        let hangup = signal(SignalKind::hangup()).map_err(RunError::System)?;
        let dlep = config.dlep.clone().map(dlep::Client::start).transpose();
        let dlep = dlep.map_err(RunError::System)?;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            role,
            started: clock::now(),
            calls,
            _sender: sender,
            _server: server,
            _metrics: metrics,
            hangup,
            notifier: Notifier::from_environment(),
            store: config.state.as_deref().map(|directory| store(directory, role)),
            next_save: clock::now() + SAVE,
            next_sign: Instant::ZERO,
            look,
            limits: Limits::new(config, role),
            fixed: config.file.as_deref().map_or_else(Fixed::default, |it| Fixed::read(it, role)),
            config: config.clone(),
            held: 0,
            draining: None,
            following: Following::default(),
            dlep,
            peers,
        })
    }

    /// Waits for something to do. May be cancelled without losing it.
    pub(crate) async fn next(&mut self) -> Task {
        tokio::select! {
            Some(call) = self.calls.recv() => Task::Answer(call),
            _ = self.hangup.recv() => Task::Answer(Call::new(Request::Reload).0),
            _ = self.look.tick() => Task::Look,
            () = dlep::changed(self.dlep.as_mut()) => Task::Look,
        }
    }

    /// The file to be read again.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn file(&self) -> Result<PathBuf, String> {
        let file = self.config.file.clone();
        file.ok_or_else(|| "the configuration came from a pipe: nothing to read again".to_owned())
    }

    /// Takes what may change while a gateway runs, and answers `call`.
    pub(crate) fn reloaded(&mut self, call: Call, outcome: Result<Vec<String>, String>) {
        match &outcome {
            Ok(notes) => {
                tracing::info!("configuration read again");
                notes.iter().for_each(|note| tracing::info!("{note}"));
            }
            Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        }
        call.answer(outcome.map_or_else(Answer::Error, Answer::Done));
    }

    /// Takes other bounds. Says what needs a restart.
    pub(crate) fn configure(&mut self, config: OperationConfig) -> Vec<String> {
        let mut notes = vec!["configuration read again".to_owned()];
        self.limits = Limits::new(&config, self.role);
        log::configure(config.log.as_ref());
        let now = config.file.as_deref().map(|file| Fixed::read(file, self.role));
        let unlike = self.fixed.unlike(&now.unwrap_or_default());
        if !unlike.is_empty() {
            notes.push(format!("as before until a restart: {}", unlike.join(", ")));
        }
        self.config = config;
        notes
    }

    /// Takes other names and another rate, with the configuration that was taken
    /// last. Says what needs a restart.
    pub(crate) fn configure_hop(
        &mut self,
        hop: &Hop,
        rate: &Rate,
        names: BTreeMap<PublicKey, String>,
    ) -> Option<String> {
        self.peers.configure(rate, self.config.maximum_rate, names);
        let note = "rate: sessions that are up keep theirs until they are set up again";
        (!hop.configure_rate(rate.clone())).then(|| note.to_owned())
    }

    /// The gateway is in service.
    pub(crate) fn say_ready(&self) {
        self.notifier.tell("READY=1");
    }

    /// Gives the gateway what an earlier one has learnt of paths.
    pub(crate) fn remember(&mut self, hop: &Hop) {
        if let Some(store) = &mut self.store {
            hop.remember(store.load());
        }
    }

    /// What is due now and then: a sign of life, a status line, and writing down
    /// what was learnt of paths.
    pub(crate) fn look(&mut self, view: View<'_>) {
        let now = clock::now();
        self.held = view.held(&self.peers);
        if let (Some(dlep), Some(hop)) = (&mut self.dlep, view.hop)
            && let Some(news) = dlep.news()
        {
            self.peers.hear(hop, news);
        }
        if let Some(hop) = view.hop {
            self.following.look(now, hop, &self.peers);
        }
        if now >= self.next_sign {
            let every = self.notifier.watchdog().unwrap_or(SIGN);
            self.next_sign = now + every.min(SIGN);
            let sessions =
                view.hop.map(|_| format!("{} sessions, ", self.peers.sessions().count()));
            let status = format!("{}{} connections", sessions.unwrap_or_default(), view.live());
            self.notifier.tell(&format!("WATCHDOG=1\nSTATUS={status}"));
        }
        if now >= self.next_save {
            self.next_save = now + SAVE;
            self.save(view);
        }
    }

    fn save(&mut self, view: View<'_>) {
        if let (Some(store), Some(hop)) = (&mut self.store, view.hop)
            && let Err(error) = store.save(&hop.memories())
        {
            tracing::warn!("{} is not kept: {error}", store.path().display());
        }
    }

    /// The gateway is about to end.
    pub(crate) fn stop(&mut self, view: View<'_>) {
        self.notifier.tell("STOPPING=1");
        self.dlep.iter().for_each(dlep::Client::stop);
        self.save(view);
    }

    /// Why no new connection is to be carried, if it is not.
    pub(crate) fn hindrance(&self, view: View<'_>) -> Option<Bypass> {
        if self.draining.is_some() {
            return Some(Bypass::Draining);
        }
        self.limits.exceeded(view.live(), self.held)
    }

    /// The most connections that the gateway carries.
    pub(crate) fn most_connections(&self) -> u64 {
        self.limits.connections
    }

    /// Has the gateway end with its last connection, or after a time.
    pub(crate) fn drain(&mut self, view: View<'_>, within: Option<Duration>) -> Vec<String> {
        self.draining = Some(Drain { until: within.map(|within| clock::now() + within) });
        let left = view.live();
        tracing::info!("draining: {left} connections left");
        vec![format!("no new connections from now on; {left} left")]
    }

    /// Whether it is time to end.
    pub(crate) fn is_drained(&self, view: View<'_>) -> bool {
        self.draining.is_some_and(|drain| {
            let late = drain.until.is_some_and(|until| until <= clock::now());
            late || view.live() == 0
        })
    }

    /// Answers a request; gives back one that only the side itself can answer: to
    /// read the configuration again.
    pub(crate) fn answer(&mut self, view: View<'_>, own: Own, call: Call) -> Option<Call> {
        let answer = match &call.request {
            Request::Status { connections } => {
                Answer::Status(Box::new(self.status(view, own, *connections)))
            }
            Request::Rate { bit_s, for_s, peer } => match Duration::try_from_secs_f64(*for_s) {
                Ok(valid_for) => {
                    let rate = BitRate::from_bits_per_second(*bit_s);
                    let told = self.peers.tell(view.hop, rate, valid_for, peer.as_deref());
                    told.map_or_else(Answer::Error, Answer::Done)
                }
                Err(error) => Answer::Error(format!("for_s = {for_s}: {error}")),
            },
            Request::Events { reader, peer } => match view.hop {
                Some(hop) => {
                    let hop = (hop, &self.peers);
                    let read = self.following.read(clock::now(), hop, *reader, peer.as_deref());
                    read.map_or_else(Answer::Error, Answer::Events)
                }
                None => Answer::Error("a gateway alone has no hop".to_owned()),
            },
            Request::Drain { within_s } => {
                let within = within_s.and_then(|s| Duration::try_from_secs_f64(s).ok());
                Answer::Done(self.drain(view, within))
            }
            Request::Reload => return Some(call),
        };
        call.answer(answer);
        None
    }

    fn status(&self, view: View<'_>, own: Own, connections: bool) -> Status {
        let now = clock::now();
        let drain = self.draining.map(|drain| {
            drain.until.map_or(0.0, |until| until.saturating_since(now).as_secs_f64())
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.role,
            pid: std::process::id(),
            uptime_s: now.saturating_since(self.started).as_secs_f64(),
            draining_s: drain,
            interception: own.interception,
            policies: own.policies,
            tunnel: own.tunnel,
            dlep: self.dlep.as_ref().map(dlep::Client::status),
            sessions: view.hop.map_or_else(Vec::new, |hop| self.peers.status(hop)),
            traffic: traffic(view),
            memory: self.limits.status(view.live(), view.held(&self.peers)),
            connections: connections.then(|| {
                let live = view.counters.live.all();
                live.iter().map(|entry| self.connection(view.hop, now, entry)).collect()
            }),
        }
    }

    fn connection(&self, hop: Option<&Hop>, now: Instant, entry: &Entry) -> ConnectionStatus {
        let moving = entry.lock().clone();
        let session = entry.session.and_then(|session| Some((hop?, session)));
        let stream = session.zip(moving.stream);
        let stream = stream.and_then(|((hop, session), stream)| hop.stream_stats(session, stream));
        let stream = stream.unwrap_or_default();
        let (near, far, beyond) = match entry.session {
            None => (Limit::Client, Limit::Server, Limit::Server),
            Some(_) if matches!(entry.origin, Origin::Peer { .. }) => {
                (Limit::Server, Limit::Client, Limit::HopOrClient)
            }
            Some(_) => (Limit::Client, Limit::Server, Limit::HopOrServer),
        };
        let limit = |held, otherwise| match held {
            Held::Idle => Limit::Idle,
            Held::By(Waits::Socket) => near,
            Held::By(Waits::Stream) => otherwise,
        };
        let onto = if session.is_none() || stream.blocked_by_peer { far } else { Limit::Hop };
        ConnectionStatus {
            id: entry.id,
            peer: entry.session.and_then(|it| self.peers.name(it)).unwrap_or_default(),
            client: entry.open.source.to_string(),
            client_claimed: entry.origin == Origin::Peer { verified: false },
            destination: entry.open.destination.to_string(),
            age_s: now.saturating_since(entry.since).as_secs_f64(),
            to_hop_bytes: moving.to_hop.bytes,
            from_hop_bytes: moving.from_hop.bytes,
            to_hop_limit: limit(moving.to_hop.held(now), onto),
            from_hop_limit: limit(moving.from_hop.held(now), beyond),
            lan_rtt_ms: moving.socket.and_then(tcp::rtt).map(ms),
            wan_rtt_ms: moving.far_socket.and_then(tcp::rtt).map(ms),
            lan_window_segments: moving.socket.and_then(tcp::congestion_window),
            wan_window_segments: moving.far_socket.and_then(tcp::congestion_window),
            hop_rtt_ms: session
                .and_then(|(hop, session)| hop.stats(session))
                .map_or(0.0, |stats| ms(stats.rtt)),
            held_to_send_bytes: stream.unsent + stream.unacknowledged,
            held_to_read_bytes: stream.held_to_read,
            resent_bytes: stream.resent,
            recovered_bytes: stream.recovered,
        }
    }
}

/// Where what was learnt of paths is kept. The directory is made if it can be.
fn store(directory: &Path, role: Role) -> PathStore {
    // Whether it is there, writing tells.
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    PathStore::new(directory.join(format!("{}-paths.json", role.as_str())))
}

fn traffic(view: View<'_>) -> TrafficStatus {
    let counters = view.counters;
    TrafficStatus {
        connections: counters.connections.get(),
        closed: counters.closed.get(),
        reset: counters.reset.get(),
        failed: counters.failed.get(),
        to_hop_bytes: counters.bytes_to_hop.get(),
        from_hop_bytes: counters.bytes_from_hop.get(),
        straight: counters.straight.get(),
        up_bytes: counters.bytes_up.get(),
        down_bytes: counters.bytes_down.get(),
        urgent: counters.urgent.get(),
        datagrams_sent: counters.datagrams_sent.get(),
        datagrams_received: counters.datagrams_received.get(),
        datagrams_ignored: view.hop.map_or(0, Hop::ignored),
        datagrams_too_large: counters.too_large.get(),
        socket_errors: counters.socket_errors.get(),
        shared_keys: counters.shared_keys.get(),
        resets: counters.reasons.all(),
    }
}
