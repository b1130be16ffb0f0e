//! A solo gateway: relays of `pep` between a stack towards a host and one towards the satellite.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use link::testkit::Peer;
use pep::relay::{LegFailure, LegSide, LegStep, Legs, Relay, RelayProgress};
use slacp::ResetReason;
use tcp::{Config, FlowFailure, FlowId, FlowRead, StackEvent, TimerKind, wire};
use units::{Instant, Machine};

use super::station::{Station, lan};

/// The stack towards the host, and that towards the satellite.
const LAN: usize = 0;
const WAN: usize = 1;
/// What a relay reads at once, in bytes.
const CHUNK: usize = 65_536;

pub(crate) struct Solo {
    station: Station,
    wan: Arc<Config>,
    /// Whether hosts are answered before the far end has answered.
    is_early: bool,
    carried: Vec<Carried>,
    /// Which connection a flow belongs to, and its side.
    of_flow: BTreeMap<(usize, FlowId), usize>,
}

/// A split connection.
struct Carried {
    /// Stack and flow, by side; `None` once let go of.
    legs: [Option<(usize, FlowId)>; 2],
    /// Read from the side and not yet written.
    held: [Bytes; 2],
    closes: [bool; 2],
    relay: Relay,
    /// Whether the server is connected.
    is_open: bool,
    is_over: bool,
}

struct Wires<'w> {
    carried: [&'w mut Option<(usize, FlowId)>; 2],
    held: &'w mut [Bytes; 2],
    closes: &'w mut [bool; 2],
    station: &'w mut Station,
}

fn failure(cut: FlowFailure) -> LegFailure {
    LegFailure::of_connection(cut.why, cut.after_end)
}

impl Wires<'_> {
    fn leg(&self, side: LegSide) -> (usize, FlowId) {
        self.carried[side as usize].expect("a relay does not use a leg it has let go of")
    }

    fn let_go(&mut self, side: LegSide) {
        let Some((stack, flow)) = self.carried[side as usize].take() else { return };
        let now = self.station.now;
        let stack = self.station.stack(stack);
        if self.closes[side as usize] {
            stack.release(flow);
        } else {
            stack.abort(now, flow);
        }
    }
}

impl Legs for Wires<'_> {
    fn pass(&mut self, from: LegSide) -> LegStep {
        let ((source, read), (sink, write)) = (self.leg(from), self.leg(from.other()));
        if self.held[from as usize].is_empty() {
            match self.station.stack(sink).has_room(write) {
                Ok(true) => {}
                Ok(false) => return LegStep::Blocked(from.other()),
                Err(cut) => return LegStep::Failed(from.other(), failure(cut)),
            }
            match self.station.stack(source).read(read, CHUNK) {
                FlowRead::Data(data) => self.held[from as usize] = data,
                FlowRead::Blocked => return LegStep::Blocked(from),
                FlowRead::End => return LegStep::End,
                FlowRead::Failed(cut) => return LegStep::Failed(from, failure(cut)),
            }
        }
        let held = &mut self.held[from as usize];
        match self.station.stack(sink).write(write, held) {
            Ok(0) => {
                let _ = self.station.stack(sink).has_room(write);
                LegStep::Blocked(from.other())
            }
            Ok(taken) => {
                *held = held.slice(taken..);
                LegStep::Moved(taken)
            }
            Err(cut) => LegStep::Failed(from.other(), failure(cut)),
        }
    }

    fn discard(&mut self, from: LegSide) -> LegStep {
        let (stack, flow) = self.leg(from);
        match self.station.stack(stack).read(flow, CHUNK) {
            FlowRead::Data(data) => LegStep::Moved(data.len()),
            FlowRead::Blocked => LegStep::Blocked(from),
            FlowRead::End => LegStep::End,
            FlowRead::Failed(cut) => LegStep::Failed(from, failure(cut)),
        }
    }

    fn finish(&mut self, to: LegSide) -> Result<bool, LegFailure> {
        let (stack, flow) = self.leg(to);
        self.station.stack(stack).finish(flow).map(|()| true).map_err(failure)
    }

    fn is_delivered(&mut self, leg: LegSide) -> bool {
        self.closes[leg as usize] = true;
        let (stack, flow) = self.leg(leg);
        self.station.stack(stack).is_delivered(flow)
    }

    fn close(&mut self, leg: LegSide) {
        self.let_go(leg);
    }

    fn reset(&mut self, leg: LegSide, _: ResetReason) {
        self.closes[leg as usize] = false;
        self.let_go(leg);
    }

    fn unacknowledged(&mut self, leg: LegSide) -> u64 {
        let (stack, flow) = self.leg(leg);
        self.station.stack(stack).unacknowledged(flow)
    }

    fn reset_after_data(&mut self, leg: LegSide, reason: ResetReason) -> bool {
        let is_delivered = self.unacknowledged(leg) == 0;
        if is_delivered {
            self.reset(leg, reason);
        }
        is_delivered
    }
}

impl Solo {
    /// Between the host `lan` and the satellite to `wan`.
    pub(crate) fn new([lan, wan]: [usize; 2], config: Config, is_early: bool) -> Self {
        Self {
            station: Station::new(&[lan, wan]),
            wan: Arc::new(config),
            is_early,
            carried: Vec::new(),
            of_flow: BTreeMap::new(),
        }
    }

    /// Connections whose ends have agreed on SNACK.
    pub(crate) fn snacks(&self) -> u64 {
        self.station.stacks[WAN].1.counts().snack
    }

    pub(crate) fn is_over(&self) -> bool {
        self.carried.iter().all(|carried| carried.is_over)
    }

    /// Flows that nobody has let go of.
    pub(crate) fn owned(&self) -> usize {
        self.station.stacks.iter().map(|(_, stack)| stack.owned()).sum()
    }

    fn config(&self, stack: usize) -> Arc<Config> {
        if stack == WAN { self.wan.clone() } else { lan() }
    }

    fn live(&mut self) {
        while let Some((stack, event)) = self.station.poll_event() {
            match event {
                StackEvent::Incoming(flow) => self.begin(stack, flow),
                StackEvent::Changed(flow) => {
                    if let Some(index) = self.of_flow.get(&(stack, flow)).copied() {
                        self.serve(index);
                    }
                }
                _ => {}
            }
        }
    }

    /// Connects the server for a host; keeps the host's address and changes its port.
    fn begin(&mut self, stack: usize, flow: FlowId) {
        let path = self.station.stack(stack).path(flow).unwrap().reversed();
        let path = wire::SegmentPath { from_port: path.from_port + 1000, ..path };
        let (there, iss) = (1 - stack, self.station.iss());
        let config = self.config(there);
        let server = self.station.stack(there).connect(path, config, iss).unwrap();
        let index = self.carried.len();
        self.of_flow.extend([((stack, flow), index), ((there, server), index)]);
        self.carried.push(Carried {
            legs: [Some((stack, flow)), Some((there, server))],
            held: [Bytes::new(), Bytes::new()],
            closes: [false; 2],
            relay: Relay::default(),
            is_open: false,
            is_over: false,
        });
        if stack == LAN && self.is_early {
            self.accept((stack, flow));
        }
    }

    fn accept(&mut self, (stack, flow): (usize, FlowId)) {
        let (now, iss, config) = (self.station.now, self.station.iss(), self.config(stack));
        self.station.stack(stack).accept(now, flow, config, iss);
    }

    fn serve(&mut self, index: usize) {
        if !self.carried[index].is_open && !self.open(index) {
            return;
        }
        let Self { station, carried, .. } = self;
        let Carried { legs, held, closes, relay, is_over, .. } = &mut carried[index];
        let now = station.now;
        let failures =
            legs.map(|leg| leg.and_then(|(stack, flow)| station.stack(stack).failure(flow)));
        let [client, server] = legs;
        let mut wires = Wires { carried: [client, server], held, closes, station };
        for side in LegSide::BOTH {
            if let (true, Some(cut)) = (relay.is_carrying(), failures[side as usize]) {
                relay.handle_failure(now, side, failure(cut));
            }
        }
        loop {
            match relay.handle(now, &mut wires) {
                RelayProgress::Busy => {}
                RelayProgress::Waiting => return,
                RelayProgress::Refused(reason) => relay.abort(reason, &mut wires),
                RelayProgress::Over => {
                    *is_over = true;
                    return;
                }
            }
        }
    }

    /// Answers the client once the server has answered. Returns whether the relay may run.
    fn open(&mut self, index: usize) -> bool {
        let [Some(client), Some(server)] = self.carried[index].legs else { return false };
        let connected = self.station.stack(server.0).is_connected(server.1);
        let gone = self.station.stack(client.0).failure(client.1);
        match (connected, gone) {
            (Ok(true), None) => {
                self.accept(client);
                self.carried[index].is_open = true;
                true
            }
            (Ok(false), None) => false,
            (failed, _) => {
                let now = self.station.now;
                if failed.is_err_and(|cut| cut.why == tcp::AbortReason::Refused) {
                    self.station.stack(client.0).refuse(client.1);
                }
                // Resets a client that was answered.
                self.station.stack(client.0).abort(now, client.1);
                self.station.stack(server.0).abort(now, server.1);
                self.carried[index].legs = [None, None];
                self.carried[index].is_over = true;
                false
            }
        }
    }
}

impl Machine for Solo {
    type Wake = TimerKind;

    fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        let relays = self.carried.iter().filter(|carried| !carried.is_over);
        // The reason is of no interest here.
        let relays =
            relays.filter_map(|it| Some((it.relay.poll_timeout()?.0, TimerKind::TimeWait)));
        units::earliest(self.station.poll_timeout(), relays.min_by_key(|(at, _)| *at))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.station.handle_timeout(now);
        self.live();
        for index in 0..self.carried.len() {
            let due = self.carried[index].relay.poll_timeout().is_some_and(|(at, _)| at <= now);
            if due && !self.carried[index].is_over {
                self.serve(index);
            }
        }
    }
}

impl Peer for Solo {
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
