//! The back end in virtual time, for machines without network namespaces.
//!
//! Same link, same work, but everything is a model: the hosts' TCP is crate `tcp` with Linux
//! settings, the pair is the real protocol (`slacp::Endpoint`) between relays, and the LANs are
//! fast and short. The same seed gives the same figures on every machine.

mod work;

use std::sync::Arc;
use std::time::Duration;

use lab::{LinkSpec, Preset};
use link::{LinkConfig, LossModel, QueueLimit};
use sim::{ConnectionPath, NodeId, PathLeg, RouteHop, World};
use tcp::cc::SpecError;
use units::{BitRate, ByteCount, Instant};

use self::work::TaskClient;
use super::entry::{MeasurementEntry, MeasurementRecord, Trail};
use super::figures::{LinkLimit, TaskFigures};
use super::progress::note;
use crate::pair::window;
use crate::plan::{Task, TaskWork, TrafficPath};

/// Virtual time limit of a task.
const ALLOWANCE: Duration = Duration::from_secs(60);
/// Start of the traffic, when the pair has its session.
const BEGIN: Duration = Duration::from_secs(10);
/// Sampling interval of the progress.
const LOOK: Duration = Duration::from_millis(10);
/// TCP buffer size of the lab's hosts (`lab::settings`).
const TCP_BUFFER: ByteCount = ByteCount::new(64 << 20);

/// A measurement that is simulated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Simulation<'a> {
    /// Number of the round, from 0.
    pub(crate) round: u32,
    /// The task to measure.
    pub(crate) task: Task,
    /// Path of the traffic: through the pair or as plain TCP.
    pub(crate) way: &'a TrafficPath,
    /// The link that the traffic crosses.
    pub(crate) preset: &'a Preset,
    /// Seed of the link's losses and of all keys.
    pub(crate) seed: u64,
    /// Upper bound of the link in the direction of the payload.
    pub(crate) limit: LinkLimit,
}

impl Simulation<'_> {
    /// Runs the simulation.
    ///
    /// # Errors
    /// If the simulator has no model of the congestion control.
    pub(crate) fn run(&self) -> Result<MeasurementRecord, SpecError> {
        let mut world = World::new(self.seed);
        let path = Arc::new(self.path(&mut world)?);
        world.run_until(Instant::ZERO + BEGIN);
        let begin = world.now();
        let app = world.add_app(Box::new(TaskClient::new(self.task, path)));
        let end = begin + ALLOWANCE;
        let mut trail: Trail = vec![(0.0, 0)];
        while world.now() < end && !world.is_done() {
            let next = world.now() + LOOK;
            world.run_until(next.min(end));
            let at = world.now().saturating_since(begin).as_secs_f64();
            note(&mut trail, at, work::progress(self.task, world.app_stats(app)));
        }
        Ok(self.record(begin, world.app_stats(app), trail))
    }

    fn record(&self, begin: Instant, tally: &sim::AppStats, mut trail: Trail) -> MeasurementRecord {
        let since = |at: Instant| at.saturating_since(begin).as_secs_f64();
        let done = work::progress(self.task, tally);
        let last = tally.work_units.last().filter(|_| done == self.task.total());
        let seconds = last.map_or(ALLOWANCE.as_secs_f64(), |deed| since(deed.end));
        let pieces = match self.task.work() {
            TaskWork::Flow(_) => Vec::new(),
            TaskWork::Pieces { .. } => {
                tally.work_units.iter().map(|unit| unit.time().as_secs_f64()).collect()
            }
        };
        let first = trail.iter().find(|(_, count)| *count > 0).map(|(at, _)| *at);
        let figures = TaskFigures {
            // For an upload the client knows it a round trip later, which does not matter here.
            first_byte_seconds: first.filter(|_| self.task == Task::Download),
            ..TaskFigures::new(self.task, done, seconds, &self.limit).with_responses(&pieces)
        };
        trail.retain(|(at, _)| *at < seconds);
        trail.push((seconds, done));
        let failure = (tally.failures > 0).then(|| "a connection broke".to_owned());
        let entry = MeasurementEntry {
            round: self.round,
            task: self.task,
            way: self.way.clone(),
            figures: Some(figures).filter(|_| failure.is_none()),
            failure,
        };
        MeasurementRecord {
            entry,
            seed: self.seed,
            trail,
            response_seconds: pieces,
            lateness_seconds: None,
            report: None,
        }
    }

    /// Builds the nodes and links, and returns the path of a connection over them.
    fn path(&self, world: &mut World) -> Result<ConnectionPath, SpecError> {
        let nodes: Vec<NodeId> = (0..4).map(|_| world.add_node()).collect();
        let [forward, ret] = self.preset.links();
        let hops = [[lan(), lan()], [ret, forward], [lan(), lan()]];
        for (at, [right, left]) in hops.into_iter().enumerate() {
            let to_right = world.connect(nodes[at + 1], right);
            let to_left = world.connect(nodes[at], left);
            for (other, &node) in nodes.iter().enumerate() {
                let (from, lane) = if other > at { (at, to_right) } else { (at + 1, to_left) };
                world.set_route(nodes[from], node, RouteHop::Link(lane));
            }
        }
        let [client, terminal, hub, server] = nodes[..] else { unreachable!("four nodes") };
        let tcp = Arc::new(self.tcp()?);
        let ends = || [Arc::clone(&tcp), Arc::clone(&tcp)];
        if *self.way != TrafficPath::Pair {
            return Ok(ConnectionPath::direct(client, server, ends()));
        }
        let gateway = |link: &LinkSpec| {
            let greatest = link.peak_rate(self.preset.mtu);
            let mut config = slacp::Config::new(greatest);
            if link.rate_changes() {
                // As `pair::rate` configures the lab's gateways.
                config.rate = slacp::Rate::Auto { ceiling: Some(greatest), probe: true };
            }
            config.stream_window = window(self.preset);
            config
        };
        world.add_hub(hub, gateway(&self.preset.forward), &[terminal]);
        world.add_terminal(terminal, gateway(&self.preset.ret), hub);
        let leg = || {
            let [near, far] = ends();
            PathLeg::Tcp(near, far)
        };
        Ok(ConnectionPath::split(
            client,
            &[terminal, hub],
            server,
            vec![leg(), PathLeg::Slacp, leg()],
        ))
    }

    /// Returns the configuration of the hosts' TCP: Linux settings with this congestion control;
    /// behind the pair, CUBIC.
    fn tcp(&self) -> Result<tcp::Config, SpecError> {
        let linux = tcp::Profile::Linux.config();
        let controller = match self.way.congestion_control() {
            Some(name) => name.as_str().parse()?,
            None => linux.controller.clone(),
        };
        // Browsers and servers disable it.
        let nagle = false;
        Ok(tcp::Config {
            controller,
            nagle,
            send_buffer: TCP_BUFFER,
            receive_buffer: TCP_BUFFER,
            ..linux
        })
    }
}

/// Returns one direction of a LAN.
fn lan() -> LinkConfig {
    let rate = BitRate::from_mbit(1000);
    let delay = Duration::from_micros(50);
    LinkConfig::new(rate, delay, LossModel::None, QueueLimit::Packets(10_000))
}

#[cfg(test)]
mod tests;
