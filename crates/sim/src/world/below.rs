//! The link below a SLACP gateway: its overhead, and the flow control of its MAC buffer.

use core::time::Duration;

use link::TrafficClass;
use scenario::Overhead;
use units::{ByteCount, Instant, Machine};

use super::World;
use crate::ids::{LinkId, NodeId};
use crate::network::PacketCarrier;
use crate::network::packet::SlacpDatagram;

/// The link below a gateway, as SLACP sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct LowerLink {
    pub(super) overhead: Overhead,
    /// Flow control between MAC and IP, if it is used.
    buffer: Option<MacBuffer>,
    /// True while new data is held back.
    pub(super) is_full: bool,
    pub(super) charged: ChargedBytes,
}

/// Bytes that a gateway's datagrams took on links, and would have taken in a secure tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChargedBytes {
    /// Number of datagrams that the gateway has sent.
    pub packets: u64,
    /// Their size on the link, in bytes.
    pub link: u64,
    /// Their size as IP packets, in bytes.
    pub tunnel: u64,
}

impl ChargedBytes {
    pub(super) fn add(&mut self, sealed: &SlacpDatagram) {
        self.packets += 1;
        self.link += sealed.wire_len() as u64;
        self.tunnel += sealed.tunnel_len() as u64;
    }
}

/// The buffer in front of a gateway's link: flow control between MAC and IP (SLACP paper, §2).
#[derive(Debug, Clone)]
pub struct MacBuffer {
    /// The link whose queue is the buffer.
    pub lane: LinkId,
    /// Maximum number of bytes that may wait for it.
    pub most: ByteCount,
    /// Size of a full packet on the link, in bytes. New data is passed on if a full packet fits.
    pub packet: usize,
    /// Time between checks for room while the buffer is full. A fraction of the time that a full packet
    /// takes, so that the link never runs out of packets.
    pub check_interval: Duration,
}

impl LowerLink {
    /// Returns the same link for a gateway that has restarted, with nothing held back.
    pub(super) fn after_restart(&self) -> Self {
        Self { is_full: false, ..self.clone() }
    }

    /// Returns the time of the next check for room, while the buffer is full.
    pub(super) fn next_check(&self, now: Instant) -> Option<Instant> {
        let buffer = self.buffer.as_ref().filter(|_| self.is_full)?;
        Some(now + buffer.check_interval)
    }
}

impl World {
    /// Sets the overhead and the buffer of the link below a gateway; without a buffer, SLACP sends at
    /// its own rate.
    pub fn set_lower_link(&mut self, node: NodeId, overhead: Overhead, buffer: Option<MacBuffer>) {
        if let Some(gateway) = self.gateway(node) {
            gateway.below = LowerLink { overhead, buffer, ..LowerLink::default() };
        }
    }

    /// Returns the bytes that a gateway's datagrams have taken; zeros if the node is not a gateway.
    pub fn charged(&self, node: NodeId) -> ChargedBytes {
        let place = self.nodes[node.index()].gateway;
        place
            .map_or_else(ChargedBytes::default, |place| self.gateways[place as usize].below.charged)
    }

    /// Returns the bytes that wait for a lane now. On a shared return link these are the bytes in front
    /// of the MAC buffer and in it, without control traffic.
    pub(super) fn waiting(&mut self, lane: LinkId) -> u64 {
        let now = self.now;
        match &mut self.lanes[lane.index()].carrier {
            PacketCarrier::Own { link, .. } => {
                // The link's alarm may not have rung yet, so its queue may be older than `now`.
                link.handle_timeout(now);
                link.queued().bytes.get()
            }
            PacketCarrier::Shared { medium, terminal } => {
                let medium = *medium;
                let terminal = *terminal;
                let dama = &mut self.media[medium as usize].dama;
                let cells = dama.waiting(now, terminal, TrafficClass::Bulk);
                let payload = dama.frames().cell.payload;
                let bytes = u64::from(cells) * u64::from(payload);
                let all = bytes + dama.queued(terminal).bytes.get();
                self.set_medium_alarm(medium);
                all
            }
        }
    }

    /// Holds back new data of a gateway's sessions while the link below has no room for a packet.
    pub(super) fn update_hold_back(&mut self, node: NodeId) {
        let now = self.now;
        let Some(MacBuffer { lane, most, packet, .. }) =
            self.gateway(node).and_then(|gateway| gateway.below.buffer.clone())
        else {
            return;
        };
        let is_full = self.waiting(lane) + packet as u64 > most.get();
        let Some(gateway) = self.gateway(node) else { return };
        // Passes on only changes, because each call visits every session.
        if core::mem::replace(&mut gateway.below.is_full, is_full) == is_full {
            return;
        }
        let sessions: Vec<_> = gateway.sessions.values().copied().collect();
        for session in sessions {
            // The call fails only for a session that has ended; it has nothing to hold back.
            let _ = gateway.endpoint.hold_back(now, session, 0, is_full);
        }
    }
}
