//! Nodes and links of a case.

use core::ops::Range;
use core::time::Duration;

use compression::decompressors;
use link::{LinkConfig, LossModel, QueueLimit};
use scenario::{CaseLinks, GatewaysSpec, LinkSpec, Overhead, ScenarioCase, SplitMode};
use units::{BitRate, ByteCount};

use crate::ids::{LinkId, NodeId};
use crate::network::RouteHop;
use crate::network::packet::{IP_HEADER, TUNNEL_ONLY, UDP_HEADER};
use crate::world::{MacBuffer, World};

/// Maximum size of the headers of SLACP as a link layer, in bytes: the room that remains in 31 cells
/// beside an IP packet of 1450 bytes and AAL5's trailer (31 · 48 − 1450 − 8).
const LINK_LAYER_HEADERS: usize = 30;
/// Queue limit of links within a site, in packets.
const LAN_QUEUE: usize = 10_000;
/// Number of times a gateway checks its MAC's buffer for room while a full packet is sent.
const CHECKS_PER_PACKET: u32 = 8;

/// The nodes of a case by role.
#[derive(Debug, Default)]
pub(super) struct NodesByRole {
    pub(super) platforms: Vec<PlatformNodes>,
    /// Terminals of all platforms, in the platforms' order.
    pub(super) terminals: Vec<NodeId>,
    /// Clients of each terminal; the terminal itself if it has no network.
    pub(super) clients: Vec<Vec<NodeId>>,
}

/// A hub with the nodes that belong to it.
#[derive(Debug)]
pub(super) struct PlatformNodes {
    pub(super) hub: NodeId,
    /// Ends of the further hops, towards the servers.
    pub(super) relays: Vec<RelayHop>,
    pub(super) servers: Vec<NodeId>,
    /// The cache at the hub, if the case has caches.
    pub(super) cache: Option<NodeId>,
    /// Indices of its terminals among all terminals.
    pub(super) places: Range<usize>,
}

/// The two ends of a further hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelayHop {
    /// The terminal of this hop, in the network of the hub before it.
    pub(super) station: NodeId,
    pub(super) hub: NodeId,
}

/// The nodes that a connection passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionNodes {
    pub(super) client: NodeId,
    pub(super) terminal: NodeId,
    pub(super) hub: NodeId,
    pub(super) server: NodeId,
    pub(super) cache: Option<NodeId>,
}

impl NodesByRole {
    /// Returns the nodes of a flow's application by its number, assigned in turn on one platform or on
    /// all.
    pub(super) fn ends(&self, number: u32, on: Option<u32>, mesh: bool) -> ConnectionNodes {
        let number = number as usize;
        let places = self.places(on);
        let place = places.start + number % places.len();
        // A terminal's clients take turns only after all terminals have had one application.
        let round = number / places.len();
        let clients = &self.clients[place];
        let platform = &self.platforms[self.platform_of(place)];
        let server = if mesh {
            // Without servers, the peer is a client of the next terminal.
            let others = &self.clients[(place + 1) % self.terminals.len()];
            others[round % others.len()]
        } else {
            platform.servers[number % platform.servers.len()]
        };
        let client = clients[round % clients.len()];
        let terminal = self.terminals[place];
        let PlatformNodes { hub, cache, .. } = *platform;
        ConnectionNodes { client, terminal, hub, server, cache }
    }

    /// Returns the further hops behind a hub.
    pub(super) fn relays(&self, hub: NodeId) -> &[RelayHop] {
        let platform = self.platforms.iter().find(|platform| platform.hub == hub);
        platform.map_or(&[], |platform| &platform.relays)
    }

    /// Returns the number of clients on one platform or on all.
    pub(super) fn count_clients(&self, on: Option<u32>) -> u32 {
        self.clients[self.places(on)].iter().map(Vec::len).sum::<usize>() as u32
    }

    fn places(&self, on: Option<u32>) -> Range<usize> {
        on.map_or(0..self.terminals.len(), |platform| {
            self.platforms[platform as usize].places.clone()
        })
    }

    fn platform_of(&self, place: usize) -> usize {
        self.platforms.partition_point(|platform| platform.places.end <= place)
    }
}

/// The links of the hop, of all platforms.
#[derive(Debug, Default)]
pub(super) struct HopLinks {
    pub(super) forward: Vec<LinkId>,
    pub(super) ret: Vec<LinkId>,
    /// Shapers by terminal, if the case has them.
    pub(super) shapers: Vec<LinkId>,
}

/// Builds the network of a case.
pub(super) struct NetworkBuilder<'a> {
    case: &'a ScenarioCase,
    world: &'a mut World,
    links: CaseLinks,
    nodes: NodesByRole,
    lanes: HopLinks,
}

impl NetworkBuilder<'_> {
    /// Creates nodes, links and routes; returns the nodes and the hop's links.
    pub(super) fn build(case: &ScenarioCase, world: &mut World) -> (NodesByRole, HopLinks) {
        let links = case.links();
        let nodes = NodesByRole::default();
        let lanes = HopLinks::default();
        let mut network = NetworkBuilder { case, world, links, nodes, lanes };
        network.build_all();
        (network.nodes, network.lanes)
    }

    fn build_all(&mut self) {
        let mut begin = 0;
        for count in &self.case.network.platforms {
            let hub = self.world.add_node();
            let relays = self.add_relays();
            let last = relays.last().map_or(hub, |relay| relay.hub);
            let servers = self.add_servers(last);
            let end = begin + *count as usize;
            let cache = self.case.cache.map(|_| self.add_cache(last));
            let places = begin..end;
            self.nodes.platforms.push(PlatformNodes { hub, relays, servers, cache, places });
            begin = end;
        }
        self.nodes.terminals = (0..begin).map(|_| self.world.add_node()).collect();
        for place in 0..begin {
            self.add_clients(self.nodes.terminals[place]);
        }
        for number in 0..self.nodes.platforms.len() {
            let PlatformNodes { hub, ref places, .. } = self.nodes.platforms[number];
            let (down, up) = self.connect_hop(hub, places.clone());
            self.connect_next_hops(number);
            match &self.case.gateways {
                Some(gateways) if gateways.has_slacp() => {
                    self.add_slacp(number, gateways, down, &up);
                }
                Some(GatewaysSpec { split: SplitMode::Window, queue, .. }) => {
                    self.add_limiters(number, *queue, &up);
                }
                Some(GatewaysSpec { split: SplitMode::Spacing, forward_rate, .. }) => {
                    self.add_spacer(number, *forward_rate);
                }
                _ => {}
            }
        }
    }

    fn add_relays(&mut self) -> Vec<RelayHop> {
        let relay = |_| RelayHop { station: self.world.add_node(), hub: self.world.add_node() };
        (0..self.links.next_hops.len()).map(relay).collect()
    }

    /// Creates the links and gateways of the further hops. A station is in the network of the hub before it.
    fn connect_next_hops(&mut self, platform: usize) {
        let PlatformNodes { hub, relays, servers, cache, .. } = &self.nodes.platforms[platform];
        let mut before = *hub;
        let relays = relays.clone();
        let servers: Vec<_> = servers.iter().chain(cache).copied().collect();
        for (number, RelayHop { station, hub }) in relays.iter().copied().enumerate() {
            let [forward, ret] = self.links.next_hops[number].clone();
            let down = self.world.connect(station, forward);
            let up = self.world.connect(hub, ret);
            self.world.set_default_route(hub, RouteHop::Link(down));
            let [to, from] = self.connect_lan([before, station]);
            self.world.set_default_route(station, from);
            self.world.set_route(before, station, to);
            let later = relays[number + 1..].iter().flat_map(|relay| [relay.station, relay.hub]);
            let later: Vec<_> = [hub].into_iter().chain(later).chain(servers.clone()).collect();
            for later in later {
                // Everything beyond this hop, including the stations of later hops, is reached through it.
                self.world.set_route(before, later, to);
                self.world.set_route(station, later, RouteHop::Link(up));
            }
            if let Some(gateways) =
                self.case.gateways.as_ref().filter(|gateways| gateways.has_slacp())
            {
                self.add_next_slacp(platform, number, gateways, [down, up]);
            }
            before = hub;
        }
    }

    /// Creates the session of a further hop: SLACP runs over each satellite link separately (SLACP
    /// paper, 2).
    fn add_next_slacp(
        &mut self,
        platform: usize,
        number: usize,
        gateways: &GatewaysSpec,
        [down, up]: [LinkId; 2],
    ) {
        let [forward, ret] = self.case.next_hops[number].clone();
        let PlatformNodes { ref relays, ref servers, cache, ref places, .. } =
            self.nodes.platforms[platform];
        let RelayHop { station, hub } = relays[number];
        let servers: Vec<_> = servers.iter().chain(&cache).copied().collect();
        let clients: Vec<_> = self.nodes.clients[places.clone()].concat();
        // The rates in the file apply to the first hop only.
        let [down_config, up_config] =
            [&forward, &ret].map(|link| self.slacp_config(gateways, None, link));
        self.world.add_hub(hub, down_config, &[station]);
        self.world.add_terminal(station, up_config, hub);
        self.configure_lower_link(hub, gateways, &forward, down);
        self.configure_lower_link(station, gateways, &ret, up);
        if gateways.split == SplitMode::Packets {
            for client in clients {
                self.world.set_route(hub, client, RouteHop::Tunnel(station));
            }
            for server in servers {
                self.world.set_route(station, server, RouteHop::Tunnel(hub));
            }
        }
    }

    fn add_servers(&mut self, hub: NodeId) -> Vec<NodeId> {
        let count = self.case.network.servers;
        match self.links.server_side.clone() {
            None => vec![hub],
            Some(side) => (0..count).map(|_| self.host_at(hub, &side)).collect(),
        }
    }

    /// Creates a cache as a host in the hub's own network.
    fn add_cache(&mut self, hub: NodeId) -> NodeId {
        let cache = self.world.add_node();
        let [to, from] = self.connect_lan([hub, cache]);
        self.world.set_route(hub, cache, to);
        self.world.set_default_route(cache, from);
        cache
    }

    /// Connects two nodes of a site by a fast network without delay; returns the hops from each to the
    /// other.
    fn connect_lan(&mut self, [one, other]: [NodeId; 2]) -> [RouteHop; 2] {
        let limit = QueueLimit::Packets(LAN_QUEUE);
        let lan = LinkConfig::new(BitRate::from_mbit(1000), Duration::ZERO, LossModel::None, limit);
        [other, one].map(|to| RouteHop::Link(self.world.connect(to, lan.clone())))
    }

    fn add_clients(&mut self, terminal: NodeId) {
        // A terminal without a network of clients is the client itself.
        let count = self.case.network.clients;
        let clients = match self.links.client_side.clone() {
            None => vec![terminal],
            Some(side) => (0..count).map(|_| self.host_at(terminal, &side)).collect(),
        };
        self.nodes.clients.push(clients);
    }

    /// Creates a host that is connected to a router by its own link.
    fn host_at(&mut self, router: NodeId, side: &LinkConfig) -> NodeId {
        let host = self.world.add_node();
        let to = self.world.connect(host, side.clone());
        let from = self.world.connect(router, side.clone());
        self.world.set_route(router, host, RouteHop::Link(to));
        self.world.set_default_route(host, RouteHop::Link(from));
        host
    }

    /// Creates the links of a platform. A single terminal has a link in each direction. Several
    /// terminals receive the hub's carrier; on the return path each has its own link, or they share
    /// channels. In a mesh all terminals receive the return links too.
    fn connect_hop(&mut self, hub: NodeId, places: Range<usize>) -> (LinkId, Vec<LinkId>) {
        let network = &self.case.network;
        let count = places.len() as u32;
        let alone = count == 1;
        // The satellite is a node only if it broadcasts to several terminals.
        let sky = if alone { self.nodes.terminals[places.start] } else { self.world.add_node() };
        let forward = self.world.connect(sky, self.links.forward.clone());
        self.lanes.forward.push(forward);
        self.connect_uplink(hub, forward, places.clone());
        let heard_by = if network.mesh { sky } else { hub };
        let channels = match network.return_channels {
            0 => count,
            channels => channels,
        };
        let ret = self.connect_returns(heard_by, channels, count);
        for (number, place) in places.enumerate() {
            let terminal = self.nodes.terminals[place];
            self.world.set_default_route(terminal, RouteHop::Link(ret[number % ret.len()]));
            if !alone {
                self.route_to(sky, place, RouteHop::Node(terminal));
            }
        }
        if !alone {
            self.world.set_default_route(sky, RouteHop::Node(hub));
        }
        self.lanes.ret.extend(&ret);
        (forward, ret)
    }

    /// Routes from a hub into its forward link, through the terminals' shapers if there are any.
    fn connect_uplink(&mut self, hub: NodeId, forward: LinkId, places: Range<usize>) {
        self.world.set_default_route(hub, RouteHop::Link(forward));
        let Some(shaper) = self.links.shaper.clone() else { return };
        // A node behind the shapers, where their packets enter the common forward link.
        let uplink = self.world.add_node();
        self.world.set_default_route(uplink, RouteHop::Link(forward));
        for place in places {
            let lane = self.world.connect(uplink, shaper.clone());
            self.route_to(hub, place, RouteHop::Link(lane));
            self.lanes.shapers.push(lane);
        }
    }

    /// Sets the route at a node to a terminal and its clients.
    fn route_to(&mut self, at: NodeId, place: usize, hop: RouteHop) {
        let terminal = self.nodes.terminals[place];
        for to in [terminal].iter().chain(&self.nodes.clients[place]) {
            self.world.set_route(at, *to, hop);
        }
    }

    /// Creates the return links of a platform: `channels` links, or each terminal's part of a shared one.
    fn connect_returns(&mut self, heard_by: NodeId, channels: u32, terminals: u32) -> Vec<LinkId> {
        let hop = &self.case.hop;
        let returns = &self.links.returns;
        if let Some(dama) = &hop.dama {
            let config = dama.config(&hop.forward, &returns[0], terminals);
            let shared = config.and_then(|config| self.world.connect_shared(heard_by, config));
            // The file was validated with the same function when it was read.
            return shared.expect("a valid scenario has a valid return link");
        }
        let returns = returns.iter().cycle().take(channels as usize);
        returns.map(|ret| self.world.connect(heard_by, ret.clone())).collect()
    }

    /// Lets terminals limit the windows of the hosts behind them.
    fn add_limiters(&mut self, platform: usize, room: ByteCount, up: &[LinkId]) {
        let places = self.nodes.platforms[platform].places.clone();
        for (number, place) in places.enumerate() {
            let lane = up[number % up.len()];
            self.world.limit_windows(self.nodes.terminals[place], lane, room);
        }
    }

    /// Lets the hub space acknowledgements to its servers, by default at the forward link's rate.
    fn add_spacer(&mut self, platform: usize, told: Option<BitRate>) {
        let PlatformNodes { hub, ref servers, cache, .. } = self.nodes.platforms[platform];
        let servers: Vec<_> = servers.iter().copied().chain(cache).collect();
        let hop = &self.case.hop;
        let rate = told.unwrap_or_else(|| hop.forward.peak_rate(hop.mtu));
        self.world.space_acknowledgements(hub, &servers, rate);
    }

    /// Creates the SLACP gateways of a platform. They use the rates that the links leave to IP packets,
    /// unless the file sets others.
    fn add_slacp(&mut self, platform: usize, gateways: &GatewaysSpec, down: LinkId, up: &[LinkId]) {
        let hop = &self.case.hop;
        let forward = self.slacp_config(gateways, gateways.forward_rate, &hop.forward);
        let config = |link: &LinkSpec| {
            (self.slacp_config(gateways, gateways.return_rate, link), link.clone())
        };
        let returns: Vec<_> = self.case.returns().iter().map(config).collect();
        let PlatformNodes { hub, ref places, .. } = self.nodes.platforms[platform];
        let places = places.clone();
        self.world.add_hub(hub, forward, &self.nodes.terminals[places.clone()]);
        self.configure_lower_link(hub, gateways, &hop.forward, down);
        for (number, place) in places.enumerate() {
            let (config, link) = &returns[number % returns.len()];
            let terminal = self.nodes.terminals[place];
            self.world.add_terminal(terminal, config.clone(), hub);
            self.configure_lower_link(terminal, gateways, link, up[number % up.len()]);
            if gateways.split == SplitMode::Packets {
                self.route_through_tunnel(platform, place);
            }
        }
    }

    fn slacp_config(
        &self,
        gateways: &GatewaysSpec,
        told: Option<BitRate>,
        link: &LinkSpec,
    ) -> slacp::Config {
        let mtu = self.case.hop.mtu;
        let rate = told.unwrap_or_else(|| link.peak_rate(mtu));
        let mut config = slacp::Config::new(slacp::Rate::Fixed(rate));
        if gateways.overhead == Overhead::LinkLayer {
            config.link_layer = true;
            // SLACP counts the headers of a tunnel in its MTU; as a link layer it has none.
            config.mtu = mtu + (LINK_LAYER_HEADERS + IP_HEADER + UDP_HEADER + TUNNEL_ONLY) as u16;
        }
        if gateways.compression.compress {
            config.decompressors = decompressors(config.memory);
        }
        // One channel with these settings is within SLACP's limits.
        let added = World::add_tunnel(&mut config, gateways.queue, gateways.compression);
        debug_assert_eq!(added, Ok(()));
        config
    }

    /// Sets a gateway's overhead on the link, and the size of its MAC buffer.
    fn configure_lower_link(
        &mut self,
        node: NodeId,
        gateways: &GatewaysSpec,
        link: &LinkSpec,
        lane: LinkId,
    ) {
        // A full packet with the headers of SLACP is the largest that the buffer has to take.
        let packet = usize::from(self.case.hop.mtu) + LINK_LAYER_HEADERS;
        let rate = link.peak_rate(packet as u16);
        let look_every = rate.time_to_send(ByteCount::new(packet as u64)) / CHECKS_PER_PACKET;
        let buffer = |most| MacBuffer { lane, most, packet, check_interval: look_every };
        self.world.set_lower_link(node, gateways.overhead, gateways.mac_buffer.map(buffer));
    }

    /// Routes packets of hosts through the session; packets of the gateways themselves use the link.
    fn route_through_tunnel(&mut self, platform: usize, place: usize) {
        let terminal = self.nodes.terminals[place];
        let PlatformNodes { hub, ref servers, cache, .. } = self.nodes.platforms[platform];
        for client in &self.nodes.clients[place] {
            self.world.set_route(hub, *client, RouteHop::Tunnel(terminal));
        }
        for server in servers.iter().chain(&cache) {
            self.world.set_route(terminal, *server, RouteHop::Tunnel(hub));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: Range<u32>) -> Vec<NodeId> {
        range.map(NodeId).collect()
    }

    fn nodes() -> NodesByRole {
        let (relays, servers) = (Vec::new(), ids(10..12));
        let platform = PlatformNodes { hub: NodeId(0), relays, servers, cache: None, places: 0..3 };
        NodesByRole {
            platforms: vec![platform],
            terminals: ids(20..23),
            clients: vec![ids(30..32), ids(32..34), ids(34..36)],
        }
    }

    fn ends(
        nodes: &NodesByRole,
        numbers: Range<u32>,
        on: Option<u32>,
        mesh: bool,
    ) -> Vec<[u32; 3]> {
        let ends = numbers.map(|number| nodes.ends(number, on, mesh));
        ends.map(|ConnectionNodes { client, terminal, server, .. }| {
            [client.0, terminal.0, server.0]
        })
        .collect()
    }

    #[test]
    fn applications_go_round_terminals_first_then_clients() {
        assert_eq!(
            ends(&nodes(), 0..7, None, false),
            [
                [30, 20, 10],
                [32, 21, 11],
                [34, 22, 10],
                [31, 20, 11],
                [33, 21, 10],
                [35, 22, 11],
                [30, 20, 10],
            ]
        );
    }

    #[test]
    fn in_a_mesh_the_server_is_a_client_of_the_next_terminal() {
        assert_eq!(
            ends(&nodes(), 0..4, None, true),
            [[30, 20, 32], [32, 21, 34], [34, 22, 30], [31, 20, 33]]
        );
    }

    #[test]
    fn a_server_is_behind_the_hub_of_the_client_s_platform() {
        let mut nodes = nodes();
        nodes.platforms[0].places = 0..1;
        nodes.platforms.push(PlatformNodes {
            hub: NodeId(1),
            relays: Vec::new(),
            servers: ids(12..13),
            cache: None,
            places: 1..3,
        });
        let all = ends(&nodes, 0..4, None, false);
        assert_eq!(all, [[30, 20, 10], [32, 21, 12], [34, 22, 12], [31, 20, 11]]);
        let second = ends(&nodes, 0..3, Some(1), false);
        assert_eq!(second, [[32, 21, 12], [34, 22, 12], [33, 21, 12]]);
        let hubs = [0, 1].map(|platform| nodes.ends(0, Some(platform), false).hub.0);
        assert_eq!(hubs, [0, 1]);
        assert_eq!([None, Some(0), Some(1)].map(|on| nodes.count_clients(on)), [6, 2, 4]);
    }
}
