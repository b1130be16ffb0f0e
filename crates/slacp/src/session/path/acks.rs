//! Processing of acknowledgements and losses: confirms delivered cargo and sends lost cargo again.

use core::ops::Range;
use core::time::Duration;

use units::Instant;

use super::{SessionPath, SharedState};
use crate::StreamId;
use crate::event::log::LogEvent;
use crate::rate::{Acknowledged, Newest};
use crate::recovery::sent::{AckError, AckedPackets, SentContent, SentPacket};
use crate::wire::frame::{AckFrame, Frame, GoneFrame};

/// Minimum delay between the two copies of data that was lost twice.
const SECOND_COPY: Duration = Duration::from_millis(4);

/// Acknowledged data of a stream; `fin` if the stream ends with it.
struct DeliveredRange {
    stream: StreamId,
    range: Range<u64>,
    fin: bool,
}

impl SessionPath {
    /// Handles an acknowledgement, received or `restored` by FEC. A restored one came late and
    /// gives no RTT sample.
    ///
    /// # Errors
    /// [`AckError`] if the peer acknowledges a packet that was never sent.
    pub(super) fn on_ack(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        ack: &AckFrame,
        restored: bool,
    ) -> Result<(), AckError> {
        let mut acked = self.sender.sent.acknowledge(now, ack)?;
        let sample = acked.largest_sent_at.filter(|_| !restored);
        if let Some(sent_at) = sample.or_else(|| self.fallback_sample_time(&acked)) {
            self.rtt.update(now.saturating_since(sent_at), ack.held);
            self.update_pace(shared);
        }
        if let Some(sent_at) = acked.largest_sent_at {
            self.activity.acknowledged = self.activity.acknowledged.max(sent_at);
        }
        // An acknowledgement that repeats known ranges must not restart the probe timer.
        let news = !acked.packets.is_empty();
        let ect = acked.packets.iter().filter(|(_, packet)| packet.ect);
        let marked = self.marking.acknowledged(ect.map(|(n, _)| (*n, acked.has_arrived(*n))));
        self.measure(shared, now, ack, &acked, marked);
        self.follow_progress(shared, now, &acked);
        self.log.record(now, || LogEvent::AckReceived { largest: ack.largest });
        let mut data = None;
        for (number, packet) in core::mem::take(&mut acked.packets) {
            self.log.record(now, || LogEvent::Acknowledged { packet: number });
            self.discovery.pmtu.packet_arrived(number, packet.size.into());
            if is_retransmission(&packet) {
                self.loss.record_retransmission(!acked.has_arrived(number));
            }
            packet
                .contents
                .into_iter()
                .for_each(|cargo| self.arrived(shared, now, cargo, &mut data));
        }
        // Acknowledged after they were declared lost: the streams need not send this data again.
        for cargo in acked.late_data {
            if let SentContent::Stream { stream, range, fin, .. } = cargo {
                shared.merge_delivered(now, DeliveredRange { stream, range, fin }, &mut data);
            }
        }
        if let Some(DeliveredRange { stream, range, fin }) = data {
            shared.streams.on_acknowledged(now, stream, range, fin);
        }
        (0..acked.late_packets).for_each(|_| self.loss.revoke_loss());
        self.detect_losses(shared, now);
        // Streams whose data was acknowledged hold less, so others may hold more.
        shared.streams.wake_writers();
        if news {
            self.acknowledged_something();
        }
        Ok(())
    }

    /// Before the first RTT sample: the time when the newest of the newly acknowledged packets was
    /// sent. The RTT that follows from it is slightly too long, which is better than the estimate
    /// from a retransmitted handshake.
    fn fallback_sample_time(&self, acked: &AckedPackets) -> Option<Instant> {
        let sent = acked.packets.iter().map(|(_, packet)| packet.time);
        sent.max().filter(|_| !self.rtt.is_measured())
    }

    /// Feeds an acknowledgement to the rate control.
    fn measure(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        ack: &AckFrame,
        acked: &AckedPackets,
        marked: u64,
    ) {
        let Some(auto) = self.rate.auto_mut() else { return };
        let packets: Vec<(u64, u16)> = acked.packets.iter().map(|(n, p)| (*n, p.size)).collect();
        let newest = acked.packets.iter().find(|(number, _)| *number == ack.largest);
        let times = ack.times.map(|times| (times.clock, times.marks(ack.largest).collect()));
        let acknowledged = Acknowledged {
            packets: &packets,
            newest: newest.map(|(_, packet)| Newest {
                sent: packet.time,
                sent_bytes: packet.sent_bytes,
                link_bytes: packet.link_bytes,
            }),
            largest: ack.largest,
            held: ack.held,
            times,
            marked,
        };
        auto.acknowledged(now, self.rtt.smoothed(), &acknowledged);
        self.rate_changed(shared, now);
    }

    /// Detects losses and sends the lost cargo again.
    pub(super) fn detect_losses(&mut self, shared: &mut SharedState, now: Instant) {
        let lost = self.sender.sent.take_lost(now, self.rtt.loss_delay());
        // A lost MTU probe says nothing about the loss rate of the link.
        let probes = lost.iter().filter(|(_, packet)| packet.is_mtu_probe()).count();
        self.counters.packets_lost += (lost.len() - probes) as u64;
        if let Some(auto) = self.rate.auto_mut() {
            lost.iter().for_each(|(number, packet)| auto.lost(*number, packet.size));
        }
        for (number, packet) in lost {
            self.log.record(now, || LogEvent::Lost { packet: number });
            // Losses during a fade say nothing about packet sizes or codepoints.
            let judged = !packet.is_mtu_probe() && self.outage.is_past(packet.time);
            if judged && packet.ect {
                self.marking.lost(number);
            }
            if judged && self.discovery.pmtu.packet_lost(number, packet.size.into()) {
                self.counters.black_holes += 1;
            }
            if is_retransmission(&packet) {
                self.loss.record_retransmission(true);
            }
            packet.contents.into_iter().for_each(|cargo| self.resend_lost(shared, now, cargo));
        }
        for fate in self.sender.sent.take_fates() {
            self.loss.record(fate.time, fate.lost);
            if self.rate.saw(now, self.rtt.smoothed(), &fate) {
                self.rate_changed(shared, now);
            }
        }
        self.watch_link(shared, now);
    }

    /// Handles cargo that the peer has received. `data` is as for [`SharedState::merge_delivered`].
    fn arrived(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        cargo: SentContent,
        data: &mut Option<DeliveredRange>,
    ) {
        match cargo {
            SentContent::Stream { stream, range, fin, .. } => {
                shared.merge_delivered(now, DeliveredRange { stream, range, fin }, data);
            }
            SentContent::Packet(piece) => shared.outbound.on_acknowledged(piece.channel),
            SentContent::NotResent(channel) | SentContent::LastCopy(GoneFrame { channel, .. }) => {
                shared.outbound.on_acknowledged(channel);
            }
            SentContent::Announcement(channel, deadline) => {
                shared.outbound.on_announced(channel, deadline);
            }
            SentContent::Context { slot, serial } => self.sender.on_context(slot, serial, true),
            SentContent::MtuProbe(probe) => self.discovery.pmtu.arrived(now, probe),
            SentContent::Control(_) => {}
        }
    }

    pub(super) fn resend(&mut self, shared: &mut SharedState, now: Instant, cargo: SentContent) {
        match cargo {
            SentContent::Stream { stream, range, fin, .. } => {
                shared.streams.on_lost(stream, range, fin);
            }
            SentContent::Control(frame) => self.resend_control(shared, *frame),
            SentContent::Packet(piece) => shared.outbound.resend(now, *piece, &mut self.log),
            SentContent::NotResent(channel) => shared.outbound.on_gone(channel),
            SentContent::LastCopy(gone) => self.give_up(shared, now, gone),
            SentContent::Context { slot, serial } => self.sender.on_context(slot, serial, false),
            SentContent::MtuProbe(probe) => self.discovery.pmtu.lost(now, probe),
            SentContent::Announcement(..) => {}
        }
    }

    /// Sends a lost control frame again.
    fn resend_control(&mut self, shared: &mut SharedState, frame: Frame<'static>) {
        match frame {
            // REKEY concerns the keys of the link that carries it, so no other link may take it.
            Frame::Rekey { .. } if self.membership.is_some() => self.send_own(shared, frame),
            // The asker has a deadline of its own and resends everything without an answer.
            Frame::LinkAsks(_) => {}
            _ => shared.streams.on_control_lost(frame),
        }
    }

    /// Gives up a packet of a channel whose retransmission was lost. On a link layer the receiver
    /// has no timer and waits for GONE.
    fn give_up(&mut self, shared: &mut SharedState, now: Instant, gone: GoneFrame) {
        shared.outbound.on_last_lost(now, gone, &mut self.log);
        if shared.link_layer {
            shared.streams.send_control(Frame::Gone(gone));
        }
    }

    /// Sends the oldest unacknowledged cargo again, although it may have arrived.
    pub(super) fn resend_oldest(&mut self, shared: &mut SharedState, now: Instant) {
        for cargo in self.sender.sent.oldest_contents() {
            self.resend(shared, now, cargo);
        }
    }

    fn resend_lost(&mut self, shared: &mut SharedState, now: Instant, cargo: SentContent) {
        match cargo {
            // Losses at intervals of a round trip would otherwise hit each retransmission again.
            SentContent::Stream { again: true, ref range, .. } => {
                let size = (range.end - range.start) as usize;
                self.resend_twice(shared, now, cargo, size);
            }
            _ => self.resend(shared, now, cargo),
        }
    }

    /// Sends data that was lost for the second time: once now, and once more when a burst would be
    /// over, unless it has arrived by then. If the repair budget does not cover both copies, only
    /// the later one is sent.
    fn resend_twice(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        cargo: SentContent,
        size: usize,
    ) {
        let burst = self.loss.bursts().map_or(Duration::ZERO, |bursts| bursts.length);
        let pause = burst.min(self.rtt.smoothed() / 2).max(SECOND_COPY);
        if self.sender.planner.try_spend(now, size, true) {
            self.resend(shared, now, cargo.clone());
            self.sender.copies.push_back((now + pause, cargo));
        // The budget is spent: one copy, when the burst has passed.
        } else if burst > SECOND_COPY {
            self.sender.copies.push_back((now + pause, cargo));
        } else {
            self.resend(shared, now, cargo);
        }
    }
}

impl SharedState {
    /// Merges acknowledged stream data with `before`, data not passed on yet, if it continues that.
    /// Otherwise passes `before` on to the streams first. An acknowledgement often covers many
    /// packets of one stream in a row.
    fn merge_delivered(
        &mut self,
        now: Instant,
        next: DeliveredRange,
        before: &mut Option<DeliveredRange>,
    ) {
        match before {
            Some(data) if data.stream == next.stream && data.range.end == next.range.start => {
                data.range.end = next.range.end;
                data.fin |= next.fin;
            }
            _ => {
                if let Some(DeliveredRange { stream, range, fin }) = before.replace(next) {
                    self.streams.on_acknowledged(now, stream, range, fin);
                }
            }
        }
    }
}

/// Returns whether the packet carried the retransmission of a channel packet.
fn is_retransmission(packet: &SentPacket) -> bool {
    packet.contents.iter().any(|cargo| matches!(cargo, SentContent::LastCopy(_)))
}
