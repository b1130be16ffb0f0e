//! What an honest terminal and its hub carry, each byte of it checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use slacp::fuzzing::CheckedEndpoint;
use slacp::{Destination, Event, ReadOutcome, ResetReason, SessionId, StreamId, StreamOpening};
use units::Instant;

use crate::hop::{PIECE, bytes};

/// The port of a stream's destination says what it carries: without end down or
/// up, a request and its reply, or down to a client that does not read.
pub const DOWN: u16 = 1;
pub const UP: u16 = 2;
pub const EXCHANGE: u16 = 3;
pub const STALLED: u16 = 4;

/// Bytes from the terminal, and from the hub.
fn sizes(port: u16) -> [u64; 2] {
    match port {
        DOWN | STALLED => [10, u64::MAX],
        UP => [u64::MAX, 0],
        _ => [300, 6_000],
    }
}

#[derive(Debug, Default)]
struct Flow {
    port: u16,
    sent: u64,
    received: u64,
    finished: bool,
    ended: bool,
    opened: Instant,
}

/// The streams of one side of a session.
pub struct Flows {
    /// 0 for the terminal, 1 for the hub.
    side: usize,
    map: BTreeMap<StreamId, Flow>,
    /// Those that may be read or written, by what the endpoint said.
    ready: BTreeSet<StreamId>,
    /// Bytes read on streams of each port.
    pub received: BTreeMap<u16, u64>,
    /// How many exchanges are over, and how long they took in seconds.
    pub exchanges: usize,
    pub slowest: f64,
}

impl Flows {
    pub fn new(side: usize) -> Self {
        Self {
            side,
            map: BTreeMap::new(),
            ready: BTreeSet::new(),
            received: BTreeMap::new(),
            exchanges: 0,
            slowest: 0.0,
        }
    }

    /// Opens a stream, if there may be another.
    pub fn open(
        &mut self,
        now: Instant,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        port: u16,
    ) {
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        let open = StreamOpening { destination: address, source: address, dscp: None };
        if let Ok(id) = endpoint.with(|it| it.open(now, session, open)) {
            self.map.insert(id, Flow { port, opened: now, ..Flow::default() });
            self.ready.insert(id);
        }
    }

    pub fn handle_event(
        &mut self,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        event: &Event,
    ) {
        match event {
            Event::Opened { stream, open } => {
                let Destination::Address(to) = open.destination else { panic!("{open:?}") };
                self.map.insert(*stream, Flow { port: to.port(), ..Flow::default() });
                self.ready.insert(*stream);
                endpoint.with(|it| it.accept(session, *stream)).unwrap();
            }
            Event::Reset { stream, reason } => {
                let flow = self.map.remove(stream);
                assert_eq!(*reason, ResetReason::Limit, "an honest stream was reset: {flow:?}");
            }
            Event::Closed(stream) => {
                let flow = self.map.remove(stream).expect("a flow for every stream");
                assert!(flow.ended && flow.finished, "{flow:?}");
            }
            Event::Readable(stream) | Event::Writable(stream) => _ = self.ready.insert(*stream),
            _ => {}
        }
    }

    /// Reads and writes what there is. An exchange that is over is followed by
    /// another.
    pub fn pump(&mut self, now: Instant, endpoint: &mut CheckedEndpoint, session: SessionId) {
        while let Some(id) = self.ready.pop_first() {
            let Some(flow) = self.map.get_mut(&id) else { continue };
            let before = flow.ended;
            flow.read(self.side, endpoint, session, id, &mut self.received);
            flow.write(self.side, endpoint, session, id);
            if self.side == 0 && flow.port == EXCHANGE && flow.ended && !before {
                let time = now.saturating_since(flow.opened).as_secs_f64();
                self.slowest = self.slowest.max(time);
                self.exchanges += 1;
                self.open(now, endpoint, session, EXCHANGE);
            }
        }
    }
}

impl Flow {
    fn read(
        &mut self,
        side: usize,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        id: StreamId,
        received: &mut BTreeMap<u16, u64>,
    ) {
        if self.ended || side == 0 && self.port == STALLED {
            return;
        }
        let mut buf = [0; PIECE];
        loop {
            match endpoint.with(|it| it.read(session, id, &mut buf)) {
                Ok(ReadOutcome::Data(count)) => {
                    let want = bytes(self.port.into(), 1 - side, self.received, count);
                    assert!(buf[..count] == *want, "{id:?} is wrong at {}", self.received);
                    self.received += count as u64;
                    *received.entry(self.port).or_default() += count as u64;
                }
                Ok(ReadOutcome::End) => {
                    assert_eq!(self.received, sizes(self.port)[1 - side], "{id:?} was cut");
                    self.ended = true;
                    return;
                }
                Ok(ReadOutcome::Blocked) | Err(_) => return,
            }
        }
    }

    fn write(
        &mut self,
        side: usize,
        endpoint: &mut CheckedEndpoint,
        session: SessionId,
        id: StreamId,
    ) {
        let total = sizes(self.port)[side];
        if self.finished || side == 1 && self.port == EXCHANGE && !self.ended {
            return;
        }
        while self.sent < total {
            let count = (total - self.sent).min(PIECE as u64) as usize;
            let bytes = bytes(self.port.into(), side, self.sent, count);
            match endpoint.with(|it| it.write(session, id, bytes)) {
                Ok(0) | Err(_) => return,
                Ok(count) => self.sent += count as u64,
            }
        }
        self.finished = endpoint.with(|it| it.finish(session, id)).is_ok();
    }
}
