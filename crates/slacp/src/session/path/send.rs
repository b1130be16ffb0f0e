//! Building of packets.

use core::ops::Range;
use std::net::SocketAddr;

use units::{BitRate, ByteCount, Instant, earliest};

use super::payload::PacketBuilder;
use super::{SessionPath, SharedState};
use crate::event::log::LogEvent;
use crate::keys::crypto::BLOCK;
use crate::rate::Auto;
use crate::recovery::fec::{FecBlock, REPAIR_HEAD, SHARD_OVERHEAD};
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::{SentContent, SentContents, SentPacket};
use crate::session::{PacketEnvelope, Wake, ip_udp_overhead};
use crate::wire::ecn::Ecn;
use crate::wire::frame::{self, Frame, RepairFrame};
use crate::wire::packet::{PacketHeader, TAG};

/// Maximum size of the SETTLED and MARK frames beside a repair, in bytes.
const BESIDE: usize = 9 + 1;

/// The rate from which the processor is what limits a session.
pub(in crate::session) const FAST_RATE: BitRate = BitRate::from_mbit(1000);

/// The contents of a packet that are recorded until it is acknowledged.
pub(in crate::session) struct PacketRecord {
    pub(super) cargo: SentContents,
    /// Its frames, if it is a FEC source.
    pub(super) source: Option<Box<[u8]>>,
    /// It belongs to the control channel.
    pub(super) is_control: bool,
    /// The code point of its new data.
    pub(super) dscp: Option<u8>,
}

impl SessionPath {
    /// The earliest time [`Self::transmit`] may have a packet, as far as is known;
    /// [`Instant::ZERO`] for now.
    pub(in crate::session) fn send_time(&self, shared: &SharedState) -> Option<(Instant, Wake)> {
        // Probes leave even at rate 0.
        let payload = if self.probes.is_pending() {
            Some(Instant::ZERO)
        } else {
            self.payload_at(shared).into_iter().chain(self.padding_at()).min()
        };
        let path =
            [self.discovery.validation.send_time(self.challenge_delay()), self.mtu_probe_at()];
        let report = self.report_at(shared);
        let payload = earliest(
            path.into_iter().flatten().min().map(|time| (time, Wake::Path)),
            payload.map(|time| (time, Wake::Pacing)),
        );
        earliest(payload, report.map(|time| (time, Wake::Acknowledgement)))
    }

    /// The earliest time at which waiting payload may be sent; `None` if nothing waits.
    fn payload_at(&self, shared: &SharedState) -> Option<Instant> {
        Some(self.may_send_at()?.max(self.payload_waits_at(shared)?))
    }

    /// The earliest time at which payload may be sent; `None` in an outage, or while too much is in
    /// flight.
    pub(in crate::session) fn may_send_at(&self) -> Option<Instant> {
        if self.outage.is_frozen() || self.sender.is_full() {
            return None;
        }
        Some(self.rate.ready_at()?.max(self.link_free_at()))
    }

    /// The earliest time at which padding may be sent to measure the path; `None` if none is
    /// wanted.
    fn padding_at(&self) -> Option<Instant> {
        let able = self.is_reachable() && !self.sender.is_full() && self.remote.times.is_some();
        let wanted = able && self.rate.auto()?.wants_padding();
        if wanted { self.rate.ready_at() } else { None }
    }

    /// The earliest time at which payload waits; zero for now.
    fn payload_waits_at(&self, shared: &SharedState) -> Option<Instant> {
        if self.has_urgent(shared) || self.sender.planner.next().is_some() {
            Some(Instant::ZERO)
        } else if self.held_back {
            None
        } else {
            let gathered = shared.outbound.gathered_until().filter(|_| self.takes_all());
            self.new_at(shared).into_iter().chain(gathered).min()
        }
    }

    /// Releases gathered packets that have waited long enough, or all of them if a packet leaves
    /// now that they can share.
    fn release_gathered(&mut self, shared: &mut SharedState, now: Instant) {
        if shared.outbound.gathered_until().is_none() {
            return;
        }
        let is_now = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        // With marked classes, data of different code points is not mixed, so nothing can share the
        // packet.
        let companion =
            (self.has_urgent(shared) || is_now(self.new_at(shared))) && !shared.scheduler.marks();
        let all = companion || self.ack_is_due(shared, now);
        shared.outbound.release_gathered(now, all);
    }

    /// The due time of the next acknowledgement. On a link layer, one that reports no loss waits
    /// for new data to share a packet with.
    fn report_at(&self, shared: &SharedState) -> Option<Instant> {
        let rtt = self.rtt.smoothed();
        let awaits_data = shared.link_layer && self.new_at(shared).is_some();
        let companion = if awaits_data { self.packet_time().min(rtt / 4) } else { ACK_DELAY };
        self.receiver.received.report_at(rtt, companion.max(ACK_DELAY))
    }

    pub(in crate::session) fn ack_is_due(&self, shared: &SharedState, now: Instant) -> bool {
        self.report_at(shared).is_some_and(|time| time <= now)
    }

    /// Returns whether an acknowledgement that is not due yet shares the packet being built: with
    /// new data of a link layer, or with gathered packets if it would be due before the next ones
    /// leave.
    fn ack_joins(&self, shared: &SharedState, now: Instant) -> bool {
        if self.held_back || !self.receiver.received.has_unreported() {
            return false;
        }
        // One that is due within twice the gathering time would otherwise leave in a packet of its
        // own.
        let next = shared.outbound.gather_time().map(|gather| now + 2 * gather);
        let is_near = || next >= self.report_at(shared);
        let joins = shared.link_layer || next.is_some() && is_near();
        joins && !self.has_urgent(shared) && self.payload_at(shared).is_some_and(|time| time <= now)
    }

    /// Appends the next packet to `out`. Returns `None` if there is nothing to send; the caller
    /// then discards what was appended.
    pub(in crate::session) fn transmit(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<PacketEnvelope> {
        let number = self.sender.sent.next_number();
        let header = self.write_header(number, out);
        if let Some(sent) = self.transmit_path(shared, now, &header, out) {
            return Some(sent);
        }
        if let Some(sent) = self.transmit_mtu_probe(shared, now, &header, out) {
            return Some(sent);
        }
        self.release_gathered(shared, now);
        let to = self.remote.address;
        if self.adds_ping_to_ack(shared, now) {
            self.ping();
        }
        let most = self.next_size() - ip_udp_overhead(to) - TAG;
        let mut packet = PacketBuilder::new(number, out, &header, most);
        let repairs = self.counters.repairs_sent;
        let eliciting = self.fill(shared, now, &mut packet);
        if packet.is_empty() {
            return None;
        }
        let kept = self.protect(now, packet, eliciting);
        let sent = self.seal(shared, now, &header, out, to, eliciting.then_some(kept));
        if let Some(sent) = &sent
            && self.counters.repairs_sent > repairs
        {
            self.counters.repair_bytes += sent.size.get();
        }
        sent
    }

    /// The maximum size of the next IP packet. A probe must arrive even if the path MTU has shrunk.
    fn next_size(&self) -> usize {
        match (self.probes.is_pending(), self.probes.is_pending_small()) {
            (false, _) => self.discovery.pmtu.size(),
            (true, false) => self.discovery.pmtu.base(),
            (true, true) => self.discovery.pmtu.least(),
        }
    }

    /// Lets repairs protect a packet that has been filled. Returns what is recorded of it.
    fn protect(&mut self, now: Instant, packet: PacketBuilder, eliciting: bool) -> PacketRecord {
        let PacketBuilder { number, out, at, start, cargo, dscp, .. } = packet;
        // A clean link sends no repairs, so neither side keeps sources.
        let is_clean = self.loss.is_clean();
        let is_source = packet.source && !is_clean;
        if is_source {
            PacketHeader::mark_source(&mut out[at..]);
            self.sender.planner.record_source(now, number, packet.protection, &self.loss);
        } else if packet.reports_loss && !eliciting && !is_clean {
            PacketHeader::mark_source(&mut out[at..]);
            let run = self.loss.longest_run();
            self.sender.planner.protect_report(now, number, &out[start..], run);
        }
        let source = is_source.then(|| out[start..].into());
        // PING is not control: it must not overtake data, so that its acknowledgement covers all
        // data before it.
        let is_control = !packet.is_new && !packet.has_ping;
        PacketRecord { cargo, source, is_control, dscp }
    }

    /// Appends the header of packet `number` to `out`; returns its range.
    pub(in crate::session) fn write_header(&self, number: u64, out: &mut Vec<u8>) -> Range<usize> {
        let start = out.len();
        let header =
            PacketHeader::new(self.remote.index, number, self.sender.sent.acked_end(), false);
        PacketHeader { phase: self.keys.phase(), ..header }.write(out);
        start..out.len()
    }

    /// Records and seals the last packet in `out`, which begins with `header`. With `kept` it
    /// awaits an acknowledgement.
    pub(in crate::session) fn seal(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        header: &Range<usize>,
        out: &mut Vec<u8>,
        to: SocketAddr,
        kept: Option<PacketRecord>,
    ) -> Option<PacketEnvelope> {
        let number = self.sender.sent.next_number();
        let size = out.len() - header.start + TAG + ip_udp_overhead(to);
        let source = kept.as_ref().is_some_and(|kept| kept.source.is_some());
        let is_control = kept.as_ref().is_none_or(|kept| kept.is_control);
        let dscp = kept.as_ref().and_then(|kept| kept.dscp);
        let dscp = dscp.unwrap_or_else(|| shared.scheduler.control_dscp());
        let ecn = self.codepoint(number, kept.as_ref());
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += size as u64;
        self.record_sent(shared, now, size as u16, ecn, kept);
        self.keys.seal(number, header.clone(), out);
        self.check_keys(shared, now);
        self.log.record(now, || LogEvent::Sent { packet: number, bytes: size, source });
        let (size, link) = (ByteCount::new(size as u64), self.link().unwrap_or(0));
        Some(PacketEnvelope { to, size, ecn, dscp, is_control, link })
    }

    /// The ECN codepoint of packet `number`. Packets that are not acknowledged cannot be validated,
    /// and probes of the path must not depend on ECN.
    fn codepoint(&self, number: u64, kept: Option<&PacketRecord>) -> Ecn {
        let asks = |kept: &PacketRecord| matches!(kept.cargo[..], [SentContent::MtuProbe(_)]);
        if !self.is_reachable() || kept.is_none_or(asks) {
            return Ecn::NotEct;
        }
        self.marking.codepoint(number)
    }

    /// Records the packet with the rate control, the timers and the sent packets.
    fn record_sent(
        &mut self,
        shared: &SharedState,
        now: Instant,
        size: u16,
        ecn: Ecn,
        kept: Option<PacketRecord>,
    ) {
        self.activity.sent = now;
        self.occupy_link(now, size.into());
        let (number, eliciting) = (self.sender.sent.next_number(), kept.is_some());
        let sent_bytes = self.counters.bytes_sent;
        let mut link_bytes = sent_bytes;
        if let Some(auto) = self.rate.auto_mut() {
            link_bytes = auto.sent(now, number, size, eliciting);
        }
        if eliciting {
            self.rate.sent(now, ByteCount::new(size.into()));
            self.activity.eliciting = now;
            if kept.as_ref().is_some_and(|kept| !kept.cargo.is_empty()) {
                self.activity.loaded = now;
            }
            match self.outage.current() {
                Some(fade) => fade.record_probe_size(ByteCount::new(size.into())),
                None => self.schedule_probe(),
            }
        }
        if self.rate.follows_demand() && self.is_out_of_payload(shared) {
            self.rate.app_limited();
        }
        let ect = ecn == Ecn::Ect0;
        if ect {
            self.marking.sent_ect();
        }
        let enter = |PacketRecord { cargo, source, is_control, .. }| SentPacket {
            size,
            ect,
            sent_bytes,
            link_bytes,
            time: now,
            contents: cargo,
            fec_source: source,
            is_control,
            repaired_by: 0,
        };
        self.sender.enter(kept.map(enter), &mut self.rng);
    }

    /// Returns whether no payload is left to send now.
    fn is_out_of_payload(&self, shared: &SharedState) -> bool {
        let lacks_new = self.held_back || self.new_at(shared).is_none();
        lacks_new && !self.has_urgent(shared) && self.sender.planner.next().is_none()
    }

    /// Fills the packet; returns whether it must be acknowledged.
    fn fill(&mut self, shared: &mut SharedState, now: Instant, packet: &mut PacketBuilder) -> bool {
        let (ping, careful) = self.probes.take();
        // After a fade the peer then learns at once what has arrived; on a path that drops large
        // packets, the acknowledgements in those are lost.
        let with_ack = careful || !self.is_reachable();
        if self.ack_is_due(shared, now) || self.ack_joins(shared, now) || ping && with_ack {
            packet.reports_loss = shared.link_layer && self.receiver.received.is_urgent();
            self.write_ack(now, packet);
            // On a link layer, the report of a loss is control and goes ahead in a packet of its
            // own.
            if packet.reports_loss && !ping && !packet.is_empty() {
                return false;
            }
        }
        packet.has_ping = ping;
        if ping {
            Frame::Ping.write(packet.out, false);
        }
        packet.next = self.next_data(shared, now);
        let is_now = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        let waits = packet.next.is_some() || is_now(self.payload_waits_at(shared));
        if !waits || !is_now(self.may_send_at()) {
            if ping {
                self.write_settled(now, packet.out, true);
            }
            let pads = !ping && self.padding_at().is_some_and(|time| time <= now);
            return pads && self.write_padding(now, packet) || ping;
        }
        if !ping {
            // A packet with PING may be smaller, and repairs that do not fit into it fit into
            // others.
            self.drop_large_repairs(packet);
        }
        let urgent = self.has_urgent(shared) || self.takes_all() && shared.streams.has_sparse();
        let repair = self.sender.planner.next().filter(|_| !urgent).map(|next| next.shard.len());
        let room = packet.end - packet.out.len();
        // Small frames must not keep a large repair out of packet after packet.
        if repair.is_none_or(|shard| REPAIR_HEAD + shard + BESIDE <= room) {
            self.write_settled(now, packet.out, ping);
            self.write_mark(now, packet.out);
        }
        if repair.is_some() {
            return self.write_repair(now, packet) || ping;
        }
        // A link layer's new data has no repairs.
        if !shared.link_layer || self.has_urgent(shared) {
            self.leave_room(packet);
        }
        self.write_payload(shared, now, packet);
        ping || !packet.cargo.is_empty()
    }

    /// Shortens the packet so that a repair of it fits into another packet, whatever the length of
    /// its header. A clean link needs no repairs; at a high rate, packets then end with a whole AES
    /// block, because a partial block takes a pass of its own.
    pub(in crate::session) fn leave_room(&self, packet: &mut PacketBuilder) {
        if self.rate.rate() >= FAST_RATE && self.loss.is_clean() {
            packet.end -= (packet.end - packet.start) % BLOCK;
        } else {
            packet.end -=
                REPAIR_HEAD + SHARD_OVERHEAD + PacketHeader::MAX_LEN - packet.header_len();
        }
    }

    fn write_ack(&mut self, now: Instant, packet: &mut PacketBuilder) {
        if self.receiver.received.is_empty() {
            return;
        }
        let (out, end) = (&mut *packet.out, packet.end);
        let before = out.len();
        if let Some(counts) = self.receiver.ecn.report().filter(|_| self.remote.ecn) {
            Frame::Ecn(counts).write(out, false);
        }
        let (ranges, restored, report) =
            self.receiver.received.report(now, self.remote.times == Some(true));
        let room = end.saturating_sub(out.len() + 16);
        frame::write_ack(out, ranges, restored, &report, room);
        // The budget of acknowledgements counts IP bytes, as for a packet of their own.
        let overhead = ip_udp_overhead(self.remote.address) + PacketHeader::MAX_LEN + TAG;
        self.receiver.received.record_report(now, out.len() - before + overhead);
        let (number, largest) = (packet.number, self.receiver.received.expected() - 1);
        self.log.record(now, || LogEvent::AckSent { packet: number, largest });
        self.counters.acknowledgements += 1;
    }

    /// Writes SETTLED if it is due, or in any case if `always`.
    fn write_settled(&mut self, now: Instant, out: &mut Vec<u8>, always: bool) {
        let rtt = self.rtt.smoothed();
        if let Some(settled) = self.sender.next_settled(now, rtt, always) {
            Frame::Settled(settled).write(out, false);
        }
    }

    /// Asks for this packet's arrival time if the rate control wants it.
    fn write_mark(&mut self, now: Instant, out: &mut Vec<u8>) {
        let rtt = self.rtt.smoothed();
        let Some(auto) = self.rate.auto_mut().filter(|_| self.remote.times.is_some()) else {
            return;
        };
        auto.prepare(now, rtt);
        if auto.wants_mark() {
            Frame::Mark.write(out, false);
        }
    }

    /// Writes padding as a packet of a train; `false` if none is wanted.
    fn write_padding(&mut self, now: Instant, packet: &mut PacketBuilder) -> bool {
        self.write_mark(now, packet.out);
        let Some(size) = self.rate.auto().and_then(Auto::padding) else { return false };
        Frame::Ping.write(packet.out, false);
        let around = ip_udp_overhead(self.remote.address) + TAG;
        let end = packet.at + size.saturating_sub(around);
        let len = end.min(packet.end).max(packet.out.len());
        self.counters.padding_bytes += (len - packet.start) as u64;
        // PADDING frames are zero bytes.
        packet.out.resize(len, 0);
        true
    }

    /// Drops repairs that fit into no packet any more, because the packet size has shrunk. They
    /// would block everything behind them.
    fn drop_large_repairs(&mut self, packet: &PacketBuilder) {
        let most = packet.end - packet.start - REPAIR_HEAD;
        while self.sender.planner.next().is_some_and(|next| next.shard.len() > most) {
            self.sender.planner.take();
        }
    }

    /// Writes the next repair; `false` if it did not fit.
    fn write_repair(&mut self, now: Instant, packet: &mut PacketBuilder) -> bool {
        let PacketBuilder { number, out, end, .. } = packet;
        let Some(next) = self.sender.planner.next() else { return false };
        if out.len() + REPAIR_HEAD + next.shard.len() > *end {
            return false;
        }
        let Some(repair) = self.sender.planner.take() else { return false };
        let frame = RepairFrame {
            distance: *number - repair.block.base,
            stride: repair.block.stride,
            count: repair.block.count,
            repairs: repair.repairs,
            index: repair.index,
            shard: &repair.shard,
        };
        Frame::Repair(frame).write(out, true);
        self.sender.sent.record_repair(repair.block.numbers(), *number);
        let (packet, FecBlock { base, count, .. }) = (*number, repair.block);
        self.log.record(now, || LogEvent::RepairSent { packet, base, count });
        self.counters.repairs_sent += 1;
        true
    }
}
