//! The legs of a split connection as the relay of `pep` drives them: TCP connections of the
//! simulator and streams of SLACP sessions.

use pep::relay::{LegFailure, LegSide, LegStep, Legs};
use slacp::{ReadOutcome, ResetReason};
use tcp::{ByteRange, SegmentPayload as _, TcpState};
use units::Instant;

use super::slacp::SlacpGateway;
use crate::connection::contents::StreamContents;
use crate::connection::socket::SimulatedSocket;
use crate::connection::split::{LegEnd, SplitLeg};
use crate::slab::Slab;

/// Maximum number of bytes read at once; the same as in the gateway.
const CHUNK: usize = 65_536;

pub(super) struct LegDriver<'w> {
    pub(super) now: Instant,
    /// The legs towards the client and the server, indexed by [`LegSide`].
    pub(super) legs: &'w mut [SplitLeg; 2],
    pub(super) sockets: &'w mut Slab<SimulatedSocket>,
    pub(super) gateway: Option<&'w mut SlacpGateway>,
    pub(super) contents: &'w StreamContents,
}

/// The result of reading a leg.
enum LegInput {
    Data(ByteRange),
    Blocked,
    End,
    Failed(LegFailure),
}

impl Legs for LegDriver<'_> {
    fn pass(&mut self, from: LegSide) -> LegStep {
        if self.legs[from as usize].held.is_empty() {
            match self.read(from) {
                LegInput::Data(data) => self.legs[from as usize].held = data,
                LegInput::Blocked => return LegStep::Blocked(from),
                LegInput::End => return LegStep::End,
                LegInput::Failed(failure) => return LegStep::Failed(from, failure),
            }
        }
        let held = self.legs[from as usize].held;
        match self.write(from.other(), held) {
            Ok(0) => LegStep::Blocked(from.other()),
            Ok(taken) => {
                self.legs[from as usize].held = held.slice(taken..held.len());
                LegStep::Moved(taken)
            }
            Err(failure) => LegStep::Failed(from.other(), failure),
        }
    }

    fn discard(&mut self, from: LegSide) -> LegStep {
        match self.read(from) {
            LegInput::Data(data) => LegStep::Moved(data.len()),
            LegInput::Blocked => LegStep::Blocked(from),
            LegInput::End => LegStep::End,
            LegInput::Failed(failure) => LegStep::Failed(from, failure),
        }
    }

    fn finish(&mut self, to: LegSide) -> Result<bool, LegFailure> {
        let leg = &mut self.legs[to as usize];
        match leg.end {
            Some(LegEnd::Tcp(socket)) => {
                let Some(socket) = self.sockets.get_mut(socket) else { return Ok(true) };
                match (leg.failure, socket.tcp.state()) {
                    (Some(failure), _) => Err(failure),
                    // A CLOSE in SYN-SENT would abort the connection.
                    (None, TcpState::SynSent) => Ok(false),
                    (None, _) => {
                        socket.tcp.close();
                        Ok(true)
                    }
                }
            }
            Some(LegEnd::Stream(session, stream)) => {
                let Some(gateway) = &mut self.gateway else { return Ok(true) };
                Ok(gateway.finish(session, stream, leg.coded.as_deref_mut()))
            }
            None => Ok(true),
        }
    }

    fn is_delivered(&mut self, leg: LegSide) -> bool {
        let Some(LegEnd::Tcp(socket)) = self.legs[leg as usize].end else { return true };
        let state = self.sockets.get(socket).map_or(TcpState::Closed, |socket| socket.tcp.state());
        // In these states the FIN, and so all data before it, has been acknowledged (RFC 9293 §3.3.2).
        matches!(state, TcpState::Closed | TcpState::TimeWait | TcpState::FinWait2)
    }

    fn close(&mut self, leg: LegSide) {
        self.legs[leg as usize].end = None;
    }

    fn reset(&mut self, leg: LegSide, reason: ResetReason) {
        match self.legs[leg as usize].end.take() {
            Some(LegEnd::Tcp(socket)) => {
                if let Some(socket) = self.sockets.get_mut(socket) {
                    socket.tcp.abort(self.now);
                }
            }
            Some(LegEnd::Stream(session, stream)) => {
                if let Some(gateway) = &mut self.gateway {
                    gateway.reset(session, stream, reason);
                }
            }
            None => {}
        }
    }

    fn unacknowledged(&mut self, leg: LegSide) -> u64 {
        match self.legs[leg as usize].end {
            Some(LegEnd::Tcp(socket)) => {
                self.sockets.get(socket).map_or(0, |socket| socket.tcp.unacknowledged().get())
            }
            Some(LegEnd::Stream(session, stream)) => {
                let stats = self
                    .gateway
                    .as_ref()
                    .and_then(|gateway| gateway.endpoint.stream_stats(session, stream));
                stats.map_or(0, |stats| stats.unsent + stats.unacknowledged)
            }
            None => 0,
        }
    }

    fn reset_after_data(&mut self, leg: LegSide, reason: ResetReason) -> bool {
        if let Some(LegEnd::Stream(session, stream)) = self.legs[leg as usize].end {
            let coded = self.legs[leg as usize].coded.as_deref_mut();
            let Some(gateway) = &mut self.gateway else { return true };
            let is_taken = gateway.reset_after_data(session, stream, reason, coded);
            if is_taken {
                self.legs[leg as usize].end = None;
            }
            return is_taken;
        }
        // TCP has no reset that waits for data, as streams have: it is sent when all is acknowledged.
        let is_delivered = self.unacknowledged(leg) == 0;
        if is_delivered {
            self.reset(leg, reason);
        }
        is_delivered
    }
}

impl LegDriver<'_> {
    fn read(&mut self, from: LegSide) -> LegInput {
        let leg = &mut self.legs[from as usize];
        let input = match leg.end {
            Some(LegEnd::Tcp(socket)) => {
                let socket = self.sockets.get_mut(socket);
                match socket.and_then(|socket| socket.tcp.read(CHUNK)) {
                    Some(data) => LegInput::Data(data),
                    None if leg.is_ended => LegInput::End,
                    None => leg.failure.map_or(LegInput::Blocked, LegInput::Failed),
                }
            }
            Some(LegEnd::Stream(session, stream)) => match &mut self.gateway {
                Some(gateway) => match gateway.read(
                    session,
                    stream,
                    leg.position,
                    self.contents,
                    leg.coded.as_deref_mut(),
                ) {
                    Ok(ReadOutcome::Data(bytes)) => {
                        let end = leg.position + bytes as u64;
                        LegInput::Data(ByteRange::new(leg.position..end))
                    }
                    Ok(ReadOutcome::End) => LegInput::End,
                    // An error means that the stream was reset; the event follows.
                    Ok(ReadOutcome::Blocked) | Err(_) => {
                        leg.failure.map_or(LegInput::Blocked, LegInput::Failed)
                    }
                },
                None => LegInput::Blocked,
            },
            None => LegInput::Blocked,
        };
        if let LegInput::Data(data) = &input {
            assert_eq!(data.range().start, leg.position, "a byte is not where it was written");
            leg.position = data.range().end;
        }
        input
    }

    fn write(&mut self, to: LegSide, data: ByteRange) -> Result<usize, LegFailure> {
        let leg = &mut self.legs[to as usize];
        match leg.end {
            Some(LegEnd::Tcp(socket)) => {
                let Some(socket) = self.sockets.get_mut(socket) else { return Ok(0) };
                let written = socket.tcp.write(&data);
                written.map_err(|_| leg.failure.unwrap_or(LegFailure::Broken(ResetReason::Reset)))
            }
            Some(LegEnd::Stream(session, stream)) => {
                if let Some(failure) = leg.failure {
                    return Err(failure);
                }
                let Some(gateway) = &mut self.gateway else { return Ok(0) };
                let coded = leg.coded.as_deref_mut();
                Ok(gateway.write(session, stream, data, self.contents, coded))
            }
            None => Ok(0),
        }
    }
}
