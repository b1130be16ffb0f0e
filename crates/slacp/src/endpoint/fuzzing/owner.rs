//! The owner of an endpoint under attack: sometimes slow, sometimes without reaction, but never an
//! obstacle to its other peers.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use units::{BitRate, Instant};

use super::{CheckedEndpoint, Choices};
use crate::{ChannelId, Event, ReadOutcome, ResetReason, SessionId, StreamId, StreamOpening};

/// Number of streams that it uses in one turn.
const LOOKS: usize = 8;
/// Number of streams that it opens to the adversary.
const OPENED: usize = 6;

/// The owner's use of a stream.
#[derive(Debug, Clone, Copy)]
struct StreamManner {
    reads: bool,
    writes: bool,
}

/// Uses the sessions of an adversary as owners do.
pub struct Owner {
    streams: BTreeMap<(SessionId, StreamId), StreamManner>,
    opened: usize,
    /// The stream that it used last.
    turn: Option<(SessionId, StreamId)>,
    sessions: Vec<SessionId>,
    /// Set if it sends data to the adversary.
    generous: bool,
}

impl Owner {
    /// An owner whose behaviour follows from the choices.
    pub fn new(choices: &mut Choices) -> Self {
        Self {
            streams: BTreeMap::new(),
            opened: 0,
            turn: None,
            sessions: Vec::new(),
            generous: choices.one_in(2),
        }
    }

    /// Handles an event of one of the adversary's sessions.
    pub fn handle_event(
        &mut self,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        event: &Event,
        choices: &mut Choices,
    ) {
        match event {
            Event::Up { .. } => self.sessions.push(session),
            Event::Down(_) => {
                self.sessions.retain(|other| *other != session);
                self.streams.retain(|(other, _), _| *other != session);
            }
            Event::Opened { stream, .. } => self.opened(endpoint, session, *stream, choices),
            Event::Reset { stream, .. } | Event::Closed(stream) => {
                self.streams.remove(&(session, *stream));
            }
            _ => {}
        }
    }

    fn opened(
        &mut self,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        stream: StreamId,
        choices: &mut Choices,
    ) {
        match choices.below(8) {
            0 => _ = endpoint.with(|it| it.reset(session, stream, ResetReason::Refused)),
            1 => {}
            _ => _ = endpoint.with(|it| it.accept(session, stream)),
        }
        let (reads, writes) = (choices.one_in(2), self.generous && choices.one_in(2));
        self.streams.insert((session, stream), StreamManner { reads, writes });
    }

    /// Uses a session and some streams. `rates` are those that the modem may report.
    pub fn act(
        &mut self,
        now: Instant,
        endpoint: &mut CheckedEndpoint,
        rates: &[BitRate],
        choices: &mut Choices,
    ) {
        if let Some(session) = self.some_session(choices) {
            self.use_session(now, endpoint, session, choices);
            if !rates.is_empty() {
                let (rate, time) = (choices.pick(rates), Duration::from_secs(60));
                let _ = endpoint.with(|it| it.set_rate(now, session, rate, time));
            }
        }
        for _ in 0..LOOKS.min(self.streams.len()) {
            let next = match self.turn {
                Some(turn) => self.streams.range(turn..).nth(1),
                None => None,
            };
            let next = next.or_else(|| self.streams.first_key_value());
            let Some((&(session, stream), &manner)) = next else { return };
            self.turn = Some((session, stream));
            use_stream(endpoint, session, stream, manner, choices);
        }
    }

    fn some_session(&self, choices: &mut Choices) -> Option<SessionId> {
        let nth = choices.below(self.sessions.len() as u64) as usize;
        self.sessions.get(nth).copied()
    }

    fn use_session(
        &mut self,
        now: Instant,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        choices: &mut Choices,
    ) {
        if self.opened < OPENED && choices.one_in(4) {
            let address = SocketAddr::from(([192, 0, 2, 1], 80));
            let open = StreamOpening { destination: address, source: address, dscp: None };
            if let Ok(stream) = endpoint.with(|it| it.open(now, session, open)) {
                self.opened += 1;
                let manner = StreamManner { reads: choices.one_in(2), writes: self.generous };
                self.streams.insert((session, stream), manner);
            }
        }
        if let Some(channel) = ChannelId::new(choices.below(4) as u8) {
            let packet = [0x45; 600];
            let size = 1 + choices.below(packet.len() as u64) as usize;
            let packet = &packet[..size];
            let _ = endpoint.with(|it| it.send_packet(now, session, channel, packet));
        }
    }
}

fn use_stream(
    endpoint: &mut CheckedEndpoint,
    session: SessionId,
    stream: StreamId,
    manner: StreamManner,
    choices: &mut Choices,
) {
    let mut buffer = [0; 4096];
    if manner.writes {
        let _ = endpoint.with(|it| it.write(session, stream, &buffer));
    }
    if manner.reads {
        let mut read = || endpoint.with(|it| it.read(session, stream, &mut buffer));
        while matches!(read(), Ok(ReadOutcome::Data(_))) {}
    }
    match choices.below(64) {
        0 => _ = endpoint.with(|it| it.reset(session, stream, ResetReason::TimedOut)),
        1 => _ = endpoint.with(|it| it.finish(session, stream)),
        _ => {}
    }
}
