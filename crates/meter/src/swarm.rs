//! Many terminals in one process, to find out what a hub can do.
//!
//! Each terminal is a real [`slacp::Endpoint`] with its own key and UDP socket, so a hub sees them as
//! terminals behind one address translator. They set up their sessions at once, or over a given
//! time; then some of them download verified data through the hub from a meter server. Nothing is
//! sent to any other address than the hub's, and everything ends at a time limit.

mod hop;
mod keys;
mod member;
mod process;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use os::descriptor::raise_limit;
use os::socket::datagrams::ReceiveMemory;
use serde::Serialize;
use slacp::{Config, KeyPair, PublicKey};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, timeout_at};
use units::{BitRate, ByteCount};

pub use self::keys::terminal_key;
use self::member::{MemberEvent, SwarmMember, SwarmStage};
pub use self::process::ProcessFigures;
use self::process::{PhaseUsage, ProcessGauge};
use crate::flow::stop::Stop;
use crate::protocol::amount::FlowAmount;

/// Time limit for the terminals to tell the hub that they leave: three messages within 150 ms.
const LEAVING: Duration = Duration::from_secs(1);

/// The options of a swarm of terminals.
#[derive(Debug, Clone)]
pub struct SwarmOptions {
    /// UDP address of the hub, the only one that anything is sent to.
    pub hub: SocketAddr,
    /// Public key of the hub, by which terminals authenticate it.
    pub hub_key: PublicKey,
    /// Seed of the terminals' keys ([`terminal_key`]).
    pub seed: u64,
    /// Number of terminals, each with a UDP socket.
    pub terminals: u32,
    /// Rate of each terminal's return link.
    pub rate: BitRate,
    /// Set if this machine computes AES-256-GCM fast; if not, the hub has to use another cipher.
    pub aes: bool,
    /// Time over which the terminals' starts are spread.
    pub over: Duration,
    /// The downloads once all sessions are up; `None` to measure sessions only.
    pub traffic: Option<SwarmTraffic>,
    /// Time limit of each phase: until all sessions are up, and until all downloads are complete.
    pub limit: Duration,
    /// Process id of the hub, if it runs on this machine.
    pub hub_process: Option<u32>,
    /// Ends the swarm early; the report has what was measured so far.
    pub stop: Stop,
}

/// Downloads of some terminals at once.
#[derive(Debug, Clone)]
pub struct SwarmTraffic {
    /// Address of a meter server, as the hub reaches it.
    pub server: SocketAddr,
    /// Number of terminals that download, one flow each.
    pub terminals: u32,
    /// Payload of each flow: a number of bytes, or a sending time.
    pub amount: FlowAmount,
    /// Payload key; each flow has its own, derived from it.
    pub key: u64,
}

/// The result of a swarm, as its terminals saw the hub.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SwarmReport {
    /// Number of terminals that were started.
    pub terminals: u32,
    /// Number of terminals with a session, and the hub's first answer on it, within the limit.
    pub up: u32,
    /// From the first start until the last of these.
    #[serde(rename = "all_up_seconds", with = "crate::json::seconds")]
    pub all_up: Duration,
    /// From the start of a terminal until it has a session: median, 95th percentile, maximum.
    pub setup_seconds: Option<SetupTimes>,
    /// Sessions per second, over that time.
    pub handshakes_per_second: f64,
    /// Sessions that ended before the swarm left.
    pub lost_sessions: u32,
    /// Number of times that a terminal's socket had no room for what the hub sent. The swarm was
    /// then the slower side, and the hub sent some of it twice.
    pub socket_overflows: u64,
    /// The downloads; `None` if there were none to run.
    pub traffic: Option<TrafficReport>,
    /// The hub's process, if it is known.
    pub hub: Option<ProcessFigures>,
    /// The first failures, each in one line.
    pub errors: Vec<String>,
}

/// Quantiles of the times from a terminal's start to its session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SetupTimes {
    /// Median set-up time, in seconds.
    pub median: f64,
    /// 95th percentile of the set-up times, in seconds.
    pub p95: f64,
    /// Longest set-up time, in seconds.
    pub max: f64,
}

/// The result of the downloads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrafficReport {
    /// Number of flows that were to run.
    pub flows: u32,
    /// Number of flows that arrived completely and unchanged.
    pub complete: u32,
    /// Payload bytes received and verified, over all flows.
    pub moved_bytes: u64,
    /// From the start of the first flow to the end of the last.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// All payload over the total time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Jain's fairness index of what the flows moved.
    pub jain_index: Option<f64>,
}

impl SwarmReport {
    /// Returns true if every session came up and stayed, and every flow completed.
    pub fn is_complete(&self) -> bool {
        let flows = self.traffic.as_ref().is_none_or(|traffic| traffic.complete == traffic.flows);
        self.up == self.terminals && self.lost_sessions == 0 && flows
    }
}

/// File descriptors in use besides the terminals' sockets.
const OTHER_DESCRIPTORS: u64 = 64;
/// Maximum number of failures that a report lists.
const ERRORS_MAX: usize = 10;

/// Runs a swarm on the calling thread, whose network namespace its sockets are in.
///
/// # Errors
/// If its sockets cannot be opened, or the hub's process does not exist.
pub async fn swarm(options: &SwarmOptions) -> io::Result<SwarmReport> {
    let needed = u64::from(options.terminals) + OTHER_DESCRIPTORS;
    let most = raise_limit();
    if most < needed {
        let why = format!("{needed} descriptors are needed, but the limit is {most}");
        return Err(io::Error::other(why));
    }
    LocalSet::new().run_until(run(options)).await
}

async fn run(options: &SwarmOptions) -> io::Result<SwarmReport> {
    let mut gauge = options.hub_process.map(ProcessGauge::new).transpose()?;
    // All sockets are open before the clock starts.
    let sockets = (0..options.terminals).map(|_| member::bind(options.hub));
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    let (sender, news) = mpsc::unbounded_channel();
    let (stage, stages) = watch::channel(SwarmStage::Setup);
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    let members = start_members(options, sockets, begin, sender, &stages, &mut tasks)?;
    let mut watched = EventCollector::new(options, news);
    watched.setup(begin, begin + options.over + options.limit).await;
    let setup = gauge.as_mut().map(ProcessGauge::lap);
    let moving = Instant::now();
    if !options.stop.is_stopped() {
        // Sending fails only if every terminal has failed.
        let _ = stage.send(SwarmStage::Traffic);
        watched.traffic(moving + options.limit).await;
    }
    let traffic = gauge.as_mut().map(ProcessGauge::lap);
    // Sessions that end from here on end because the terminals leave.
    let lost = watched.lost;
    let _ = stage.send(SwarmStage::End);
    let _ = timeout_at(Instant::now() + LEAVING, tasks.join_all()).await;
    watched.record_rest();
    let overflows = members.iter().map(|member| member.overflows()).sum();
    let mut report = watched.report(lost, overflows);
    let moved = report.traffic.as_ref().map_or(0, |traffic| traffic.moved_bytes);
    let figures = |((gauge, setup), traffic): ((ProcessGauge, PhaseUsage), PhaseUsage)| {
        gauge.figures([setup, traffic], report.up, moved)
    };
    report.hub = gauge.zip(setup).zip(traffic).map(figures);
    Ok(report)
}

/// Starts the terminals at even intervals from `begin` on. They are returned so that their overflow
/// counts can be read after the tasks have ended.
fn start_members(
    options: &SwarmOptions,
    sockets: Vec<std::net::UdpSocket>,
    begin: Instant,
    news: mpsc::UnboundedSender<MemberEvent>,
    stages: &watch::Receiver<SwarmStage>,
    tasks: &mut JoinSet<()>,
) -> io::Result<Vec<Rc<SwarmMember>>> {
    // Shared, because all terminals run on one thread and never await while they use it.
    let memory = Rc::new(RefCell::new(ReceiveMemory::new()));
    let mut members = Vec::new();
    for (number, socket) in (0..).zip(sockets) {
        let start = begin + options.over * number / options.terminals.max(1);
        let memory = memory.clone();
        let member = SwarmMember::new(options, number, socket, start, memory, news.clone())?;
        let member = Rc::new(member);
        members.push(member.clone());
        tasks.spawn_local(member.run(options.traffic.clone(), stages.clone()));
    }
    // The channel then ends with the last terminal.
    drop(news);
    Ok(members)
}

/// Collects the events of the terminals.
struct EventCollector<'a> {
    options: &'a SwarmOptions,
    events: mpsc::UnboundedReceiver<MemberEvent>,
    all_up: Duration,
    setups: Vec<f64>,
    lost: u32,
    flows: Vec<FinishedFlow>,
    errors: Vec<String>,
}

struct FinishedFlow {
    moved: u64,
    total: Duration,
    complete: bool,
}

impl<'a> EventCollector<'a> {
    fn new(options: &'a SwarmOptions, news: mpsc::UnboundedReceiver<MemberEvent>) -> Self {
        let setups = Vec::new();
        let flows = Vec::new();
        let errors = Vec::new();
        Self { options, events: news, all_up: Duration::ZERO, setups, lost: 0, flows, errors }
    }

    /// Waits until all sessions are up, or for the time limit.
    async fn setup(&mut self, begin: Instant, limit: Instant) {
        while self.setups.len() < self.options.terminals as usize {
            let Some(news) = self.next(limit).await else { return };
            if let MemberEvent::Up(_) = news {
                self.all_up = begin.elapsed();
            }
            self.record(news);
        }
    }

    /// Waits until all flows have ended, or for the time limit.
    async fn traffic(&mut self, limit: Instant) {
        let flows = self.options.traffic.as_ref().map_or(0, |traffic| traffic.terminals);
        while self.flows.len() < flows as usize {
            let Some(news) = self.next(limit).await else { return };
            self.record(news);
        }
    }

    /// Returns the next event; `None` after the time limit, or if the swarm is stopped.
    async fn next(&mut self, limit: Instant) -> Option<MemberEvent> {
        let left = limit.saturating_duration_since(Instant::now());
        self.options.stop.limited(left, self.events.recv()).await.ok().flatten()
    }

    /// Collects the events that terminals sent at the end: downloads that it cut off.
    fn record_rest(&mut self) {
        while let Ok(news) = self.events.try_recv() {
            self.record(news);
        }
        if self.options.stop.is_stopped() {
            self.fail("interrupted".to_owned());
        }
    }

    fn record(&mut self, news: MemberEvent) {
        match news {
            MemberEvent::Up(took) => self.setups.push(took.as_secs_f64()),
            MemberEvent::Lost(why) => {
                self.lost += 1;
                self.fail(format!("a session ended: {why}"));
            }
            MemberEvent::Failed(error) => self.fail(error),
            MemberEvent::Flow { moved, total, error } => {
                self.flows.push(FinishedFlow { moved, total, complete: error.is_none() });
                error.into_iter().for_each(|error| self.fail(error));
            }
        }
    }

    fn fail(&mut self, error: String) {
        // Thousands of terminals tend to fail for the same reason.
        if self.errors.len() < ERRORS_MAX && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn report(self, lost_sessions: u32, socket_overflows: u64) -> SwarmReport {
        let at = |percent| stats::percentile(&self.setups, percent);
        let setup_seconds = match (at(50.0), at(95.0), at(100.0)) {
            (Some(median), Some(p95), Some(max)) => Some(SetupTimes { median, p95, max }),
            _ => None,
        };
        let traffic =
            self.options.traffic.as_ref().map(|traffic| self.traffic_report(traffic.terminals));
        let up = self.setups.len() as u32;
        SwarmReport {
            terminals: self.options.terminals,
            up,
            all_up: self.all_up,
            setup_seconds,
            // Without a session the time is zero.
            handshakes_per_second: f64::from(up) / self.all_up.as_secs_f64().max(1e-9),
            lost_sessions,
            socket_overflows,
            traffic,
            hub: None,
            errors: self.errors,
        }
    }

    fn traffic_report(&self, flows: u32) -> TrafficReport {
        let moved_bytes = self.flows.iter().map(|flow| flow.moved).sum();
        let total = self.flows.iter().map(|flow| flow.total).max().unwrap_or_default();
        let shares: Vec<f64> = self.flows.iter().map(|flow| flow.moved as f64).collect();
        TrafficReport {
            flows,
            complete: self.flows.iter().filter(|flow| flow.complete).count() as u32,
            moved_bytes,
            total,
            goodput: BitRate::average(ByteCount::new(moved_bytes), total),
            jain_index: stats::jain_index(&shares),
        }
    }
}

impl SwarmOptions {
    /// Returns the hop settings of each terminal.
    fn link(&self) -> Config {
        let mut link = Config::new(self.rate);
        link.aes = self.aes;
        link
    }

    /// Returns the key pair of terminal `number`.
    fn key(&self, number: u32) -> KeyPair {
        terminal_key(self.seed, number)
    }
}
