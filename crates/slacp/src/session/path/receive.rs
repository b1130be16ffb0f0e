//! Processing of received packets.

use std::net::SocketAddr;

use units::Instant;

use super::{SessionPath, SharedState};
use crate::StopAnnouncement;
use crate::event::log::LogEvent;
use crate::keys::phases::RekeyError;
use crate::recovery::sent::AckError;
use crate::session::ip_udp_overhead;
use crate::streams::ProtocolError;
use crate::wire::ecn::Ecn;
use crate::wire::frame::{self, Frame, RepairFrame};
use crate::wire::packet::PacketHeader;

impl SessionPath {
    /// Processes a data packet that came with the codepoint `ecn`. If it is authentic and the
    /// newest so far, `from` may become the peer's address. Returns whether it was authentic.
    pub(crate) fn handle_packet(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        (from, ecn): (SocketAddr, Ecn),
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> bool {
        let expected = self.receiver.received.expected();
        let number = header.number(expected);
        // The replay window comes before decryption: a replayed packet costs no cipher.
        if !self.receiver.received.is_new(number) {
            self.counters.duplicates += 1;
            return false;
        }
        let size = datagram.len() + ip_udp_overhead(from);
        let Some(frames) = self.keys.open(header, number, datagram) else {
            self.counters.forged += 1;
            self.check_keys(shared, now);
            return false;
        };
        if !shared.is_usable() {
            shared.heard_while_closing(now, frames);
            return true;
        }
        self.on_packet_heard(shared, now);
        self.follow_phase(now);
        self.discovery.heard_from = from;
        if from != self.remote.address {
            self.discovery.validation.on_stray_packet(
                now,
                from,
                size,
                number >= expected,
                &mut self.rng,
            );
        }
        self.log.record(now, || LogEvent::Received { packet: number, bytes: size });
        self.counters.packets_received += 1;
        self.counters.bytes_received += size as u64;
        if let Err(error) =
            self.take_packet(shared, now, number, header.source, frames, (size, ecn))
        {
            self.fail(shared, now, &error);
        }
        true
    }

    /// The part of [`Self::handle_packet`] that follows decryption, for tests.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn take_authentic(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        number: u64,
        frames: &[u8],
    ) {
        if self.receiver.received.is_new(number) {
            self.on_packet_heard(shared, now);
            if let Err(error) =
                self.take_packet(shared, now, number, true, frames, (frames.len(), Ecn::NotEct))
            {
                self.fail(shared, now, &error);
            }
        }
    }

    fn take_packet(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        number: u64,
        source: bool,
        frames: &[u8],
        (size, ecn): (usize, Ecn),
    ) -> Result<(), SessionViolation> {
        let Some((eliciting, repair)) = self.take_frames(shared, now, number, false, frames)?
        else {
            return Ok(());
        };
        if let Some(bytes) = self.sender.excess_unacknowledged() {
            return Err(SessionViolation::Unacknowledged { bytes });
        }
        // Each answer is a control frame that waits; their number is bounded by the streams
        // allowed.
        if shared.streams.exceeds_control_limit() {
            return Err(SessionViolation::Answers);
        }
        // In an outage a PING alone is answered by a probe, at the pace of probes.
        let reports = eliciting && (self.is_reachable() || self.activity.carried == now);
        self.receiver.received.record_arrival(now, number, size, reports);
        self.receiver.ecn.arrived(ecn);
        if repair.is_some() {
            self.counters.repairs_received += 1;
            self.log.record(now, || LogEvent::RepairReceived { packet: number });
        }
        let frames = if source { frames } else { &[] };
        for (number, frames) in self.receiver.decode(number, frames, repair.as_ref()) {
            // A packet that is not a source is restored as empty. It did not arrive, and may have
            // carried data that has to be sent again.
            if !frames.is_empty() && self.receiver.received.is_new(number) {
                // Logged before its contents, as for a received packet.
                let acknowledgement = frames.first().is_some_and(|kind| frame::is_ack(*kind));
                self.log.record(now, || LogEvent::Restored { packet: number, acknowledgement });
                if self.take_frames(shared, now, number, true, &frames)?.is_none() {
                    continue;
                }
                self.counters.recovered += 1;
                self.receiver.received.record_restored(now, number);
            }
        }
        Ok(())
    }

    /// Processes all frames of packet `number`, which was received or `restored` by FEC. Returns
    /// whether the packet must be acknowledged, and its repair if it carries one. Returns `None` if
    /// there is no room for its data: the packet then counts as lost, and the peer sends the data
    /// again.
    fn take_frames<'a>(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        number: u64,
        restored: bool,
        mut frames: &'a [u8],
    ) -> Result<Option<(bool, Option<RepairFrame<'a>>)>, SessionViolation> {
        let (mut eliciting, mut repair, mut acknowledged) = (false, None, false);
        while let Some(frame) = frame::read(&mut frames)? {
            eliciting |= frame.is_eliciting();
            if frame.has_payload() {
                self.activity.carried = now;
            }
            match frame {
                Frame::Ping => {}
                // A restored packet did not arrive, so it has no arrival time.
                Frame::Mark if restored => {}
                Frame::Mark => self.receiver.received.record_mark(now, number),
                Frame::Ack(ack) => {
                    // Each costs a search of everything in flight, so only one per packet is
                    // allowed.
                    if core::mem::replace(&mut acknowledged, true) {
                        return Err(SessionViolation::TwoAcks);
                    }
                    self.on_ack(shared, now, &ack, restored)?;
                }
                Frame::Ecn(counts) => self.marking.heard(number, counts),
                Frame::Settled(floor) => {
                    if floor > number {
                        return Err(SessionViolation::Settled { floor, number });
                    }
                    self.receiver.settle(floor);
                }
                Frame::Repair(found) => repair = Some(found),
                Frame::Open { stream, window, credit, compressed, open } => {
                    shared.streams.on_open(now, stream, window, credit, *open)?;
                    if compressed {
                        shared.streams.on_compressed(stream);
                    }
                }
                Frame::Accept(stream) => shared.streams.on_accept(now, stream),
                Frame::Reset { stream, reason, sent } => {
                    shared.streams.on_reset(now, stream, reason, sent)?;
                }
                Frame::SessionCredit(limit) => shared.streams.on_session_credit(limit),
                Frame::Return { stream, returns, limit } => {
                    shared.streams.on_return(stream, returns, limit)?;
                }
                Frame::StreamCredit { stream, returns, limit } => {
                    shared.streams.on_stream_credit(now, stream, returns, limit);
                }
                Frame::Rekey { generation, key } => self.on_rekey(shared, generation, key)?,
                Frame::Close(reason) => shared.life.closed_by_peer(reason),
                Frame::Leaving => shared.on_leaving(StopAnnouncement::Leaving),
                Frame::Successor => shared.on_leaving(StopAnnouncement::Successor),
                Frame::LinkAsks(link) => self.on_link_asks(link),
                Frame::LinkAck(link, ack) => self.on_link_ack(link, &ack),
                // The answer goes to the address that the challenge came from, validated or not.
                Frame::PathChallenge(token) => {
                    self.discovery.validation.on_challenge(self.discovery.heard_from, token);
                }
                Frame::PathAnswer(token) => self.discovery.validation.on_answer(now, token),
                Frame::Stream { stream, offset, fin, data } => {
                    if !shared.streams.on_data((now, number), stream, offset, data, fin)? {
                        return Ok(None);
                    }
                    if restored {
                        shared.streams.on_recovered(stream, data.len());
                    }
                }
                Frame::Channel(announcement) => shared.inbound.announced(&announcement),
                Frame::Gone(gone) => shared.inbound.gone(now, gone, &mut self.log),
                Frame::Packet(packet) => {
                    shared.inbound.packet(now, &packet, restored, &mut self.log);
                }
                Frame::Context(found) => {
                    self.receiver.context(
                        &mut shared.inbound,
                        (now, number),
                        &found,
                        restored,
                        &mut self.log,
                    );
                }
                Frame::Compressed(found) => {
                    self.receiver.compressed(
                        &mut shared.inbound,
                        (now, number),
                        &found,
                        restored,
                        &mut self.log,
                    );
                }
            }
        }
        Ok(Some((eliciting, repair)))
    }
}

/// Violations of the protocol, each of which ends the session.
#[derive(Debug, thiserror::Error)]
enum SessionViolation {
    #[error("packet {number} settles all packets below {floor}")]
    Settled { floor: u64, number: u64 },
    #[error("two acknowledgements in one packet")]
    TwoAcks,
    #[error("{bytes} bytes of packets are not acknowledged")]
    Unacknowledged { bytes: usize },
    #[error("it requires more control frames in answer than its streams allow")]
    Answers,
    #[error(transparent)]
    Unsent(#[from] AckError),
    #[error(transparent)]
    Malformed(#[from] frame::MalformedFrame),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Rekey(#[from] RekeyError),
}
