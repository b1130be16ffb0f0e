//! Batches of similar packets with new data.
//!
//! While a fast session has much new data and nothing else to send, its packets are alike. The
//! conditions that could make one different are checked once for the batch, and for each packet
//! only those that sending changes.

use units::Instant;

use super::payload::PacketBuilder;
use super::send::{FAST_RATE, PacketRecord};
use super::{PacketEnvelope, Session, ip_udp_overhead};
use crate::scheduler::{NextTurn, TrafficKind};
use crate::wire::packet::TAG;

/// Further packets like the one that a session has just built.
pub(crate) struct PacketBatch<'a> {
    session: &'a mut Session,
    now: Instant,
    /// Destination and header fields that all of them share.
    like: PacketEnvelope,
    /// Length of each datagram, in bytes.
    len: usize,
    /// The scheduler's choice, whose data they carry.
    next: NextTurn,
    /// Number of further packets that its data is known to fill.
    filled: u64,
}

impl Session {
    /// Begins a batch of packets like `like`, which was built at `now`; `None` if
    /// [`Self::transmit`] might build other ones.
    pub(crate) fn stretch(
        &mut self,
        now: Instant,
        like: PacketEnvelope,
    ) -> Option<PacketBatch<'_>> {
        // A measured rate may want a MARK in any packet.
        let is_fast = self.rate.rate() >= FAST_RATE && self.rate.auto().is_none();
        if !is_fast || like.is_control || !self.is_quiet(now) {
            return None;
        }
        let next = self.next_data(now).filter(|next| self.is_all_that_waits(next))?;
        if self.sender.scheduler.dscp(next.class) != like.dscp {
            return None;
        }
        let len = like.size.get() as usize - ip_udp_overhead(like.to);
        Some(PacketBatch { session: self, now, like, len, next, filled: 0 })
    }

    /// Returns whether only new data is due until an event or a timer.
    fn is_quiet(&self, now: Instant) -> bool {
        let is_later = |time: Option<Instant>| time.is_none_or(|time| time > now);
        let is_plain = self.links.is_none() && self.membership.is_none() && !self.link_layer;
        is_plain
            && self.is_usable()
            && self.is_reachable()
            && !self.probes.is_pending()
            && self.path.validation.is_idle()
            && is_later(self.mtu_probe_at())
            && !self.ack_is_due(now)
            && !self.has_urgent()
            && self.loss.is_clean()
            && self.sender.planner.next().is_none()
            && self.sender.settled_due(now, self.rtt.smoothed()).is_none()
    }

    /// Returns whether only these streams have new data, and no maximum limits their class.
    fn is_all_that_waits(&self, next: &NextTurn) -> bool {
        let scheduler = &self.sender.scheduler;
        let mut others = (0..scheduler.classes()).filter(|class| *class != next.class);
        next.side == TrafficKind::Streams
            && !scheduler.is_limited(next.class)
            && self.sender.outbound.is_idle()
            && others.all(|class| self.streams.backlog(class).flows == 0)
    }
}

impl PacketBatch<'_> {
    /// Appends the next packet of the batch to `out`. Returns `false`, with `out` unchanged, if the
    /// next packet would not be like the others.
    pub(crate) fn transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let Self { session, now, like, len, next, filled } = self;
        let may_send =
            session.is_usable() && session.may_send_at().is_some_and(|time| time <= *now);
        let number = session.sender.sent.next_number();
        if !may_send || session.marking.codepoint(number) != like.ecn {
            return false;
        }
        let start = out.len();
        let header = session.write_header(number, out);
        let most = session.path.pmtu.size() - ip_udp_overhead(like.to) - TAG;
        let mut packet = PacketBuilder::new(number, out, &header, most);
        session.leave_room(&mut packet);
        if *filled == 0 && session.streams.backlog(next.class).flows == next.flows {
            *filled = session.streams.can_fill(next.class, packet.end - packet.start);
        }
        if *filled == 0 || packet.end + TAG - start != *len {
            out.truncate(start);
            return false;
        }
        *filled -= 1;
        packet.next = Some(*next);
        session.write_new(*now, &mut packet);
        let PacketBuilder { cargo, dscp, .. } = packet;
        let kept = PacketRecord { cargo, source: None, is_control: false, dscp };
        session.seal(*now, &header, out, like.to, Some(kept));
        debug_assert_eq!(out.len() - start, *len);
        true
    }
}
