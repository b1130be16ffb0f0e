//! Gateways that limit windows instead of splitting connections.

use pep::traffic::window::WindowLimits;
use units::ByteCount;

use super::World;
use crate::ids::{LinkId, NodeId};
use crate::network::RouteHop;
use crate::network::packet::{PacketBody, SimulatedPacket};
use crate::network::window_limiter::WindowLimiter;

impl World {
    /// Lets `node` lower the windows of the connections whose data passes it on its way into `lane`,
    /// so that about `room` bytes wait there.
    pub fn limit_windows(&mut self, node: NodeId, lane: LinkId, room: ByteCount) {
        let limiter = WindowLimiter { windows: WindowLimits::new(room), lane };
        self.nodes[node.index()].limiter = Some(Box::new(limiter));
    }

    /// Lowers the window of a segment that passes a node with a limiter, or records the data that it
    /// sends into the link.
    pub(super) fn pass_limiter(&mut self, node: NodeId, packet: &mut SimulatedPacket) {
        let Some(WindowLimiter { lane, .. }) = self.nodes[node.index()].limiter.as_deref() else {
            return;
        };
        let lane = *lane;
        let leaves = self.nodes[node.index()].route(packet.to) == Some(RouteHop::Link(lane));
        let waiting = if leaves { 0 } else { self.waiting(lane) };
        let PacketBody::Tcp { source, destination, segment } = &mut packet.body else { return };
        let Some(limiter) = &mut self.nodes[node.index()].limiter else { return };
        if leaves {
            limiter.windows.handle_sent(*source, segment);
        } else {
            // The other direction carries the windows that the senders see.
            limiter.windows.handle_received(*destination, segment, ByteCount::new(waiting));
        }
    }
}
