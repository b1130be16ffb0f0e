//! What happens in a world: drawn from its seed.

use core::time::Duration;
use std::sync::Arc;

use link::{Dice, Jitter, LinkConfig, LossModel, Outage, QueueLimit};
use sim::{
    ConnectionPath, HostScript, NodeId, PathLeg, RouteHop, ScriptStep, ServerBehaviour, SlabKey,
    World,
};
use units::{BitRate, ByteCount, Instant, Probability};

/// Connections of one pair.
const CONNECTIONS: u64 = 8;
/// When the last of them begins, at the latest.
const BEGIN: Duration = Duration::from_secs(12);
/// By then the session is up.
const SETUP: Duration = Duration::from_secs(3);
/// By then everything is over: a fade, a reader that nobody waits for any longer, TIME-WAIT.
const END: Duration = Duration::from_secs(400);

/// A fault of a gateway or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    RestartHub,
    RestartTerminal,
    /// The hub can open no socket for this long.
    NoDescriptors(Duration),
    /// The hub carries at most so many connections for this long.
    Full(usize, Duration),
}

/// How a client ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientEnd {
    /// After the whole reply.
    Polite,
    /// Ends its data at once and hears the server out.
    HalfClose,
    /// Resets it after this many bytes of the reply.
    Reset(u64),
    /// Closes its socket after this many bytes of the reply.
    Close(u64),
    /// Ends its data, and resets the connection after a pause.
    ResetAfterEnd(Duration),
    /// Sends only so much of its request, and resets the connection after a pause.
    ResetWithin(u64, Duration),
    /// Reads nothing after this many bytes of the reply, and closes its socket after a pause.
    Unread(u64, Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerEnd {
    /// After its reply; then it hears the client out.
    First,
    /// After the client.
    Last,
    Close,
    /// Replies without reading the request, and closes its socket after a pause.
    Early(Duration),
    Reset,
    /// Resets it after a pause.
    ResetLater(Duration),
    /// Sends only so much of its reply, and resets the connection after a pause.
    ResetWithin(u64, Duration),
    /// Reads nothing after this many bytes of the request, replies, and closes its socket after a
    /// pause.
    Unread(u64, Duration),
    Refuses,
    Silent,
}

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) at: Duration,
    pub(crate) client: ClientEnd,
    pub(crate) server: ServerEnd,
    request: u64,
    reply: u64,
    /// Pauses before request and reply.
    pauses: [Duration; 2],
    slow: [Option<(usize, Duration)>; 2],
}

#[derive(Debug)]
pub(crate) struct Plan {
    seed: u64,
    forward: LinkConfig,
    back: LinkConfig,
    /// Memory of a session, if it is scarce.
    pub(crate) memory: Option<u64>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// What the plan has set up.
pub(crate) struct Network {
    pub(crate) terminal: NodeId,
    pub(crate) hub: NodeId,
    /// In the order of the plan's connections.
    pub(crate) connections: Vec<SlabKey>,
}

impl Network {
    /// Whether nothing is left of any connection.
    fn is_quiet(&self, world: &World) -> bool {
        let is_idle = |node| world.connections(node) == 0 && world.streams(node) == 0;
        world.sockets() == 0 && is_idle(self.terminal) && is_idle(self.hub)
    }
}

/// Draws with a certain taste.
struct Taste(Dice);

impl Taste {
    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low)
    }

    fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// Mostly short, sometimes longer than the windows.
    fn length(&mut self) -> u64 {
        let most = 1 << self.between(1, 17);
        self.between(0, most)
    }

    /// At most `most` bytes.
    fn part(&mut self, most: u64) -> u64 {
        self.0.below(most + 1)
    }

    fn link(&mut self, mbit: u64) -> LinkConfig {
        let loss = match self.0.below(6) {
            0..=2 => LossModel::None,
            3 | 4 => LossModel::Per(Probability::new(0.01).unwrap()),
            _ => LossModel::Per(Probability::new(0.08).unwrap()),
        };
        let (rate, queue) = (BitRate::from_mbit(mbit), QueueLimit::Packets(500));
        let mut link = LinkConfig::new(rate, self.ms(5, 300), loss, queue);
        if self.one_in(3) {
            link.jitter = Jitter::Reordering(self.ms(1, 40));
        }
        if self.one_in(4) {
            let (after, lasting) = (self.ms(0, 15_000), self.ms(100, 20_000));
            link.outages.push(Outage { after, lasting, every: None });
        }
        link
    }

    fn connection(&mut self) -> Connection {
        let (request, reply) = (self.length(), self.length());
        let client = match self.0.below(11) {
            0..=2 => ClientEnd::Polite,
            3 | 4 => ClientEnd::HalfClose,
            5 => ClientEnd::Reset(0),
            6 => ClientEnd::Reset(self.part(reply)),
            7 => ClientEnd::Close(self.part(reply)),
            8 => ClientEnd::ResetWithin(self.part(request), self.ms(0, 3000)),
            9 => ClientEnd::Unread(self.part(reply), self.ms(0, 3000)),
            _ => ClientEnd::ResetAfterEnd(self.ms(0, 3000)),
        };
        let server = match self.0.below(16) {
            0..=3 => ServerEnd::First,
            4..=6 => ServerEnd::Last,
            7 => ServerEnd::Close,
            8 => ServerEnd::Reset,
            9 => ServerEnd::ResetLater(self.ms(0, 3000)),
            10 => ServerEnd::Refuses,
            11 => ServerEnd::Early(self.ms(0, 500)),
            12 => ServerEnd::ResetWithin(self.part(reply), self.ms(0, 3000)),
            13 | 14 => ServerEnd::Unread(self.part(request), self.ms(0, 1000)),
            _ => ServerEnd::Silent,
        };
        let pauses =
            [(); 2].map(|()| if self.one_in(3) { self.ms(0, 4000) } else { Duration::ZERO });
        let slow = [(); 2]
            .map(|()| self.one_in(5).then(|| (self.between(500, 9000) as usize, self.ms(20, 200))));
        let at = self.ms(0, BEGIN.as_millis() as u64);
        Connection { at, client, server, request, reply, pauses, slow }
    }

    fn fault(&mut self) -> (Duration, Fault) {
        let fault = match self.0.below(4) {
            0 => Fault::RestartHub,
            1 => Fault::RestartTerminal,
            2 => Fault::NoDescriptors(self.ms(500, 5000)),
            _ => Fault::Full(self.part(4) as usize, self.ms(500, 8000)),
        };
        (self.ms(0, BEGIN.as_millis() as u64), fault)
    }
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut taste = Taste(Dice::new(seed));
        let (forward, back) = (taste.link(20), taste.link(4));
        let memory = taste.one_in(6).then(|| taste.between(20_000, 200_000));
        let connections = (0..CONNECTIONS).map(|_| taste.connection()).collect();
        // Half of the worlds are without, so that every ending can be judged strictly there.
        let faults = if taste.one_in(2) { taste.between(1, 4) } else { 0 };
        let faults = (0..faults).map(|_| taste.fault()).collect();
        Self { seed, forward, back, memory, connections, faults }
    }

    /// Whether nothing but the hosts themselves may break a connection.
    pub(crate) fn is_calm(&self) -> bool {
        // A hub forgets a session if it does not hear soon that the terminal has set it up, too.
        let fades = || self.forward.outages.iter().chain(&self.back.outages);
        let is_up_before = fades().all(|outage| outage.after > SETUP);
        self.faults.is_empty() && self.memory.is_none() && is_up_before
    }

    /// Plays the plan to its end.
    pub(crate) fn play(&self) -> (World, Network) {
        let mut world = World::new(self.seed);
        let [client, terminal, hub, server] = self.network(&mut world);
        let mut config = slacp::Config::new(BitRate::from_mbit(20));
        if let Some(memory) = self.memory {
            config.memory = ByteCount::new(memory);
            config.stream_window = ByteCount::new(memory / 2);
        }
        world.add_hub(hub, config.clone(), &[terminal]);
        config.rate = slacp::Rate::Fixed(BitRate::from_mbit(4));
        world.add_terminal(terminal, config, hub);
        let tcp = Arc::new(tcp::Profile::Linux.config());
        let leg = || PathLeg::Tcp(Arc::clone(&tcp), Arc::clone(&tcp));
        let path = ConnectionPath::split(
            client,
            &[terminal, hub],
            server,
            vec![leg(), PathLeg::Slacp, leg()],
        );
        let mut network = Network { terminal, hub, connections: Vec::new() };
        network.connections = self.run(&mut world, &Arc::new(path), &network);
        (world, network)
    }

    fn network(&self, world: &mut World) -> [NodeId; 4] {
        let nodes = [(); 4].map(|()| world.add_node());
        let lan = LinkConfig::new(
            BitRate::from_mbit(100),
            Duration::from_millis(1),
            LossModel::None,
            QueueLimit::Packets(1000),
        );
        let links = [[&lan, &lan], [&self.back, &self.forward], [&lan, &lan]];
        for (at, [right, left]) in links.into_iter().enumerate() {
            let right = world.connect(nodes[at + 1], right.clone());
            let left = world.connect(nodes[at], left.clone());
            for (other, node) in nodes.iter().enumerate() {
                let (from, lane) = if other > at { (at, right) } else { (at + 1, left) };
                world.set_route(nodes[from], *node, RouteHop::Link(lane));
            }
        }
        nodes
    }

    /// Runs the world; returns its connections.
    fn run(
        &self,
        world: &mut World,
        path: &Arc<ConnectionPath>,
        network: &Network,
    ) -> Vec<SlabKey> {
        let opened = self.connections.iter().enumerate().map(|(n, it)| (it.at, Event::Open(n)));
        let broken = self.faults.iter().flat_map(|(at, fault)| {
            let ends = match fault {
                Fault::NoDescriptors(lasting) | Fault::Full(_, lasting) => Some(*at + *lasting),
                Fault::RestartHub | Fault::RestartTerminal => None,
            };
            [Some((*at, Event::Begin(*fault))), ends.map(|at| (at, Event::End(*fault)))]
        });
        let mut events: Vec<_> = opened.chain(broken.flatten()).collect();
        events.sort_by_key(|(at, _)| *at);
        let mut keys = vec![None; self.connections.len()];
        for (at, event) in events {
            world.run_until(Instant::ZERO + at);
            match event {
                Event::Open(n) => keys[n] = Some(self.connections[n].open(world, path)),
                Event::Begin(fault) => set(world, network, fault, true),
                Event::End(fault) => set(world, network, fault, false),
            }
        }
        // Mostly, everything is over long before the end.
        while !network.is_quiet(world) && world.now() < Instant::ZERO + END {
            let next = world.now() + Duration::from_secs(5);
            world.run_until(next);
        }
        keys.into_iter().flatten().collect()
    }
}

enum Event {
    Open(usize),
    Begin(Fault),
    End(Fault),
}

fn set(world: &mut World, network: &Network, fault: Fault, begins: bool) {
    match fault {
        Fault::RestartHub => world.restart_gateway(network.hub),
        Fault::RestartTerminal => world.restart_gateway(network.terminal),
        Fault::NoDescriptors(_) => world.set_descriptors(network.hub, !begins),
        Fault::Full(most, _) => world.set_most_connections(network.hub, begins.then_some(most)),
    }
}

impl Connection {
    fn open(&self, world: &mut World, path: &Arc<ConnectionPath>) -> SlabKey {
        let client = HostScript { acts: self.client_acts(), slow: self.slow[0] };
        let server = match self.server {
            ServerEnd::Refuses => ServerBehaviour::Refuse,
            ServerEnd::Silent => ServerBehaviour::Silence,
            _ => {
                ServerBehaviour::Accept(HostScript { acts: self.server_acts(), slow: self.slow[1] })
            }
        };
        world.open_scripted(path, client, server)
    }

    fn client_acts(&self) -> Vec<ScriptStep> {
        let request = match self.client {
            ClientEnd::ResetWithin(part, _) => part,
            _ => self.request,
        };
        let mut acts = vec![ScriptStep::Pause(self.pauses[0]), ScriptStep::Write(request)];
        acts.extend(match self.client {
            ClientEnd::Polite => {
                vec![ScriptStep::AwaitBytes(self.reply), ScriptStep::Finish, ScriptStep::AwaitEnd]
            }
            ClientEnd::HalfClose => vec![ScriptStep::Finish, ScriptStep::AwaitEnd],
            ClientEnd::Reset(after) => vec![ScriptStep::AwaitBytes(after), ScriptStep::Reset],
            ClientEnd::Close(after) => vec![ScriptStep::AwaitBytes(after), ScriptStep::Close],
            ClientEnd::ResetAfterEnd(pause) => {
                vec![ScriptStep::Finish, ScriptStep::Pause(pause), ScriptStep::Reset]
            }
            ClientEnd::ResetWithin(_, pause) => vec![ScriptStep::Pause(pause), ScriptStep::Reset],
            ClientEnd::Unread(after, pause) => {
                vec![
                    ScriptStep::AwaitBytes(after),
                    ScriptStep::StopReading,
                    ScriptStep::Pause(pause),
                    ScriptStep::Close,
                ]
            }
        });
        acts
    }

    fn server_acts(&self) -> Vec<ScriptStep> {
        let reply = match self.server {
            ServerEnd::ResetWithin(part, _) => part,
            _ => self.reply,
        };
        let mut acts = match self.server {
            ServerEnd::Early(_) => vec![],
            ServerEnd::Unread(after, _) => {
                vec![ScriptStep::AwaitBytes(after), ScriptStep::StopReading]
            }
            _ => vec![ScriptStep::AwaitBytes(self.request)],
        };
        acts.extend([ScriptStep::Pause(self.pauses[1]), ScriptStep::Write(reply)]);
        acts.extend(match self.server {
            ServerEnd::First => vec![ScriptStep::Finish, ScriptStep::AwaitEnd],
            ServerEnd::Last => vec![ScriptStep::AwaitEnd, ScriptStep::Finish],
            ServerEnd::Close => vec![ScriptStep::Close],
            ServerEnd::Early(pause) => {
                vec![ScriptStep::Finish, ScriptStep::Pause(pause), ScriptStep::Close]
            }
            ServerEnd::Reset => vec![ScriptStep::Reset],
            ServerEnd::ResetLater(pause) | ServerEnd::ResetWithin(_, pause) => {
                vec![ScriptStep::Pause(pause), ScriptStep::Reset]
            }
            ServerEnd::Unread(_, pause) => vec![ScriptStep::Pause(pause), ScriptStep::Close],
            ServerEnd::Refuses | ServerEnd::Silent => vec![],
        });
        acts
    }
}
