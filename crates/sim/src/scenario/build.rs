//! Builds a world from a scenario, and computes its metrics.

use std::sync::Arc;

use units::{BitRate, Instant};

use super::flow::{Amount, Flow, Kind};
use super::gateways::{Gateways, Split};
use super::{Case, Direction};
use crate::app::{self, AppId, Bulk, Cbr, Page, RequestReply, Users};
use crate::metric::{self, Metric};
use crate::network::{Hop, LaneId};
use crate::packet::NodeId;
use crate::path::{Leg, Path};
use crate::world::World;

/// A case with a seed, ready to run.
#[derive(Debug)]
pub struct Run {
    /// The network and everything on it.
    pub world: World,
    end: Instant,
    flows: Vec<(String, Vec<AppId>)>,
    /// The hop's links, forward and return.
    lanes: [Vec<LaneId>; 2],
    rates: [BitRate; 2],
    nodes: Nodes,
}

/// The nodes by role.
#[derive(Debug, Default)]
struct Nodes {
    servers: Vec<NodeId>,
    hub: Option<NodeId>,
    terminals: Vec<NodeId>,
    /// By terminal.
    clients: Vec<Vec<NodeId>>,
}

impl Case {
    /// Builds the case; the same seed gives the same run.
    pub fn build(&self, seed: u64) -> Run {
        let mut world = World::new(seed);
        world.sample_every(self.sample);
        let mut network = Network { case: self, world: &mut world, nodes: Nodes::default() };
        let lanes = network.lay();
        let Network { nodes, .. } = network;
        for (label, lanes) in ["forward", "return"].into_iter().zip(&lanes) {
            if let [only] = lanes[..] {
                world.watch_lane(label.to_owned(), only);
            }
        }
        let flows =
            self.flows.iter().map(|flow| (flow.name.clone(), self.start(&mut world, &nodes, flow)));
        let flows = flows.collect();
        let rates = [self.forward.rate.greatest(), self.ret.rate.greatest()];
        Run { world, end: Instant::ZERO + self.time, flows, lanes, rates, nodes }
    }

    /// Adds a flow's applications to the world.
    fn start(&self, world: &mut World, nodes: &Nodes, flow: &Flow) -> Vec<AppId> {
        (0..flow.count).map(|number| self.start_one(world, nodes, flow, number)).collect()
    }

    fn start_one(&self, world: &mut World, nodes: &Nodes, flow: &Flow, number: u32) -> AppId {
        let start = Instant::ZERO + flow.start + flow.spacing * number;
        let ends = nodes.ends(number, self.network.mesh);
        let path = || Arc::new(self.path(ends, flow));
        let until = |time: Option<core::time::Duration>| start + time.unwrap_or(self.time);
        let app: Box<dyn app::App> = match &flow.kind {
            Kind::Bulk { direction, amount } => {
                let amount = match amount {
                    Amount::Bytes(bytes) => app::Amount::Bytes(*bytes),
                    Amount::Time(time) => app::Amount::Until(start + *time),
                };
                let mut bulk = Bulk::new(path(), *direction, amount, start);
                bulk.watch = flow.watch.then(|| match flow.count {
                    1 => flow.name.clone(),
                    _ => format!("{}-{}", flow.name, number + 1),
                });
                Box::new(bulk)
            }
            Kind::Request { turn, think, repeat } => {
                Box::new(RequestReply::new(path(), *turn, *think, *repeat, start))
            }
            Kind::Page { method, request, objects, think, repeat } => {
                let objects = Arc::clone(objects);
                Box::new(Page::new(path(), *method, *request, objects, start, (*repeat, *think)))
            }
            Kind::Users { every, request, sizes, time } => {
                let paths = self.all_paths(nodes, flow);
                let seed = world.draw_seed();
                let span = [start, until(*time)];
                Box::new(Users::new(paths, *every, (*request, *sizes), span, seed))
            }
            Kind::Udp { direction, rate, size, time } => {
                let [client, _, server] = ends;
                let (from, to) = match direction {
                    app::Direction::Down => (server, client),
                    app::Direction::Up => (client, server),
                };
                let (rate, size, stop) = (*rate, *size, until(*time));
                Box::new(Cbr { from, to, rate, size, start, stop })
            }
        };
        world.add_app(app)
    }

    /// The paths of users, one for each client.
    fn all_paths(&self, nodes: &Nodes, flow: &Flow) -> Vec<Arc<Path>> {
        let count = nodes.clients.iter().map(Vec::len).sum::<usize>() as u32;
        let ends = (0..count).map(|number| nodes.ends(number, self.network.mesh));
        ends.map(|ends| Arc::new(self.path(ends, flow))).collect()
    }

    fn path(&self, [client, terminal, server]: [NodeId; 3], flow: &Flow) -> Path {
        let tcp = |name: &String| Arc::clone(&self.tcp[name]);
        let [near, far] = flow.tcp.each_ref().map(tcp);
        let gateways = match &self.gateways {
            Some(gateways) if gateways.split != Split::Packets => gateways,
            _ => return Path::direct(client, server, [near, far]),
        };
        let (hub, lan, hop) = (self.hub_of(), tcp(&gateways.lan_tcp), tcp(&gateways.tcp));
        let last = Leg::Tcp(Arc::clone(&lan), far);
        if gateways.split == Split::Two {
            let first = Leg::Tcp(near, hop);
            return Path::split(client, &[hub], server, vec![first, last]);
        }
        let middle = match gateways.split {
            Split::ThreeSlacp => Leg::Slacp,
            _ => Leg::Tcp(Arc::clone(&hop), hop),
        };
        let legs = vec![Leg::Tcp(near, lan), middle, last];
        Path::split(client, &[terminal, hub], server, legs)
    }

    /// The hub is the first node.
    fn hub_of(&self) -> NodeId {
        NodeId(0)
    }
}

impl Nodes {
    /// Client, terminal and server of a flow's application with this number, assigned in turn.
    fn ends(&self, number: u32, mesh: bool) -> [NodeId; 3] {
        let number = number as usize;
        let place = number % self.terminals.len();
        let clients = &self.clients[place];
        let client = clients[number / self.terminals.len() % clients.len()];
        let server = if mesh {
            let others = &self.clients[(place + 1) % self.terminals.len()];
            others[number / self.terminals.len() % others.len()]
        } else {
            self.servers[number % self.servers.len()]
        };
        [client, self.terminals[place], server]
    }
}

/// Builds the network of a case.
struct Network<'a> {
    case: &'a Case,
    world: &'a mut World,
    nodes: Nodes,
}

impl Network<'_> {
    /// Creates nodes, links and routes; returns the hop's links.
    fn lay(&mut self) -> [Vec<LaneId>; 2] {
        let hub = self.world.add_node();
        self.nodes.hub = Some(hub);
        self.lay_servers(hub);
        let count = self.case.network.terminals;
        self.nodes.terminals = (0..count).map(|_| self.world.add_node()).collect();
        for place in 0..count as usize {
            self.lay_clients(self.nodes.terminals[place]);
        }
        let lanes = if count == 1 { self.lay_pair(hub) } else { self.lay_star(hub) };
        if let Some(gateways) = &self.case.gateways
            && gateways.has_slacp()
        {
            self.lay_slacp(hub, gateways);
        }
        lanes
    }

    fn link(&mut self, to: NodeId, direction: &Direction) -> LaneId {
        let rtt = self.case.round_trip();
        self.world.connect(to, direction.config(rtt))
    }

    fn lay_servers(&mut self, hub: NodeId) {
        let Some(side) = &self.case.server_side else {
            self.nodes.servers.push(hub);
            return;
        };
        for _ in 0..self.case.network.servers {
            let server = self.host_at(hub, side);
            self.nodes.servers.push(server);
        }
    }

    fn lay_clients(&mut self, terminal: NodeId) {
        let clients = match &self.case.client_side {
            None => vec![terminal],
            Some(side) => {
                (0..self.case.network.clients).map(|_| self.host_at(terminal, side)).collect()
            }
        };
        self.nodes.clients.push(clients);
    }

    /// Adds a host connected to a router by its own link.
    fn host_at(&mut self, router: NodeId, side: &Direction) -> NodeId {
        let host = self.world.add_node();
        let (to, from) = (self.link(host, side), self.link(router, side));
        self.world.set_route(router, host, Hop::Lane(to));
        self.world.set_default_route(host, Hop::Lane(from));
        host
    }

    /// A single terminal, with a link in each direction.
    fn lay_pair(&mut self, hub: NodeId) -> [Vec<LaneId>; 2] {
        let (case, terminal) = (self.case, self.nodes.terminals[0]);
        let forward = self.link(terminal, &case.forward);
        let ret = self.link(hub, &case.ret);
        self.world.set_default_route(hub, Hop::Lane(forward));
        self.world.set_default_route(terminal, Hop::Lane(ret));
        [vec![forward], vec![ret]]
    }

    /// Several terminals. All receive the hub's carrier. On the return path each has its own link,
    /// or they share some; in a mesh all terminals receive these too.
    fn lay_star(&mut self, hub: NodeId) -> [Vec<LaneId>; 2] {
        let (case, sky) = (self.case, self.world.add_node());
        let forward = self.link(sky, &case.forward);
        self.world.set_default_route(hub, Hop::Lane(forward));
        let heard_by = if case.network.mesh { sky } else { hub };
        let own = case.network.terminals;
        let channels =
            if case.network.return_channels > 0 { case.network.return_channels } else { own };
        let ret: Vec<_> = (0..channels).map(|_| self.link(heard_by, &case.ret)).collect();
        self.world.set_default_route(sky, Hop::Node(hub));
        for place in 0..own as usize {
            let terminal = self.nodes.terminals[place];
            self.world.set_default_route(terminal, Hop::Lane(ret[place % ret.len()]));
            self.world.set_route(sky, terminal, Hop::Node(terminal));
            for at in 0..self.nodes.clients[place].len() {
                let client = self.nodes.clients[place][at];
                self.world.set_route(sky, client, Hop::Node(terminal));
            }
        }
        [vec![forward], ret]
    }

    /// SLACP uses the rates of the links, unless the file says otherwise.
    fn lay_slacp(&mut self, hub: NodeId, gateways: &Gateways) {
        let config = |told: Option<BitRate>, direction: &Direction| {
            let rate = told.unwrap_or(direction.rate.greatest());
            let mut config = slacp::Config::new(slacp::Rate::Fixed(rate));
            // The channel is within SLACP's limits.
            let added = World::add_tunnel(&mut config, slacp::ErrorControl::FecArq);
            debug_assert_eq!(added, Ok(()));
            config
        };
        let forward = config(gateways.forward_rate, &self.case.forward);
        let ret = config(gateways.return_rate, &self.case.ret);
        let terminals = self.nodes.terminals.clone();
        self.world.add_hub(hub, forward, &terminals);
        for terminal in terminals {
            self.world.add_terminal(terminal, ret.clone(), hub);
            if gateways.split == Split::Packets {
                self.lay_tunnel(hub, terminal);
            }
        }
    }

    /// Hosts' packets go through the session, gateways' own packets over the link.
    fn lay_tunnel(&mut self, hub: NodeId, terminal: NodeId) {
        let place = self.nodes.terminals.iter().position(|known| *known == terminal);
        for client in place.map_or(Vec::new(), |place| self.nodes.clients[place].clone()) {
            self.world.set_route(hub, client, Hop::Tunnel(terminal));
        }
        for server in self.nodes.servers.clone() {
            self.world.set_route(terminal, server, Hop::Tunnel(hub));
        }
    }
}

impl Run {
    /// Runs for another hundredth of the case's time, at most to its end. Returns whether anything
    /// is left.
    pub fn advance(&mut self) -> bool {
        let step = self.end.saturating_since(Instant::ZERO) / 100;
        let next = (self.world.now() + step).min(self.end);
        let done = self.world.run_until_done(next);
        !done && self.world.now() < self.end
    }

    /// The fraction of the case's time that has passed, in 0..=1.
    pub fn progress(&self) -> f64 {
        let all = self.end.saturating_since(Instant::ZERO).as_secs_f64();
        self.world.now().saturating_since(Instant::ZERO).as_secs_f64() / all
    }

    /// Runs to the end.
    pub fn finish(&mut self) {
        while self.advance() {}
    }

    /// The servers.
    pub fn servers(&self) -> Vec<NodeId> {
        self.nodes.servers.clone()
    }

    /// The clients.
    pub fn clients(&self) -> Vec<NodeId> {
        self.nodes.clients.concat()
    }

    /// The hub and the first terminal.
    pub fn hop(&self) -> [NodeId; 2] {
        [self.nodes.hub.unwrap_or(NodeId(0)), self.nodes.terminals[0]]
    }

    /// The metrics, in an order that depends only on the scenario.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all = Vec::new();
        for (name, apps) in &self.flows {
            let tallies: Vec<_> = apps.iter().map(|app| self.world.tally(*app)).collect();
            all.extend(metric::of_flow(name, &tallies));
            all.extend(self.of_sender(name));
        }
        for (number, of) in ["forward", "return"].into_iter().enumerate() {
            all.extend(self.of_links(of, &self.lanes[number], self.rates[number]));
        }
        all
    }

    /// Metrics recorded at a flow's first sender on a host.
    fn of_sender(&self, flow: &str) -> Vec<Metric> {
        let senders = self.world.probe().senders.iter();
        let own =
            |label: &str| label.strip_prefix(flow).is_some_and(|rest| rest.starts_with(['.', '-']));
        // The server's end is on the last segment of the connection.
        let mut own = senders.filter(|sender| own(&sender.label) && sender.has_sent());
        let Some(sender) = own.next_back() else { return Vec::new() };
        let metric = |name, value| Metric { of: flow.to_owned(), name, value };
        let mut all = Vec::new();
        if let Some((mean, most)) = sender.outstanding() {
            all.push(metric("outstanding-mean-bytes", mean));
            all.push(metric("outstanding-max-bytes", most as f64));
        }
        let srtt = sender.states.iter().rev().find_map(|state| state.srtt);
        all.extend(srtt.map(|srtt| metric("srtt-s", srtt.as_secs_f64())));
        all
    }

    fn of_links(&self, of: &str, lanes: &[LaneId], rate: BitRate) -> Vec<Metric> {
        let elapsed = self.world.now().saturating_since(Instant::ZERO).as_secs_f64();
        let counters = || lanes.iter().map(|lane| self.world.counters(*lane));
        let sum = |of: fn(&link::Counters) -> u64| counters().map(of).sum::<u64>() as f64;
        let delivered = sum(|counters| counters.delivered.bytes.get());
        let capacity = rate.bits_per_second() as f64 * elapsed * lanes.len() as f64 / 8.0;
        let peak = lanes.iter().map(|lane| self.world.peak_queue(*lane)).max();
        let metric = |name, value| Metric { of: of.to_owned(), name, value };
        vec![
            metric("utilisation", delivered / capacity),
            metric("delivered-packets", sum(|counters| counters.delivered.packets)),
            metric("dropped-packets", sum(|counters| counters.dropped_queue.packets)),
            metric("lost-packets", sum(|counters| counters.lost.packets)),
            metric("peak-queue-packets", peak.unwrap_or(0) as f64),
        ]
    }
}
