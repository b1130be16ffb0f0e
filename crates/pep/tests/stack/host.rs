//! A client or a server with its connections.

use bytes::Bytes;
use link::testkit::Peer;
use tcp::{FlowFailure, FlowId, FlowRead, StackEvent, TimerKind, wire};
use units::{Instant, Machine};

use super::station::{CLIENT, SERVER, SERVER_PORT, Station, address, byte, lan};

/// When a side of a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// After what it sends.
    AfterOwn,
    /// After what it sends, and the end of what it receives.
    AfterBoth,
    /// With a reset, once it has received this many bytes; it ends its stream in no other way.
    Reset(u64),
}

/// What one side of a connection does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) bytes: u64,
    pub(crate) end: End,
    /// Bytes that it reads at a time; for each it waits for something to arrive.
    pub(crate) read: usize,
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Talk {
    flow: FlowId,
    pub(crate) port: u16,
    pub(crate) plan: Plan,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) is_ended: bool,
    has_finished: bool,
    pub(crate) has_reset: bool,
    pub(crate) failure: Option<FlowFailure>,
    is_released: bool,
}

pub(crate) struct Host {
    station: Station,
    is_server: bool,
    /// The server's plans by the order of its connections; the client's are begun.
    plans: Vec<Option<Plan>>,
    pub(crate) talks: Vec<Talk>,
    next: usize,
}

impl Host {
    /// A client beside `neighbour` that opens a connection for each plan.
    pub(crate) fn client(neighbour: usize, plans: &[Plan]) -> Self {
        let mut station = Station::new(&[neighbour]);
        let open = |(port, plan): (u16, &Plan)| {
            let path = wire::SegmentPath {
                from: address(CLIENT),
                from_port: port,
                to: address(SERVER),
                to_port: SERVER_PORT + port,
            };
            let iss = station.iss();
            let flow = station.stack(0).connect(path, lan(), iss).unwrap();
            Talk::new(flow, port, *plan)
        };
        let talks = (0..).zip(plans).map(open).collect();
        Self { station, is_server: false, plans: Vec::new(), talks, next: 0 }
    }

    /// A server that has a plan for the connections to each of its ports; it refuses those without.
    pub(crate) fn server(neighbour: usize, plans: Vec<Option<Plan>>) -> Self {
        let station = Station::new(&[neighbour]);
        Self { station, is_server: true, plans, talks: Vec::new(), next: 0 }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.talks.iter().all(Talk::is_over)
    }

    fn live(&mut self) {
        while let Some((_, event)) = self.station.poll_event() {
            if let StackEvent::Incoming(flow) = event {
                self.answer(flow);
            }
        }
        let now = self.station.now;
        for talk in &mut self.talks {
            talk.live(now, self.is_server, &mut self.station);
        }
    }

    fn answer(&mut self, flow: FlowId) {
        let path = self.station.stack(0).path(flow).unwrap();
        let port = path.from_port - SERVER_PORT;
        let Some(plan) = self.plans[usize::from(port)] else {
            return self.station.stack(0).refuse(flow);
        };
        let (now, iss) = (self.station.now, self.station.iss());
        self.station.stack(0).accept(now, flow, lan(), iss);
        self.talks.push(Talk::new(flow, port, plan));
        self.next += 1;
    }
}

impl Talk {
    fn new(flow: FlowId, port: u16, plan: Plan) -> Self {
        Self {
            flow,
            port,
            plan,
            sent: 0,
            received: 0,
            is_ended: false,
            has_finished: false,
            has_reset: false,
            failure: None,
            is_released: false,
        }
    }

    fn is_over(&self) -> bool {
        self.is_ended && self.has_finished || self.has_reset || self.failure.is_some()
    }

    fn live(&mut self, now: Instant, is_server: bool, station: &mut Station) {
        if self.is_released {
            return;
        }
        self.read(is_server, station);
        self.write(is_server, station);
        let stack = station.stack(0);
        if let End::Reset(at) = self.plan.end
            && self.received >= at
            && stack.is_connected(self.flow) == Ok(true)
        {
            self.has_reset = true;
            stack.abort(now, self.flow);
        }
        self.is_released = self.is_over() && (self.has_reset || stack.is_delivered(self.flow));
        if self.is_released {
            stack.release(self.flow);
        }
    }

    fn read(&mut self, is_server: bool, station: &mut Station) {
        let mut left = self.plan.read;
        while left > 0 && !self.is_ended && self.failure.is_none() {
            match station.stack(0).read(self.flow, left) {
                FlowRead::Data(data) => {
                    for (at, data) in (self.received..).zip(&data) {
                        assert_eq!(*data, byte(self.port, !is_server, at), "{self:?} at {at}");
                    }
                    self.received += data.len() as u64;
                    left -= data.len();
                }
                FlowRead::Blocked => return,
                FlowRead::End => self.is_ended = true,
                FlowRead::Failed(cut) => self.failure = Some(cut),
            }
        }
    }

    fn write(&mut self, is_server: bool, station: &mut Station) {
        let stack = station.stack(0);
        if self.has_finished || stack.is_connected(self.flow) != Ok(true) {
            return;
        }
        while self.sent < self.plan.bytes {
            let end = self.plan.bytes.min(self.sent + 20_000);
            let data: Bytes = (self.sent..end).map(|at| byte(self.port, is_server, at)).collect();
            match stack.write(self.flow, &data) {
                Ok(0) | Err(_) => return,
                Ok(taken) => self.sent += taken as u64,
            }
        }
        let ends = match self.plan.end {
            End::AfterOwn => true,
            End::AfterBoth => self.is_ended,
            End::Reset(_) => false,
        };
        self.has_finished = ends && stack.finish(self.flow).is_ok();
    }
}

impl Machine for Host {
    type Wake = TimerKind;

    fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        self.station.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.station.handle_timeout(now);
        self.live();
    }
}

impl Peer for Host {
    fn receive(&mut self, now: Instant, from: usize, datagram: Vec<u8>) {
        self.station.receive(now, from, &datagram);
        self.live();
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        self.station.now = now;
        self.live();
        self.station.transmit(now)
    }
}
