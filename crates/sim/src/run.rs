//! A run of a scenario: its world, and its metrics.

mod applications;
mod network;
#[cfg(test)]
mod tests;

use core::time::Duration;

use scenario::ScenarioCase;
use units::{ByteCount, Instant};

use crate::ids::{AppId, LinkId, NodeId};
use crate::metric::{self, LinkCapacities, LinkUse, MetricValue};
use crate::world::{ChargedBytes, World};
use applications::AppStarter;
use network::{HopLinks, NetworkBuilder, NodesByRole};

/// A case with a seed, ready to run.
#[derive(Debug)]
pub struct SimulationRun {
    /// The network and everything on it.
    pub world: World,
    end: Instant,
    flows: Vec<(String, Vec<AppId>)>,
    /// The hop's links: forward, return, and the shapers.
    lanes: HopLinks,
    capacities: LinkCapacities,
    nodes: NodesByRole,
}

impl SimulationRun {
    /// Builds the world of a case. The same seed gives the same run.
    pub fn new(case: &ScenarioCase, seed: u64) -> Self {
        let mut world = World::new(seed);
        world.sample_every(case.sample);
        let (nodes, lanes) = NetworkBuilder::build(case, &mut world);
        for (label, lanes) in [("forward", &lanes.forward), ("return", &lanes.ret)] {
            // Several links of one kind would share the label.
            if let [only] = lanes[..] {
                world.watch_lane(label.to_owned(), only);
            }
        }
        let flows = AppStarter { case, nodes: &nodes }.start(&mut world);
        let capacities = metric::capacities(case);
        Self { world, end: Instant::ZERO + case.time, flows, lanes, capacities, nodes }
    }

    /// Runs for another hundredth of the case's time, at most to its end. Returns false when the run
    /// is over.
    pub fn advance(&mut self) -> bool {
        let step = self.end.saturating_since(Instant::ZERO) / 100;
        // A case may be shorter than a hundred nanoseconds.
        let step = step.max(Duration::from_nanos(1));
        let next = (self.world.now() + step).min(self.end);
        let done = self.world.run_until_done(next);
        !done && self.world.now() < self.end
    }

    /// Returns the fraction of the case's time that has passed, in 0..=1.
    pub fn progress(&self) -> f64 {
        let all = self.end.saturating_since(Instant::ZERO).as_secs_f64();
        self.world.now().saturating_since(Instant::ZERO).as_secs_f64() / all
    }

    /// Runs until all applications are done or the case's time is over.
    pub fn finish(&mut self) {
        while self.advance() {}
    }

    /// Returns the servers of all platforms.
    pub fn servers(&self) -> Vec<NodeId> {
        self.nodes.platforms.iter().flat_map(|platform| &platform.servers).copied().collect()
    }

    /// Returns the clients of all terminals.
    pub fn clients(&self) -> Vec<NodeId> {
        self.nodes.clients.concat()
    }

    /// Returns the first hub and the first terminal.
    pub fn hop(&self) -> [NodeId; 2] {
        [self.nodes.platforms[0].hub, self.nodes.terminals[0]]
    }

    /// Returns the metrics, in an order that depends only on the scenario.
    pub fn metrics(&self) -> Vec<MetricValue> {
        let mut all = Vec::new();
        for (name, apps) in &self.flows {
            let tallies: Vec<_> = apps.iter().map(|app| self.world.app_stats(*app)).collect();
            all.extend(metric::flow_metrics(name, &tallies));
            all.extend(self.of_sender(name, apps));
        }
        let HopLinks { forward, ret, shapers } = &self.lanes;
        let links = [("forward", forward), ("return", ret), ("shaper", shapers)];
        let offered = self.capacities.offered(Duration::ZERO, self.world.busy_time());
        for ((of, lanes), capacity) in links.into_iter().zip(offered) {
            if !lanes.is_empty() {
                all.extend(self.of_links(of, lanes, capacity));
            }
        }
        all.extend(self.of_slacp());
        all
    }

    /// Returns the cost of SLACP's datagrams, as links charged it and as in a secure tunnel; empty if
    /// there were no datagrams.
    fn of_slacp(&self) -> Vec<MetricValue> {
        let hubs = self.nodes.platforms.iter().map(|platform| platform.hub);
        let gateways = self.nodes.terminals.iter().copied().chain(hubs);
        let charged: Vec<_> = gateways.map(|node| self.world.charged(node)).collect();
        let sum = |of: fn(&ChargedBytes) -> u64| charged.iter().map(of).sum::<u64>() as f64;
        let metric = |name, value| MetricValue::new("slacp", name, value);
        let all = vec![
            metric("datagrams", sum(|charged| charged.packets)),
            metric("link-bytes", sum(|charged| charged.link)),
            metric("tunnel-bytes", sum(|charged| charged.tunnel)),
        ];
        if all[0].value > 0.0 { all } else { Vec::new() }
    }

    /// Returns the metrics of a flow's last recorded sender on a host.
    fn of_sender(&self, flow: &str, apps: &[AppId]) -> Vec<MetricValue> {
        // The server's end is on the last segment of the connection.
        let last = |of: &dyn Fn(&AppId) -> bool| {
            let mut latest_first = self.world.probe().senders.iter().rev();
            latest_first.find(|sender| of(&sender.app) && sender.has_sent())
        };
        let Some(sender) = last(&|app| apps.contains(app)) else { return Vec::new() };
        let mut all = metric::sender_metrics(flow, &sender.states);
        all.extend(metric::segment_metrics(flow, sender));
        // Applications that sent nothing, or not everything, have no time.
        let times = apps.iter().filter_map(|app| last(&|of| of == app)?.data_time());
        let time = stats::median(&times.map(|time| time.as_secs_f64()).collect::<Vec<_>>());
        all.extend(time.map(|time| MetricValue::new(flow, "data-time-median-s", time)));
        all
    }

    fn of_links(&self, of: &str, lanes: &[LinkId], capacity: ByteCount) -> Vec<MetricValue> {
        let mut used = LinkUse::new(capacity);
        for lane in lanes {
            used.add(self.world.counters(*lane), self.world.peak_queue(*lane));
        }
        metric::link_metrics(of, &used)
    }
}
