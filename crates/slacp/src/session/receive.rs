//! What a session does with packets that come.

use std::net::SocketAddr;

use units::Instant;

use super::{Session, ip_udp_overhead};
use crate::Event;
use crate::frame::{self, Ack, Frame, Repair};
use crate::packet::Header;
use crate::sent::Cargo;
use crate::streams::ProtocolError;

impl Session {
    /// Takes a data packet from the wire; `from` becomes the peer's address if
    /// the packet is authentic and the newest. Gives whether it was authentic.
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
        let Some(frames) = self.keys.recv.open(number, header.len(), datagram) else {
            self.stats.forged += 1;
            return false;
        };
        self.heard(now);
        if number >= expected {
            self.peer.address = from;
        }
        self.stats.packets_received += 1;
        self.stats.bytes_received += size as u64;
        if let Err(error) = self.take_packet(now, number, header.source, frames, size) {
            self.fail(&error);
        }
        true
    }

    /// [`Self::handle_packet`] after the packet has been opened.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn take_authentic(&mut self, now: Instant, number: u64, frames: &[u8]) {
        if self.received.is_new(number) {
            self.heard(now);
            if let Err(error) = self.take_packet(now, number, true, frames, frames.len()) {
                self.fail(&error);
            }
        }
    }

    fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        if !self.reachable {
            self.reachable = true;
            self.events.push_back(Event::Reachable);
        }
    }

    fn fail(&mut self, error: &dyn core::error::Error) {
        self.stats.failure = Some(error.to_string().into());
        self.over = true;
    }

    fn take_packet(
        &mut self,
        now: Instant,
        number: u64,
        source: bool,
        frames: &[u8],
        size: usize,
    ) -> Result<(), Broken> {
        let (eliciting, repair) = self.take_frames(now, frames)?;
        self.received.arrived(now, number, size, eliciting);
        self.decoder.keep(number, if source { frames } else { &[] });
        let mut restored = self.decoder.retry(number);
        if let Some(repair) = repair {
            self.stats.repairs_received += 1;
            restored.extend(self.decoder.repair(number, &repair));
        }
        for (number, frames) in restored {
            if self.received.is_new(number) {
                self.stats.recovered += 1;
                self.received.restored(now, number);
                self.take_frames(now, &frames)?;
            }
        }
        Ok(())
    }

    /// Acts on all frames; whether the packet is to be acknowledged, and the
    /// repair it carries.
    fn take_frames<'a>(
        &mut self,
        now: Instant,
        mut frames: &'a [u8],
    ) -> Result<(bool, Option<Repair<'a>>), Broken> {
        let (mut eliciting, mut repair) = (false, None);
        while let Some(frame) = frame::read(&mut frames)? {
            eliciting |= !matches!(frame, Frame::Ack(_) | Frame::Settled(_));
            match frame {
                Frame::Ping => {}
                Frame::Ack(ack) => self.on_ack(now, &ack),
                Frame::Settled(floor) => {
                    self.received.settle(floor);
                    self.decoder.settle(floor);
                }
                Frame::Repair(found) => repair = Some(found),
                Frame::Open { stream, credit, open } => {
                    self.streams.on_open(stream, credit, open)?;
                }
                Frame::Accept(stream) => self.streams.on_accept(stream),
                Frame::Reset { stream, reason, sent } => {
                    self.streams.on_reset(stream, reason, sent)?;
                }
                Frame::SessionCredit(limit) => self.streams.on_session_credit(limit),
                Frame::StreamCredit { stream, limit } => {
                    self.streams.on_stream_credit(stream, limit);
                }
                Frame::Stream { stream, offset, fin, data } => {
                    self.streams.on_data(stream, offset, data, fin)?;
                }
            }
        }
        Ok((eliciting, repair))
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        let Some(acked) = self.sent.acknowledge(ack) else { return };
        if let Some(sent_at) = acked.largest_sent_at {
            self.rtt.update(now.saturating_since(sent_at), ack.held);
        }
        let count = acked.packets.len();
        for cargo in acked.packets.into_iter().flat_map(|packet| packet.cargo) {
            if let Cargo::Stream { stream, range, fin } = cargo {
                self.streams.on_acknowledged(stream, range, fin);
            }
        }
        let lost = self.take_lost(now);
        self.loss.update(count, lost, ack.recovered);
        self.streams.wake_writers();
        if count > 0 {
            self.next_probe = self.probe_at();
        }
    }

    /// Has what was lost sent again; how many packets that was.
    pub(super) fn take_lost(&mut self, now: Instant) -> usize {
        let lost = self.sent.take_lost(now, self.rtt.loss_delay());
        let count = lost.len();
        self.stats.packets_lost += count as u64;
        lost.into_iter().flat_map(|packet| packet.cargo).for_each(|cargo| self.resend(cargo));
        count
    }

    pub(super) fn resend(&mut self, cargo: Cargo) {
        match cargo {
            Cargo::Stream { stream, range, fin } => self.streams.on_lost(stream, range, fin),
            Cargo::Control(frame) => self.streams.on_control_lost(frame),
        }
    }
}

/// What ends a session at once.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Malformed(#[from] frame::Malformed),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}
