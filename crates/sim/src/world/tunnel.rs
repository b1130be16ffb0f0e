//! SLACP as a link layer under IP: gateways carry whole packets on a packet channel of their
//! session.

use core::time::Duration;

use slacp::{ChannelConfig, ChannelId, Config, ConfigError, ErrorControl};
use units::ByteCount;

use super::World;
use crate::ip::{ecn, tag};
use crate::packet::{Body, NodeId, Packet};

/// The channel of tunnelled packets.
const CHANNEL: u8 = 0;
/// Maximum number of packets tracked: more than all tunnels hold together.
const PLACES: usize = 1 << 16;

/// Packets whose bytes are in transit. Those that never come out are overwritten eventually.
#[derive(Debug, Default)]
pub(super) struct Tunnelled {
    places: Vec<Option<Box<Packet>>>,
    next: u16,
}

impl Tunnelled {
    /// Stores a packet; returns its identification.
    fn put(&mut self, packet: Box<Packet>) -> u16 {
        let name = self.next;
        self.next = name.wrapping_add(1);
        let place = usize::from(name);
        if self.places.len() <= place {
            self.places.resize_with((place + 1).next_power_of_two().min(PLACES), || None);
        }
        self.places[place] = Some(packet);
        name
    }

    fn take(&mut self, name: u16) -> Option<Box<Packet>> {
        self.places.get_mut(usize::from(name))?.take()
    }
}

impl World {
    /// The longest that a packet waits for a tunnel, unless that is a link layer.
    pub const TUNNEL_QUEUE_TIME: Duration = Duration::from_secs(3);

    /// Adds the channel that [`crate::Hop::Tunnel`] needs to a gateway's settings, with a queue of
    /// this many bytes. On a link layer it is a link layer's, otherwise it has FEC and ARQ; its
    /// queue time is long, so that on a slow satellite link packets wait here and not on the link.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn add_tunnel(config: &mut Config, queue: ByteCount) -> Result<(), ConfigError> {
        let Some(channel) = ChannelId::new(CHANNEL) else { return Ok(()) };
        let queue_time = Self::TUNNEL_QUEUE_TIME;
        let tunnel =
            ChannelConfig { queue, queue_time, ..ChannelConfig::new(ErrorControl::FecArq) };
        let link_layer = config.link_layer.then(|| ChannelConfig::link_layer(queue));
        config.add_channel(channel, link_layer.unwrap_or(tunnel))
    }

    /// Sends a packet through the session between two gateways; without a session it is lost.
    pub(super) fn enter_tunnel(&mut self, node: NodeId, peer: NodeId, packet: Box<Packet>) {
        let now = self.now;
        let mut bytes = packet.to_bytes();
        let name = self.tunnelled.put(packet);
        if let Some(tag) = tag(&mut bytes) {
            *tag = name.to_be_bytes();
        }
        let Some(gateway) = self.gateway(node) else { return };
        let session = gateway.sessions.get(&peer).copied();
        let (Some(session), Some(channel)) = (session, ChannelId::new(CHANNEL)) else { return };
        if gateway.endpoint.send_packet(now, session, channel, &bytes).is_ok() {
            self.restless.push_back(node);
        }
    }

    /// Forwards packets that have come out at a gateway.
    pub(super) fn leave_tunnels(&mut self, node: NodeId) {
        while let Some((_, _, mut bytes)) =
            self.gateway(node).and_then(|gateway| gateway.endpoint.poll_packet())
        {
            let Some(name) = tag(&mut bytes).copied() else { continue };
            let Some(mut packet) = self.tunnelled.take(u16::from_be_bytes(name)) else { continue };
            if let Body::Tcp { segment, .. } = &mut packet.body {
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
    use super::*;

    fn packet(number: u32) -> Box<Packet> {
        Box::new(Packet::v4(NodeId(number), NodeId(0), Packet::blank().body))
    }

    #[test]
    fn a_packet_comes_out_once_and_by_its_own_name() {
        let mut tunnelled = Tunnelled::default();
        let names = [1, 2, 3].map(|number| tunnelled.put(packet(number)));
        let out = [names[2], names[0], names[0]]
            .map(|name| tunnelled.take(name).map(|packet| packet.from.0));
        assert_eq!(out, [Some(3), Some(1), None]);
        assert!(tunnelled.take(4).is_none());
        assert!(tunnelled.take(u16::MAX).is_none());
    }

    #[test]
    fn lost_packets_give_way_after_a_full_turn_of_names() {
        let mut tunnelled = Tunnelled::default();
        let lost = tunnelled.put(packet(1));
        for number in 0..PLACES as u32 - 1 {
            let name = tunnelled.put(packet(number));
            assert_ne!(name, lost);
        }
        assert_eq!(tunnelled.put(packet(7)), lost);
        assert_eq!(tunnelled.take(lost).map(|packet| packet.from.0), Some(7));
        assert_eq!(tunnelled.places.len(), PLACES);
    }
}
