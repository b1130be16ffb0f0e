//! A terminal and a hub with traffic between them, in virtual time.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use link::testkit::{Net, Peer};
use link::{Delay, LinkConfig, LossModel, Outage, QueueLimit};
use slacp::{
    Config, Destination, Endpoint, Event, KeyPair, ReadOutcome, ResetReason, SessionId,
    StreamError, StreamId, StreamOpening,
};
use units::{BitRate, ByteCount, Instant, Machine, Probability};

pub const TERMINAL: usize = 0;
pub const HUB: usize = 1;

/// A planned exchange on a stream. Its index in the list of plans is the port of the stream's
/// destination, so that both sides know it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes sent by the opener and by the acceptor.
    pub bytes: [u64; 2],
    /// The acceptor sends only after it has received all of the opener's bytes.
    pub reply: bool,
    /// The opener resets the stream after receiving this many bytes.
    pub reset_after: Option<u64>,
    /// The acceptor refuses the stream.
    pub refuse: Option<ResetReason>,
    /// The acceptor never reads.
    pub stalled: bool,
    /// Maximum bytes per read by the opener, and the interval between reads.
    pub slow: Option<(usize, Duration)>,
    /// The opener stops reading after this many bytes.
    pub stalls_after: Option<u64>,
    /// The acceptor never connects it: the server does not answer. The opener has sent its bytes.
    pub dead: bool,
    /// The client whose connection it is.
    pub client: IpAddr,
}

impl Plan {
    pub fn new(up: u64, down: u64) -> Self {
        Self {
            bytes: [up, down],
            reply: false,
            reset_after: None,
            refuse: None,
            stalled: false,
            slow: None,
            stalls_after: None,
            dead: false,
            client: IpAddr::from([1; 16]),
        }
    }

    /// A connection of `client` to a server that does not answer.
    pub fn dead(up: u64, client: IpAddr) -> Self {
        Self { dead: true, client, ..Self::new(up, 0) }
    }
}

/// One side of a stream.
#[derive(Debug, Default)]
pub struct Flow {
    pub plan: usize,
    /// 0 for the opener, 1 for the acceptor.
    side: usize,
    sent: u64,
    finished: bool,
    pub received: u64,
    pub accepted: bool,
    /// The other side's end has been read.
    pub ended: bool,
    pub reset: Option<ResetReason>,
    pub closed: bool,
    pub first_byte: Option<Instant>,
    pub last_byte: Option<Instant>,
    next_read: Instant,
}

impl Flow {
    fn new(plan: usize, side: usize) -> Self {
        Self { plan, side, ..Self::default() }
    }

    pub fn is_over(&self) -> bool {
        self.closed || self.reset.is_some()
    }
}

/// An endpoint and its users.
pub struct Host {
    pub endpoint: Endpoint,
    pub session: Option<SessionId>,
    pub plans: Vec<Plan>,
    pub flows: BTreeMap<StreamId, Flow>,
    /// Streams that are not over.
    active: BTreeSet<StreamId>,
    /// Session events with their times.
    pub log: Vec<(Instant, Event)>,
    /// Flows of sessions that ended.
    pub lost_flows: usize,
    me: usize,
    /// This side's port as seen by the other; it changes when the side moves.
    pub port: u16,
    now: Instant,
}

/// Period of the test data, a prime.
const PATTERN: u64 = 65_521;
/// Maximum number of bytes read or written at once.
pub const PIECE: usize = 8192;

/// What `side` sends on a plan's stream from `offset` on, at most [`PIECE`] bytes.
pub fn bytes(plan: usize, side: usize, offset: u64, count: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let mix = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let all = BYTES.get_or_init(|| {
        (0..PATTERN + PIECE as u64).map(|i| mix((i % PATTERN) * (i % PATTERN + 7))).collect()
    });
    let start = (offset + (plan * 2 + side) as u64 * 7919) % PATTERN;
    &all[start as usize..][..count]
}

fn address(peer: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, peer as u8], port))
}

impl Host {
    /// Opens the stream of a plan.
    pub fn open(&mut self, now: Instant, plan: usize) -> Result<StreamId, StreamError> {
        let session = self.session.ok_or(StreamError::NoSession)?;
        let source = SocketAddr::new(self.plans[plan].client, 7);
        let open = StreamOpening {
            destination: address(9, plan as u16),
            source,
            dscp: Some(plan as u8 % 64),
        };
        let id = self.endpoint.open(now, session, open)?;
        self.flows.insert(id, Flow::new(plan, 0));
        if self.plans[plan].dead {
            let count = self.plans[plan].bytes[0] as usize;
            self.endpoint.write(session, id, bytes(plan, 0, 0, count))?;
        } else {
            self.active.insert(id);
        }
        self.pump();
        Ok(id)
    }

    fn pump(&mut self) {
        while let Some((session, event)) = self.endpoint.poll_event() {
            self.on_event(session, event);
        }
        self.forget_ended();
        let ids: Vec<StreamId> = self.active.iter().copied().collect();
        for id in ids {
            self.read(id);
            self.write(id);
        }
        while let Some((session, event)) = self.endpoint.poll_event() {
            self.on_event(session, event);
        }
        self.forget_ended();
    }

    fn forget_ended(&mut self) {
        let flows = &self.flows;
        self.active.retain(|id| flows.get(id).is_some_and(|flow| !flow.is_over()));
    }

    fn on_event(&mut self, session: SessionId, event: Event) {
        match event {
            Event::Up { .. } => self.session = Some(session),
            Event::Down(_) if self.session == Some(session) => self.session = None,
            Event::Opened { stream, ref open } => {
                let Destination::Address(to) = open.destination else { panic!("{open:?}") };
                assert_eq!(to.ip(), address(9, 0).ip());
                let plan = usize::from(open.destination.port());
                self.flows.insert(stream, Flow::new(plan, 1));
                if !self.plans[plan].dead {
                    self.active.insert(stream);
                    self.on_opened(session, stream, plan);
                }
            }
            Event::Accepted(id) => self.flow(id).accepted = true,
            Event::Reset { stream, reason } => self.flow(stream).reset = Some(reason),
            Event::Closed(id) => {
                let flow = self.flow(id);
                assert!(flow.ended && flow.finished && !flow.closed);
                flow.closed = true;
            }
            _ => {}
        }
        if matches!(
            event,
            Event::Up { .. } | Event::Down(_) | Event::Reachable | Event::Unreachable
        ) {
            if matches!(event, Event::Down(_)) {
                self.lost_flows += self.flows.len();
                self.flows.clear();
            }
            self.log.push((self.now, event));
        }
    }

    fn on_opened(&mut self, session: SessionId, stream: StreamId, plan: usize) {
        // The opener may have already reset the stream; that event follows.
        match self.plans[plan].refuse {
            Some(reason) => {
                let refused = self.endpoint.reset(session, stream, reason).is_ok();
                self.flow(stream).reset = refused.then_some(reason);
            }
            None => _ = self.endpoint.accept(session, stream),
        }
    }

    fn flow(&mut self, id: StreamId) -> &mut Flow {
        self.flows.get_mut(&id).expect("a flow for every stream")
    }

    fn read(&mut self, id: StreamId) {
        let Some(session) = self.session else { return };
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let plan = &self.plans[flow.plan];
        if flow.ended || flow.side == 1 && plan.stalled {
            return;
        }
        let mut most = usize::MAX;
        if let Some(enough) = plan.stalls_after
            && flow.side == 0
        {
            most = usize::try_from(enough.saturating_sub(flow.received)).unwrap_or(most);
        }
        if let Some((bytes, every)) = plan.slow
            && flow.side == 0
        {
            if flow.next_read > self.now {
                return;
            }
            flow.next_read = self.now + every;
            most = bytes;
        }
        let mut buf = [0; PIECE];
        while most > 0 {
            let room = most.min(buf.len());
            match self.endpoint.read(session, id, &mut buf[..room]) {
                Ok(ReadOutcome::Data(count)) => {
                    let want = bytes(flow.plan, 1 - flow.side, flow.received, count);
                    assert!(buf[..count] == *want, "stream {id:?} at {}", flow.received);
                    flow.first_byte.get_or_insert(self.now);
                    flow.last_byte = Some(self.now);
                    flow.received += count as u64;
                    most -= count;
                }
                Ok(ReadOutcome::End) => {
                    assert_eq!(flow.received, plan.bytes[1 - flow.side], "stream {id:?} was cut");
                    flow.ended = true;
                    break;
                }
                Ok(ReadOutcome::Blocked) => break,
                Err(error) => panic!("reading {id:?}: {error}"),
            }
        }
        if flow.side == 0
            && !flow.ended
            && plan.reset_after.is_some_and(|after| flow.received >= after)
        {
            self.endpoint.reset(session, id, ResetReason::Reset).unwrap();
            self.flow(id).reset = Some(ResetReason::Reset);
        }
    }

    fn write(&mut self, id: StreamId) {
        let Some(session) = self.session else { return };
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let plan = &self.plans[flow.plan];
        if flow.finished || flow.is_over() || flow.side == 1 && plan.reply && !flow.ended {
            return;
        }
        let total = plan.bytes[flow.side];
        while flow.sent < total {
            let count = (total - flow.sent).min(PIECE as u64) as usize;
            let bytes = bytes(flow.plan, flow.side, flow.sent, count);
            match self.endpoint.write(session, id, bytes) {
                Ok(0) => return,
                Ok(count) => flow.sent += count as u64,
                // Reset; reported after everything has been read.
                Err(StreamError::NoStream) => return,
                Err(error) => panic!("writing {id:?}: {error}"),
            }
        }
        flow.finished = self.endpoint.finish(session, id).is_ok();
    }

    /// When a slow reader next reads.
    fn next_read(&self) -> Option<Instant> {
        let slow = |flow: &&Flow| flow.side == 0 && self.plans[flow.plan].slow.is_some();
        let active = self.active.iter().filter_map(|id| self.flows.get(id));
        active
            .filter(|flow| !flow.is_over() && !flow.ended)
            .filter(slow)
            .map(|flow| flow.next_read)
            .min()
    }
}

impl Machine for Host {
    type Wake = String;

    fn poll_timeout(&self) -> Option<(Instant, String)> {
        let own = self.next_read().map(|time| (time, "slow reader".to_owned()));
        let endpoint = self.endpoint.poll_timeout().map(|(time, why)| (time, format!("{why:?}")));
        units::earliest(own, endpoint)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.endpoint.handle_timeout(now);
        self.pump();
    }
}

impl Peer for Host {
    fn receive(&mut self, now: Instant, from: usize, mut datagram: Vec<u8>) {
        self.now = now;
        // The ports are appended to the datagram, because either side may move.
        let ports = datagram.split_off(datagram.len() - 4);
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        if port(2) != self.port {
            return;
        }
        let from = address(from, port(0));
        self.endpoint.handle_datagram(now, from, &mut datagram);
        self.pump();
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        self.now = now;
        let mut datagram = Vec::new();
        let to = self.endpoint.poll_transmit(now, &mut datagram)?;
        self.pump();
        datagram.extend_from_slice(&self.port.to_be_bytes());
        datagram.extend_from_slice(&to.port().to_be_bytes());
        Some((1 - self.me, datagram))
    }
}

/// The link between the two: rates from hub and from terminal, one-way delay,
/// loss.
#[derive(Debug, Clone)]
pub struct Hop {
    pub forward: BitRate,
    pub ret: BitRate,
    pub delay: Duration,
    /// Replaces `delay`, which still determines the queues.
    pub path: Option<Delay>,
    pub loss: LossModel,
    pub outages: Vec<Outage>,
    pub seed: u64,
    pub configure: fn(&mut Config),
}

impl Hop {
    pub fn geo(per: f64, seed: u64) -> Self {
        Self {
            forward: BitRate::from_mbit(50),
            ret: BitRate::from_mbit(10),
            delay: Duration::from_millis(300),
            path: None,
            loss: LossModel::Per(Probability::new(per).unwrap()),
            outages: Vec::new(),
            seed,
            configure: |_| {},
        }
    }

    pub fn link(&self, rate: BitRate) -> LinkConfig {
        let bdp = rate.bytes_in(self.delay * 2).get().max(30_000);
        let delay = self.path.clone().unwrap_or_else(|| self.delay.into());
        let queue = QueueLimit::Bytes(ByteCount::new(bdp));
        let link = LinkConfig::new(rate, delay, self.loss.clone(), queue);
        LinkConfig { outages: self.outages.clone(), ..link }
    }

    pub fn host(&self, me: usize, plans: &[Plan], life: u8) -> Host {
        let mut config = Config::new(if me == HUB { self.forward } else { self.ret });
        (self.configure)(&mut config);
        self.host_with(config, me, plans, life)
    }

    /// [`Self::host`] with that configuration.
    pub fn host_with(&self, config: Config, me: usize, plans: &[Plan], life: u8) -> Host {
        let key = |seed: u8| KeyPair::from_private([seed; 32]);
        let (terminal, hub) = (key(1), key(2));
        let mut seed = [me as u8; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[9] = life;
        let endpoint = if me == HUB {
            Endpoint::hub(config, hub, vec![terminal.public()], seed)
        } else {
            Endpoint::terminal(config, terminal, hub.public(), vec![address(HUB, 1)], seed)
        };
        Host {
            endpoint,
            session: None,
            plans: plans.to_vec(),
            flows: BTreeMap::new(),
            active: BTreeSet::new(),
            log: Vec::new(),
            lost_flows: 0,
            me,
            port: 1,
            now: Instant::ZERO,
        }
    }

    /// A terminal and a hub that know each other, before anything has happened.
    pub fn net(&self, plans: &[Plan]) -> Net<Host> {
        let hosts = vec![self.host(TERMINAL, plans, 0), self.host(HUB, plans, 0)];
        let mut net = Net::new(hosts, self.seed);
        // Four bytes of every datagram belong to the test.
        net.set_overhead(link::testkit::UDP_IPV4_OVERHEAD - 4);
        net.connect(HUB, TERMINAL, self.link(self.forward));
        net.connect(TERMINAL, HUB, self.link(self.ret));
        net
    }

    /// The same, after the session has been set up.
    pub fn connected(&self, plans: &[Plan]) -> Net<Host> {
        let mut net = self.net(plans);
        net.run_until(|hosts| hosts.iter().all(|host| host.session.is_some()), at(30.0)).unwrap();
        net
    }

    /// A host that has lost all its state.
    pub fn restarted(&self, me: usize, plans: &[Plan]) -> Host {
        self.host(me, plans, 1)
    }
}

pub fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

/// Opens all plans from one side at once.
pub fn open_all(net: &mut Net<Host>, from: usize) {
    let now = net.now();
    let host = &mut net.peers_mut()[from];
    for plan in 0..host.plans.len() {
        host.open(now, plan).unwrap();
    }
}

/// Runs until every stream is over and forgotten on both sides, for at most `seconds`. A stream
/// that is reset at once may never be heard of.
pub fn run_to_end(net: &mut Net<Host>, seconds: f64) -> Instant {
    let deadline = net.now() + Duration::from_secs_f64(seconds);
    let over = |host: &Host| {
        host.flows.values().all(Flow::is_over)
            && host.session.and_then(|id| host.endpoint.stats(id)).is_none_or(|s| s.streams == 0)
    };
    net.run_until(|hosts| hosts.iter().all(over), deadline)
        .unwrap_or_else(|stalled| panic!("{stalled}\n{:#?}", unfinished(net)))
}

fn unfinished(net: &Net<Host>) -> Vec<(&StreamId, &Flow)> {
    let flows = net.peers().iter().flat_map(|host| &host.flows);
    flows.filter(|(_, flow)| !flow.is_over()).take(8).collect()
}
