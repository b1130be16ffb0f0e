//! Nodes and links of a case.

use link::LinkConfig;
use scenario::{Case, Gateways, LinkSpec, Links, Overhead, Split};
use units::{BitRate, ByteCount};

use crate::network::{Hop, LaneId};
use crate::packet::{IP_HEADER, NodeId, TUNNEL_ONLY, UDP_HEADER};
use crate::world::{MacBuffer, World};

/// Maximum size of the headers of SLACP as a link layer, in bytes: what AAL5 leaves beside an IP
/// packet of 1450 bytes and its own trailer in 31 cells (31 · 48 − 1450 − 8).
const LINK_LAYER_HEADERS: usize = 30;
/// How often a gateway looks for room in its MAC's buffer during a full packet.
const LOOKS: u32 = 8;

/// The nodes by role.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) servers: Vec<NodeId>,
    pub(super) hub: Option<NodeId>,
    pub(super) terminals: Vec<NodeId>,
    /// By terminal.
    pub(super) clients: Vec<Vec<NodeId>>,
}

impl Nodes {
    /// Client, terminal and server of a flow's application with this number, assigned in turn.
    pub(super) fn ends(&self, number: u32, mesh: bool) -> [NodeId; 3] {
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
pub(super) struct Network<'a> {
    case: &'a Case,
    world: &'a mut World,
    links: Links,
    nodes: Nodes,
}

impl Network<'_> {
    /// Creates nodes, links and routes; returns the nodes and the hop's links.
    pub(super) fn lay(case: &Case, world: &mut World) -> (Nodes, [Vec<LaneId>; 2]) {
        let mut network = Network { case, world, links: case.links(), nodes: Nodes::default() };
        let lanes = network.lay_all();
        (network.nodes, lanes)
    }

    fn lay_all(&mut self) -> [Vec<LaneId>; 2] {
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
            self.lay_slacp(hub, gateways, &lanes);
        }
        lanes
    }

    fn lay_servers(&mut self, hub: NodeId) {
        let count = self.case.network.servers;
        self.nodes.servers = match self.links.server_side.clone() {
            None => vec![hub],
            Some(side) => (0..count).map(|_| self.host_at(hub, &side)).collect(),
        };
    }

    fn lay_clients(&mut self, terminal: NodeId) {
        let count = self.case.network.clients;
        let clients = match self.links.client_side.clone() {
            None => vec![terminal],
            Some(side) => (0..count).map(|_| self.host_at(terminal, &side)).collect(),
        };
        self.nodes.clients.push(clients);
    }

    /// Adds a host connected to a router by its own link.
    fn host_at(&mut self, router: NodeId, side: &LinkConfig) -> NodeId {
        let host = self.world.add_node();
        let to = self.world.connect(host, side.clone());
        let from = self.world.connect(router, side.clone());
        self.world.set_route(router, host, Hop::Lane(to));
        self.world.set_default_route(host, Hop::Lane(from));
        host
    }

    /// A single terminal, with a link in each direction.
    fn lay_pair(&mut self, hub: NodeId) -> [Vec<LaneId>; 2] {
        let terminal = self.nodes.terminals[0];
        let forward = self.world.connect(terminal, self.links.forward.clone());
        let ret = self.lay_returns(hub, 1);
        self.world.set_default_route(hub, Hop::Lane(forward));
        self.world.set_default_route(terminal, Hop::Lane(ret[0]));
        [vec![forward], ret]
    }

    /// Several terminals. All receive the hub's carrier. On the return path each has its own link,
    /// or they share some; in a mesh all terminals receive these too.
    fn lay_star(&mut self, hub: NodeId) -> [Vec<LaneId>; 2] {
        let (case, sky) = (self.case, self.world.add_node());
        let forward = self.world.connect(sky, self.links.forward.clone());
        self.world.set_default_route(hub, Hop::Lane(forward));
        let heard_by = if case.network.mesh { sky } else { hub };
        let own = case.network.terminals;
        let channels =
            if case.network.return_channels > 0 { case.network.return_channels } else { own };
        let ret = self.lay_returns(heard_by, channels);
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

    /// The return links of terminals: so many, or each terminal's part of a shared one.
    fn lay_returns(&mut self, heard_by: NodeId, channels: u32) -> Vec<LaneId> {
        let (hop, returns) = (&self.case.hop, &self.links.returns);
        if let Some(dama) = &hop.dama {
            let config = dama.config(&hop.forward, &returns[0], self.case.network.terminals);
            let shared = config.and_then(|config| self.world.connect_shared(heard_by, config));
            // Checked when the file was read.
            return shared.expect("a valid scenario has a valid return link");
        }
        let returns = returns.iter().cycle().take(channels as usize);
        returns.map(|ret| self.world.connect(heard_by, ret.clone())).collect()
    }

    /// SLACP uses the rates that the links leave to IP packets, unless the file says otherwise.
    fn lay_slacp(&mut self, hub: NodeId, gateways: &Gateways, lanes: &[Vec<LaneId>; 2]) {
        let hop = &self.case.hop;
        let forward = self.slacp_config(gateways, gateways.forward_rate, &hop.forward);
        let returns: Vec<_> = self
            .case
            .returns()
            .iter()
            .map(|link| (self.slacp_config(gateways, gateways.return_rate, link), link.clone()))
            .collect();
        let terminals = self.nodes.terminals.clone();
        self.world.add_hub(hub, forward, &terminals);
        self.lay_below(hub, gateways, &hop.forward, lanes[0][0]);
        for (place, terminal) in terminals.into_iter().enumerate() {
            let (config, link) = &returns[place % returns.len()];
            self.world.add_terminal(terminal, config.clone(), hub);
            self.lay_below(terminal, gateways, link, lanes[1][place % lanes[1].len()]);
            if gateways.split == Split::Packets {
                self.lay_tunnel(hub, terminal);
            }
        }
    }

    fn slacp_config(
        &self,
        gateways: &Gateways,
        told: Option<BitRate>,
        link: &LinkSpec,
    ) -> slacp::Config {
        let mtu = self.case.hop.mtu;
        let rate = told.unwrap_or(link.peak_rate(mtu));
        let mut config = slacp::Config::new(slacp::Rate::Fixed(rate));
        if gateways.overhead == Overhead::LinkLayer {
            config.link_layer = true;
            config.mtu = mtu + (LINK_LAYER_HEADERS + IP_HEADER + UDP_HEADER + TUNNEL_ONLY) as u16;
        }
        // The channel is within SLACP's limits.
        let added = World::add_tunnel(&mut config, gateways.queue);
        debug_assert_eq!(added, Ok(()));
        config
    }

    /// Tells a gateway what its link charges, and what may wait for it.
    fn lay_below(&mut self, node: NodeId, gateways: &Gateways, link: &LinkSpec, lane: LaneId) {
        let packet = usize::from(self.case.hop.mtu) + LINK_LAYER_HEADERS;
        let rate = link.peak_rate(packet as u16);
        let look_every = rate.time_to_send(ByteCount::new(packet as u64)) / LOOKS;
        let buffer = |most| MacBuffer { lane, most, packet, look_every };
        self.world.set_below(node, gateways.overhead, gateways.mac_buffer.map(buffer));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Nodes {
        let ids = |range: core::ops::Range<u32>| range.map(NodeId).collect::<Vec<_>>();
        Nodes {
            servers: ids(10..12),
            hub: Some(NodeId(0)),
            terminals: ids(20..23),
            clients: vec![ids(30..32), ids(32..34), ids(34..36)],
        }
    }

    #[test]
    fn applications_go_round_terminals_first_then_clients() {
        let nodes = nodes();
        let all: Vec<_> = (0..7).map(|number| nodes.ends(number, false).map(|id| id.0)).collect();
        assert_eq!(
            all,
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
        let nodes = nodes();
        let all: Vec<_> = (0..4).map(|number| nodes.ends(number, true).map(|id| id.0)).collect();
        assert_eq!(all, [[30, 20, 32], [32, 21, 34], [34, 22, 30], [31, 20, 33]]);
    }
}
