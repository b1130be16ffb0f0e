//! One direction between two peers: a link, and the mangling of its deliveries.

use units::{Instant, Machine, earliest};

use super::mangle::Mangler;
use crate::{CarriedPacket, Dice, Link, LinkConfig};

/// A datagram including its headers on the link.
#[derive(Debug)]
pub(super) struct Datagram {
    bytes: Vec<u8>,
    overhead: usize,
}

impl CarriedPacket for Datagram {
    fn wire_len(&self) -> usize {
        self.bytes.len() + self.overhead
    }
}

/// The next event of a lane, for reports of stalled runs.
#[derive(Debug)]
pub(super) enum LaneWake {
    #[allow(dead_code, reason = "printed when a run stalls")]
    Link(crate::WakeCause),
    Mangler,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) link: Link<Datagram>,
    pub(super) mangler: Mangler,
}

impl Lane {
    pub(super) fn new(from: usize, to: usize, config: LinkConfig, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let link = Link::new(config, dice.bits());
        Self { from, to, link, mangler: Mangler::new(dice.bits()) }
    }

    pub(super) fn send(&mut self, now: Instant, bytes: Vec<u8>, overhead: usize) {
        self.link.handle_packet(now, Datagram { bytes, overhead });
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, LaneWake)> {
        let link = self.link.poll_timeout().map(|(at, wake)| (at, LaneWake::Link(wake)));
        let mangler = self.mangler.next().map(|at| (at, LaneWake::Mangler));
        earliest(link, mangler)
    }

    /// Returns the next datagram that arrives by `now`.
    pub(super) fn poll_delivery(&mut self, now: Instant) -> Option<Vec<u8>> {
        while let Some((at, datagram)) = self.link.poll_arrival(now) {
            self.mangler.handle_datagram(at, datagram.bytes, datagram.overhead);
        }
        self.mangler.poll(now)
    }
}
