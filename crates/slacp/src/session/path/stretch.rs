//! Batches of similar packets with new data.
//!
//! While a fast session has much new data and nothing else to send, its packets are alike. The
//! conditions that could make one different are checked once for the batch, and for each packet
//! only those that sending changes.

use units::Instant;

use super::payload::PacketBuilder;
use super::send::{FAST_RATE, PacketRecord};
use super::{SessionPath, SharedState};
use crate::scheduler::NextTurn;
use crate::session::{PacketEnvelope, ip_udp_overhead};
use crate::wire::packet::TAG;

/// Further packets like the one that a session has just built.
pub(crate) struct PacketBatch<'a> {
    path: &'a mut SessionPath,
    shared: &'a mut SharedState,
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

impl SessionPath {
    /// Begins a batch of packets like `like`, which was built at `now`; `None` if
    /// [`Self::transmit`] might build other ones.
    pub(in crate::session) fn stretch<'a>(
        &'a mut self,
        shared: &'a mut SharedState,
        now: Instant,
        like: PacketEnvelope,
    ) -> Option<PacketBatch<'a>> {
        // A measured rate may want a MARK in any packet.
        let is_fast = self.rate.rate() >= FAST_RATE && self.rate.auto().is_none();
        if !is_fast || like.is_control || !self.is_quiet(shared, now) {
            return None;
        }
        let next = self.next_data(shared, now).filter(|next| shared.is_all_that_waits(next))?;
        if shared.scheduler.dscp(next.class) != like.dscp {
            return None;
        }
        let len = like.size.get() as usize - ip_udp_overhead(like.to);
        Some(PacketBatch { path: self, shared, now, like, len, next, filled: 0 })
    }

    /// Returns whether only new data is due until an event or a timer.
    fn is_quiet(&self, shared: &SharedState, now: Instant) -> bool {
        let is_later = |time: Option<Instant>| time.is_none_or(|time| time > now);
        let is_plain = self.membership.is_none() && !shared.link_layer;
        is_plain
            && shared.is_usable()
            && self.is_reachable()
            && !self.probes.is_pending()
            && self.discovery.validation.is_idle()
            && is_later(self.mtu_probe_at())
            && !self.ack_is_due(shared, now)
            && !self.has_urgent(shared)
            && self.loss.is_clean()
            && self.sender.planner.next().is_none()
            && self.sender.settled_due(now, self.rtt.smoothed()).is_none()
    }
}

impl PacketBatch<'_> {
    /// Appends the next packet of the batch to `out`. Returns `false`, with `out` unchanged, if the
    /// next packet would not be like the others.
    pub(crate) fn transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let Self { path, shared, now, like, len, next, filled } = self;
        let may_send = shared.is_usable() && path.may_send_at().is_some_and(|time| time <= *now);
        let number = path.sender.sent.next_number();
        if !may_send || path.marking.codepoint(number) != like.ecn {
            return false;
        }
        let start = out.len();
        let header = path.write_header(number, out);
        let most = path.discovery.pmtu.size() - ip_udp_overhead(like.to) - TAG;
        let mut packet = PacketBuilder::new(number, out, &header, most);
        path.leave_room(&mut packet);
        if *filled == 0 && shared.streams.backlog(next.class).flows == next.flows {
            *filled = shared.streams.can_fill(next.class, packet.end - packet.start);
        }
        if *filled == 0 || packet.end + TAG - start != *len {
            out.truncate(start);
            return false;
        }
        *filled -= 1;
        packet.next = Some(*next);
        path.write_new(shared, *now, &mut packet);
        let PacketBuilder { cargo, dscp, .. } = packet;
        let kept = PacketRecord { cargo, source: None, is_control: false, dscp };
        path.seal(shared, *now, &header, out, like.to, Some(kept));
        debug_assert_eq!(out.len() - start, *len);
        true
    }
}
