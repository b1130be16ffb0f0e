//! SLACP as a link layer under IP: gateways carry whole packets on a packet channel of their
//! session.

use core::time::Duration;
use std::collections::BTreeMap;

use scenario::CompressionSpec;
use slacp::{ChannelConfig, ChannelId, Config, ConfigError, ErrorControl};
use units::ByteCount;

use super::World;
use crate::ids::NodeId;
use crate::network::ip::ecn;
use crate::network::packet::{PacketBody, SimulatedPacket};

/// The session's packet channel for tunnelled packets.
const CHANNEL: u8 = 0;
/// Maximum number of packets tracked: more than all tunnels hold together.
const MAX_TRACKED: usize = 1 << 16;
/// Number of bytes that identify a packet: more than all headers and a datagram's number.
const IDENTITY_BYTES: usize = 128;

/// Packets whose bytes are in transit, found by their first bytes. Of identical packets the last one
/// is found first. The oldest are dropped when there are too many, because some never come out.
#[derive(Debug, Default)]
pub(super) struct TunnelledPackets {
    packets: BTreeMap<Vec<u8>, Vec<(u64, Box<SimulatedPacket>)>>,
    /// Keys of the packets by age.
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl TunnelledPackets {
    fn put(&mut self, bytes: &[u8], packet: Box<SimulatedPacket>) {
        if self.order.len() >= MAX_TRACKED
            && let Some((number, name)) = self.order.pop_first()
        {
            // Identical packets have the same name, so the oldest is told by its number.
            self.remove(&name, |alike| alike.iter().position(|(other, _)| *other == number));
        }
        let name = packet_identity(bytes);
        self.order.insert(self.next, name.clone());
        self.packets.entry(name).or_default().push((self.next, packet));
        self.next += 1;
    }

    fn take(&mut self, bytes: &[u8]) -> Option<Box<SimulatedPacket>> {
        let (number, packet) =
            self.remove(&packet_identity(bytes), |alike| alike.len().checked_sub(1))?;
        self.order.remove(&number);
        Some(packet)
    }

    fn remove(
        &mut self,
        name: &[u8],
        which: impl FnOnce(&[(u64, Box<SimulatedPacket>)]) -> Option<usize>,
    ) -> Option<(u64, Box<SimulatedPacket>)> {
        let alike = self.packets.get_mut(name)?;
        let found = which(alike).map(|place| alike.remove(place));
        if alike.is_empty() {
            self.packets.remove(name);
        }
        found
    }
}

/// Returns the bytes that identify a packet. ECN and the checksum over it are masked, because they
/// may change on the way.
fn packet_identity(bytes: &[u8]) -> Vec<u8> {
    let mut name = bytes[..bytes.len().min(IDENTITY_BYTES)].to_vec();
    let is_v6 = name.first().is_some_and(|first| first >> 4 == 6);
    if let Some(class) = name.get_mut(1) {
        // IPv6's traffic class begins four bits earlier, so ECN is in bits 4 and 5 here.
        *class &= if is_v6 { 0xcf } else { 0xfc };
    }
    if let Some(checksum) = name.get_mut(10..12).filter(|_| !is_v6) {
        checksum.fill(0);
    }
    name.extend(bytes.len().to_be_bytes());
    name
}

impl World {
    /// The longest time a packet waits for a tunnel, unless the tunnel is a link layer.
    pub const TUNNEL_QUEUE_TIME: Duration = Duration::from_secs(3);

    /// Adds the channel for [`crate::RouteHop::Tunnel`] to a gateway's settings, with a queue of `queue`
    /// bytes. On a link layer it has a link layer's settings. Otherwise it has FEC and ARQ, and a long
    /// queue time, so that on a slow satellite link packets wait here and not on the link.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the channel exceeds SLACP's limits.
    pub fn add_tunnel(
        config: &mut Config,
        queue: ByteCount,
        thrift: CompressionSpec,
    ) -> Result<(), ConfigError> {
        let Some(channel) = ChannelId::new(CHANNEL) else { return Ok(()) };
        let queue_time = Self::TUNNEL_QUEUE_TIME;
        let tunnel =
            ChannelConfig { queue, queue_time, ..ChannelConfig::new(ErrorControl::FecArq) };
        let link_layer = config.link_layer.then(|| ChannelConfig::link_layer(queue));
        let CompressionSpec { compress_headers: compress, gather, .. } = thrift;
        let tunnel = ChannelConfig { compress, gather, ..link_layer.unwrap_or(tunnel) };
        config.add_channel(channel, tunnel)
    }

    /// Sends a packet through the session between two gateways; it is lost if there is no session.
    pub(super) fn enter_tunnel(
        &mut self,
        node: NodeId,
        peer: NodeId,
        packet: Box<SimulatedPacket>,
    ) {
        let now = self.now;
        let bytes = packet.to_bytes();
        // Kept even if the session refuses the packet: the oldest give way.
        self.tunnelled.put(&bytes, packet);
        let Some(gateway) = self.gateway(node) else { return };
        let Some(session) = gateway.sessions.get(&peer).copied() else { return };
        let Some(channel) = ChannelId::new(CHANNEL) else { return };
        if gateway.endpoint.send_packet(now, session, channel, &bytes).is_ok() {
            self.gateways_to_drive.push_back(node);
        }
    }

    /// Forwards the packets that have come out of a gateway's tunnels.
    pub(super) fn leave_tunnels(&mut self, node: NodeId) {
        while let Some((_, _, bytes)) =
            self.gateway(node).and_then(|gateway| gateway.endpoint.poll_packet())
        {
            let Some(mut packet) = self.tunnelled.take(&bytes) else { continue };
            if let PacketBody::Tcp { segment, .. } = &mut packet.body {
                // A queue on the way may have marked the packet.
                segment.ecn = ecn(&bytes);
            }
            self.arrivals += 1;
            if packet.to == node {
                self.deliver(packet);
            } else {
                self.forward(node, packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;
    use crate::network::packet::AppDatagram;

    fn packet(number: u64, payload: u32) -> Box<SimulatedPacket> {
        let (app, sent_at) = (0, Instant::from_nanos(number));
        let datagram = AppDatagram { app, number, sent_at, len: payload, dscp: 0 };
        Box::new(SimulatedPacket::v4(NodeId(1), NodeId(2), PacketBody::Cbr(datagram)))
    }

    fn number(packet: Option<Box<SimulatedPacket>>) -> Option<u64> {
        packet.map(|packet| match packet.body {
            PacketBody::Cbr(datagram) => datagram.sent_at.as_nanos(),
            _ => unreachable!(),
        })
    }

    #[test]
    fn a_packet_comes_out_once_and_is_the_one_that_went_in() {
        let mut tunnelled = TunnelledPackets::default();
        let bytes = [1, 2, 3].map(|it| packet(it, 8).to_bytes());
        for (number, bytes) in (1..).zip(&bytes) {
            tunnelled.put(bytes, packet(number, 8));
        }
        let out = [2, 0, 0].map(|place| number(tunnelled.take(&bytes[place])));
        assert_eq!(out, [Some(3), Some(1), None]);
        // A mark on the way, with another checksum, makes it no other packet.
        let mut marked = bytes[1].clone();
        (marked[1], marked[10]) = (marked[1] | 3, marked[10] ^ 1);
        assert_eq!(number(tunnelled.take(&marked)), Some(2));
        assert!(tunnelled.packets.is_empty() && tunnelled.order.is_empty());
    }

    #[test]
    fn of_packets_that_are_alike_the_last_comes_out_first() {
        let mut tunnelled = TunnelledPackets::default();
        // Too short for their numbers.
        let bytes = packet(0, 1).to_bytes();
        (1..=3).for_each(|number| tunnelled.put(&bytes, packet(number, 1)));
        let out = [(); 4].map(|()| number(tunnelled.take(&bytes)));
        assert_eq!(out, [Some(3), Some(2), Some(1), None]);
    }

    #[test]
    fn lost_packets_give_way_to_others_the_oldest_first() {
        let mut tunnelled = TunnelledPackets::default();
        let first = packet(0, 8).to_bytes();
        for number in 0..=MAX_TRACKED as u64 {
            tunnelled.put(&packet(number, 8).to_bytes(), packet(number, 8));
        }
        assert_eq!((tunnelled.order.len(), tunnelled.packets.len()), (MAX_TRACKED, MAX_TRACKED));
        assert!(tunnelled.take(&first).is_none());
        assert_eq!(number(tunnelled.take(&packet(1, 8).to_bytes())), Some(1));
    }
}
