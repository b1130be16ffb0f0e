//! A satellite path in virtual time, shared by several senders: SLACP sessions with a bulk transfer
//! each, TCP connections, and UDP. The fate of every packet is recorded.
//!
//! All senders share one forward link, and receive over one return link.

#![allow(dead_code, unreachable_pub, missing_docs)]

mod agenda;
pub mod cases;
pub mod crowd;
pub mod fades;
mod records;
pub mod rivals;
pub mod sharing;
pub mod steps;
pub mod tcp;
pub mod varied;

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use link::{CarriedPacket, Link, LinkConfig, Policer};
use slacp::{
    CloseReason, Config, Ecn, Endpoint, Event, KeyPair, PathKey, PathMemory, RateState,
    ReadOutcome, SessionId, SessionStats, StreamId, StreamOpening,
};
use units::{BitRate, ByteCount, Instant, Machine};

use agenda::Agenda;
pub(crate) use records::{Record, Records};
use tcp::{Control, Data, HEADER, Tcp};

/// What IPv4 and UDP add to a datagram.
const OVERHEAD: usize = 28;
/// What transfers send.
static ZEROS: [u8; 65_536] = [0; 65_536];
/// Where the terminals are.
pub const TERMINAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 2);

pub fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A packet on a link.
#[derive(Debug)]
struct Packet {
    flow: usize,
    /// Its index in the records; forward only.
    record: usize,
    size: usize,
    ecn: Ecn,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// And to which terminal.
    Datagram(Vec<u8>, SocketAddr),
    Segment(Box<Data>),
    /// Of UDP; nobody looks inside.
    Filler,
}

impl CarriedPacket for Packet {
    fn wire_len(&self) -> usize {
        self.size
    }

    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn != Ecn::NotEct;
        if capable {
            self.ecn = Ecn::Ce;
        }
        capable
    }
}

/// What the forward link does to the ECN codepoints of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codepoints {
    #[default]
    Kept,
    /// All become Not-ECT.
    Cleared,
    /// Packets other than Not-ECT are lost.
    Lost,
}

/// A sender and its receiver.
enum Flow {
    Slacp(Box<Transfer>),
    Tcp(Box<Tcp>),
    /// Packets of 1500 bytes at a constant rate, from a time on.
    Udp {
        rate: BitRate,
        next: Instant,
    },
}

impl Flow {
    /// When it next has something to do.
    fn next(&self) -> Option<Instant> {
        match self {
            Self::Slacp(transfer) => transfer.next(),
            Self::Tcp(tcp) => tcp.next(),
            Self::Udp { next, .. } => Some(*next),
        }
    }

    fn wake(&mut self, now: Instant) {
        match self {
            Self::Slacp(transfer) => transfer.wake(now),
            Self::Tcp(tcp) => tcp.wake(now),
            Self::Udp { .. } => {}
        }
    }
}

/// A terminal that downloads from a hub over a session of their own.
pub struct Transfer {
    pub hub: Endpoint,
    pub terminal: Endpoint,
    pub session: Option<SessionId>,
    hub_session: Option<SessionId>,
    stream: Option<StreamId>,
    hub_stream: Option<StreamId>,
    start: Instant,
    pub opened: Option<Instant>,
    to_send: u64,
    finished: bool,
    total: u64,
    pub received: u64,
    pub done: Option<Instant>,
    /// How often the hub has followed the terminal to a new address.
    pub moves: u32,
    /// Where the terminal is.
    pub place: SocketAddr,
    /// How far the terminal's clock is ahead, and how much faster it runs.
    skew: (Duration, f64),
    /// Where received data is read to.
    buf: Vec<u8>,
}

impl Transfer {
    pub fn new(config: [Config; 2], bytes: u64, start: Instant, seed: u64) -> Self {
        let key = |seed: u8| KeyPair::from_private([seed; 32]);
        let [hub_config, terminal_config] = config;
        let mut bits = [7; 32];
        bits[..8].copy_from_slice(&seed.to_le_bytes());
        let hub = Endpoint::hub(hub_config, key(2), vec![key(1).public()], bits);
        bits[8] = 1;
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        let public = key(2).public();
        let terminal = Endpoint::terminal(terminal_config, key(1), public, vec![address], bits);
        Self {
            hub,
            terminal,
            session: None,
            hub_session: None,
            stream: None,
            hub_stream: None,
            start,
            opened: None,
            to_send: bytes,
            finished: false,
            total: bytes,
            received: 0,
            done: None,
            moves: 0,
            place: TERMINAL,
            skew: (Duration::ZERO, 0.0),
            buf: vec![0; ZEROS.len()],
        }
    }

    /// Has the hub remember the path to the terminal.
    pub fn remember(&mut self, memory: PathMemory) {
        let path = PathKey::new(KeyPair::from_private([1; 32]).public(), TERMINAL.ip());
        self.hub.remember(Instant::ZERO, path, memory);
    }

    /// Ends the session. The terminal sets up another and requests this many bytes again.
    pub fn renew(&mut self, now: Instant, bytes: u64) {
        let theirs = self.terminal_time(now);
        self.terminal.close(theirs, self.session.unwrap(), CloseReason::Shutdown).unwrap();
        (self.session, self.stream, self.hub_stream) = (None, None, None);
        (self.to_send, self.total, self.received) = (bytes, bytes, 0);
        (self.finished, self.done) = (false, None);
    }

    /// Sets the terminal's clock ahead, and faster by parts in a million.
    pub fn skewed(mut self, ahead: Duration, ppm: f64) -> Self {
        self.skew = (ahead, ppm * 1e-6);
        self
    }

    /// Lets the terminal's clock run more slowly from now on, at that pace.
    pub fn slow_down(&mut self, now: Instant, pace: f64) {
        let ahead = self.terminal_time(now).saturating_since(now);
        let made_up = Duration::from_nanos((now.as_nanos() as f64 * (1.0 - pace)) as u64);
        self.skew = (ahead + made_up, pace - 1.0);
    }

    pub fn terminal_stats(&self) -> SessionStats {
        self.terminal.stats(self.session.unwrap()).unwrap()
    }

    pub fn hub_stats(&self) -> SessionStats {
        self.hub.stats(self.hub_session.unwrap()).unwrap()
    }

    /// How much the hub knows of the rate, if there is a session.
    pub fn hub_state(&self) -> Option<RateState> {
        Some(self.hub.stats(self.hub_session?)?.rate_state)
    }

    pub fn hub_id(&self) -> SessionId {
        self.hub_session.unwrap()
    }

    fn terminal_time(&self, now: Instant) -> Instant {
        let drift = (now.as_nanos() as f64 * self.skew.1) as i64;
        Instant::from_nanos((now + self.skew.0).as_nanos().saturating_add_signed(drift))
    }

    /// When the terminal's clock reaches a time; a nanosecond late rather than early, or time would
    /// stand still.
    fn true_time(&self, terminal: Instant) -> Instant {
        let nanos = (terminal - self.skew.0).as_nanos() as f64 / (1.0 + self.skew.1);
        Instant::from_nanos(nanos.ceil() as u64 + 1)
    }

    fn next(&self) -> Option<Instant> {
        let waits = self.session.is_some() && self.stream.is_none();
        let start = waits.then_some(self.start);
        let hub = self.hub.poll_timeout().map(|(time, _)| time);
        let terminal = self.terminal.poll_timeout().map(|(time, _)| self.true_time(time));
        [start, hub, terminal].into_iter().flatten().min()
    }

    fn wake(&mut self, now: Instant) {
        let theirs = self.terminal_time(now);
        if self.hub.poll_timeout().is_some_and(|(time, _)| time <= now) {
            self.hub.handle_timeout(now);
        }
        if self.terminal.poll_timeout().is_some_and(|(time, _)| time <= theirs) {
            self.terminal.handle_timeout(theirs);
        }
        self.use_streams(now);
    }

    fn use_streams(&mut self, now: Instant) {
        while let Some((id, event)) = self.terminal.poll_event() {
            if let Event::Up { .. } = event {
                self.session = Some(id);
            }
        }
        while let Some((id, event)) = self.hub.poll_event() {
            match event {
                Event::Up { .. } => self.hub_session = Some(id),
                Event::Opened { stream, .. } => {
                    self.hub_stream = Some(stream);
                    self.hub.accept(id, stream).expect("it was just opened");
                }
                Event::Moved { .. } => self.moves += 1,
                _ => {}
            }
        }
        self.open(now);
        self.write();
        self.read(now);
    }

    fn open(&mut self, now: Instant) {
        let Some(session) = self.session.filter(|_| self.stream.is_none() && now >= self.start)
        else {
            return;
        };
        let nowhere = SocketAddr::from(([10, 0, 0, 9], 9));
        let open = StreamOpening { destination: nowhere, source: nowhere, dscp: None };
        let theirs = self.terminal_time(now);
        let stream = self.terminal.open(theirs, session, open).unwrap();
        self.terminal.finish(session, stream).unwrap();
        self.stream = Some(stream);
        self.opened = Some(now);
    }

    fn write(&mut self) {
        let (Some(session), Some(stream)) = (self.hub_session, self.hub_stream) else { return };
        while self.to_send > 0 {
            let count = ZEROS.len().min(usize::try_from(self.to_send).unwrap());
            let taken = self.hub.write(session, stream, &ZEROS[..count]).unwrap();
            self.to_send -= taken as u64;
            if taken < count {
                return;
            }
        }
        if !self.finished {
            self.finished = true;
            self.hub.finish(session, stream).unwrap();
        }
    }

    fn read(&mut self, now: Instant) {
        let (Some(session), Some(stream)) = (self.session, self.stream) else { return };
        while self.done.is_none()
            && let Ok(ReadOutcome::Data(count)) = self.terminal.read(session, stream, &mut self.buf)
        {
            self.received += count as u64;
            if self.received == self.total {
                self.done = Some(now);
            }
        }
    }
}

/// A change of the links while they run.
pub type Change = Box<dyn FnMut(&mut Path)>;

pub struct Path {
    forward: Link<Packet>,
    ret: Link<Packet>,
    farther: BTreeMap<usize, Duration>,
    /// Packets that left the return link and have further to go.
    under_way: BTreeMap<(Instant, u64), Packet>,
    late: u64,
    flows: Vec<Flow>,
    agenda: Agenda,
    pub records: Records,
    changes: Vec<(Instant, Change)>,
    pub now: Instant,
    pub codepoints: Codepoints,
    /// The bytes of the return link.
    pub returned: u64,
}

impl Path {
    pub fn new(forward: LinkConfig, ret: LinkConfig, seed: u64) -> Self {
        Self {
            forward: Link::new(forward, seed),
            ret: Link::new(ret, seed + 1000),
            farther: BTreeMap::new(),
            under_way: BTreeMap::new(),
            late: 0,
            flows: Vec::new(),
            agenda: Agenda::default(),
            records: Records::default(),
            changes: Vec::new(),
            now: Instant::ZERO,
            codepoints: Codepoints::Kept,
            returned: 0,
        }
    }

    pub fn add(&mut self, transfer: Transfer) -> usize {
        self.add_flow(Flow::Slacp(Box::new(transfer)))
    }

    /// Adds a TCP connection that is opened at `start` and downloads indefinitely.
    pub fn add_tcp(&mut self, control: Control, start: Instant) -> usize {
        self.add_flow(Flow::Tcp(Box::new(Tcp::new(control, start))))
    }

    /// Adds UDP at a constant rate, regardless of losses, from `start` on.
    pub fn add_udp(&mut self, rate: BitRate, start: Instant) -> usize {
        self.add_flow(Flow::Udp { rate, next: start })
    }

    fn add_flow(&mut self, flow: Flow) -> usize {
        self.flows.push(flow);
        self.agenda.touch(self.flows.len() - 1);
        self.flows.len() - 1
    }

    /// Delays the feedback from a flow's receiver by this much.
    pub fn set_farther(&mut self, flow: usize, by: Duration) {
        self.farther.insert(flow, by);
    }

    /// Schedules a change.
    pub fn change(&mut self, when: Instant, what: impl FnMut(&mut Self) + 'static) {
        self.changes.push((when, Box::new(what)));
        self.changes.sort_by_key(|(when, _)| *when);
    }

    pub fn set_policer(&mut self, policer: Policer) {
        self.forward.set_policer(self.now, Some(policer));
    }

    pub fn set_rate(&mut self, rate: BitRate) {
        self.forward.set_rate(self.now, rate);
    }

    pub fn set_delay(&mut self, delay: Duration) {
        self.forward.set_delay(self.now, delay);
        self.ret.set_delay(self.now, delay);
    }

    /// Tells a hub the rate of the link.
    pub fn tell(&mut self, flow: usize, rate: BitRate) {
        let now = self.now;
        let transfer = self.transfer(flow);
        let session = transfer.hub_id();
        transfer.hub.set_rate(now, session, rate, Duration::from_secs(3600)).unwrap();
    }

    /// A transfer, to look at or to change.
    pub fn transfer(&mut self, flow: usize) -> &mut Transfer {
        self.agenda.touch(flow);
        match &mut self.flows[flow] {
            Flow::Slacp(transfer) => transfer,
            _ => panic!("flow {flow} is no transfer"),
        }
    }

    /// Runs until `end`, or until all transfers are done.
    pub fn run(&mut self, end: Instant) {
        let done = |flow: &Flow| matches!(flow, Flow::Slacp(t) if t.done.is_some());
        self.run_until(|path| path.flows.iter().all(done), end);
    }

    /// Runs until `end`, whatever is done.
    pub fn run_on(&mut self, end: Instant) {
        self.run_until(|_| false, end);
    }

    fn run_until(&mut self, over: impl Fn(&Self) -> bool, end: Instant) {
        loop {
            self.transmit();
            let next = self.next();
            if next > end || over(self) {
                return;
            }
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn next(&self) -> Instant {
        let links = [self.forward.poll_timeout(), self.ret.poll_timeout()];
        let links = links.into_iter().flatten().map(|(time, _)| time);
        let under_way = self.under_way.keys().next().map(|key| key.0);
        let changes = self.changes.first().map(|(time, _)| *time);
        links
            .chain(self.agenda.next())
            .chain(changes)
            .chain(under_way)
            .min()
            .unwrap_or(Instant::MAX)
    }

    fn step(&mut self) {
        let now = self.now;
        while self.changes.first().is_some_and(|(when, _)| *when <= now) {
            let (_, mut change) = self.changes.remove(0);
            change(self);
        }
        while let Some(mut packet) = self.forward.poll_delivery(now) {
            match self.codepoints {
                Codepoints::Kept => {}
                Codepoints::Cleared => packet.ecn = Ecn::NotEct,
                Codepoints::Lost if packet.ecn != Ecn::NotEct => continue,
                Codepoints::Lost => {}
            }
            self.records.arrived(packet.record, now, packet.ecn);
            self.arrive(packet);
        }
        while let Some(packet) = self.ret.poll_delivery(now) {
            match self.farther.get(&packet.flow) {
                None => self.hear(packet),
                Some(more) => {
                    self.late += 1;
                    self.under_way.insert((now + *more, self.late), packet);
                }
            }
        }
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= now
        {
            let packet = entry.remove();
            self.hear(packet);
        }
        for flow in self.agenda.due(now) {
            self.flows[flow].wake(now);
        }
    }

    /// A packet of the forward link arrives.
    fn arrive(&mut self, packet: Packet) {
        let now = self.now;
        self.agenda.touch(packet.flow);
        match (&mut self.flows[packet.flow], packet.body) {
            (Flow::Slacp(transfer), Body::Datagram(mut bytes, to)) => {
                if to != transfer.place {
                    return;
                }
                let hub = SocketAddr::from(([10, 0, 0, 1], 1));
                let theirs = transfer.terminal_time(now);
                transfer.terminal.handle_datagram_with_ecn(theirs, hub, packet.ecn, &mut bytes);
                transfer.use_streams(now);
            }
            (Flow::Tcp(tcp), Body::Segment(segment)) => tcp.arrive(now, &segment),
            (Flow::Udp { .. }, _) => {}
            _ => unreachable!("flows keep to their kind"),
        }
    }

    /// A packet of the return link arrives.
    fn hear(&mut self, packet: Packet) {
        let now = self.now;
        self.agenda.touch(packet.flow);
        match (&mut self.flows[packet.flow], packet.body) {
            (Flow::Slacp(transfer), Body::Datagram(mut bytes, from)) => {
                transfer.hub.handle_datagram_with_ecn(now, from, packet.ecn, &mut bytes);
                transfer.use_streams(now);
            }
            (Flow::Tcp(tcp), Body::Segment(segment)) => tcp.hear(now, &segment),
            _ => unreachable!("flows keep to their kind"),
        }
    }

    /// Has the touched flows send what they may.
    fn transmit(&mut self) {
        while let Some(flow) = self.agenda.pop_touched() {
            while let Some((body, size, ecn)) = self.next_packet(flow) {
                let record = self.records.sent(flow, size, self.now, ecn);
                self.forward.handle_packet(self.now, Packet { flow, record, size, ecn, body });
            }
            while let Some((body, size, ecn)) = self.next_return(flow) {
                self.returned += size as u64;
                self.ret.handle_packet(self.now, Packet { flow, record: 0, size, ecn, body });
            }
            self.agenda.set(flow, self.flows[flow].next());
        }
    }

    fn next_packet(&mut self, flow: usize) -> Option<(Body, usize, Ecn)> {
        match &mut self.flows[flow] {
            Flow::Slacp(transfer) => {
                let mut bytes = Vec::with_capacity(1500);
                let to = transfer.hub.poll_transmit(self.now, &mut bytes)?;
                let ecn = transfer.hub.transmit_ecn();
                transfer.write();
                let size = bytes.len() + OVERHEAD;
                Some((Body::Datagram(bytes, to), size, ecn))
            }
            Flow::Tcp(tcp) => tcp.serve(self.now).map(on_the_wire),
            Flow::Udp { rate, next } => {
                let due = *next <= self.now;
                due.then(|| {
                    *next += rate.time_to_send(ByteCount::new(1500));
                    (Body::Filler, 1500, Ecn::NotEct)
                })
            }
        }
    }

    fn next_return(&mut self, flow: usize) -> Option<(Body, usize, Ecn)> {
        match &mut self.flows[flow] {
            Flow::Slacp(transfer) => {
                let mut bytes = Vec::with_capacity(1500);
                let theirs = transfer.terminal_time(self.now);
                transfer.terminal.poll_transmit(theirs, &mut bytes)?;
                let size = bytes.len() + OVERHEAD;
                Some((
                    Body::Datagram(bytes, transfer.place),
                    size,
                    transfer.terminal.transmit_ecn(),
                ))
            }
            Flow::Tcp(tcp) => tcp.answer(self.now).map(on_the_wire),
            Flow::Udp { .. } => None,
        }
    }
}

/// A segment in an IPv4 packet, and the packet's size.
fn on_the_wire(segment: Data) -> (Body, usize, Ecn) {
    let size = HEADER + segment.wire_len();
    (Body::Segment(Box::new(segment)), size, Ecn::NotEct)
}

/// What the records say.
impl Path {
    fn between(&self, flow: usize, from: Instant, to: Instant) -> impl Iterator<Item = &Record> {
        self.records.sent_between(flow, from, to)
    }

    /// The share of packets sent in a time that never arrived.
    pub fn loss(&self, flow: usize, from: Instant, to: Instant) -> f64 {
        let sent = self.between(flow, from, to).count();
        let lost = self.between(flow, from, to).filter(|r| r.arrived.is_none()).count();
        lost as f64 / (sent as f64).max(1.0)
    }

    /// A percentile of the queueing delays of packets sent in a time, on a path
    /// of this delay.
    pub fn queue(
        &self,
        flow: usize,
        delay: Duration,
        p: f64,
        from: Instant,
        to: Instant,
    ) -> Duration {
        let queued = self.between(flow, from, to).filter_map(|record| record.queued(delay));
        let mut queued: Vec<Duration> = queued.collect();
        queued.sort_unstable();
        let index = (queued.len() as f64 * p) as usize;
        queued.get(index.min(queued.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// The rate in Mbit/s at which a flow's packets were sent in a time.
    pub fn sent(&self, flow: usize, from: Instant, to: Instant) -> f64 {
        let bytes: usize = self.between(flow, from, to).map(|record| record.size).sum();
        bytes as f64 * 8e-6 / to.saturating_since(from).as_secs_f64()
    }

    /// The rate in Mbit/s at which a flow's packets arrived in a time.
    pub fn arrived(&self, flow: usize, from: Instant, to: Instant) -> f64 {
        let arrived = self.records.arrived_between(flow, from, to);
        let bytes: usize = arrived.map(|record| record.size).sum();
        bytes as f64 * 8e-6 / to.saturating_since(from).as_secs_f64()
    }
}

/// A link with a drop-tail queue of so many bytes.
pub fn queue_of(bytes: u64) -> link::QueueLimit {
    link::QueueLimit::Bytes(ByteCount::new(bytes))
}
