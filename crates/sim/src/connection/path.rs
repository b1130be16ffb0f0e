//! The path of a connection, and the places where it is split.

use std::sync::Arc;

use scenario::{CacheSpec, Direction, IpVersion};

use super::contents::StreamContents;
use crate::ids::NodeId;

/// The path of a connection from the client through any gateways to the server: `nodes.len() ==
/// legs.len() + 1`.
#[derive(Debug, Clone)]
pub struct ConnectionPath {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) legs: Vec<PathLeg>,
    /// IP version on all TCP segments of the path.
    pub(crate) ip: IpVersion,
    /// If the path ends at a cache: its properties, and the path from there to the server.
    pub(crate) cache: Option<(CacheSpec, Arc<Self>)>,
    /// The data on SLACP segments.
    pub(crate) contents: StreamContents,
}

/// One segment of a split connection, or all of an unsplit one.
#[derive(Debug, Clone)]
pub enum PathLeg {
    /// TCP, with the settings of the end nearer to the client and of the other end.
    Tcp(Arc<tcp::Config>, Arc<tcp::Config>),
    /// A stream of the SLACP session between two gateways, opened by the first.
    Slacp,
}

impl ConnectionPath {
    /// Creates an unsplit path; `ends` are the settings of the client's and the server's TCP.
    pub fn direct(client: NodeId, server: NodeId, ends: [Arc<tcp::Config>; 2]) -> Self {
        let [client_tcp, server_tcp] = ends;
        let legs = vec![PathLeg::Tcp(client_tcp, server_tcp)];
        Self {
            nodes: vec![client, server],
            legs,
            ip: IpVersion::Ipv4,
            cache: None,
            contents: StreamContents::Numbers,
        }
    }

    /// Creates a path that `gateways` split.
    ///
    /// # Panics
    /// Unless there is one leg more than there are gateways, and the first and the last leg are
    /// TCP.
    pub fn split(client: NodeId, gateways: &[NodeId], server: NodeId, legs: Vec<PathLeg>) -> Self {
        assert_eq!(legs.len(), gateways.len() + 1, "legs of a path");
        let ends = [legs.first(), legs.last()];
        assert!(ends.iter().all(|leg| matches!(leg, Some(PathLeg::Tcp(..)))), "hosts speak TCP");
        let nodes = [&[client], gateways, &[server]].concat();
        Self { nodes, legs, ip: IpVersion::Ipv4, cache: None, contents: StreamContents::Numbers }
    }

    /// Ends the path at a cache, from which `origin` leads to the server.
    #[must_use]
    pub fn to_cache(self, spec: CacheSpec, origin: Self) -> Self {
        Self { cache: Some((spec, Arc::new(origin))), ..self }
    }

    /// Returns the TCP segments of the path as paths of their own, from the sender on. The sender's end
    /// opens each of them. SLACP segments are left out.
    pub fn hops(&self, direction: Direction) -> Vec<Arc<Self>> {
        let ends = self.nodes.windows(2).zip(&self.legs);
        let hop = |(ends, leg): (&[NodeId], &PathLeg)| {
            let PathLeg::Tcp(near, far) = leg else { return None };
            let near = (ends[0], Arc::clone(near));
            let far = (ends[1], Arc::clone(far));
            let ((from, mine), (to, theirs)) = match direction {
                Direction::Up => (near, far),
                Direction::Down => (far, near),
            };
            Some(Arc::new(Self::direct(from, to, [mine, theirs]).over(self.ip)))
        };
        let hops = ends.filter_map(hop);
        match direction {
            Direction::Up => hops.collect(),
            Direction::Down => hops.rev().collect(),
        }
    }

    /// Sets the data that SLACP segments carry, which gateways may compress.
    #[must_use]
    pub(crate) fn carrying(self, contents: StreamContents) -> Self {
        Self { contents, ..self }
    }

    /// Sets the IP version of all TCP segments.
    #[must_use]
    pub fn over(self, ip: IpVersion) -> Self {
        Self { ip, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{tcp, tcp_leg};

    #[test]
    fn a_path_has_a_node_more_than_legs() {
        let [client, hub, server] = [1, 2, 3].map(NodeId);
        let direct = ConnectionPath::direct(client, server, tcp());
        assert_eq!((direct.nodes, direct.legs.len()), (vec![client, server], 1));
        let split = ConnectionPath::split(client, &[hub], server, vec![tcp_leg(), tcp_leg()]);
        assert_eq!((split.nodes, split.legs.len()), (vec![client, hub, server], 2));
    }

    #[test]
    fn hops_lead_from_the_sender_on_and_leave_slacp_out() {
        let legs = vec![tcp_leg(), PathLeg::Slacp, tcp_leg()];
        let path = ConnectionPath::split(NodeId(1), &[NodeId(2), NodeId(3)], NodeId(4), legs);
        let ends = |direction| {
            let hops = path.hops(direction);
            hops.iter().map(|hop| [hop.nodes[0].0, hop.nodes[1].0]).collect::<Vec<_>>()
        };
        assert_eq!(ends(Direction::Up), [[1, 2], [3, 4]]);
        assert_eq!(ends(Direction::Down), [[4, 3], [2, 1]]);
        let slow = Arc::new(tcp::Config { nagle: true, ..(*tcp()[0]).clone() });
        let path = ConnectionPath::direct(
            NodeId(1),
            NodeId(2),
            [Arc::clone(&slow), Arc::clone(&tcp()[1])],
        );
        let PathLeg::Tcp(_, theirs) = &path.hops(Direction::Down)[0].legs[0] else {
            unreachable!()
        };
        assert!(Arc::ptr_eq(theirs, &slow), "settings stay with their node");
    }

    #[test]
    #[should_panic(expected = "legs of a path")]
    fn a_gateway_without_a_leg_of_its_own_is_a_mistake() {
        let _ = ConnectionPath::split(NodeId(1), &[NodeId(2)], NodeId(3), vec![tcp_leg()]);
    }

    #[test]
    #[should_panic(expected = "hosts speak TCP")]
    fn a_host_cannot_be_reached_over_slacp() {
        let _ = ConnectionPath::split(
            NodeId(1),
            &[NodeId(2)],
            NodeId(3),
            vec![tcp_leg(), PathLeg::Slacp],
        );
    }
}
