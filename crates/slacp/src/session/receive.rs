//! Processing of received packets.

use core::time::Duration;
use std::net::SocketAddr;

use units::Instant;

use super::{Session, ip_udp_overhead};
use crate::channels::Piece;
use crate::event_log::LogEvent;
use crate::frame::{self, Ack, Frame, Repair};
use crate::packet::Header;
use crate::phases::RekeyError;
use crate::rate::Acknowledged;
use crate::sent::{Acked, Cargo, Unsent};
use crate::streams::ProtocolError;
use crate::{CloseReason, DownReason};

/// Minimum delay between the two copies of a retransmission.
const SECOND_COPY: Duration = Duration::from_millis(4);

impl Session {
    /// Processes a data packet from the wire. If it is authentic and the newest so far, `from` may
    /// become the peer's address. Returns whether it was authentic.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        datagram: &mut [u8],
    ) -> bool {
        let expected = self.received.expected();
        let number = header.number(expected);
        if !self.received.is_new(number) {
            self.stats.duplicates += 1;
            return false;
        }
        let size = datagram.len() + ip_udp_overhead(from);
        let Some(frames) = self.keys.open(header, number, datagram) else {
            self.stats.forged += 1;
            self.check_keys(now);
            return false;
        };
        if self.closing.is_some() {
            self.heard_while_closing(now, frames);
            return true;
        }
        self.heard(now);
        self.follow_phase(now);
        self.heard_from = from;
        if from != self.peer.address {
            self.path.strayed(now, from, size, number >= expected, &mut self.rng);
        }
        self.log.record(now, || LogEvent::Received { packet: number, bytes: size });
        self.stats.packets_received += 1;
        self.stats.bytes_received += size as u64;
        if let Err(error) = self.take_packet(now, number, header.source, frames, size) {
            self.fail(now, &error);
        }
        true
    }

    /// [`Self::handle_packet`] after decryption.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn take_authentic(&mut self, now: Instant, number: u64, frames: &[u8]) {
        if self.received.is_new(number) {
            self.heard(now);
            if let Err(error) = self.take_packet(now, number, true, frames, frames.len()) {
                self.fail(now, &error);
            }
        }
    }

    /// Ends the session because the peer broke the protocol (`docs/slacp.md`, Violations).
    pub(super) fn fail(&mut self, now: Instant, error: &dyn core::error::Error) {
        self.stats.failure = Some(error.to_string().into());
        self.close(now, CloseReason::Violation);
    }

    fn take_packet(
        &mut self,
        now: Instant,
        number: u64,
        source: bool,
        frames: &[u8],
        size: usize,
    ) -> Result<(), Broken> {
        let Some((eliciting, repair)) = self.take_frames(now, number, false, frames)? else {
            return Ok(());
        };
        let bytes = self.sent.held();
        if bytes > self.most_unacknowledged {
            return Err(Broken::Unacknowledged { bytes });
        }
        if self.streams.owes_too_much() {
            return Err(Broken::Answers);
        }
        // In a fade the answer to a mere PING is a probe, at the pace of probes.
        let reports = eliciting && (self.is_reachable() || self.last_carried == now);
        self.received.arrived(now, number, size, reports);
        let mut restored = self.decoder.keep(number, if source { frames } else { &[] });
        if let Some(repair) = repair {
            self.stats.repairs_received += 1;
            self.log.record(now, || LogEvent::RepairReceived { packet: number });
            restored.extend(self.decoder.repair(number, &repair));
        }
        for (number, frames) in restored {
            // A packet that is not a source is restored as empty. It did not arrive, and may have
            // carried data that has to be sent again.
            if !frames.is_empty() && self.received.is_new(number) {
                // Logged before its contents, as for a received packet.
                let acknowledgement = frames.first().is_some_and(|kind| frame::is_ack(*kind));
                self.log.record(now, || LogEvent::Restored { packet: number, acknowledgement });
                if self.take_frames(now, number, true, &frames)?.is_none() {
                    continue;
                }
                self.stats.recovered += 1;
                self.received.restored(now, number);
            }
        }
        Ok(())
    }

    /// Processes all frames of packet `number`, which was received or `restored` by FEC. Returns
    /// whether the packet is to be acknowledged, and its repair if it carries one. `None` if the
    /// packet is to count as lost because there is no room for its data; the peer then sends it
    /// again.
    fn take_frames<'a>(
        &mut self,
        now: Instant,
        number: u64,
        restored: bool,
        mut frames: &'a [u8],
    ) -> Result<Option<(bool, Option<Repair<'a>>)>, Broken> {
        let (mut eliciting, mut repair, mut acknowledged) = (false, None, false);
        while let Some(frame) = frame::read(&mut frames)? {
            eliciting |= frame.is_eliciting();
            if frame.is_cargo() {
                self.last_carried = now;
            }
            match frame {
                Frame::Ping => {}
                Frame::Mark if restored => {}
                Frame::Mark => self.received.marked(now, number),
                Frame::Ack(ack) => {
                    // Each acknowledgement scans everything in flight, so only one per packet is
                    // allowed.
                    if core::mem::replace(&mut acknowledged, true) {
                        return Err(Broken::TwoAcks);
                    }
                    self.on_ack(now, &ack)?;
                }
                Frame::Settled(floor) => {
                    if floor > number {
                        return Err(Broken::Settled { floor, number });
                    }
                    self.received.settle(floor);
                    self.decoder.settle(floor);
                }
                Frame::Repair(found) => repair = Some(found),
                Frame::Open { stream, window, credit, open } => {
                    self.streams.on_open(now, stream, window, credit, *open)?;
                }
                Frame::Accept(stream) => self.streams.on_accept(stream),
                Frame::Reset { stream, reason, sent } => {
                    self.streams.on_reset(now, stream, reason, sent)?;
                }
                Frame::SessionCredit(limit) => self.streams.on_session_credit(limit),
                Frame::Return { stream, returns, limit } => {
                    self.streams.on_return(stream, returns, limit)?;
                }
                Frame::StreamCredit { stream, returns, limit } => {
                    self.streams.on_stream_credit(now, stream, returns, limit);
                }
                Frame::Rekey { generation, key } => self.on_rekey(generation, key)?,
                Frame::Close(reason) => {
                    self.end(DownReason::ClosedByPeer(reason));
                    self.over = true;
                }
                Frame::PathChallenge(token) => self.path.challenged(self.heard_from, token),
                Frame::PathAnswer(token) => self.path.answered(now, token),
                Frame::Stream { stream, offset, fin, data } => {
                    if !self.streams.on_data((now, number), stream, offset, data, fin)? {
                        return Ok(None);
                    }
                    if restored {
                        self.streams.on_recovered(stream, data.len());
                    }
                }
                Frame::Channel(announcement) => self.inbound.announced(&announcement),
                Frame::Packet(packet) => {
                    self.inbound.packet(now, &packet, restored, &mut self.log);
                }
            }
        }
        Ok(Some((eliciting, repair)))
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack) -> Result<(), Unsent> {
        let acked = self.sent.acknowledge(now, ack)?;
        if let Some(sent_at) = acked.largest_sent_at.or_else(|| self.only_bound(&acked)) {
            self.rtt.update(now.saturating_since(sent_at), ack.held);
            self.follow_pace();
        }
        let news = !acked.packets.is_empty();
        self.measure(now, ack, &acked);
        self.follow_progress(now, &acked);
        self.log.record(now, || LogEvent::AckReceived { largest: ack.largest });
        for (number, packet) in acked.packets {
            self.log.record(now, || LogEvent::Acknowledged { packet: number });
            self.pmtu.packet_arrived(number, packet.size.into());
            packet.cargo.into_iter().for_each(|cargo| self.arrived(now, cargo));
        }
        for cargo in acked.late {
            if let Cargo::Stream { stream, range, fin, .. } = cargo {
                self.streams.on_acknowledged(now, stream, range, fin);
            }
        }
        (0..acked.were_late).for_each(|_| self.loss.was_late());
        self.take_lost(now);
        self.streams.wake_writers();
        if news {
            self.backoff.reset();
            // During a fade the probe time was already set when the packet was heard.
            if self.fade.is_none() {
                self.next_probe = self.probe_at();
            }
        }
        Ok(())
    }

    /// Until there is an RTT sample: when the newest acknowledged packet was sent that the peer did
    /// not hold back. Slightly too long is better than the estimate from a retransmitted handshake.
    fn only_bound(&self, acked: &Acked) -> Option<Instant> {
        let sent = acked.packets.iter().map(|(_, packet)| packet.time);
        sent.max().filter(|_| !self.rtt.is_measured())
    }

    /// Feeds an acknowledgement to the rate control.
    fn measure(&mut self, now: Instant, ack: &Ack, acked: &Acked) {
        let Some(auto) = self.rate.auto_mut() else { return };
        let packets: Vec<(u64, u16)> = acked.packets.iter().map(|(n, p)| (*n, p.size)).collect();
        let newest = acked.packets.iter().find(|(number, _)| *number == ack.largest);
        let times = ack.times.map(|times| (times.clock, times.marks(ack.largest).collect()));
        let acknowledged = Acknowledged {
            packets: &packets,
            newest: newest.map(|(_, packet)| (packet.time, packet.sent_bytes)),
            largest: ack.largest,
            held: ack.held,
            times,
        };
        auto.acknowledged(now, self.rtt.smoothed(), &acknowledged);
        self.rate_changed(now);
    }

    /// Retransmits lost data.
    pub(super) fn take_lost(&mut self, now: Instant) {
        let lost = self.sent.take_lost(now, self.rtt.loss_delay());
        // A lost MTU probe says nothing about the loss rate of the link.
        let probes = lost.iter().filter(|(_, packet)| packet.is_mtu_probe()).count();
        self.stats.packets_lost += (lost.len() - probes) as u64;
        if let Some(auto) = self.rate.auto_mut() {
            lost.iter().for_each(|(number, packet)| auto.lost(*number, packet.size));
        }
        for (number, packet) in lost {
            self.log.record(now, || LogEvent::Lost { packet: number });
            // Losses during a fade say nothing about packet sizes.
            let judged = !packet.is_mtu_probe() && packet.time >= self.thawed_at;
            if judged && self.pmtu.packet_lost(number, packet.size.into()) {
                self.stats.black_holes += 1;
            }
            packet.cargo.into_iter().for_each(|cargo| self.resend_lost(now, cargo));
        }
        for fate in self.sent.take_fates() {
            self.loss.saw(fate.time, fate.lost);
        }
    }

    /// Handles cargo that the peer has received.
    fn arrived(&mut self, now: Instant, cargo: Cargo) {
        match cargo {
            Cargo::Stream { stream, range, fin, .. } => {
                self.streams.on_acknowledged(now, stream, range, fin);
            }
            Cargo::Packet(Piece { channel, .. }) | Cargo::Gone(channel) => {
                self.outbound.on_acknowledged(channel);
            }
            Cargo::Announced(channel, deadline) => {
                self.outbound.on_announced(channel, deadline);
            }
            Cargo::MtuProbe(probe) => self.pmtu.arrived(now, probe),
            Cargo::Control(_) => {}
        }
    }

    pub(super) fn resend(&mut self, now: Instant, cargo: Cargo) {
        match cargo {
            Cargo::Stream { stream, range, fin, .. } => self.streams.on_lost(stream, range, fin),
            Cargo::Control(frame) => self.streams.on_control_lost(frame),
            Cargo::Packet(piece) => self.outbound.resend(now, piece, &mut self.log),
            Cargo::Gone(channel) => self.outbound.on_gone(channel),
            Cargo::MtuProbe(probe) => self.pmtu.lost(now, probe),
            Cargo::Announced(..) => {}
        }
    }

    fn resend_lost(&mut self, now: Instant, cargo: Cargo) {
        match cargo {
            Cargo::Stream { again: true, ref range, .. } => {
                let size = (range.end - range.start) as usize;
                self.resend_twice(now, cargo, size);
            }
            _ => self.resend(now, cargo),
        }
    }

    /// Resends data that was lost for the second time: once now, and once more after a burst would
    /// have passed unless it has arrived by then. If the budget does not allow both copies, only
    /// the later one is sent.
    fn resend_twice(&mut self, now: Instant, cargo: Cargo, size: usize) {
        let burst = self.loss.bursts().map_or(Duration::ZERO, |bursts| bursts.length);
        let pause = burst.min(self.rtt.smoothed() / 2).max(SECOND_COPY);
        if self.planner.afford(now, size, true) {
            self.resend(now, cargo.clone());
            self.copies.push_back((now + pause, cargo));
        } else if burst > SECOND_COPY {
            self.copies.push_back((now + pause, cargo));
        } else {
            self.resend(now, cargo);
        }
    }
}

/// Violations that end a session at once.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("packet {number} settles all packets below {floor}")]
    Settled { floor: u64, number: u64 },
    #[error("two acknowledgements in one packet")]
    TwoAcks,
    #[error("{bytes} bytes of packets are not acknowledged")]
    Unacknowledged { bytes: usize },
    #[error("it demands more answers than its streams justify")]
    Answers,
    #[error(transparent)]
    Unsent(#[from] Unsent),
    #[error(transparent)]
    Malformed(#[from] frame::Malformed),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Rekey(#[from] RekeyError),
}
